# mypy: ignore-errors
"""The arithmetic of :mod:`noisewise.trusted.stores.reference`, compiled: one pass over the rows, the same bits.

Rows are taken 32 at a time, so that what was read for the scores is still in the cache for the sum. Products of 16-bit
integers are added up in 32 bits for eight rows (each at most M = 2^28 - 1), then in 64; where the processor has AVX2 or
AVX-512, by its instruction for pairs of such products, else by plain loops.

Below, ``at`` says where each of the 32 rows starts in X; what is missing of them has weights of zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..stores.grid import BOUND, DIRECTION, MAX_ROW_NORM
from . import kernels
from .elementwise_compiled import exp_of

ROWS = 32
ENTRIES_PER_CACHE_LINE = 32  # of a row
i4 = np.int32
SHORT, WORD, WIDE = ir.IntType(16), ir.IntType(32), ir.IntType(64)
EIGHT = ir.VectorType(WORD, 8)


def _has(feature: str) -> bool:
    return bool(llvm.get_host_cpu_features().get(feature, False))


PAIRS = 16 if _has("avx512bw") else 8  # that one instruction multiplies and adds up
SHORTS, SUMS = ir.VectorType(SHORT, 2 * PAIRS), ir.VectorType(WORD, PAIRS)


def _data(context, builder, signature, args, k):
    """Where the entries of the k-th argument, an array, begin."""
    return context.make_array(signature.args[k])(context, builder, args[k]).data


def _vector(builder, data, place, kind):
    return builder.bitcast(builder.gep(data, [place]), kind.as_pointer())


def _of_pairs(builder):
    """The instruction a0 b0 + a1 b1, a2 b2 + a3 b3, ... of two vectors of 16-bit integers."""
    kind = ir.FunctionType(SUMS, [SHORTS, SHORTS])
    name = {8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}[PAIRS]
    return cgutils.get_or_insert_function(builder.module, kind, name)


@intrinsic
def _four_scores(typing, X, at, i, theta, start, columns, out):
    """out[i : i + 4] = the products of four rows with the row of theta that starts at ``start``."""

    def codegen(context, builder, signature, args):
        data, where, weights, target = (_data(context, builder, signature, args, k) for k in (0, 1, 3, 6))
        _, _, i, _, start, columns, _ = args
        places = [builder.add(i, ir.Constant(WIDE, k)) for k in range(4)]
        rows = [builder.load(builder.gep(where, [place])) for place in places]
        sums = [cgutils.alloca_once_value(builder, ir.Constant(SUMS, [0] * PAIRS)) for _ in range(4)]
        multiply = _of_pairs(builder)
        with cgutils.for_range_slice(builder, ir.Constant(WIDE, 0), columns, ir.Constant(WIDE, 2 * PAIRS)) as (j, _):
            weight = builder.load(_vector(builder, weights, builder.add(start, j), SHORTS), align=2)
            for row, total in zip(rows, sums, strict=True):
                entries = builder.load(_vector(builder, data, builder.add(row, j), SHORTS), align=2)
                builder.store(builder.add(builder.load(total), builder.call(multiply, [entries, weight])), total)
        kind = ir.FunctionType(WORD, [SUMS])
        reduce = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.add.v{PAIRS}i32")
        for place, total in zip(places, sums, strict=True):
            builder.store(builder.call(reduce, [builder.load(total)]), builder.gep(target, [place]))

    return types.void(X, at, i, theta, start, columns, out), codegen


@intrinsic
def _add_block(typing, X, at, w, outputs, j, columns, out):
    """out[o, here] += the sum of w[o, k] X[k, here] over the 32 rows k, for every output o; here is a vector from column j on.

    Of one output the sum stays in registers until it is whole.
    """

    def codegen(context, builder, signature, args):
        data, where, weights, target = (_data(context, builder, signature, args, k) for k in (0, 1, 2, 6))
        outputs, j, columns = args[3:6]
        half, multiply = ir.VectorType(WIDE, PAIRS), _of_pairs(builder)

        def constant(places):
            return ir.Constant(ir.VectorType(WORD, len(places)), places)

        low = [p for lane in range(0, 2 * PAIRS, 8) for i in range(4) for p in (lane + i, 2 * PAIRS + lane + i)]
        high = [p + 4 for p in low]

        def mixed(first):
            """Entries of two rows side by side, of the eight rows from the first on."""
            found = []
            for k in range(first, first + 8, 2):
                places = [builder.load(builder.gep(where, [ir.Constant(WIDE, k + i)])) for i in (0, 1)]
                both = [builder.load(_vector(builder, data, builder.add(row, j), SHORTS), align=2) for row in places]
                found.append([builder.shuffle_vector(*both, constant(places)) for places in (low, high)])
            return found

        def of_eight(pairs, begin):
            """Their sum, in two halves of 64 bits."""
            sums = [None, None]
            for pair, entries in enumerate(pairs):
                place = builder.add(begin, ir.Constant(WIDE, 2 * pair))
                two = builder.load(_vector(builder, weights, place, WORD), align=2)
                packed = builder.insert_element(ir.Constant(SUMS, ir.Undefined), two, ir.Constant(WORD, 0))
                spread = builder.bitcast(builder.shuffle_vector(packed, packed, constant([0] * PAIRS)), SHORTS)
                for part in (0, 1):
                    product = builder.call(multiply, [entries[part], spread])
                    sums[part] = product if sums[part] is None else builder.add(sums[part], product)
            order = [k + i for lane in range(0, PAIRS, 4) for k in (lane, PAIRS + lane) for i in range(4)]
            halves = constant(order[:PAIRS]), constant(order[PAIRS:])
            return [builder.sext(builder.shuffle_vector(*sums, places), half) for places in halves]

        def store(sums, o):
            here = builder.add(builder.mul(o, columns), j)
            for part in (0, 1):
                there = _vector(builder, target, builder.add(here, ir.Constant(WIDE, PAIRS * part)), half)
                builder.store(builder.add(builder.load(there, align=8), sums[part]), there, align=8)

        one = builder.icmp_signed("==", outputs, ir.Constant(WIDE, 1))
        with builder.if_else(one) as (alone, several):
            with alone:
                sums = of_eight(mixed(0), ir.Constant(WIDE, 0))
                for first in range(8, ROWS, 8):
                    more = of_eight(mixed(first), ir.Constant(WIDE, first))
                    sums = [builder.add(a, b) for a, b in zip(sums, more, strict=True)]
                store(sums, ir.Constant(WIDE, 0))
            with several:
                for first in range(0, ROWS, 8):
                    pairs = mixed(first)
                    with cgutils.for_range(builder, outputs) as loop:
                        begin = builder.add(builder.mul(loop.index, ir.Constant(WIDE, ROWS)), ir.Constant(WIDE, first))
                        store(of_eight(pairs, begin), loop.index)

    return types.void(X, at, w, outputs, j, columns, out), codegen


@intrinsic
def _ahead(typing, line, i):
    """Tell the processor that ``line[i]`` will be read soon; it changes no number."""

    def codegen(context, builder, signature, args):
        byte = ir.IntType(8)
        where = _vector(builder, _data(context, builder, signature, args, 0), args[1], byte)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), WORD, WORD, WORD])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(fetch, [where, *(ir.Constant(WORD, option) for option in (0, 3, 1))])

    return types.void(line, i), codegen


def _scores_in_pairs(X, at, theta, o, out):
    columns = X.shape[1]
    for i in range(0, ROWS, 4):
        _four_scores(X, at, i, theta, o * columns, columns, out)


def _scores_plainly(X, at, theta, o, out):
    entries = X.reshape(-1)
    for i in range(ROWS):
        score = i4(0)
        for j in range(X.shape[1]):
            score += i4(entries[at[i] + j]) * i4(theta[o, j])
        out[i] = i4(score)


def _add_in_pairs(X, at, count, w, out):
    outputs, columns = out.shape
    for j in range(0, columns, 2 * PAIRS):
        _add_block(X, at, w, outputs, j, columns, out)


def _add_plainly(X, at, count, w, out):
    entries = X.reshape(-1)
    for o in range(out.shape[0]):
        for i in range(0, count, 8):
            for j in range(out.shape[1]):
                block = i4(0)
                for k in range(i, i + 8):
                    block = i4(block + i4(w[o, k]) * i4(entries[at[k] + j]))
                out[o, j] += block


# out[i] = the product of row i with theta[o]; and out[o] += the sum of w[o, i] times row i. Columns are padded to 32.
scores: Any = kernels.jit(_scores_in_pairs if _has("avx2") else _scores_plainly)
add_rows: Any = kernels.jit(_add_in_pairs if _has("avx2") else _add_plainly)
scores_plainly: Any = kernels.jit(_scores_plainly)
add_rows_plainly: Any = kernels.jit(_add_plainly)


@kernels.jit
def fetch(X, drawn, start, stop):
    """Drawn rows lie anywhere: the rows of the next round are fetched while this one is computed."""
    for i in range(start, stop):
        row = X[drawn[i]]
        for j in range(0, X.shape[1], ENTRIES_PER_CACHE_LINE):
            _ahead(row, j)


@kernels.jit
def lay_out_rows(numbers, scale, usable, X, reach, squares, most, alive):
    n, columns = numbers.shape
    for i in range(n):
        length = 0.0
        for j in range(columns):
            length = length + numbers[i, j] * numbers[i, j]
        length = np.sqrt(length)
        good = usable[i] and length * scale[i] < MAX_ROW_NORM
        factor = DIRECTION / length if good and length > 0 else 0.0
        square = 0
        for j in range(columns):
            entry = np.int16(np.rint(numbers[i, j] * factor)) if good else np.int16(0)
            X[i, j] = entry
            square += np.int64(entry) * np.int64(entry)
        for j in range(columns, X.shape[1]):
            X[i, j] = 0
        largest = 0
        if square > 0:
            largest = min(np.int64(np.floor(BOUND / np.sqrt(np.float64(square)))) + 1, 32767)
            while largest * largest > (BOUND * BOUND) // square:
                largest -= 1
        squares[i] = square
        most[i] = largest
        alive[i] = good
        reach[i] = length * scale[i] / DIRECTION if good else 0.0


@kernels.jit
def on_grid(theta, width):
    """:func:`noisewise.trusted.stores.reference.on_grid`, entry by entry."""
    outputs, columns = theta.shape
    most = 0.0
    for o in range(outputs):
        total = 0.0
        for j in range(columns):
            total = total + theta[o, j] * theta[o, j]
        most = max(most, total)
    mantissa, exponent = math.frexp(math.sqrt(most) / (2.0**15 - 2 - math.sqrt(columns)))
    grid = 1.0 if most == 0 else math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)
    whole = np.zeros((outputs, width), np.int16)
    for o in range(outputs):
        for j in range(columns):
            whole[o, j] = np.int16(np.rint(theta[o, j] / grid))
    return whole, grid


@kernels.jit
def sum_one(start, stop, out, X, reach, most, y, rows, whole, weights, gain, kernel, width, low, high):
    columns = X.shape[1]
    theta, grid = on_grid(weights, columns)
    at, score = np.empty(ROWS, np.int64), np.empty(ROWS, np.int32)
    z, label, length, cut, c = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
    w = np.empty((1, ROWS), np.int16)
    if not whole:
        fetch(X, rows, start, min(start + ROWS, stop))
    for first in range(start, stop, ROWS):
        count = min(ROWS, stop - first)
        if not whole:
            fetch(X, rows, first + ROWS, min(first + 2 * ROWS, stop))
        for i in range(count, ROWS):
            at[i] = 0
            cut[i] = label[i] = length[i] = 0.0
        for i in range(count):
            k = first + i if whole else rows[first + i]
            at[i] = k * columns
            label[i], length[i], cut[i] = y[k], reach[k], most[k]
        scores(X, at, theta, 0, score)
        for i in range(ROWS):
            z[i] = score[i] * (length[i] * grid)
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
        for i in range(ROWS):
            c[i] = (c[i] * (high if label[i] > 0 else low)) * (length[i] * gain)
            w[0, i] = np.int16(min(max(np.rint(c[i]), -cut[i]), cut[i]))
        add_rows(X, at, count, w, out)


@kernels.jit
def sum_classes(start, stop, out, X, reach, squares, y, rows, whole, matrix, gain, weights):
    outputs, columns = out.shape
    theta, grid = on_grid(matrix, columns)
    at, score, label = np.empty(ROWS, np.int64), np.empty(ROWS, np.int32), np.empty(ROWS, np.int64)
    w, z = np.empty((outputs, ROWS), np.int16), np.empty((outputs, ROWS))
    far, gained, norm, total = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS, np.int64), np.empty(ROWS)
    most, square = np.empty(ROWS), np.empty(ROWS, np.int64)
    half = 0.5 * np.sqrt(np.float64(outputs))
    if not whole:
        fetch(X, rows, start, min(start + ROWS, stop))
    for first in range(start, stop, ROWS):
        count = min(ROWS, stop - first)
        if not whole:
            fetch(X, rows, first + ROWS, min(first + 2 * ROWS, stop))
        for i in range(count, ROWS):
            at[i] = label[i] = norm[i] = 0
            far[i] = gained[i] = 0.0
        for i in range(count):
            k = first + i if whole else rows[first + i]
            at[i], label[i], norm[i] = k * columns, y[k], squares[k]
            far[i], gained[i] = np.float64(reach[k]) * grid, np.float64(reach[k]) * gain
        most[:] = -np.inf
        for o in range(outputs):
            scores(X, at, theta, o, score)
            for i in range(ROWS):
                z[o, i] = score[i] * far[i]
                most[i] = max(most[i], z[o, i])
        total[:] = 0.0
        for o in range(outputs):
            for i in range(ROWS):
                z[o, i] = exp_of(z[o, i] - most[i])
                total[i] = total[i] + z[o, i]
        most[:] = 0.0
        for o in range(outputs):
            for i in range(ROWS):
                z[o, i] = ((z[o, i] / total[i] - (1.0 if o == label[i] else 0.0)) * weights[label[i]]) * gained[i]
                most[i] = most[i] + z[o, i] * z[o, i]
        for i in range(ROWS):
            length, limit = np.sqrt(most[i]), BOUND / np.sqrt(np.float64(max(norm[i], 1))) - half
            most[i] = limit / max(length, 1e-300) if length > limit else 1.0
            square[i] = 0
        for o in range(outputs):
            for i in range(ROWS):
                v = np.int64(np.rint(z[o, i] * most[i]))
                square[i] += v * v
                w[o, i] = v
        for i in range(ROWS):
            if square[i] * norm[i] > BOUND * BOUND or norm[i] == 0:
                w[:, i] = 0
        add_rows(X, at, count, w, out)


def options(loss: Any) -> tuple[int, float, tuple[float, ...]]:
    """What a loss with a kernel is to it: its number, its width if it has one, and the weights of its classes."""
    base, weights = getattr(loss, "loss", loss), getattr(loss, "weights", ())
    return base.kernel, float(getattr(base, "width", 1.0)), tuple(map(float, weights))
