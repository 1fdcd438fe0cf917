"""Files as pieces that different processes read: row groups of Parquet files, whole CSV files; none is ever cut.

Pieces are numbered in the order in which one process would read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .addresses import CHANGED, Pin, Place, pin_of, readable, refused
from .encode import Encoder
from .files import Dialect, Source, TableFile, open_source
from .refusal import Refusal, our_words
from .rows import NOT_READ, Rows, RowStore, Scaling, cut_batches, rows_of, single_rows

Mask = NDArray[np.bool_]
SINCE = "{}: has changed since the run began; start again"


class FilePiece(NamedTuple):
    """A row group of a Parquet file, or a whole CSV file, in the version that was there when pieces were dealt."""

    path: Place
    group: int | None
    pin: Pin


class Pinned:
    """The present versions of files, for several passes over them: one to choose which rows count, one to read them."""

    def __init__(self, files: Iterable[Place]) -> None:
        self._pins = {path: pin_of(path) for path in files}

    def check(self) -> None:
        """Refuse a file that has changed; called after the last pass, and before anything is used."""
        for path, pin in self._pins.items():
            if pin_of(path) != pin:
                raise Refusal(CHANGED.format(path))


def pieces_of(source: Source) -> tuple[FilePiece, ...]:
    """The pieces of files, in order; only the metadata of the files is read."""
    found: list[FilePiece] = []
    for file in source.files:
        pin = pin_of(file.path)  # before its row groups are counted, so that none can be missed
        if file.types is None:
            found.append(FilePiece(file.path, None, pin))
        else:
            found += [FilePiece(file.path, group, pin) for group in range(len(_groups(file)))]
    if not found:
        raise Refusal(f"{source.files[0].path}: has column names but no rows; pass a file with records")
    return tuple(found)


def lengths_of(source: Source, pieces: Sequence[FilePiece], column: str) -> list[int]:
    """How many rows each piece has; of a CSV, ``column`` is read to count them. Private."""
    files = {file.path: file for file in source.files}
    groups = {file.path: _groups(file) for file in source.files if file.types is not None}
    return [_count(files[path], column) if group is None else groups[path][group] for path, group, _ in pieces]


def read_pieces(
    pieces: Sequence[FilePiece],
    encoder: Encoder,
    scaling: Scaling,
    *,
    separator: str | Dialect | None = None,
    cache: str | Path | None = None,
    counted: Sequence[Mask] | None = None,
) -> tuple[Rows, list[int]]:
    """Read, encode and scale pieces, one after the other, as ``read_rows`` does with whole files; rows of each that count.

    ``counted``: for each piece, which of its rows count. A file that is no longer what it was when its pieces were dealt is
    refused, also where it is replaced while it is read.
    """
    lengths: list[int] = []
    # a batch without rows, so that a rank without any has labels of the right type
    nobody = [pa.array([], pa.string())] * len(encoder.columns)
    labels: list[NDArray[Any]] = [encoder.labels(pa.RecordBatch.from_arrays(nobody, names=list(encoder.columns)))]
    with RowStore(scaling.features, cache, scaling.kept) as store:
        store.append(np.empty((0, scaling.features), scaling.kept))
        opened: dict[Place, TableFile] = {}
        for number, piece in enumerate(pieces):
            with our_words(NOT_READ.format(piece.path)), _unchanged(piece):
                source = _source(piece, opened, separator)
                mask, read, kept = None if counted is None else counted[number], 0, 0
                for batch in cut_batches(source, encoder):
                    here = slice(None) if mask is None else mask[read : read + batch.num_rows]
                    read += batch.num_rows
                    if mask is not None and read > len(mask):
                        raise Refusal(CHANGED.format(piece.path))
                    rows = single_rows(encoder, scaling, batch)[here]
                    store.append(rows)
                    labels.append(encoder.labels(batch)[here])
                    kept += len(rows)
                if mask is not None and read < len(mask):
                    raise Refusal(CHANGED.format(piece.path))
            lengths.append(kept)
        with our_words("the rows find no place; check memory and the folder for rows"):
            return rows_of(store, np.concatenate(labels), encoder), lengths


@contextmanager
def _unchanged(piece: FilePiece) -> Iterator[None]:
    """Refuse a file that has changed, before and after it is read; this replaces errors that come from reading two versions."""
    _check(piece)
    try:
        yield
    except Exception:
        _check(piece)
        raise
    _check(piece)


def _check(piece: FilePiece) -> None:
    if pin_of(piece.path) != piece.pin:
        raise Refusal(SINCE.format(piece.path))


def _source(piece: FilePiece, opened: dict[Place, TableFile], separator: str | Dialect | None) -> Source:
    if piece.path not in opened:
        opened[piece.path] = open_source(piece.path, separator=separator).files[0]
    groups = None if piece.group is None else (piece.group,)
    return Source((replace(opened[piece.path], groups=groups),), part=True)


def _groups(file: TableFile) -> list[int]:
    """The lengths of a Parquet file's row groups."""
    from pyarrow.parquet import ParquetFile

    try:
        with readable(file.path) as opened, ParquetFile(opened) as stored:
            return [stored.metadata.row_group(group).num_rows for group in range(stored.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise refused(file.path, error, f"{file.path}: is damaged or cut short; write it anew") from None


def _count(file: TableFile, column: str) -> int:
    return sum(batch.num_rows for batch in Source((file,), part=True).batches([column]))
