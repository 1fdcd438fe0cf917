"""The gaps of :mod:`noisewise.trusted.noise.gaps`, compiled."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..noise.gaps import ABOVE, BELOW, MIN_SURE_WORD, UNIT
from .kernels import jit


@jit
def joined(words: NDArray[np.int64], mean: float, of: int, row: int, rows: NDArray[np.int64]) -> tuple[int, int]:
    """Row by row what the reference does for all rows together."""
    for i in range(len(words)):
        w = words[i]
        end = w ^ (w >> 63)
        if end < MIN_SURE_WORD:
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
