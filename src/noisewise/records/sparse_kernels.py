# mypy: ignore-errors
"""The arithmetic of :mod:`noisewise.records.sparse_reference`, compiled: the same bits.

Rows are taken 64 at a time: their products with theta, then their slopes side by side, then what they add. Places are
passed as unsigned numbers, so that no index is taken from the end.
"""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..plain_compiled import exp_of
from .compiled import on_grid, options
from .grid import BOUND, DIRECTION, LONGEST
from .sparse_reference import MOST, SHORTER

__all__ = ["lay_out_entries", "measure", "options", "products", "sum_classes", "sum_one", "weighted"]

ROWS = 64
i4, i8 = np.int32, np.int64


@kernels.jit
def lay_out_entries(numbers, where, width, usable, places, values, alive):
    n, entries = numbers.shape
    last = np.full(width, -1, np.int64)  # the last row that had an entry there
    for i in range(n):
        length, good = 0.0, usable[i]
        for j in range(entries):
            length = length + numbers[i, j] * numbers[i, j]
            place = where[i, j]
            if place < 0 or place >= width:
                good = False
            else:
                good = good and last[place] != i
                last[place] = i
        length = np.sqrt(length)
        good = good and length < LONGEST
        over = max(length, 1.0) if good else 1.0
        if good:
            square = _rounded(numbers[i], DIRECTION / over, values[i])
            if square > DIRECTION * DIRECTION:
                square = _truncated(numbers[i], SHORTER / over, values[i])
            good = square <= DIRECTION * DIRECTION
        for j in range(entries):
            places[i, j] = where[i, j] if good else 0
            values[i, j] = values[i, j] if good else 0
        alive[i] = good


@kernels.jit
def _rounded(numbers, factor, out):
    square = i8(0)
    for j in range(len(numbers)):
        out[j] = i8(np.rint(numbers[j] * factor))
        square += i8(out[j]) * i8(out[j])
    return square


@kernels.jit
def _truncated(numbers, factor, out):
    square = i8(0)
    for j in range(len(numbers)):
        out[j] = i8(np.trunc(numbers[j] * factor))
        square += i8(out[j]) * i8(out[j])
    return square


@kernels.jit
def measure(places, values, alive, centre, squares, most):
    n, entries = values.shape
    middle = i8(0)
    for m in centre:
        middle += m * m
    for i in range(n):
        square = middle
        for j in range(entries):
            x = i8(values[i, j])
            square += x * (x - 2 * centre[places[i, j]])
        square = square if alive[i] else i8(0)
        largest = i8(0)
        if square > 0:
            largest = min(i8(np.floor(BOUND / np.sqrt(np.float64(square)))) + 1, i8(MOST))
            while largest * largest > (BOUND * BOUND) // square:
                largest -= 1
        squares[i] = square
        most[i] = largest


@kernels.jit
def products(places, values, whole):
    (n, entries), columns = values.shape, whole.shape[1]
    total = np.zeros((n, columns), np.int64)
    for i in range(n):
        for j in range(entries):
            x, place = i8(values[i, j]), places[i, j]
            for k in range(columns):
                total[i, k] += x * whole[place, k]
    return total


def weighted(rows, chosen, weights):
    total = np.zeros((weights.shape[1], rows.columns), np.int64)
    _add_weighted(rows.places.view(np.uint32), rows.values, rows.centre, chosen, weights, total)
    return total


@kernels.jit
def _add_weighted(places, values, centre, chosen, weights, out):
    for o in range(len(out)):
        everything = i8(0)
        for i in range(len(chosen)):
            k, w = chosen[i], weights[i, o]
            everything += w
            for j in range(values.shape[1]):
                out[o, places[k, j]] += w * i8(values[k, j])
        for j in range(len(centre)):
            out[o, j] -= everything * centre[j]


@kernels.jit
def slopes(kernel, z, label, width, c):
    """The slope of each loss with one output that has a kernel, as in :mod:`noisewise.losses`."""
    if kernel == 0:
        for i in range(ROWS):
            likely = 1.0 / (1.0 + exp_of(-abs(z[i])))
            c[i] = ((likely if z[i] >= 0 else 1.0 - likely) - 0.5) - 0.5 * label[i]
    elif kernel == 1:
        for i in range(ROWS):
            c[i] = -label[i] if label[i] * z[i] < 1.0 else 0.0
    elif kernel == 2:
        for i in range(ROWS):
            c[i] = -label[i] * min(max(((1.0 - label[i] * z[i]) + width) / (2 * width), 0.0), 1.0)
    else:
        for i in range(ROWS):
            c[i] = 2.0 * (z[i] - label[i])


@kernels.jit
def sum_one(
    start,
    stop,
    out,
    places,
    values,
    reach,
    squares,
    most,
    y,
    centre,
    rows,
    whole,
    weights,
    gain,
    kernel,
    width,
    low,
    high,
):
    entries, columns = values.shape[1], len(centre)
    narrow, grid = on_grid(weights, columns)
    theta, total = narrow[0].astype(np.int32), out[0]
    middle, everything = i8(0), i8(0)
    for j in range(columns):
        middle += centre[j] * i8(theta[j])
    at, w, z, c = np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int64), np.zeros(ROWS), np.zeros(ROWS)
    label, length, cut = np.zeros(ROWS), np.zeros(ROWS), np.zeros(ROWS)
    for first in range(start, stop, ROWS):
        count = min(ROWS, stop - first)
        for i in range(count):
            k = first + i if whole else rows[first + i]
            at[i], label[i], length[i], cut[i] = k, y[k], reach[k], most[k]
            score = i4(0)
            for j in range(entries):
                score += i4(values[k, j]) * theta[places[k, j]]
            z[i] = np.float64(i8(score) - middle) * (length[i] * grid)
        slopes(kernel, z, label, width, c)
        for i in range(ROWS):
            c[i] = (c[i] * (high if label[i] > 0 else low)) * (length[i] * gain)
            w[i] = i8(min(max(np.rint(c[i]), -cut[i]), cut[i]))
        for i in range(count):
            k, weight = at[i], w[i]
            everything += weight
            for j in range(entries):
                total[places[k, j]] += weight * i8(values[k, j])
    for j in range(columns):
        total[j] -= everything * centre[j]


@kernels.jit
def sum_classes(start, stop, out, places, values, reach, squares, most, y, centre, rows, whole, matrix, gain, weights):
    (columns, outputs), entries = out.shape, values.shape[1]
    narrow, grid = on_grid(matrix, columns)
    theta = np.ascontiguousarray(narrow.T).astype(np.int32)
    middle, everything = np.zeros(outputs, np.int64), np.zeros(outputs, np.int64)
    for j in range(columns):
        for o in range(outputs):
            middle[o] += centre[j] * i8(theta[j, o])
    score, w = np.zeros(outputs, np.int32), np.zeros(outputs, np.int64)
    z, half = np.zeros(outputs), 0.5 * np.sqrt(np.float64(outputs))
    for i in range(start, stop):
        k = i if whole else rows[i]
        label, norm, far, gained = y[k], i8(squares[k]), reach[k] * grid, reach[k] * gain
        score[:] = 0
        for j in range(entries):
            x, place = i4(values[k, j]), places[k, j]
            for o in range(outputs):
                score[o] += x * theta[place, o]
        most_z = -np.inf
        for o in range(outputs):
            z[o] = np.float64(i8(score[o]) - middle[o]) * far
            most_z = max(most_z, z[o])
        total = 0.0
        for o in range(outputs):
            z[o] = exp_of(z[o] - most_z)
        for o in range(outputs):
            total = total + z[o]
        square = 0.0
        for o in range(outputs):
            z[o] = ((z[o] / total - (1.0 if o == label else 0.0)) * weights[label]) * gained
            square = square + z[o] * z[o]
        length, limit = np.sqrt(square), min(BOUND / np.sqrt(np.float64(max(norm, 1))) - half, np.float64(MOST))
        factor = limit / max(length, limit) if length > limit else 1.0
        whole_square = i8(0)
        for o in range(outputs):
            w[o] = i8(np.rint(z[o] * factor))
            whole_square += w[o] * w[o]
        if whole_square * norm > BOUND * BOUND or norm == 0:
            w[:] = 0
        for o in range(outputs):
            everything[o] += w[o]
        for j in range(entries):
            x, place = i8(values[k, j]), places[k, j]
            for o in range(outputs):
                out[place, o] += w[o] * x
    for j in range(columns):
        for o in range(outputs):
            out[j, o] -= everything[o] * centre[j]
