"""exp and log from + - * / alone, so that the bits of one entry depend on that entry only.

Libraries compute the last few entries of an array by another routine than the rest, and other machines by other routines;
here every step is one operation that IEEE 754 fixes to the last bit. The compiled kernels take the same steps.
"""

from __future__ import annotations

import importlib

import numpy as np
from numpy.typing import NDArray

from .fast import kernels

Floats = NDArray[np.float64]

MAX_PLAIN_ENTRIES = 1 << 14  # up to which compiled code is not worth loading; the bits are the same
MIN_EXPONENT = -700.0  # exp of less counts as exp of that: 1e-304, far below any coefficient
LOG2_E = 1.4426950408889634
LN2_HIGH = 0.693147180369123816490  # its last bits are zero, so that its small multiples are exact
LN2_LOW = 1.90821492927058770002e-10
SQRT_HALF = 0.7071067811865476
EXP_TERMS = (1 / 362880, 1 / 40320, 1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)
LOG_TERMS = tuple(2 / k for k in range(23, 0, -2))


def exp(x: Floats) -> Floats:
    """exp(x) for x <= 0, to 1e-11: 2^k times a polynomial of the rest.

    >>> abs(float(exp(np.array([-1.0]))[0]) - 0.36787944117144233) < 1e-12
    True
    """
    if x.size > MAX_PLAIN_ENTRIES and kernels.compiled():
        return _entry_by_entry("exp", x)
    x = np.maximum(x, MIN_EXPONENT)
    k = np.floor(x * LOG2_E + 0.5)
    rest = (x - k * LN2_HIGH) - k * LN2_LOW
    value = np.full_like(rest, EXP_TERMS[0])
    for term in EXP_TERMS[1:]:
        value = value * rest + term
    power: Floats = ((k.astype(np.int64) + 1023) << 52).view(np.float64)
    return value * power


def log(x: Floats) -> Floats:
    """log(x) for normal x > 0, to 1e-12: k log 2 plus 2 atanh((m - 1)/(m + 1)) for x = m 2^k, m about 1.

    >>> abs(float(log(np.array([10.0]))[0]) - 2.302585092994046) < 1e-12
    True
    """
    if x.size > MAX_PLAIN_ENTRIES and kernels.compiled():
        return _entry_by_entry("log", x)
    m, k = np.frexp(x)
    low = m < SQRT_HALF
    m, k = np.where(low, m + m, m), np.where(low, k - 1, k).astype(np.float64)
    s = (m - 1.0) / (m + 1.0)
    squared = s * s
    value = np.full_like(s, LOG_TERMS[0])
    for term in LOG_TERMS[1:]:
        value = value * squared + term
    return value * s + (k * LN2_LOW + k * LN2_HIGH)


def lengths(rows: Floats) -> Floats:
    """The Euclidean length of each row, squares added from the first column to the last.

    >>> lengths(np.array([[3.0, 4.0], [0.0, 2.0]])).tolist()
    [5.0, 2.0]
    """
    total = np.zeros(len(rows))
    if rows.size > MAX_PLAIN_ENTRIES and kernels.compiled():
        importlib.import_module(".fast.elementwise_compiled", __package__).squared_lengths(rows, total)
    else:
        for column in rows.T:
            total = total + column * column
    return np.sqrt(total)


def _entry_by_entry(name: str, x: Floats) -> Floats:
    """The compiled function of that name, which is imported when it is first used."""
    flat = np.ascontiguousarray(x, dtype=np.float64).reshape(-1)
    out = np.empty_like(flat)
    getattr(importlib.import_module(".fast.elementwise_compiled", __package__), name)(flat, out)
    return out.reshape(x.shape)
