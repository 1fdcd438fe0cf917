"""How good a model is: on public rows for free, on private rows for a budget of its own.

A score that is computed from private rows is a release like any other: the curator counts right answers (or adds up
squared errors) and adds noise. That budget comes on top of the one the model was trained with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .budget import Budget
from .budget.choosing import choose_meter
from .curator import Correct, Curator, SquaredError
from .events import Repeated, to_dict
from .fitting import as_labels
from .records.grid import Store, in_memory

if TYPE_CHECKING:
    from .estimators import PrivateClassifier, PrivateRegressor

    Estimator = PrivateClassifier | PrivateRegressor

SIZE_SHARE = 0.4  # of an evaluation's budget, for the number of records when that is private: both err about equally
ABOUT_95 = 1.96


@dataclass(frozen=True)
class Quality:
    """A score with a 95 % interval for what the model would score on endlessly many such rows."""

    metric: str
    value: float
    interval: tuple[float, float]
    budget: Budget | None
    events: tuple[dict[str, Any], ...] = ()


def public_quality(estimator: Estimator, X: Tensor, y: NDArray[Any]) -> Quality:
    """The score on public rows: scaled rows and labels as ``fit`` takes them."""
    predicted = estimator._predictions(estimator._row_scores(X))
    if hasattr(estimator, "classes_"):
        share = float(np.mean(predicted == y))
        return Quality("accuracy", share, _within(share, _of_a_share(share, len(y)), 0, 1), None)
    errors = np.square(predicted - y)
    mean = float(errors.mean())
    return Quality(
        "mean squared error", mean, _within(mean, float(errors.std()) / math.sqrt(len(y)), 0, math.inf), None
    )


def private_quality(
    estimator: Estimator,
    X: Tensor,
    y: NDArray[Any],
    budget: Budget,
    *,
    size_is_public: bool = False,
    seed: int | None = None,
    store: Store = in_memory,
) -> Quality:
    """The score on private rows, bought with ``budget``; the interval covers the noise and the choice of the rows.

    *Guarantee*: a GDP filter over a count of right answers (or a sum of squared errors, clamped to the target's bounds)
    and, when it is private, the number of records.
    """
    model, theta = estimator._trained_model, tuple(float(entry) for entry in estimator._theta.tolist())
    public_size = size_is_public or budget.adjacency == "replace_one"
    if public_size and budget.delta > 1 / len(y):
        raise ValueError(
            f"delta is {budget.delta!r}, above 1/size = {1 / len(y):.3g}, which allows publishing a record; pass a smaller one"
        )
    curator = Curator(
        X,
        as_labels(estimator._model_labels(y), model),
        model=model,
        meter=choose_meter(budget, adaptive=True),
        size=float(len(y)) if public_size else None,
        row_bound=1.0,
        seed=seed,
        store=store,
    )
    size_noise = 0.0
    if not public_size:
        curator.release_size(noise_multiplier=curator.meter.noise_for(SIZE_SHARE))
        size_noise = curator.trace[-1].noise_std
    size = curator.facts.size or 1.0
    right = hasattr(estimator, "classes_")
    answer = curator.statistic(
        Correct(theta) if right else SquaredError(theta), noise_multiplier=curator.meter.noise_for(1.0)
    )
    events = tuple(to_dict(Repeated(leaf, count)) for leaf, count in curator.meter.events.items())
    mean = min(max(float(answer.value) / size, -0.5), 0.5)
    share = mean + 0.5
    # noise on the sum, noise on the size it is divided by, and the choice of the rows (for errors in [0, 1] at its largest)
    spread = math.hypot(answer.noise_std / size, mean * size_noise / size, _of_a_share(share, size))
    low, high = _within(share, spread, 0, 1)
    if right:
        return Quality("accuracy", share, (low, high), budget, events)
    unit = (estimator._target[1] - estimator._target[0]) ** 2
    return Quality("mean squared error", share * unit, (low * unit, high * unit), budget, events)


def _of_a_share(share: float, size: float) -> float:
    """Standard error of a share; two successes and two failures are added, or none of a few would seem certain."""
    p = (share * size + 2) / (size + 4)
    return math.sqrt(p * (1 - p) / (size + 4))


def _within(value: float, error: float, least: float, most: float) -> tuple[float, float]:
    return max(value - ABOUT_95 * error, least), min(value + ABOUT_95 * error, most)
