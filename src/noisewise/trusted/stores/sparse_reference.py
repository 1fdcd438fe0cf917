"""The arithmetic of sparse rows in numpy integers: what the compiled kernels must give bit for bit.

A row has entries x_q at places that differ, a public centre m_q is taken from all rows, and reach = scale / 2^14:

    N^2 = sum of (x_q^2 - 2 x_q m_q) + |m_q|^2      exact: |x_q| <= 2^14, |m_q| <= 2^14 + sqrt(D)/2, so N < 2^16
    W = the largest integer with W N <= M           at most 2^20 - 1
    s = x_q . theta_q - m_q . theta_q               exact: |theta_q| < 2^15, so every part of either is below 2^31
    c = slope(s reach grid, y) reach M/C            the record's gradient is c (x_q - m_q) in units of C/M
    w = round(c), cut to [-W, W]                    so that |w (x_q - m_q)| <= M in integers
    total = sum of w x_q - (sum of w) m_q           integers, in any order

With |w| < 2^20 and fewer than 2^27 rows both sums stay below 2^62. With K outputs c is a vector, shortened to at most
M/N - sqrt(K)/2 and 2^20 - 1 before rounding, and w counts as zero unless sum of w_k^2 N^2 <= M^2 holds in integers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .grid import BOUND, DIRECTION, MAX_ROW_NORM
from .reference import on_grid, shortened
from .totals import Floats, Integers

if TYPE_CHECKING:
    from .sparse import SparseRows

MAX_WEIGHT = (1 << 20) - 1  # of W: rows nearer to the centre than 1/64 are clipped a little more than they need
ROWS_PER_CHUNK = 4096
SHORTER = DIRECTION * (1 - 2.0**-40)


def lay_out_entries(
    numbers: Floats,
    where: Integers,
    width: int,
    usable: NDArray[np.bool_],
    places: NDArray[np.int32],
    values: NDArray[np.int16],
    alive: NDArray[np.bool_],
) -> None:
    """Lay out rows, each by itself: rounded, or cut to norm 1 and truncated where the rounded row is longer than 2^14.

    A row is dead if it is not finite or too long, or if a place is repeated or out of range: all its entries are zero.
    """
    length = np.zeros(len(numbers))
    with np.errstate(all="ignore"):  # no record may raise or warn
        for column in numbers.T:
            length = length + column * column
        length = np.sqrt(length)
        in_order = np.sort(where, 1)
        fits = (in_order[:, 0] >= 0) & (in_order[:, -1] < width) & (in_order[:, 1:] != in_order[:, :-1]).all(1)
        good = usable & (length < MAX_ROW_NORM) & fits  # false for NaN
        over, finite = np.maximum(np.where(good, length, 1.0), 1.0), np.where(good[:, None], numbers, 0.0)
        near = np.rint(finite * (DIRECTION / over)[:, None])
        short = np.trunc(finite * (SHORTER / over)[:, None])
    entries = np.where((_squared(near) <= DIRECTION**2)[:, None], near, short)
    good = good & (_squared(entries) <= DIRECTION**2)  # always, as truncation lengthens nothing
    alive[:] = good
    kept = np.where(good[:, None], entries, 0.0)
    order = np.argsort(kept == 0, axis=1, kind="stable")  # what is not zero comes first, and sums stop there
    values[:] = np.take_along_axis(kept, order, 1)
    places[:] = np.take_along_axis(np.where(good[:, None], where, 0), order, 1)


def _squared(entries: Floats) -> Floats:
    """Squared lengths of whole numbers, exact in double precision."""
    return np.asarray((entries * entries).sum(1))


def measure(
    places: NDArray[np.int32],
    values: NDArray[np.int16],
    alive: NDArray[np.bool_],
    centre: Integers,
    squares: NDArray[np.int32],
    most: NDArray[np.int32],
) -> None:
    """N^2 and W of rows less a centre; zero for dead ones."""
    middle = int(centre @ centre)
    for start in range(0, len(values), ROWS_PER_CHUNK):
        here = slice(start, start + ROWS_PER_CHUNK)
        x = values[here].astype(np.int64)
        whole = (x * (x - 2 * centre[places[here]])).sum(1) + middle
        squares[here] = np.where(alive[here], whole, 0)
    most[:] = [min(math.isqrt(BOUND * BOUND // int(square)), MAX_WEIGHT) if square else 0 for square in squares]


def products(places: NDArray[np.int32], values: NDArray[np.int16], whole: Integers) -> Integers:
    """Each row's products with the columns of ``whole``, which the caller keeps below 2^63."""
    total = np.zeros((len(values), whole.shape[1]), np.int64)
    for place, value in zip(places.T, values.T, strict=True):
        total += value.astype(np.int64)[:, None] * whole[place]
    return total


def weighted(rows: SparseRows, chosen: Integers, weights: Integers) -> Integers:
    """Sum of w (x_q - m_q), with weights below 2^20, one per chosen record and output: (outputs, columns).

    A chunk's sums are below 2^12 2^34, which double precision holds exactly: places of a row differ.
    """
    total = -weights.sum(0)[:, None] * rows.centre
    for start in range(0, len(chosen), ROWS_PER_CHUNK):
        here = chosen[start : start + ROWS_PER_CHUNK]
        places, x = rows.places[here].ravel(), rows.values[here].astype(np.int64)
        for o, w in enumerate(weights[start : start + ROWS_PER_CHUNK].T):
            total[o] += np.bincount(places, (x * w[:, None]).ravel(), rows.columns).astype(np.int64)
    return np.asarray(total)


def sum_one(rows: SparseRows, chosen: Integers, theta: Floats, gain: float, loss: Any) -> Integers:
    """The clipped sum of a model with one output, in units of C/M."""
    z, _ = _scores(rows, chosen, theta)
    slope = loss.row_slope(z[:, 0], rows.y[chosen].astype(np.float64))
    most = rows.most[chosen].astype(np.float64)
    weights = np.minimum(np.maximum(np.rint(slope * (rows.reach[chosen] * gain)), -most), most)
    return weighted(rows, chosen, np.where(np.isnan(weights), 0.0, weights).astype(np.int64)[:, None])


def sum_classes(rows: SparseRows, chosen: Integers, theta: Floats, gain: float, loss: Any) -> Integers:
    """The clipped sum of a model with several outputs, in units of C/M: (outputs, columns)."""
    z, reach = _scores(rows, chosen, theta)
    c = loss.row_slope(z, rows.y[chosen].astype(np.int64)) * (reach * gain)[:, None]
    c = np.where(np.isfinite(c).all(1)[:, None], c, 0.0)
    squares = rows.squares[chosen].astype(np.int64)
    weights = np.rint(c * shortened(c, squares, MAX_WEIGHT)[:, None]).astype(np.int64)
    fits = (weights * weights).sum(1) * squares <= BOUND * BOUND
    return weighted(rows, chosen, weights * (fits & (squares > 0))[:, None])


def _scores(rows: SparseRows, chosen: Integers, theta: Floats) -> tuple[Floats, Floats]:
    narrow, grid = on_grid(theta, rows.columns)
    whole, reach = narrow.astype(np.int64).T, rows.reach[chosen]
    scores = products(rows.places[chosen], rows.values[chosen], whole) - rows.centre @ whole
    return scores.astype(np.float64) * (reach * grid)[:, None], reach
