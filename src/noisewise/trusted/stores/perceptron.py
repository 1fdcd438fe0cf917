"""Private records of a perceptron: exact integer sums, forward passes that do not depend on a record's company.

Rows stand on the grid like those of a linear model; passes run in single precision on padded chunks, every height of which is
tested before it is used (:mod:`noisewise.trusted.stores.perceptron_selftest`), and what they give is put into integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import Arithmetic
from ..models import MLP
from ..torch_extra import torch
from . import perceptron_selftest as selftest
from .grid import ROWS_PER_CHUNK, Allocator, GridRows, in_memory, in_new_basis
from .linear import LinearRecords, cut_losses, ramp
from .perceptron_exact import Piece, add_sum, norms, pieces, single_rows
from .perceptron_passes import height_for
from .perceptron_reference import bound_for
from .protocol import HeldRecords
from .threads import threads, together
from .totals import Drawn, FloatRows, Floats, IntegerTotal

RECORDS_PER_PASS = 512  # where no batch size is public
MIN_CLIP = 1e-20
COUNT = 1 << 20  # units of a count or a loss that one record adds at most
CHUNKS_PER_THREAD = 4  # that are worth a thread of their own
BOUNDED = Arithmetic(
    "bounded",
    (
        "AES is pseudo-random",
        "products of single precision give a row the same bits in every place and in every chunk height that was used, "
        "as tested before its first use",
    ),
)
R = TypeVar("R")


class PerceptronRecords(HeldRecords):
    """Rows on the grid, and a perceptron; what concerns rows alone is answered as for a linear model."""

    __slots__ = ("_model", "_plain", "_rows")

    def __init__(self, rows: GridRows, model: MLP) -> None:
        self._model, self._plain = model, LinearRecords(rows, model.loss, model.outputs)
        self._rows = single_rows(rows)

    @property
    def arithmetic(self) -> Arithmetic:
        return BOUNDED

    @property
    def columns(self) -> int:
        return self._plain.columns

    def __len__(self) -> int:
        return len(self._plain)

    def in_basis(self, matrix: Floats, store: Allocator = in_memory) -> PerceptronRecords:
        """The same records with every row x replaced by x @ matrix."""
        return PerceptronRecords(in_new_basis(self._plain.rows, matrix, store), self._model)

    def gradients(self, drawn: Drawn, theta: Floats, clip: float) -> IntegerTotal:
        """The sum of gradients, each clipped to norm ``clip``; one that is not finite counts as zero.

        *Sensitivity.* Every record adds an integer vector of norm at most ``bound`` that depends on the record, theta
        and clip alone.
        """
        if not MIN_CLIP <= clip <= 1 / MIN_CLIP:
            raise ValueError(f"clip is {clip!r}; pass a number between {MIN_CLIP} and {1 / MIN_CLIP}")
        bound = bound_for(self._model.sizes, _height(drawn))

        def fold(chunks: Iterator[Piece]) -> NDArray[np.int64]:
            total, fresh = np.empty(self._model.dimension, np.int64), True
            for piece in chunks:
                add_sum(piece, float(clip), bound, total, fresh=fresh)
                fresh = False
            if fresh:
                total[:] = 0
            return total

        total, *others = self._over(drawn, theta, fold)
        for part in others:
            total += part
        return IntegerTotal(total, bound, clip)

    def short(self, drawn: Drawn, theta: Floats, threshold: float, **seen: Any) -> IntegerTotal:
        """How many gradients are short, along a ramp."""

        def fold(chunks: Iterator[Piece]) -> int:
            return sum(int(ramp(norms(piece), piece.alive, threshold, COUNT).sum()) for piece in chunks)

        return IntegerTotal(np.array([sum(self._over(drawn, theta, fold))], np.int64), COUNT, 0.5)

    def losses(self, drawn: Drawn, thetas: Sequence[Floats], bound: float) -> IntegerTotal:
        """The sum of losses cut to [0, bound] at each theta; one that is not finite counts as the bound."""

        def fold(chunks: Iterator[Piece]) -> int:
            return sum(int(cut_losses(self._values(piece), piece.alive, bound, COUNT).sum()) for piece in chunks)

        totals = [sum(self._over(drawn, theta, fold, backwards=False)) for theta in thetas]
        return IntegerTotal(np.array(totals), COUNT, bound)

    def _values(self, piece: Piece) -> Floats:
        values = self._model.loss.value(piece.views.padded_scores, piece.views.labels)[: piece.count]
        return values.double().numpy()

    def unit_rows(self, drawn: Drawn) -> Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]:
        """Chunks of records, as for a linear model."""
        return self._plain.unit_rows(drawn)

    def row_sum(self, drawn: Drawn) -> IntegerTotal:
        """Sum of x, as for a linear model."""
        return self._plain.row_sum(drawn)

    def scored(self, drawn: Drawn, theta: Floats) -> Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]:
        """Scores, labels, who is alive; scores of one that is not are NaN."""
        for here in self._plain.parts(drawn, ROWS_PER_CHUNK):
            numbers = np.arange(here.start, here.stop) if isinstance(here, slice) else here
            scores = np.empty((len(numbers), self._model.outputs))

            def fold(chunks: Iterator[Piece], scores: Floats = scores) -> None:
                for piece in chunks:
                    part = piece.views.scores[: piece.count].numpy()
                    scores[piece.start : piece.start + piece.count] = np.where(piece.alive[:, None], part, math.nan)

            self._over(Drawn(numbers, _expected(drawn)), theta, fold, backwards=False)
            flat = scores[:, 0] if self._model.outputs == 1 else scores
            yield flat, self._plain.labels(here), self._plain.rows.alive[here]

    def float_rows(self) -> FloatRows:
        """Rows and labels in double precision."""
        return self._plain.float_rows()

    def _over(
        self, drawn: Drawn, theta: Floats, fold: Callable[[Iterator[Piece]], R], *, backwards: bool = True
    ) -> list[R]:
        """``fold`` of all chunks; where there are many, of each thread's share of them."""
        single = torch.from_numpy(np.ascontiguousarray(theta, dtype=np.float32))
        model, tallest = self._model, _height(drawn)
        exactly = selftest.way(model, tallest)
        starts = range(0, drawn.count(len(self)), tallest)

        def share(some: range) -> R:
            return fold(
                pieces(model, single, self._rows, drawn.rows, tallest, some, exactly=exactly, backwards=backwards)
            )

        workers = min(threads(), len(starts) // CHUNKS_PER_THREAD)
        if workers <= 1:
            return [share(starts)]
        return together(share, [starts[worker::workers] for worker in range(workers)])


def held(rows: GridRows, model: MLP, store: Allocator) -> PerceptronRecords:
    """Rows of a perceptron."""
    return PerceptronRecords(rows, model)


def _expected(drawn: Drawn) -> int:
    """From public facts alone: all records, or a batch whose size is not known to anyone, go in full chunks."""
    known = drawn.rows is not None and math.isfinite(drawn.expected)
    return min(math.ceil(drawn.expected), RECORDS_PER_PASS) if known else RECORDS_PER_PASS


def _height(drawn: Drawn) -> int:
    return height_for(_expected(drawn))
