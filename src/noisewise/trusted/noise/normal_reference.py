"""The cheap draw of rounded Gaussian noise, with a bound on its error: the reference, in numpy.

A pair of 32-bit words (w, v) are the first bits of two uniforms, which :mod:`noisewise.trusted.noise.normal` continues where
they do not decide. U = (w + u)/2^32 and A = (pi/2) (floor(v/4) + a)/2^30, u and a uniform on [0, 1], give

    R = sqrt(-2 log U),  (R cos A, R sin A) or (-R cos A, R sin A) by v's last bit, exchanged by the one before it,

which is Box and Muller's transform with the circle as four quarters around the axes: two independent standard normals.
Here all is computed in float32 at the middle of both intervals (u = a = 1/2).

*Error.* Over all words w at least ``MIN_SURE_WORD`` = 2^17 from either end the computed radius r differs from R by at most
2^-21.6 r + 2^-26.1, and over all angles cosine and sine by at most 2^-23.12, whatever the bits to come are: found by
going through all 2^32 words and 2^30 angles in double precision. Words nearer to an end, where u matters more, are not
decided here. The scale, two products and a sum round by 2^-24 of the radius each, so that with s < 64 the scale

    |computed - exact| <= (2^-21.6 + 2^-23.12 + 4 * 2^-24) s r + E0 <= ERROR s r + 2^-19,

where E0 = 64 * 2^-26.1 (the radius) + 3 * 2^-25 (the offset's conversion, its part of the sum, the test's own sum).
A draw is decided if its distance to the nearest integer plus this bound stays below 1/2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32, I32 = np.float32, np.int32
HALF, ONE, TWO = F32(0.5), F32(1), F32(2)
RADIUS, RADIUS_FLOOR, WAVE = 2.0**-21.6, 2.0**-26.1, 2.0**-23.12  # the errors above
ERROR = F32(2.0**-20.4)
LIMIT = F32(0.5 - 2.0**-19)
MIN_SURE_WORD = F32(2.0**17)
FAR = F32(2.0**22)  # the radius of words that are not decided here: ERROR * FAR > 1/2

# -2 log m = s P(s^2) with s = (m - 1)/(m + 1), between sqrt(1/2) and sqrt(2), to 2^-29 of itself
LOG = tuple(F32(c) for c in (-0.5975832066, -0.7995457388, -1.3333355649, -4.0))
# sine and cosine up to pi/4 (Cephes, S. Moshier)
SINE = tuple(F32(c) for c in (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
COSINE = tuple(F32(c) for c in (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2))
SQRT_HALF, MANTISSA = I32(0x3F3504F3), I32(0x007FFFFF)  # the bits of sqrt(1/2), and of any mantissa
WHOLE_SQRT_HALF = I32(SQRT_HALF + (32 << 23))  # the bits of 2^32 sqrt(1/2)
WHOLE, MINUS_UNIT = F32(2.0**32), F32(-(2.0**-32))
MINUS_TWO_LN2 = F32(-2 * math.log(2))
NEAR_ONE = F32(0.292 * 2.0**32)  # 1 - U below 0.292: log(1 - x) from x itself, which is more precise
ANGLE = F32(math.pi / 2 / 2**30)
MAGIC = F32(1.5 * 2**23)  # adding and subtracting it rounds to the nearest integer


def radii(words: NDArray[np.int32]) -> NDArray[np.float32]:
    """sqrt(-2 log U) for U = (w + 1/2)/2^32, w the words read as unsigned numbers."""
    upper = words < 0
    end = (words ^ (words >> I32(31))).astype(np.float32) + HALF  # U 2^32, or (1 - U) 2^32 in the upper half
    bits = np.where(upper, WHOLE - end, end).view(np.int32) - WHOLE_SQRT_HALF
    e = (bits >> I32(23)).astype(np.float32)
    m = ((bits & MANTISSA) + SQRT_HALF).view(np.float32)
    t = np.where(upper & (end < NEAR_ONE), end * MINUS_UNIT, m - ONE)
    s = t / (t + TWO)
    z = s * s
    return np.sqrt((((LOG[0] * z + LOG[1]) * z + LOG[2]) * z + LOG[3]) * s + e * MINUS_TWO_LN2)


def waves(words: NDArray[np.int32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosine and sine of the angle (pi/2) (floor(v/4) + 1/2)/2^30, which lies within pi/4 of zero."""
    a: Any = ((words >> I32(2)).astype(np.float32) + HALF) * ANGLE
    z = a * a
    cosine = ((COSINE[0] * z + COSINE[1]) * z + COSINE[2]) * z * z - HALF * z + ONE
    return cosine, ((SINE[0] * z + SINE[1]) * z + SINE[2]) * z * a + a


def split(total: NDArray[np.int64], shift: int, bound: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(a, b/h) with total = a h + b for h = 2^shift and -h/2 <= b < h/2, the total held within +-bound."""
    whole, down = np.clip(total, -bound, bound), max(shift, 0)
    a = (whole + ((1 << down) >> 1)) >> down
    return a << max(-shift, 0), (whole - (a << down)).astype(np.float32) * F32(2.0**-down)


def rounded(
    words: NDArray[np.int32],
    total: NDArray[np.int64],
    std: np.float32,
    shift: int,
    bound: int,
    k: NDArray[np.int64],
    undecided: NDArray[np.int64],
) -> int:
    """Writes k = round(total/2^shift + std N), and where it is not decided; returns how many are not.

    The first half of the words are radii, the second angles; the first half of k are the first of each pair. An empty
    total stands for zeros.
    """
    pairs = len(words) // 2
    scaled = radii(words[:pairs]) * std
    radius = np.where(np.abs(words[:pairs] + HALF) < MIN_SURE_WORD, FAR, scaled)
    cosine, sine = waves(words[pairs:])
    s, c = sine * radius, cosine * np.where(words[pairs:] & I32(1), -radius, radius)
    swap = (words[pairs:] & I32(2)) != 0
    y = np.concatenate([np.where(swap, s, c), np.where(swap, c, s)])[: len(k)]
    k[:] = 0
    if len(total):
        k[:], offset = split(total, shift, bound)
        y = offset + y
    nearest = (y + MAGIC) - MAGIC
    k += nearest.astype(np.int64)
    at = np.flatnonzero(np.abs(y - nearest) + ERROR * np.concatenate([radius, radius])[: len(k)] > LIMIT)
    undecided[: len(at)] = at
    return len(at)


def scaled(k: NDArray[np.int64], factor: Any, answer: NDArray[Any]) -> None:
    """Writes k times the factor, both in the precision of the answer."""
    answer[:] = k
    answer *= factor


def refined(
    at: NDArray[np.int64],
    words: NDArray[np.int32],
    more: NDArray[np.uint64],
    total: NDArray[np.int64],
    std: float,
    shift: int,
    bound: int,
    k: NDArray[np.int64],
) -> int:
    """The draws ``at`` anew in double precision, each uniform with the 64 more bits of its row of ``more``.

    *Error.* 96 bits leave 2^-63 relative to 1 - U and U (words at either end are left open), every function and
    operation a few units of 2^-53 relative to the radius: together less than 2^-48, and 2^-44 is granted. Those still
    open are moved to the front of ``at``; returns how many.
    """
    pairs, left, down, up = len(words) // 2, 0, max(shift, 0), max(-shift, 0)
    half = (1 << down) >> 1
    for i in range(len(at)):
        j = int(at[i])
        pair = j if j < pairs else j - pairs
        w, v = int(words[pair]), int(words[pairs + pair])
        low = float(more[i, 0]) * 2.0**-64
        if w == 0 or w == -1:
            at[left] = j
            left += 1
            continue
        log = math.log((w + low) * 2.0**-32) if w > 0 else math.log1p((w + low) * 2.0**-32)
        radius = std * math.sqrt(-2.0 * log)
        angle = ((v >> 2) + float(more[i, 1]) * 2.0**-64) * (math.pi / 2 * 2.0**-30)
        if (j < pairs) == ((v & 2) == 0):
            noise = (-radius if (v & 1) else radius) * math.cos(angle)
        else:
            noise = radius * math.sin(angle)
        whole = min(max(int(total[j]), -bound), bound) if len(total) else 0
        a = (whole + half) >> down
        noise += (whole - (a << down)) * 2.0**-down
        nearest = math.floor(noise + 0.5)
        if abs(noise - nearest) + radius * 2.0**-44 < 0.5 - 2.0**-50:
            k[j] = (a << up) + int(nearest)
        else:
            at[left] = j
            left += 1
    return left
