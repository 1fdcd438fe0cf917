"""The compiled form of ``perceptron_reference``: the same integers, one record after the other, each in the cache once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..stores.perceptron_reference import HIGH, LIMIT, LOW, MARGIN, MAX_EXACT_INTEGER, WIDE, Array
from .elementwise_compiled import widely
from .kernels import jit
from .rows_compiled import fetch

AHEAD = 4  # rows that are fetched before they are needed
WholeNumber = Any  # an integer of numpy or of Python: one thing when compiled


@jit
def fill(X: Array, reach: Array, into: Array) -> None:
    """Writes rows of the grid as numbers: each direction times its reach."""
    widely()
    for i in range(len(into)):
        for j in range(into.shape[1]):
            into[i, j] = np.float32(X[i, j]) * reach[i]


@jit
def fill_drawn(X: Array, reach: Array, drawn: Array, into: Array) -> None:
    """The same for rows that lie anywhere."""
    widely()
    fetch(X, drawn, 0, min(AHEAD, len(drawn)))
    for i in range(len(drawn)):
        fetch(X, drawn, i + AHEAD, min(i + AHEAD + 1, len(drawn)))
        row, times, to = X[drawn[i]], reach[drawn[i]], into[i]
        for j in range(len(to)):
            to[j] = np.float32(row[j]) * times


@jit
def _length(flat: Array, bits: Array, start: np.uint64, end: np.uint64, digits: int) -> float:
    """Squared length of a row of single precision from whole numbers; -1 if an entry is not finite or too large."""
    widely()
    peak = np.int32(0)
    for j in range(start, end):
        peak = max(peak, np.int32(bits[j] & np.int32(0x7FFFFFFF)))
    exponent: WholeNumber = np.int64(peak >> 23) - 127
    if exponent >= HIGH:
        return -1.0
    if exponent < LOW:
        return 0.0
    scale, total = np.float32(math.ldexp(1.0, digits - exponent)), np.int64(0)
    if end - start > WIDE:
        for j in range(start, end):
            whole = np.int64(np.rint(flat[j] * scale))
            total += whole * whole
    else:
        short = np.int32(0)
        for j in range(start, end):
            near = np.int32(np.rint(flat[j] * scale))
            short = np.int32(short + np.int32(near * near))
        total += np.int64(short)
    return math.ldexp(np.float64(total), 2 * (exponent - digits))


@jit
def squared_lengths(flat: Array, bits: Array, width: int, digits: int, lengths: Array) -> None:
    for i in range(len(lengths)):
        start = np.uint64(i * width)
        lengths[i] = _length(flat, bits, start, start + np.uint64(width), digits)


@jit
def _whole(flat: Array, scale: np.float32, start: np.uint64, end: np.uint64) -> tuple[WholeNumber, WholeNumber]:
    """Puts round(row * scale) in place of a row and returns its squared length and its largest entry."""
    widely()
    square, peak = np.int32(0), np.int32(0)
    for j in range(start, end):
        near = np.rint(flat[j] * scale)
        flat[j] = near
        whole = np.int32(near)
        square = np.int32(square + np.int32(whole * whole))
        peak = max(peak, np.int32(abs(whole)))
    return np.int64(square), np.int64(peak)


@jit
def _constants(
    flat: Array, scale: np.float32, start: np.uint64, end: np.uint64, out: Array, to: np.uint64
) -> WholeNumber:
    """Writes round(row * scale) as integers from ``to`` on and returns their squared length."""
    square = np.int64(0)
    for j in range(end - start):
        whole = np.int32(np.rint(flat[start + j] * scale))
        out[to + j] = whole
        square += np.int64(whole) * np.int64(whole)
    return square


@jit
def _shrink(flat: Array, shrink: float, start: np.uint64, end: np.uint64) -> WholeNumber:
    """Multiplies whole numbers by ``shrink`` toward zero and returns their squared length."""
    square = np.int64(0)
    for j in range(start, end):
        whole = np.int64(np.float64(flat[j]) * shrink)
        flat[j] = whole
        square += whole * whole
    return square


@jit
def _overflows(reach: Array, at: np.uint64, flat: Array, start: np.uint64, end: np.uint64, peak: np.int32) -> bool:
    """Adds a record's largest products to the reach of a block; begins anew, and says so, where that is too much."""
    widely()
    top = np.int32(0)
    for j in range(end - start):
        here = np.int32(reach[at + j] + np.int32(np.int32(abs(flat[start + j])) * peak))
        reach[at + j] = here
        top = max(top, here)
    if top <= MAX_EXACT_INTEGER:
        return False
    for j in range(end - start):
        reach[at + j] = np.int32(np.int32(abs(flat[start + j])) * peak)
    return True


@jit
def whole_parts(
    count: int,
    sizes: Array,
    digits: Array,
    spread: Array,
    inputs: Array,
    input_bits: Array,
    input_at: Array,
    slopes: Array,
    slope_bits: Array,
    slope_at: Array,
    first: Array,
    alive: Array,
    clip: float,
    bound: int,
    biases: Array,
    norms: Array,
    blocks: Array,
) -> None:
    """See ``perceptron_reference.whole_parts``; aq and bq take the places of inputs and slopes.

    Places are unsigned, which spares a test at every access.
    """
    widely()
    layers = len(sizes) - 1
    a2, b2 = np.empty(layers), np.empty(layers)
    na, nb, peaks = np.empty(layers, np.int64), np.empty(layers, np.int64), np.empty(layers, np.int64)
    start, end = np.empty(layers, np.uint64), np.empty(layers, np.uint64)
    begin, stop = np.empty(layers, np.uint64), np.empty(layers, np.uint64)
    at = np.zeros(layers + 1, np.uint64)
    for k in range(layers):
        at[k + 1] = at[k] + sizes[k + 1]
    reach, constants = np.zeros(at[layers], np.int32), np.empty(at[layers], np.int32)
    for i in range(count):
        squared, usable = 0.0, alive[i]
        for k in range(layers):
            start[k] = input_at[k] + np.uint64(i) * sizes[k]
            end[k] = start[k] + sizes[k]
            begin[k] = slope_at[k] + np.uint64(i) * sizes[k + 1]
            stop[k] = begin[k] + sizes[k + 1]
            a2[k] = first[i] if k == 0 else _length(inputs, input_bits, start[k], end[k], digits[k])
            b2[k] = _length(slopes, slope_bits, begin[k], stop[k], digits[k + 1])
            usable = usable and a2[k] >= 0.0 and b2[k] >= 0.0
            squared += b2[k] * (a2[k] + 1.0)
        norm = math.sqrt(squared) if usable else math.inf
        norms[i] = norm
        scale = min(bound / clip, bound * MARGIN / norm) if norm > 0.0 else 0.0
        usable = scale > 0.0
        total, fits = np.int64(0), True
        for k in range(layers):
            length = math.sqrt(a2[k]) if usable else 0.0
            weight = scale * length * math.sqrt(b2[k]) if usable else 0.0
            nc: WholeNumber = np.int64(0)
            if usable and b2[k] > 0.0:
                nc = _constants(slopes, np.float32(scale), begin[k], stop[k], constants, at[k])
            else:
                for j in range(at[k], at[k + 1]):
                    constants[j] = 0
            if weight >= LIMIT:
                here = math.sqrt(weight) * spread[k] / length
                na[k], peaks[k] = _whole(inputs, np.float32(here), start[k], end[k])
                nb[k], _ = _whole(slopes, np.float32(scale / here), begin[k], stop[k])
            else:
                na[k], peaks[k], nb[k] = 0, 0, 0
                for j in range(start[k], end[k]):
                    inputs[j] = 0.0
                for j in range(begin[k], stop[k]):
                    slopes[j] = 0.0
            if np.float64(na[k]) * np.float64(nb[k]) + np.float64(nc) > 16.0 * bound * bound:
                fits = False
            if fits:
                total += na[k] * nb[k] + nc
        if fits and total > bound * bound:
            shrink = MARGIN * bound / math.sqrt(np.float64(total))
            total = np.int64(0)
            for k in range(layers):
                nb[k] = _shrink(slopes, shrink, begin[k], stop[k])
                total += na[k] * nb[k] + _shrink(constants, shrink, at[k], at[k + 1])
        if not fits or total > bound * bound:
            for k in range(layers):
                for j in range(begin[k], stop[k]):
                    slopes[j] = 0.0
        elif usable:
            for k in range(layers):
                if _overflows(reach, at[k], slopes, begin[k], stop[k], np.int32(peaks[k])):
                    blocks[k, i] = 1
            for j in range(len(constants)):
                biases[j] += np.int64(constants[j])


@jit
def add_whole(products: Array, into: Array) -> None:
    """Adds whole numbers in single precision to integers."""
    widely()
    for j in range(len(into)):
        into[j] += np.int64(products[j])


@jit
def set_whole(products: Array, into: Array) -> None:
    """Writes whole numbers in single precision as integers."""
    widely()
    for j in range(len(into)):
        into[j] = np.int64(products[j])


@jit
def put_small(a: Array, b: Array, into: Array, fresh: bool) -> None:
    """Adds b^T a, of whole numbers in single precision, to integers, or writes it there."""
    width = a.shape[1]
    if fresh:
        into[:] = 0
    for i in range(len(a)):
        for o in range(b.shape[1]):
            slope = np.int64(b[i, o])
            for j in range(width):
                into[o * width + j] += slope * np.int64(a[i, j])
