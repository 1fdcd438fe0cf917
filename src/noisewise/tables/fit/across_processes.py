"""Files that several processes (ranks, or workers on Ray) read for one fit, each process its own pieces.

Rank 0 deals, all that hold rows read, rank 0 trains.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...methods import makes_a_promise
from ...remote.holder import Holder, Holding, serve
from ...remote.processes import Lead, PiecePlaces, RowsElsewhere, ShapeElsewhere
from ...remote.transport import Transport
from ...train import Records
from ...trusted.process import own_settings
from ...trusted.stores.grid import in_memory
from ..encode import Encoder
from ..file_pieces import FilePiece, lengths_of, pieces_of, read_pieces
from ..files import Dialect, Paths, Share, Source, open_source
from ..persons import Mask
from ..refusal import Refusal, our_words
from ..rows import Scaling
from ..schema import Schema
from .build import store_for
from .fit import Fit
from .fitted import Fitted
from .labels import Classes, ClassesOrTarget, numbers_of_files


def lead_files(line: Transport) -> Lead:
    """Rank 0 of torchrun, whose ranks hold pieces of files."""
    return Lead(line, _holder())


def lead_workers(workers: int | None = None, address: str | None = None) -> Lead:
    """Leads workers on Ray that hold pieces of files; this process holds none. ``address``: of a cluster that is there."""
    from ...remote.workers import RayCluster, WorkerLine

    return Lead(WorkerLine(RayCluster(_holder, workers=workers, address=address)), _holder(), holds=False)


def serve_files(line: Transport) -> Any:
    """Serve rank 0 from another rank: read, hold and add up what it asks for, until it ends the run."""
    return serve(line, _holder())


def _holder() -> Holder:
    return Holder({"files": _hold_files}, said=(Refusal,))


@contextmanager
def elsewhere(records: str | None, workers: int | None = None, address: str | None = None) -> Iterator[Lead | None]:
    """Workers on Ray while they are needed if ``records`` is "ray"; None if it is None."""
    if records is None:
        if workers is not None or address is not None:
            raise ValueError("ray_workers and ray_address say where records on Ray lie; pass records='ray', too")
        yield None
        return
    if records != "ray":
        raise ValueError(f"records is {records!r}; pass 'ray', or None for this process")
    leader = lead_workers(workers, address)
    try:
        yield leader
    finally:
        leader.close()


def spread_files(
    lead: Lead,
    paths: Paths,
    asked: Fit,
    *,
    separator: str | Dialect | None = None,
    cache: str | Path | None = None,
    progress: Share | None = None,
    counted: Mask | None = None,
) -> Records:
    """Rows of files at all ranks, read and checked; cells that the schema refuses are refused here, in our own words.

    ``progress`` hears when all have read.
    """
    if not makes_a_promise(asked.method):
        raise ValueError(f"{asked.method.name} sees plain rows, which lie at several ranks; run it in one process")
    assert asked.encoder is not None
    made = _Made(asked.encoder.schema, asked.scaling, asked.labels, asked.model.loss.task == "classes")
    rows = spread_rows(lead, paths, made, separator=separator, cache=cache, counted=counted)
    if progress is not None:
        progress(1.0)
    return Records(rows, ShapeElsewhere((len(rows),)), counted=counted)


class _Made(NamedTuple):
    """How cells become rows and labels; ``integers``: labels are class numbers."""

    schema: Schema
    scaling: Scaling
    labels: ClassesOrTarget
    integers: bool


def spread_test_rows(
    lead: Lead,
    paths: Paths,
    fitted: Fitted,
    *,
    separator: str | Dialect | None = None,
    counted: Mask | None = None,
) -> tuple[RowsElsewhere, ShapeElsewhere]:
    """Rows at all ranks to score a fitted model on, and their labels."""
    assert fitted.encoder is not None
    whole = isinstance(fitted.labels, Classes) and fitted.labels.numbered
    made = _Made(fitted.encoder.schema, fitted.scaling, fitted.labels, whole)
    rows = spread_rows(lead, paths, made, separator=separator, counted=counted)
    return rows, ShapeElsewhere((len(rows),))


def spread_rows(
    lead: Lead,
    paths: Paths,
    made: _Made,
    *,
    separator: str | Dialect | None = None,
    cache: str | Path | None = None,
    counted: Mask | None = None,
) -> RowsElsewhere:
    """Rows of files at all ranks, each of its own pieces."""
    source = open_source(paths, separator=separator)
    pieces = pieces_of(source)
    dealt = lead.deal(len(pieces))
    masks = None if counted is None else _masks(source, pieces, Encoder(made.schema), counted)
    lengths = lead.each(
        "make",
        [
            ("files", numbers, [pieces[number] for number in numbers], tuple(made), separator, cache,
             None if masks is None else [masks[number] for number in numbers], lead.holds)
            for numbers in dealt
        ],
        dealt=dealt,
    )  # fmt: skip
    places = PiecePlaces(dealt, lengths)
    if places.records == 0 and counted is None:
        raise Refusal(f"{source.files[0].path}: has column names but no rows; pass a file with records")
    return RowsElsewhere(lead, places, made.scaling.features)


def _masks(source: Source, pieces: tuple[FilePiece, ...], encoder: Encoder, counted: Mask) -> list[Mask]:
    """Which rows of each piece count."""
    with our_words(f"{source.files[0].path}: cannot be read; write it anew"):
        ends = np.cumsum(lengths_of(source, pieces, encoder.columns[0]))
    if ends[-1] != len(counted):
        raise Refusal(f"{source.files[0].path}: has changed while it was read; try again")
    return np.split(counted, ends[:-1])


def _hold_files(
    numbers: tuple[int, ...],
    pieces: list[FilePiece],
    how: tuple[Schema, Scaling, ClassesOrTarget, bool],
    separator: str | Dialect | None,
    cache: str | Path | None,
    counted: list[Mask] | None,
    mapped: bool = True,
) -> Holding:
    """A rank's pieces of files as rows that a curator takes; ``mapped``: many are laid out in a file, not in memory."""
    made = _Made(*how)
    encoder, scaling = Encoder(made.schema), made.scaling
    rows, lengths = read_pieces(pieces, encoder, scaling, separator=separator, cache=cache, counted=counted)
    assert rows.y is not None
    with own_settings():
        y = numbers_of_files(made.labels, encoder.classes, rows.y, rows.there)
        kind: Any = np.int64 if made.integers else np.float32
        large = mapped or cache is not None
        store = store_for(rows.X.nbytes, cells=scaling.cells, cache=cache) if large else in_memory
        labels = np.asarray(y, kind)
        return Holding(tuple(numbers), tuple(lengths), rows.X, labels, store, mark=_mark(rows.X, labels))


def _mark(*rows: NDArray[Any]) -> bytes:
    """A digest that identifies rows; as private as they are."""
    made = hashlib.blake2b(digest_size=32)
    for array in rows:
        made.update(np.ascontiguousarray(array).data)
    return made.digest()
