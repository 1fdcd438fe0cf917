"""The cheap draw of :mod:`noisewise.kernels.normal`, compiled: the same operations, in blocks that stay in the cache."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import jit, normal
from .normal import (
    ANGLE,
    COSINE,
    ERROR,
    FAR,
    HALF,
    LIMIT,
    LN2_HIGH,
    LN2_LOW,
    LOG,
    MAGIC,
    MANTISSA,
    NEAR_ONE,
    ONE,
    SINE,
    SMALL,
    SQRT_HALF_BITS,
    TWO,
    UNIT,
    WHOLE,
)

BLOCK = 512
L0, L1, L2, L3, L4, L5, L6, L7, L8 = LOG
S0, S1, S2 = SINE
C0, C1, C2 = COSINE
I32, F32 = np.int32, np.float32


@jit
def _radii(words: NDArray[np.int32], std: np.float32, exponents: NDArray[np.int32], radii: NDArray[np.float32]) -> None:
    bits = radii.view(np.int32)
    for i in range(len(words)):
        w = words[i]
        end = F32(I32(w ^ I32(w >> 31))) + HALF
        radii[i] = WHOLE - end if w < 0 else end
    for i in range(len(words)):
        b = I32(bits[i] - SQRT_HALF_BITS)
        exponents[i] = I32(b >> 23)
        bits[i] = I32(I32(b & MANTISSA) + SQRT_HALF_BITS)
    for i in range(len(words)):
        w = words[i]
        least = I32(w ^ I32(w >> 31))
        end = F32(least) + HALF
        e = F32(I32(exponents[i] - I32(32)))
        t = -(end * UNIT) if (w < 0) & (end < NEAR_ONE) else radii[i] - ONE
        z = t * t
        y = ((((((((L0 * t + L1) * t + L2) * t + L3) * t + L4) * t + L5) * t + L6) * t + L7) * t + L8) * t * z
        y = y + e * LN2_LOW - HALF * z
        r = np.sqrt(((t + y) + e * LN2_HIGH) * -TWO) * std
        radii[i] = FAR if least < SMALL else r


@jit
def _normals(
    words: NDArray[np.int32],
    radii: NDArray[np.float32],
    first: NDArray[np.float32],
    second: NDArray[np.float32],
) -> None:
    for i in range(len(words)):
        v, r = words[i], radii[i]
        a = (F32(I32(v >> 2)) + HALF) * ANGLE
        z = a * a
        c = (((C0 * z + C1) * z + C2) * z * z - HALF * z + ONE) * (-r if (v & 1) != 0 else r)
        s = (((S0 * z + S1) * z + S2) * z * a + a) * r
        swap = (v & 2) != 0
        first[i] = s if swap else c
        second[i] = c if swap else s


@jit
def _round(
    noise: NDArray[np.float32], radii: NDArray[np.float32], doubt: NDArray[np.float32], k: NDArray[np.int64]
) -> int:
    undecided = I32(0)
    for i in range(len(k)):
        y = noise[i]
        nearest = (y + MAGIC) - MAGIC
        doubt[i] = abs(y - nearest) + ERROR * radii[i]
        undecided += I32(doubt[i] > LIMIT)
        k[i] = I32(nearest)
    return undecided


@jit
def _add_and_round(
    total: NDArray[np.int64],
    shift: int,
    bound: int,
    noise: NDArray[np.float32],
    radii: NDArray[np.float32],
    doubt: NDArray[np.float32],
    k: NDArray[np.int64],
) -> int:
    down, up = max(shift, 0), max(-shift, 0)
    half, unit = (1 << down) >> 1, F32(1 / (1 << down))
    undecided = I32(0)
    for i in range(len(k)):
        whole = min(max(total[i], -bound), bound)
        a = (whole + half) >> down
        y = F32(whole - (a << down)) * unit + noise[i]
        nearest = (y + MAGIC) - MAGIC
        doubt[i] = abs(y - nearest) + ERROR * radii[i]
        undecided += I32(doubt[i] > LIMIT)
        k[i] = (a << up) + I32(nearest)
    return undecided


@jit
def rounded(
    words: NDArray[np.int32],
    total: NDArray[np.int64],
    std: np.float32,
    shift: int,
    bound: int,
    k: NDArray[np.int64],
    undecided: NDArray[np.int64],
) -> int:
    """Block by block what the reference does for all pairs together."""
    pairs, found = len(words) // 2, 0
    scratch, exponents = np.empty((4, BLOCK), dtype=np.float32), np.empty(BLOCK, dtype=np.int32)
    radii, doubt = scratch[0], scratch[1]
    for start in range(0, pairs, BLOCK):
        stop = min(start + BLOCK, pairs)
        _radii(words[start:stop], std, exponents, radii)
        _normals(words[pairs + start : pairs + stop], radii, scratch[2], scratch[3])
        for half in range(2):
            first = half * pairs + start
            answer = k[first : half * pairs + stop]
            if len(total):
                exact = total[first : first + len(answer)]
                open_ = _add_and_round(exact, shift, bound, scratch[2 + half], radii, doubt, answer)
            else:
                open_ = _round(scratch[2 + half], radii, doubt, answer)
            if open_:
                for i in range(len(answer)):
                    if doubt[i] > LIMIT:
                        undecided[found] = first + i
                        found += 1
    return found


refined = jit(normal.refined)
