"""The cheap draw of rounded Gaussian noise, with a bound on its error: the reference, in numpy.

A pair of 32-bit words (w, v) are the first bits of two uniforms, which :mod:`noisewise.curator.normal` continues where
they do not decide. U = (w + u)/2^32 and A = (pi/2) (floor(v/4) + a)/2^30, u and a uniform on [0, 1], give

    R = sqrt(-2 log U),  (R cos A, R sin A) or (-R cos A, R sin A) by v's last bit, exchanged by the one before it,

which is Box and Muller's transform with the circle as four quarters around the axes: two independent standard normals.
Here all is computed in float32 at the middle of both intervals (u = a = 1/2).

*Error.* Beside its two end words the radius is off by at most 2^-21.5 R + 2^-26 and the sine and cosine by 2^-23.1,
whatever the bits to come are: found over all 2^32 words and all angles, against double precision (RADIUS and WAVE
round that up). Words w within ``SMALL`` = 2^17 of either end are not decided here, as u matters too much there.
Three products and one sum round by 2^-24 each relative to the radius, the scale by 2^-24, so with s < 64

    |computed - exact| <= (RADIUS + WAVE + 5 * 2^-24) s R + E0 <= ERROR s R + 2^-19,

where E0 = 64 * 2^-26 (the radius) + 3 * 2^-25 (the offset's conversion, its part of the sum, the test's own sum).
A draw is decided if its distance to the nearest integer plus this bound stays below 1/2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

F32, I32 = np.float32, np.int32
HALF, ONE, TWO = F32(0.5), F32(1), F32(2)
RADIUS, WAVE = 2.0**-21.4, 2.0**-23.1
ERROR = F32(2.0**-20.4)  # at least RADIUS + WAVE + 5 * 2^-24
LIMIT = F32(0.5 - 2.0**-19)
SMALL = I32(2**17)
FAR = F32(2.0**22)  # the radius of words that are not decided here: ERROR * FAR > 1/2

# log(1 + t) = t - t^2/2 + t^3 P(t) between sqrt(1/2) and sqrt(2), and sine and cosine up to pi/4 (Cephes, S. Moshier)
LOG = tuple(
    F32(c)
    for c in (
        *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
        *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
    )
)
SINE = tuple(F32(c) for c in (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
COSINE = tuple(F32(c) for c in (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2))
LN2_HIGH, LN2_LOW = F32(0.693359375), F32(-2.12194440e-4)
SQRT_HALF_BITS, MANTISSA = I32(0x3F3504F3), I32(0x007FFFFF)
WHOLE, UNIT = F32(2.0**32), F32(2.0**-32)
NEAR_ONE = F32(0.292 * 2.0**32)  # 1 - U below 0.292: log(1 - x) from x itself, which is more precise
ANGLE = F32(math.pi / 2 / 2**30)
MAGIC = F32(1.5 * 2**23)  # adding and subtracting it rounds to the nearest integer


def radii(words: NDArray[np.int32]) -> NDArray[np.float32]:
    """sqrt(-2 log U) for U = (w + 1/2)/2^32, w the words read as unsigned numbers."""
    upper = words < 0
    end = (words ^ (words >> I32(31))).astype(np.float32) + HALF  # U 2^32, or (1 - U) 2^32 in the upper half
    bits = np.where(upper, WHOLE - end, end).view(np.int32) - SQRT_HALF_BITS
    e = ((bits >> I32(23)) - I32(32)).astype(np.float32)
    t = ((bits & MANTISSA) + SQRT_HALF_BITS).view(np.float32) - ONE
    t = np.where(upper & (end < NEAR_ONE), -(end * UNIT), t)
    y, z = np.full_like(t, LOG[0]), t * t
    for c in LOG[1:]:
        y = y * t + c
    y = y * t * z + e * LN2_LOW - HALF * z
    return np.sqrt(((t + y) + e * LN2_HIGH) * -TWO)


def waves(words: NDArray[np.int32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosine and sine of the angle (pi/2) (floor(v/4) + 1/2)/2^30, which lies within pi/4 of zero."""
    a = ((words >> I32(2)).astype(np.float32) + HALF) * ANGLE
    z = a * a
    cosine: NDArray[np.float32] = ((COSINE[0] * z + COSINE[1]) * z + COSINE[2]) * z * z - HALF * z + ONE
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
    radius = np.where((words[:pairs] ^ (words[:pairs] >> I32(31))) < SMALL, FAR, scaled)
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
