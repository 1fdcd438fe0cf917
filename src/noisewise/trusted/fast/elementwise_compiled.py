"""The compiled form of :mod:`noisewise.trusted.elementwise`: the same steps for one entry after the other, so the same bits."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..elementwise import EXP_TERMS, LN2_HIGH, LN2_LOW, LOG2_E, LOG_TERMS, MIN_EXPONENT, SQRT_HALF
from . import kernels

Floats = NDArray[np.float64]
types: Any = importlib.import_module("numba").types
intrinsic: Any = importlib.import_module("numba.extending").intrinsic


@intrinsic
def widely(context: Any) -> Any:
    """Asks for registers of 512 bits where there are any, for the function that calls it; the numbers stay the same."""

    def ask(c: Any, builder: Any, s: Any, arguments: Any) -> Any:
        with contextlib.suppress(TypeError):  # attributes are a set that knows only some words
            set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return c.get_dummy_value()

    return types.void(), ask


@kernels.jit
def exp_of(x: float) -> float:
    """exp of one number; small, so that a loop that calls it is compiled as if it stood there."""
    bounded = max(x, MIN_EXPONENT)
    k = np.floor(bounded * LOG2_E + 0.5)
    rest = (bounded - k * LN2_HIGH) - k * LN2_LOW
    value = EXP_TERMS[0]
    for t in range(1, 10):
        value = value * rest + EXP_TERMS[t]
    return value * np.int64((np.int64(k) + 1023) << 52).view(np.float64)


@kernels.jit
def exp(x: Floats, out: Floats) -> None:
    for i in range(len(x)):
        out[i] = exp_of(x[i])


@kernels.jit
def squared_lengths(rows: Floats, out: Floats) -> None:
    for i in range(len(rows)):
        total = 0.0
        for j in range(rows.shape[1]):
            total = total + rows[i, j] * rows[i, j]
        out[i] = total


@kernels.jit
def log(x: Floats, out: Floats) -> None:
    for i in range(len(x)):
        bits = np.float64(x[i]).view(np.int64)
        k = np.float64(((bits >> 52) & 0x7FF) - 1022)
        m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FE0000000000000).view(np.float64)
        if m < SQRT_HALF:
            m, k = m + m, k - 1.0
        s = (m - 1.0) / (m + 1.0)
        squared = s * s
        value = LOG_TERMS[0]
        for t in range(1, 12):
            value = value * squared + LOG_TERMS[t]
        out[i] = value * s + (k * LN2_LOW + k * LN2_HIGH)
