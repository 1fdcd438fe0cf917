"""A perceptron's clipped gradients in whole numbers: the reference, in numpy, of ``perceptron_kernels``.

A record's gradient in layer k is b a^T (weights) and b (bias). With C/M the unit of the sum, its part is

    bq aq^T and round(s b),   aq = round(sa a),   bq = round(sb b),   sa sb = s = min(1, C/norm) M/C.

The freedom in sa is used so that entries of aq and bq are about equally large, which loses least to rounding. The squared
norm of the part, sum |bq|^2 |aq|^2 + |round(s b)|^2, is an integer; where it exceeds M^2 the record is shrunk toward zero,
and one that still does not fit is left out. All of it is a function of the record's own a and b.

*Exact products.* A float32 product of whole numbers is exact in any order of summation as long as
sum_i |bq_ij| max|aq_i| <= 2^24 for every output j. Blocks of records are cut where that would fail.

*Integers that fit.* Lengths are known to about a thousandth, rounding to nearest at most doubles one, and |sa a| and |sb b|
are at most SPREAD sqrt(M) <= 4 2^11.5: their squared lengths stay below 2^30.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MARGIN = 1 - 2.0**-10  # of the clip norm, so that rounding to nearest hardly ever exceeds it
MAX_EXACT_INTEGER = 1 << 24  # up to which single precision holds every integer
MAX_M, MIN_M = 1 << 23, 1 << 18
SPREAD = 4.0  # how much larger, by square root of M, one factor may be than the other
LIMIT = 2.0**-20  # weights' parts shorter than that are zero after rounding
HIGH, LOW = 60, -100  # exponents of entries that are too large, and of entries that count as zero
WIDE = 4096  # entries of a row beyond which its squared length needs more than 31 bits
MAX_DOUBLE_ENTRIES = 512  # of a layer up to which its product runs in double precision


def bound_for(sizes: tuple[int, ...], height: int) -> int:
    """M, units in a clip norm: as many as ``height`` usual records leave room for in one block."""
    large = [into * out for into, out in pairwise(sizes) if into * out > MAX_DOUBLE_ENTRIES]
    room = MAX_EXACT_INTEGER * math.sqrt(max(large)) / (2.2 * height) if large else MAX_M
    return min(max(1 << int(math.log2(room)), MIN_M), MAX_M)


def digits_for(width: int) -> int:
    """Bits of the whole numbers that measure a row's length: squares of up to WIDE of them add up to at most 2^30."""
    return 14 if width > WIDE else 14 - (max(width - 1, 0).bit_length() + 1) // 2


def spread_for(into: int, out: int) -> float:
    """|aq| by sqrt(|aq| |bq|) so that both have entries of one size, within limits."""
    return min(max(math.sqrt(math.sqrt(into / out)), 1 / SPREAD), SPREAD)


def squared_lengths(rows: Array) -> Array:
    """Squared length of each row of single precision from whole numbers; -1 if an entry is not finite or too large."""
    exponents = ((rows.view(np.int32) & 0x7FFFFFFF).max(axis=1, initial=0) >> 23).astype(np.int64) - 127
    good = (exponents < HIGH) & (exponents >= LOW)
    places = np.where(good, digits_for(rows.shape[1]) - exponents, 0)
    plain = np.where(good[:, None], rows, np.float32(0))
    whole = np.rint(plain * np.ldexp(1.0, places).astype(np.float32)[:, None]).astype(np.int64)
    lengths = np.ldexp((whole * whole).sum(axis=1).astype(np.float64), -2 * places)
    return np.where(exponents >= HIGH, -1.0, lengths)


def whole_parts(
    inputs: list[Array], slopes: list[Array], first: Array, alive: Array, clip: float, bound: int
) -> tuple[list[Array], list[Array], Array, Array, Array]:
    """(aq, bq) of each layer, the sums of the biases' parts, the norms, and where new blocks begin in each layer."""
    a2 = [first, *(squared_lengths(a) for a in inputs[1:])]
    b2 = [squared_lengths(b) for b in slopes]
    usable, squared = alive.copy(), np.zeros(len(first))
    for a, b in zip(a2, b2, strict=True):
        usable &= (a >= 0) & (b >= 0)
        squared += b * (a + 1.0)
    norms = np.sqrt(np.where(usable, squared, np.inf))
    with np.errstate(divide="ignore"):
        scale = np.where(norms > 0, np.minimum(bound / clip, bound * MARGIN / norms), 0.0)
    usable = scale > 0
    whole_inputs, whole_slopes, constants = [], [], []
    for a, b, al, bl in zip(inputs, slopes, a2, b2, strict=True):
        sa, sb = _scales(scale, np.where(usable, al, 0.0), np.where(usable, bl, 0.0), a.shape[1], b.shape[1])
        whole_inputs.append(_whole(a, sa))
        whole_slopes.append(_whole(b, sb))
        constants.append(_whole(b, np.where(bl > 0, scale, 0.0)))
    total, fits = _norms(whole_inputs, whole_slopes, constants, bound)
    far = fits & (total > bound**2)
    shrink = np.where(far, MARGIN * bound / np.sqrt(np.maximum(total, 1).astype(np.float64)), 1.0)
    for part in (*whole_slopes, *constants):
        part[:] = (part * shrink[:, None]).astype(np.int64)
    total, _ = _norms(whole_inputs, whole_slopes, constants, bound)
    for part in (*whole_slopes, *constants):
        part[~(usable & fits & (total <= bound**2))] = 0
    begins = [_blocks(a, b) for a, b in zip(whole_inputs, whole_slopes, strict=True)]
    return whole_inputs, whole_slopes, np.concatenate([c.sum(axis=0) for c in constants]), norms, np.stack(begins)


def _scales(scale: Array, a2: Array, b2: Array, into: int, out: int) -> tuple[Array, Array]:
    """sa and sb; zero where all products would round to zero."""
    length = np.sqrt(a2)
    weight = scale * length * np.sqrt(b2)
    there = weight >= LIMIT
    sa = np.sqrt(weight) * spread_for(into, out) / np.where(there, length, 1.0)
    return np.where(there, sa, 0.0), np.where(there, scale / np.where(there, sa, 1.0), 0.0)


def _whole(rows: Array, scale: Array) -> Array:
    plain = np.where(scale[:, None] > 0, rows, np.float32(0))
    return np.rint(plain * scale.astype(np.float32)[:, None]).astype(np.int64)


def _norms(inputs: list[Array], slopes: list[Array], constants: list[Array], bound: int) -> tuple[Array, Array]:
    """Squared norm of each record's part, and whether it is small enough for that integer to be right."""
    total, fits = np.zeros(len(inputs[0]), np.int64), np.ones(len(inputs[0]), bool)
    for a, b, c in zip(inputs, slopes, constants, strict=True):
        na, nb, nc = ((part * part).sum(axis=1) for part in (a, b, c))
        fits &= na.astype(np.float64) * nb.astype(np.float64) + nc.astype(np.float64) <= 16.0 * bound * bound
        total += np.where(fits, na, 0) * np.where(fits, nb, 0) + np.where(fits, nc, 0)
    return total, fits


def _blocks(inputs: Array, slopes: Array) -> Array:
    """1 at each record that begins a new block, because with it a sum could leave what single precision holds."""
    begins, reach = np.zeros(len(inputs), np.int64), np.zeros(slopes.shape[1], np.int64)
    for i, (peak, row) in enumerate(zip(np.abs(inputs).max(axis=1, initial=0), np.abs(slopes), strict=True)):
        reach += row * peak
        if reach.max(initial=0) > MAX_EXACT_INTEGER:
            begins[i], reach = 1, row * peak
    return begins
