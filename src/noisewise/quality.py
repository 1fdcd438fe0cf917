"""How good a model is: on public rows for free; :mod:`noisewise.bought_quality` buys the score on private ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .budget import Budget
from .fitting.fitted import Fitted

ABOUT_95 = 1.96


@dataclass(frozen=True)
class Quality:
    """A score with a 95 % interval for what the model would score on endlessly many such rows."""

    metric: str
    value: float
    interval: tuple[float, float]
    budget: Budget | None
    events: tuple[dict[str, Any], ...] = ()


def public_quality(fitted: Fitted, X: NDArray[Any], y: NDArray[Any]) -> Quality:
    """The score on public rows: scaled rows and labels as ``fit`` takes them."""
    predicted = fitted.predictions(X)
    if fitted.classes is not None:
        share = float(np.mean(predicted == y))
        return Quality("accuracy", share, within(share, of_a_share(share, len(y)), 0, 1), None)
    errors = np.square(predicted - y)
    mean = float(errors.mean())
    return Quality("mean squared error", mean, within(mean, float(errors.std()) / math.sqrt(len(y)), 0, math.inf), None)


def of_a_share(share: float, size: float) -> float:
    """Standard error of a share; two successes and two failures are added, or none of a few would seem certain."""
    p = (share * size + 2) / (size + 4)
    return math.sqrt(p * (1 - p) / (size + 4))


def within(value: float, error: float, least: float, most: float) -> tuple[float, float]:
    """A 95 % interval, cut to what is possible."""
    return max(value - ABOUT_95 * error, least), min(value + ABOUT_95 * error, most)
