"""Private records of a linear model: exact integer totals of whatever a question needs.

Plain gradients, the bulk of all work, come from the kernels. Rarer questions are computed here in chunks: scores are products of
integers below 2^53, which double precision holds exactly in any order of summation, and everything else depends on one record
only: elementwise, or summed column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import elementwise as plain
from ..models import Model
from . import reference
from .grid import BOUND, Allocator, GridRows, arithmetic, in_memory, in_new_basis, longest, power_of_two_above
from .protocol import HeldRecords
from .threads import threads, together
from .totals import Drawn, FloatRows, Floats, Integers, IntegerTotal, clipped

FINE = 1 << 30  # of a number that one record adds: a loss, a step of a ramp, an entry of a vector
ROW = 1 << 18  # length of a row of norm 1 in statistics
MAX_ROWS_PER_SUM = 1 << 16  # of a chunk: sums of squares stay below 2^53, where doubles are exact
LABEL = 1 << 16
RAMP = 0.1  # a norm counts as short below 0.9, as long above 1.1 thresholds, and in proportion between
MIN_PARALLEL_ENTRIES = 1 << 19  # of a sum, from which a second thread pays
NONE = np.empty(0, np.int64)
MIN_ENTRY = 1e-100
NUMBERS_AT_ONCE = 1 << 21


@dataclass(frozen=True, slots=True, repr=False)
class LinearRecords(HeldRecords):
    """Rows on the grid, and the loss they are scored by; several outputs are the rows of theta as a matrix."""

    rows: GridRows
    loss: Any
    outputs: int = 1

    @property
    def coordinates(self) -> bool:
        return True

    @property
    def columns(self) -> int:
        return self.rows.columns

    def __len__(self) -> int:
        return len(self.rows)

    def float_rows(self) -> FloatRows:
        """Rows and labels in double precision; a row that is not alive is zero."""
        rows = self.rows.directions(slice(None)).astype(np.float64) * self.rows.reach.astype(np.float64)[:, None]
        return FloatRows(rows, self.labels(slice(None)))

    def in_basis(self, matrix: Floats, store: Allocator = in_memory) -> LinearRecords:
        """The same records with every row x replaced by x @ matrix."""
        return replace(self, rows=in_new_basis(self.rows, matrix, store))

    def gradients(self, drawn: Drawn, theta: Floats, clip: float) -> IntegerTotal:
        """The sum of gradients, each clipped to norm ``clip``: M stands for it."""
        matrix, gain, (kernel, plainly) = self._matrix(theta), BOUND / clip, self._kernels()
        if self.loss.kernel is None or kernel is plainly:
            add = plainly.sum_one if self.outputs == 1 else plainly.sum_classes
            total = add(self.rows, self._everyone(drawn), matrix, gain, self.loss)
        else:
            total = self._compiled(kernel, drawn.rows, matrix, gain)
        return IntegerTotal(total[:, : self.rows.columns].ravel(), BOUND, clip)

    def _kernels(self) -> tuple[Any, Any]:
        """The module whose kernels are in use, and the reference."""
        return arithmetic(), reference

    def _everyone(self, drawn: Drawn) -> Integers:
        return np.arange(len(self)) if drawn.rows is None else drawn.rows

    def _compiled(self, kernel: Any, chosen: Integers | None, theta: Floats, gain: float) -> Integers:
        rows, (number, width, weights) = self.rows, kernel.options(self.loss)
        which, n = (NONE, len(rows)) if chosen is None else (chosen, len(chosen))
        shape = (self.outputs, rows.X.shape[1])
        drawn = (rows.y, which, chosen is None, theta, gain)
        if self.outputs == 1:
            options = (number, width, *(weights or (1.0, 1.0)))
            return in_parallel(kernel.sum_one, (rows.X, rows.reach, rows.most, *drawn, *options), n, shape)
        per_class = np.array(weights or (1.0,) * self.outputs)
        return in_parallel(kernel.sum_classes, (rows.X, rows.reach, rows.squares, *drawn, per_class), n, shape)

    def vectors(
        self, drawn: Drawn, theta: Floats, clip: float, *, scale: Floats | None, basis: Floats | None
    ) -> IntegerTotal:
        """The sum of gradients seen in other coordinates, divided by ``scale`` or projected on ``basis``, clipped there."""
        total = np.zeros(len(theta) if basis is None else basis.shape[1], np.int64)
        for _, seen in self._seen(drawn, theta, scale, basis):
            total += clipped(seen, plain.lengths(seen), clip, FINE).sum(0)
        return IntegerTotal(total, FINE, clip)

    def short(
        self,
        drawn: Drawn,
        theta: Floats,
        threshold: float,
        *,
        scale: Floats | None = None,
        basis: Floats | None = None,
    ) -> IntegerTotal:
        """How many gradients are short: +1/2 below 0.9 thresholds, -1/2 above 1.1, a ramp between; -1/2 for dead rows."""
        total = 0
        for here, lengths in self._lengths(drawn, theta, scale, basis):
            total += int(ramp(lengths, self.rows.alive[here], threshold).sum())
        return IntegerTotal(np.array([total]), FINE, 0.5)

    def losses(self, drawn: Drawn, thetas: Sequence[Floats], bound: float) -> IntegerTotal:
        """The sum of losses cut to [0, bound] at each theta; one that is not finite counts as the bound."""
        totals, at = np.zeros(len(thetas), np.int64), self._fine(thetas)
        for here in self.parts(drawn):
            labels, alive = self.labels(here), self.rows.alive[here]
            for i, scores in enumerate(self._scores(here, *at)):
                totals[i] += int(cut_losses(self.loss.row_value(scores, labels), alive, bound).sum())
        return IntegerTotal(totals, FINE, bound)

    def _matrix(self, theta: Floats) -> Floats:
        """The rows of theta; an entry whose square would underflow counts as zero."""
        wide = theta.astype(np.float64, copy=False)
        if wide is theta:  # single precision has no such numbers
            wide = np.where(np.abs(wide) < MIN_ENTRY, 0.0, wide)
        return wide.reshape(self.outputs, -1)

    def scores(self, here: Integers | slice, theta: Floats) -> Floats:
        """Scores of some records, from exact products of theta on a fine grid: (n,), or (n, outputs)."""
        return next(self._scores(here, *self._fine([theta])))

    def _fine(self, thetas: Sequence[Floats]) -> tuple[Floats, list[float]]:
        """Thetas as columns of whole numbers of norm below 2^37, side by side, and the power of two that scales each."""
        matrices = [self._matrix(theta) for theta in thetas]
        grids = [power_of_two_above(longest(matrix) / 2.0**36) for matrix in matrices]
        whole = [np.rint(matrix / grid) for matrix, grid in zip(matrices, grids, strict=True)]
        return np.concatenate(whole).T, grids

    def _scores(self, here: Integers | slice, whole: Floats, grids: Sequence[float]) -> Iterator[Floats]:
        """Scores at each theta. Products of integers below 2^53 are exact in any order of summation."""
        products = self.rows.directions(here).astype(np.float64) @ whole
        reach = self.rows.reach[here].astype(np.float64)
        for i, grid in enumerate(grids):
            scores = products[:, i * self.outputs : (i + 1) * self.outputs] * (reach * grid)[:, None]
            yield scores[:, 0] if self.outputs == 1 else scores

    def unit_rows(self, drawn: Drawn) -> Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]:
        """Chunks of records: rows of norm at most 1 in whole numbers (``ROW`` stands for 1), labels, who is alive."""
        for here in self.parts(drawn):
            yield unit_rows(self.rows, here), self.labels(here), self.rows.alive[here]

    def row_sum(self, drawn: Drawn) -> IntegerTotal:
        """Sum of x, rows cut to norm 1."""
        total = np.zeros(self.columns, np.int64)
        for rows, _, _ in self.unit_rows(drawn):
            total += rows.sum(0).astype(np.int64)  # integers below 2^53: exact
        return IntegerTotal(total, ROW, 1.0)

    def scored(self, drawn: Drawn, theta: Floats) -> Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]:
        """Chunks of records: scores, labels, who is alive."""
        for here in self.parts(drawn):
            yield self.scores(here, theta), self.labels(here), self.rows.alive[here]

    def labels(self, here: Integers | slice) -> NDArray[Any]:
        y = self.rows.y[here]
        return y.astype(np.int64) if y.dtype == np.int32 else y.astype(np.float64)

    def _slopes(self, here: Integers | slice, theta: Floats) -> Floats:
        """c with gradient c x_q, one row per record."""
        slopes = self.loss.row_slope(self.scores(here, theta), self.labels(here))
        return np.asarray(slopes.reshape(len(slopes), -1) * self.rows.reach[here].astype(np.float64)[:, None])

    def _lengths(
        self, drawn: Drawn, theta: Floats, scale: Floats | None, basis: Floats | None
    ) -> Iterator[tuple[Integers | slice, Floats]]:
        """The length of every record's gradient in the coordinates asked for."""
        if scale is None and basis is None:
            for here in self.parts(drawn):
                squares = self.rows.squares[here].astype(np.float64)
                yield here, plain.lengths(self._slopes(here, theta)) * np.sqrt(squares)
        else:
            for here, seen in self._seen(drawn, theta, scale, basis):
                yield here, plain.lengths(seen)

    def _seen(
        self, drawn: Drawn, theta: Floats, scale: Floats | None, basis: Floats | None
    ) -> Iterator[tuple[Integers | slice, Floats]]:
        """Every record's gradient in the coordinates asked for, a chunk at a time."""
        columns, grid = self.rows.columns, power_of_two_above(1 / 2.0**36)
        width = len(theta) if basis is None else max(basis.shape[1], columns)
        blocks = None if basis is None else np.rint(basis.reshape(self.outputs, columns, -1) / grid)
        for here in self.parts(drawn, max((1 << 20) // width, 16)):
            slopes, X = self._slopes(here, theta), self.rows.directions(here).astype(np.float64)
            if blocks is None:
                assert scale is not None
                yield here, (slopes[:, :, None] * X[:, None, :]).reshape(len(X), -1) / scale
            else:
                seen = np.zeros((len(X), blocks.shape[2]))
                for k, block in enumerate(blocks):
                    seen = seen + slopes[:, k, None] * ((X @ block) * grid)
                yield here, seen

    def parts(self, drawn: Drawn, height: int | None = None) -> Iterator[Integers | slice]:
        """The batch in chunks that take 16 MB in double precision."""
        n = drawn.count(len(self))
        height = height or min(MAX_ROWS_PER_SUM, max(NUMBERS_AT_ONCE // self.rows.columns, 256))
        for start in range(0, n, height):
            here = slice(start, min(start + height, n))
            yield here if drawn.rows is None else drawn.rows[here]


def held(rows: GridRows, model: Model, store: Allocator) -> LinearRecords:
    """Rows of a linear model."""
    return LinearRecords(rows, model.loss, model.outputs)


def in_parallel(
    add: Callable[..., None], arguments: tuple[Any, ...], n: int, shape: tuple[int, int], entries: int | None = None
) -> Integers:
    """The sum over records 0 .. n-1, on as many threads as :func:`threads` allows: integers, so their number does not matter.

    ``add(start, stop, total, *arguments)`` adds the records from start to stop to a total; each has ``entries``, or else
    as many as the total has columns.
    """
    workers = threads() if n * (entries or shape[1]) >= MIN_PARALLEL_ENTRIES else 1
    if workers == 1:
        alone: Integers = np.zeros(shape, np.int64)
        add(0, n, alone, *arguments)
        return alone
    totals = np.zeros((2 * workers, *shape), np.int64)[::2]  # apart: no two threads write to one line of the cache
    ends = [n * i // workers for i in range(workers + 1)]
    together(lambda i: add(ends[i], ends[i + 1], totals[i], *arguments), range(workers))
    total: Integers = totals.sum(0)
    return total


def unit_rows(rows: GridRows, here: Integers | slice) -> Floats:
    """Rows cut to norm 1, as whole numbers of norm at most ``ROW``, truncated toward zero; checked in integers."""
    lengths = np.sqrt(np.maximum(rows.squares[here], 1).astype(np.float64))
    factor = np.minimum(rows.reach[here].astype(np.float64), 1 / lengths) * (ROW * (1 - 2.0**-40))
    whole = np.trunc(rows.directions(here).astype(np.float64) * factor[:, None])
    fits = (whole * whole).sum(1) <= ROW * ROW  # sums of integers below 2^53 are exact
    return np.where(fits[:, None], whole, 0.0)


def ramp(lengths: Floats, alive: NDArray[np.bool_], threshold: float, ones: int = FINE) -> Integers:
    """+ones (that is 1/2) for short, -ones for long or dead records, and a ramp between 0.9 and 1.1 thresholds."""
    share = np.minimum(np.maximum((threshold - lengths) / (2 * RAMP * threshold), -0.5), 0.5)
    return np.where(alive & ~np.isnan(share), np.rint(share * (2 * ones)), -float(ones)).astype(np.int64)


def cut_losses(values: Floats, alive: NDArray[np.bool_], bound: float, ones: int = FINE) -> Integers:
    """Losses cut to [0, bound] in units of bound/ones; what is not a number, or dead, counts as the bound."""
    share = np.where(alive & (values < bound), np.maximum(values, 0.0) / bound, 1.0)  # false for NaN
    return np.asarray(np.rint(share * ones), np.int64)
