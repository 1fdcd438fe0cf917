"""The cheap draw of :mod:`noisewise.trusted.noise.normal_reference`, compiled: the same operations, in blocks that stay in the cache.

Also the gaps of :mod:`noisewise.trusted.noise.discrete`.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..noise import normal_reference
from ..noise.discrete import ABOVE, BELOW, UNIT
from ..noise.discrete import MIN_SURE_WORD as MIN_SURE_GAP
from ..noise.normal_reference import (
    ANGLE,
    COSINE,
    ERROR,
    FAR,
    HALF,
    LIMIT,
    LOG,
    MAGIC,
    MANTISSA,
    MIN_SURE_WORD,
    MINUS_TWO_LN2,
    MINUS_UNIT,
    NEAR_ONE,
    ONE,
    SINE,
    SQRT_HALF,
    TWO,
    WHOLE,
    WHOLE_SQRT_HALF,
)
from .elementwise_compiled import widely
from .kernels import jit

PAIRS_PER_BLOCK = 512
L0, L1, L2, L3 = LOG
S0, S1, S2 = SINE
C0, C1, C2 = COSINE
I32, F32 = np.int32, np.float32


ir: Any = importlib.import_module("llvmlite.ir")
types: Any = importlib.import_module("numba").types
intrinsic: Any = importlib.import_module("numba.extending").intrinsic


@intrinsic
def _bits(context: Any, x: Any) -> Any:
    """The bits of a float32."""
    return types.int32(types.float32), lambda c, builder, s, arguments: builder.bitcast(arguments[0], ir.IntType(32))


@intrinsic
def _float(context: Any, x: Any) -> Any:
    """The float32 of these bits."""
    return types.float32(types.int32), lambda c, builder, s, arguments: builder.bitcast(arguments[0], ir.FloatType())


@jit
def _normals(
    radial: NDArray[np.int32],
    angular: NDArray[np.int32],
    std: np.float32,
    radii: NDArray[np.float32],
    first: NDArray[np.float32],
    second: NDArray[np.float32],
) -> None:
    widely()
    for i in range(len(radial)):
        w, v = radial[i], angular[i]
        end = F32(I32(w ^ I32(w >> 31))) + HALF
        bits = I32(_bits(WHOLE - end if w < 0 else end) - WHOLE_SQRT_HALF)
        e = F32(I32(bits >> 23))
        m = _float(I32(I32(bits & MANTISSA) + SQRT_HALF))
        t = end * MINUS_UNIT if (w < 0) & (end < NEAR_ONE) else m - ONE
        s = t / (t + TWO)
        z = s * s
        energy = (((L0 * z + L1) * z + L2) * z + L3) * s + e * MINUS_TWO_LN2
        r = FAR if end < MIN_SURE_WORD else np.sqrt(energy) * std
        a = (F32(I32(v >> 2)) + HALF) * ANGLE
        z = a * a
        cosine = (((C0 * z + C1) * z + C2) * z * z - HALF * z + ONE) * (-r if (v & 1) != 0 else r)
        sine = (((S0 * z + S1) * z + S2) * z * a + a) * r
        swap = (v & 2) != 0
        radii[i] = r
        first[i] = sine if swap else cosine
        second[i] = cosine if swap else sine


@jit
def _round(
    noise: NDArray[np.float32], radii: NDArray[np.float32], doubt: NDArray[np.float32], k: NDArray[np.int64]
) -> int:
    widely()
    undecided = I32(0)
    for i in range(len(k)):
        y = noise[i]
        nearest = (y + MAGIC) - MAGIC
        doubt[i] = abs(y - nearest) + ERROR * radii[i]
        undecided += I32(doubt[i] > LIMIT)
        k[i] = I32(nearest)
    return int(undecided)


@jit
def _add_coarse(
    total: NDArray[np.int64],
    shift: int,
    bound: int,
    noise: NDArray[np.float32],
    radii: NDArray[np.float32],
    doubt: NDArray[np.float32],
    k: NDArray[np.int64],
) -> int:
    half, unit = 1 << (shift - 1), F32(1 / (1 << shift))
    widely()
    undecided = I32(0)
    for i in range(len(k)):
        whole = min(max(total[i], -bound), bound)
        a = (whole + half) >> shift
        y = F32(whole - (a << shift)) * unit + noise[i]
        nearest = (y + MAGIC) - MAGIC
        doubt[i] = abs(y - nearest) + ERROR * radii[i]
        undecided += I32(doubt[i] > LIMIT)
        k[i] = a + I32(nearest)
    return int(undecided)


@jit
def _add_fine(total: NDArray[np.int64], shift: int, bound: int, k: NDArray[np.int64]) -> None:
    for i in range(len(k)):
        k[i] += min(max(total[i], -bound), bound) << -shift


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
    widely()
    pairs, count = len(words) // 2, 0
    scratch = np.empty((4, PAIRS_PER_BLOCK), dtype=np.float32)
    radii, doubt = scratch[0], scratch[1]
    for start in range(0, pairs, PAIRS_PER_BLOCK):
        stop = min(start + PAIRS_PER_BLOCK, pairs)
        _normals(words[start:stop], words[pairs + start : pairs + stop], std, radii, scratch[2], scratch[3])
        for half in range(2):
            first = half * pairs + start
            answer = k[first : half * pairs + stop]
            exact = total[first : first + len(answer)]
            if len(exact) and shift > 0:
                open_ = _add_coarse(exact, shift, bound, scratch[2 + half], radii, doubt, answer)
            else:
                open_ = _round(scratch[2 + half], radii, doubt, answer)
                if len(exact):
                    _add_fine(exact, shift, bound, answer)
            if open_:
                for i in range(len(answer)):
                    if doubt[i] > LIMIT:
                        undecided[count] = first + i
                        count += 1
    return count


@jit
def scaled(k: NDArray[np.int64], factor: Any, answer: NDArray[Any]) -> None:
    """The same in one pass."""
    widely()
    for i in range(len(k)):
        answer[i] = answer.dtype.type(k[i]) * factor


refined = jit(normal_reference.refined)


@jit
def joined(words: NDArray[np.int64], mean: float, of: int, row: int, rows: NDArray[np.int64]) -> tuple[int, int]:
    """Row by row what the reference does for all rows together."""
    for i in range(len(words)):
        w = words[i]
        end = w ^ (w >> 63)
        if end < MIN_SURE_GAP:
            return i, i
        x = (end + 0.5) * UNIT
        gap = -(math.log1p(-x) if w < 0 else math.log(x)) * mean
        if gap * BELOW >= of:
            return i + 1, i
        whole = math.floor(gap * BELOW)
        if whole != math.floor(gap * ABOVE):
            return i, i
        row += whole + 1
        if row >= of:
            return i + 1, i
        rows[i] = row
    return len(words), len(words)
