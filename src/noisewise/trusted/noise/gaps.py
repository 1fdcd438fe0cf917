"""Gaps between the records that join a Poisson batch, with a bound on their error: the reference, in numpy.

Each gap is floor(log U / log(1 - rate)), U = (w + u)/2^64 with w a word and u in [0, 1] its bits to come; here u = 1/2
in double precision. *Error.* For words at least ``MIN_SURE_WORD`` = 2^44 from either end u moves log U by at most 2^-45 of
itself, and the functions and operations add a few units of 2^-53: together less than 2^-44.9, and 2^-44 is granted.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

MIN_SURE_WORD = np.int64(2**44)
BELOW, ABOVE = 1 - 2.0**-44, 1 + 2.0**-44
UNIT = 2.0**-64


def mean_gap(rate: float) -> float:
    """-1/log(1 - rate), with which -log U is multiplied; infinite for rates too small for it."""
    return -1 / math.log1p(-rate) if rate > 2.0**-1022 else math.inf


def joined(words: NDArray[np.int64], mean: float, of: int, row: int, rows: NDArray[np.int64]) -> tuple[int, int]:
    """Writes the rows after ``row`` that join, one gap per word, until they pass ``of``, a gap is open or words end.

    Returns how many words were used and how many rows written: less rows than words if the last gap passed ``of``.
    """
    upper, end = words < 0, words ^ (words >> 63)
    x = (end + 0.5) * UNIT
    mean_gaps = -np.where(upper, np.log1p(-np.where(upper, x, 0)), np.log(np.where(upper, 1, x))) * mean
    passed = mean_gaps * BELOW >= of
    gaps = np.floor(np.where(passed, of, mean_gaps * BELOW))
    opened = (end < MIN_SURE_WORD) | (~passed & (gaps != np.floor(np.where(passed, of, mean_gaps * ABOVE))))
    decided = int(np.argmax(opened)) if opened.any() else len(words)
    joining = row + np.cumsum(gaps[:decided].astype(np.int64) + 1)
    inside = int(np.searchsorted(joining, of))
    rows[:inside] = joining[:inside]
    return min(inside + 1, decided), inside
