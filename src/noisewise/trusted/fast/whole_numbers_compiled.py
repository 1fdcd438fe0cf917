# mypy: ignore-errors
"""How :mod:`noisewise.trusted.engine.whole_numbers` makes whole numbers, compiled: one pass instead of six."""

from __future__ import annotations

import numpy as np

from . import kernels

__all__ = ["put"]


@kernels.jit
def put(values, times, most, total):
    """Writes values times a number, rounded to the nearest whole one, no number as 0, at most ``most`` either way."""
    for i in range(len(values)):
        exact = np.float64(values[i]) * times
        exact = np.rint(exact) if exact == exact else 0.0
        total[i] = np.int64(min(max(exact, -most), most))
