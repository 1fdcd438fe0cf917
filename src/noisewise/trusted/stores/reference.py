"""The arithmetic of linear models in numpy integers: what the compiled kernels must give bit for bit.

    s = x_q . theta_q                       exact: |x_q| < 2^15, |theta_q| < 2^15
    c = slope(s reach grid, y) reach M/C    the record's gradient is c x_q in units of C/M
    w = round(c), cut to [-W, W]            so that |w x_q| <= M in integers
    total = sum of w x_q                    integers, in any order

With K outputs c is a vector, shortened to at most M/N - sqrt(K)/2 before rounding, and w counts as zero unless
sum of w_k^2 N^2 <= M^2 holds in integers (it always does: rounding lengthens c by at most sqrt(K)/2).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .grid import BOUND, DIRECTION, MAX_ROW_NORM, GridRows, power_of_two_above
from .totals import Floats, Integers

ROWS_PER_CHUNK = 4096


def lay_out_rows(
    numbers: Floats,
    scale: Floats,
    usable: NDArray[np.bool_],
    X: NDArray[np.int16],
    reach: NDArray[np.float32],
    squares: NDArray[np.int32],
    most: NDArray[np.int16],
    alive: NDArray[np.bool_],
) -> None:
    """Lay out rows numbers * scale, each by itself: the squared length is summed column by column."""
    columns = numbers.shape[1]
    length = np.zeros(len(numbers))
    with np.errstate(all="ignore"):  # no record may raise or warn
        for column in numbers.T:
            length = length + column * column
        length = np.sqrt(length)
        alive[:] = usable & (length * scale < MAX_ROW_NORM)  # false for NaN
        factor = np.where(alive & (length > 0), DIRECTION / length, 0.0)
        grid = np.rint(np.where(alive[:, None], numbers, 0.0) * factor[:, None])
    X[:, columns:] = 0
    X[:, :columns] = grid
    whole = X[:, :columns].astype(np.int64)
    squares[:] = (whole * whole).sum(1)
    most[:] = [_largest(int(square)) for square in squares]
    reach[:] = np.where(alive, length * scale / DIRECTION, 0.0)


def _largest(square: int) -> int:
    """The largest W with W^2 N^2 <= M^2 that fits 16 bits; 0 for a row of zeros."""
    return min(math.isqrt(BOUND * BOUND // square), 32767) if square else 0


def on_grid(theta: Floats, width: int) -> tuple[NDArray[np.int16], float]:
    """The rows of theta in integers, each of norm below 2^15, padded with zeros, and the power of two they count.

    With |x_q| <= 2^14 + sqrt(columns)/2 every score, and every part of one, stays below 2^31 (Cauchy-Schwarz).
    """
    longest = math.sqrt(np.cumsum(theta * theta, 1)[:, -1].max())  # squares are added one after the other
    grid = power_of_two_above(longest / (2.0**15 - 2 - math.sqrt(theta.shape[1])))
    whole = np.zeros((len(theta), width), np.int16)
    whole[:, : theta.shape[1]] = np.rint(theta / grid)
    return whole, grid


def sum_one(rows: GridRows, chosen: Integers, theta: Floats, gain: float, loss: Any) -> Integers:
    """The clipped sum of a model with one output, in units of C/M, padding included."""
    (whole,), grid = on_grid(theta, rows.X.shape[1])
    total = np.zeros((1, rows.X.shape[1]), np.int64)
    for start in range(0, len(chosen), ROWS_PER_CHUNK):
        here = chosen[start : start + ROWS_PER_CHUNK]
        X, reach = rows.X[here].astype(np.int64), rows.reach[here].astype(np.float64)
        scores = X @ whole.astype(np.int64)
        slope = loss.row_slope(scores.astype(np.float64) * (reach * grid), rows.y[here].astype(np.float64))
        most = rows.most[here].astype(np.float64)
        weights = np.minimum(np.maximum(np.rint(slope * (reach * gain)), -most), most)
        total += np.where(np.isnan(weights), 0.0, weights).astype(np.int64) @ X
    return total


def sum_classes(rows: GridRows, chosen: Integers, theta: Floats, gain: float, loss: Any) -> Integers:
    """The clipped sum of a model with several outputs, in units of C/M: (outputs, columns with padding)."""
    whole, grid = on_grid(theta, rows.X.shape[1])
    total = np.zeros(whole.shape, np.int64)
    for start in range(0, len(chosen), ROWS_PER_CHUNK):
        here = chosen[start : start + ROWS_PER_CHUNK]
        X, reach = rows.X[here].astype(np.int64), rows.reach[here].astype(np.float64)
        scores = X @ whole.astype(np.int64).T
        z = scores.astype(np.float64) * (reach * grid)[:, None]
        c = loss.row_slope(z, rows.y[here].astype(np.int64)) * (reach * gain)[:, None]
        c = np.where(np.isfinite(c).all(1)[:, None], c, 0.0)
        weights = np.rint(c * shortened(c, rows.squares[here])[:, None]).astype(np.int64)
        squares = rows.squares[here].astype(np.int64)
        fits = (weights * weights).sum(1) * squares <= BOUND * BOUND
        total += (weights * (fits & (squares > 0))[:, None]).T @ X
    return total


def shortened(c: Floats, squares: NDArray[Any], largest: float = math.inf) -> Floats:
    """What each c is multiplied by before rounding, so that it is at most ``largest`` and M/N - sqrt(K)/2 long."""
    length = np.zeros(len(c))
    for column in c.T:
        length = length + column * column
    length = np.sqrt(length)
    most = BOUND / np.sqrt(np.maximum(squares, 1).astype(np.float64)) - 0.5 * np.sqrt(float(c.shape[1]))
    most = np.minimum(most, float(largest))
    return np.where(length > most, most / np.maximum(length, most), 1.0)
