"""Probabilities from scores of a logistic loss whose slopes were cut: the clip biases scores, and this takes it back.

A record of a class of probability p pulls with p s(-z) one way and (1-p) min(s(z), c) the other, s the logistic function
and c the cut, where z > 0 and s(z) > c. They are even where p = c / (c + s(-z)), whose log-odds are log(1 + e^z) + log c; below
that nothing was cut, and the log-odds are z. For rows of typical length c is the clip norm, at least 1/2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def calibrated(scores: Array, cap: float) -> Array:
    """Log-odds of the second class.

    >>> calibrated(np.array([-2.0, 0.0, 2.0]), 0.5).round(3).tolist()
    [-1.434, 0.0, 1.434]
    """
    if cap >= 1:
        return scores
    size = np.abs(scores)
    return np.sign(scores) * np.where(size > _turn(cap), np.logaddexp(0.0, size) + math.log(cap), size)


def uncalibrated(log_odds: Array, cap: float) -> Array:
    """The scores that have these log-odds."""
    if cap >= 1:
        return log_odds
    size = np.abs(log_odds)
    above = np.maximum(size - math.log(cap), 1e-12)
    far = above + np.log(-np.expm1(-above))  # log(e^above - 1)
    return np.sign(log_odds) * np.where(size > _turn(cap), far, size)


def _turn(cap: float) -> float:
    """The score from which slopes are cut."""
    return math.log(cap / (1 - cap))
