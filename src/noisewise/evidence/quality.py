"""How good a model is: on public rows for free; :mod:`noisewise.evidence.bought_quality` buys the score on private ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounts import Budget
from ..tables.fit.fitted import Fitted
from ..tables.fit.labels import Classes, class_codes
from .metrics import ABOUT_95, Figures, of_a_share, of_numbers, of_predictions, within

__all__ = ["ABOUT_95", "Quality", "of_a_share", "public_quality", "within"]


@dataclass(frozen=True)
class Quality:
    """A score with a 95 % interval for what the model would score on endlessly many such rows, and the other figures."""

    metric: str
    value: float
    interval: tuple[float, float]
    budget: Budget | None
    figures: Figures
    events: tuple[dict[str, Any], ...] = ()


def public_quality(fitted: Fitted, X: NDArray[Any], y: NDArray[Any]) -> Quality:
    """The score on public rows: scaled rows and labels as ``fit`` takes them."""
    if not len(y):
        raise ValueError("there are no rows to score; pass some")
    if not isinstance(fitted.labels, Classes):
        predicted, targets = fitted.predictions(X), np.asarray(y, dtype=float)
        errors = np.square(predicted - targets)
        mean = float(errors.mean())
        interval = within(mean, float(errors.std()) / math.sqrt(len(y)), 0, math.inf)
        return Quality("mean squared error", mean, interval, None, of_numbers(predicted, targets))
    figures = class_figures(fitted.labels, y, fitted.scores(X), fitted.probabilities(X) if fitted.likely else None)
    accuracy = figures.metrics["accuracy"]
    assert accuracy.value is not None and accuracy.interval is not None
    return Quality("accuracy", accuracy.value, accuracy.interval, None, figures)


def class_figures(
    labels: Classes, y: NDArray[Any], scores: NDArray[Any], probabilities: NDArray[Any] | None
) -> Figures:
    """Figures of scores on rows whose classes are known."""
    decisions = labels.decisions(scores)
    predicted = (decisions > 0).astype(int) if decisions.ndim == 1 else decisions.argmax(axis=1)
    truth = class_codes(labels.values, y)
    ranked = decisions if decisions.ndim == 1 or probabilities is None else probabilities
    return of_predictions(truth, predicted, ranked, probabilities, labels.values.tolist())
