# mypy: ignore-errors
"""The arithmetic of :mod:`noisewise.trusted.stores.sparse_reference`, compiled: the same bits.

Rows are taken 64 at a time: their products with theta, then their slopes side by side, then what they add. Places are
passed as unsigned numbers, so that no index is taken from the end.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..stores.grid import BOUND, DIRECTION, MAX_ROW_NORM
from ..stores.sparse_reference import MAX_WEIGHT, SHORTER
from . import kernels
from .elementwise_compiled import exp_of
from .rows_compiled import EIGHT, WIDE, WORD, _data, _vector, on_grid, options

__all__ = ["lay_out_entries", "measure", "options", "products", "sum_classes", "sum_one", "weighted"]

ROWS = 64
i4, i8 = np.int32, np.int64
LONG_EIGHT = ir.VectorType(WIDE, 8)


def _spread(builder, number, kind):
    """A vector of eight times the same number."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(WORD, 0))
    return builder.shuffle_vector(one, one, ir.Constant(EIGHT, [0] * 8))


def _entry(builder, values, places, at, padded, b):
    """An entry in 32 bits, and where the eight outputs from b on begin at its place."""
    place = builder.zext(builder.load(builder.gep(places, [at])), WIDE)
    x = builder.sext(builder.load(builder.gep(values, [at])), WORD)
    return x, builder.add(builder.mul(place, padded), b)


@intrinsic
def _eight_products(typing, values, places, begin, entries, theta, padded, b, out):
    """out[b : b + 8] = the sum of x theta[place, b : b + 8] over the entries from ``begin`` on."""

    def codegen(context, builder, signature, args):
        values, places, theta, out = (_data(context, builder, signature, args, k) for k in (0, 1, 4, 7))
        begin, entries, padded, b = args[2], args[3], args[5], args[6]
        total = cgutils.alloca_once_value(builder, ir.Constant(EIGHT, [0] * 8))
        builder.store(ir.Constant(EIGHT, [0] * 8), total)
        with cgutils.for_range(builder, entries) as loop:
            x, at = _entry(builder, values, places, builder.add(begin, loop.index), padded, b)
            line = builder.load(_vector(builder, theta, at, EIGHT), align=4)
            product = builder.mul(_spread(builder, x, EIGHT), line)
            builder.store(builder.add(builder.load(total), product), total)
        builder.store(builder.load(total), _vector(builder, out, b, EIGHT), align=4)

    return types.void(values, places, begin, entries, theta, padded, b, out), codegen


@intrinsic
def _add_to_eight(typing, values, places, begin, entries, w, first, out, padded, b):
    """out[place, b : b + 8] += x w[first + b : first + b + 8] for every entry from ``begin`` on."""

    def codegen(context, builder, signature, args):
        values, places, w, out = (_data(context, builder, signature, args, k) for k in (0, 1, 4, 6))
        begin, entries, first, padded, b = args[2], args[3], args[5], args[7], args[8]
        weights = builder.load(_vector(builder, w, builder.add(first, b), EIGHT), align=4)
        weights = builder.sext(weights, LONG_EIGHT)
        with cgutils.for_range(builder, entries) as loop:
            x, at = _entry(builder, values, places, builder.add(begin, loop.index), padded, b)
            product = builder.mul(builder.sext(_spread(builder, x, EIGHT), LONG_EIGHT), weights)
            there = _vector(builder, out, at, LONG_EIGHT)
            builder.store(builder.add(builder.load(there, align=8), product), there, align=8)

    return types.void(values, places, begin, entries, w, first, out, padded, b), codegen


@kernels.jit
def lay_out_entries(numbers, where, width, usable, places, values, alive):
    n, entries = numbers.shape
    last = np.full(width, -1, np.int64)  # the last row that had an entry there
    room = np.zeros(entries, np.int64)
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
        good = good and length < MAX_ROW_NORM
        over = max(length, 1.0) if good else 1.0
        if good:
            square = _rounded(numbers[i], DIRECTION / over, room)
            if square > DIRECTION * DIRECTION:
                square = _truncated(numbers[i], SHORTER / over, room)
            good = square <= DIRECTION * DIRECTION
        at = 0
        for filled in range(2):  # what is not zero comes first, and sums stop there
            for j in range(entries):
                if (not good or room[j] == 0) != (filled == 1):
                    continue
                values[i, at] = room[j] if good else 0
                places[i, at] = where[i, j] if good else 0
                at += 1
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
            largest = min(i8(np.floor(BOUND / np.sqrt(np.float64(square)))) + 1, i8(MAX_WEIGHT))
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
def _word_scores(ends, places, values, theta):
    scores = np.zeros(len(ends) - 1, np.int32)
    for d in range(len(scores)):
        for e in range(ends[d], ends[d + 1]):
            scores[d] += i4(values[e]) * theta[places[e]]
    return scores


@kernels.jit
def sum_one(
    start,
    stop,
    out,
    places,
    values,
    filled,
    reach,
    most,
    y,
    centre,
    codes,
    ends,
    word_places,
    word_values,
    rows,
    whole,
    weights,
    gain,
    kernel,
    width,
    low,
    high,
):
    """Entries are those that are left beside words, whose parts of scores come from a table, and of sums at the end."""
    columns = len(centre)
    narrow, grid = on_grid(weights, columns)
    theta, total = narrow[0].astype(np.int32), out[0]
    middle, everything = i8(0), i8(0)
    for j in range(columns):
        middle += centre[j] * i8(theta[j])
    in_words = _word_scores(ends, word_places, word_values, theta)
    of_words = np.zeros(len(in_words), np.int64)
    at, w, z, c = np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int64), np.zeros(ROWS), np.zeros(ROWS)
    label, length, cut = np.zeros(ROWS), np.zeros(ROWS), np.zeros(ROWS)
    for first in range(start, stop, ROWS):
        count = min(ROWS, stop - first)
        for i in range(count):
            k = first + i if whole else rows[first + i]
            at[i], label[i], length[i], cut[i] = k, y[k], reach[k], most[k]
            score = i4(0)
            for g in range(codes.shape[1]):
                score += in_words[codes[k, g]]
            for j in range(filled[k]):
                score += i4(values[k, j]) * theta[places[k, j]]
            z[i] = np.float64(i8(score) - middle) * (length[i] * grid)
        slopes(kernel, z, label, width, c)
        for i in range(ROWS):
            c[i] = (c[i] * (high if label[i] > 0 else low)) * (length[i] * gain)
            w[i] = i8(min(max(np.rint(c[i]), -cut[i]), cut[i]))
        for i in range(count):
            k, weight = at[i], w[i]
            everything += weight
            for g in range(codes.shape[1]):
                of_words[codes[k, g]] += weight
            for j in range(filled[k]):
                total[places[k, j]] += weight * i8(values[k, j])
    for d in range(len(of_words)):
        for e in range(ends[d], ends[d + 1]):
            total[word_places[e]] += of_words[d] * i8(word_values[e])
    for j in range(columns):
        total[j] -= everything * centre[j]


@kernels.jit
def sum_classes(
    start, stop, out, places, values, filled, reach, squares, most, y, centre, rows, whole, matrix, gain, weights
):
    """Outputs are padded to a multiple of eight, in ``out`` as here, so that those of one entry lie side by side."""
    (columns, padded), (outputs, _), entries = out.shape, matrix.shape, values.shape[1]
    narrow, grid = on_grid(matrix, columns)
    theta = np.zeros((columns, padded), np.int32)
    theta[:, :outputs] = narrow.T
    middle, everything = np.zeros(padded, np.int64), np.zeros(padded, np.int64)
    for j in range(columns):
        for o in range(outputs):
            middle[o] += centre[j] * i8(theta[j, o])
    at, label, norm = np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int64)
    score, w = np.zeros(padded, np.int32), np.zeros((ROWS, padded), np.int32)
    z, far, gained, z_most = np.zeros((outputs, ROWS)), np.zeros(ROWS), np.zeros(ROWS), np.zeros(ROWS)
    for first in range(start, stop, ROWS):
        count = min(ROWS, stop - first)
        for i in range(count):
            k = first + i if whole else rows[first + i]
            at[i], label[i], norm[i], far[i], gained[i] = k, y[k], squares[k], reach[k] * grid, reach[k] * gain
            for b in range(0, padded, 8):
                _eight_products(values, places, k * entries, i8(filled[k]), theta, padded, b, score)
            z_most[i] = -np.inf
            for o in range(outputs):
                z[o, i] = np.float64(i8(score[o]) - middle[o]) * far[i]
                z_most[i] = max(z_most[i], z[o, i])
        softmax_slopes(z, z_most, label, weights, gained)
        whole_weights(z, norm, w)
        for i in range(count):
            for o in range(outputs):
                everything[o] += w[i, o]
            for b in range(0, padded, 8):
                _add_to_eight(values, places, at[i] * entries, i8(filled[at[i]]), w, i * padded, out, padded, b)
    for j in range(columns):
        for o in range(outputs):
            out[j, o] -= everything[o] * centre[j]


@kernels.jit
def softmax_slopes(z, most, label, weights, gained):
    """Scores z (outputs, rows) become c, by the steps of the loss."""
    total = np.zeros(ROWS)
    for o in range(len(z)):
        for i in range(ROWS):
            z[o, i] = exp_of(z[o, i] - most[i])
            total[i] = total[i] + z[o, i]
    for o in range(len(z)):
        for i in range(ROWS):
            z[o, i] = ((z[o, i] / total[i] - (1.0 if o == label[i] else 0.0)) * weights[label[i]]) * gained[i]


@kernels.jit
def whole_weights(c, norm, w):
    """w = c shortened and rounded, for each row; zero if it is too long in integers, or the row is in the centre."""
    outputs, half = len(c), 0.5 * np.sqrt(np.float64(len(c)))
    length, square = np.zeros(ROWS), np.zeros(ROWS, np.int64)
    for o in range(outputs):
        for i in range(ROWS):
            length[i] = length[i] + c[o, i] * c[o, i]
    for i in range(ROWS):
        far = np.sqrt(length[i])
        limit = min(BOUND / np.sqrt(np.float64(max(norm[i], 1))) - half, np.float64(MAX_WEIGHT))
        length[i] = limit / max(far, limit) if far > limit else 1.0
    for i in range(ROWS):
        for o in range(outputs):
            v = i8(np.rint(c[o, i] * length[i]))
            square[i] += v * v
            w[i, o] = v
        if square[i] * norm[i] > BOUND * BOUND or norm[i] == 0:
            w[i, :] = 0
