"""Figures of a model's quality, each with a 95 % interval: of known predictions, or of noised counts and sums.

Everything here is arithmetic on public rows or released numbers. A figure of counts is a function f of the cells of a
histogram that does not change when all of them are multiplied; with g its gradient, the noise of every cell adds
noise^2 sum g^2 to its variance, and the choice of the rows adds sum (count g^2), the counts being multinomial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..accounts import Budget
from ..tables.fit.fitted import Fitted
from ..tables.fit.labels import Classes, class_codes

Floats = NDArray[np.float64]
Array = NDArray[Any]
ABOUT_95 = 1.96
CALIBRATION_BINS = 15  # of equal mass, for the calibration error
MIN_COUNT_DEVIATIONS = 3.0  # of its noise: a smaller count is no divisor
WORDS = {
    "accuracy": "accuracy",
    "baseline_accuracy": "always answering the same",
    "balanced_accuracy": "balanced accuracy",
    "roc_auc": "ROC AUC",
    "log_loss": "log loss",
    "calibration_error": "calibration error",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "r2": "R\N{SUPERSCRIPT TWO}",
}
NAMES = tuple(WORDS)
SHARES = ("accuracy", "baseline_accuracy", "balanced_accuracy")  # shown as percentages
MIN_PROBABILITY = np.finfo(np.float64).eps  # a smaller probability counts as this one


class Metric(NamedTuple):
    """A figure with a 95 % confidence interval; (None, None) where it is not available."""

    value: float | None = None
    interval: tuple[float, float] | None = None


NONE = Metric()


@dataclass(frozen=True)
class Figures:
    """The figures of a model's quality; ``gain``: over the constant ``answer``, in accuracy or as R^2."""

    metrics: dict[str, Metric]
    gain: Metric
    answer: str
    confusion: dict[str, Any] | None = None  # counts: a row for each label, a column for each prediction
    calibration: tuple[dict[str, float], ...] | None = None  # predicted and observed shares, and how many rows had them

    @property
    def verdict(self) -> str | None:
        """A sentence if one answer for all is as good, else None."""
        if self.gain.value is None or self.gain.interval is None or self.gain.interval[0] > 0:
            return None
        how = "No better than" if self.gain.value <= 0 else "Not clearly better than"
        always, auc = self.metrics["baseline_accuracy"].value, self.metrics["roc_auc"]
        right = "" if always is None else f", which is right {always:.1%} of the time"
        ranks_well = auc.interval is not None and auc.interval[0] > 0.5
        but = f". It does tell classes apart, by rank (ROC AUC {auc.value:.3f})" if ranks_well else ""
        return f"{how} always answering {self.answer}{right}{but}"

    def to_dict(self) -> dict[str, Any]:
        """The fields of ``evaluation.json``: every figure, with null for those that are not available."""
        found = {name: self.metrics.get(name, NONE) for name in NAMES}
        intervals = {name: one.interval and list(one.interval) for name, one in found.items()}
        return {
            "metrics": {name: {"value": one.value, "interval": intervals[name]} for name, one in found.items()},
            "verdict": self.verdict,
            "confusion": self.confusion,
            "calibration": self.calibration and list(self.calibration),
        }


def within(value: float, error: float, least: float, most: float) -> tuple[float, float]:
    """A 95 % interval, cut to the possible values."""
    return max(value - ABOUT_95 * error, least), min(value + ABOUT_95 * error, most)


def of_a_share(share: float, size: float) -> float:
    """Standard error of a share; two successes and two failures are added, so that 0 of a few does not seem certain."""
    p = (share * size + 2) / (size + 4)
    return math.sqrt(p * (1 - p) / (size + 4))


def measured(value: float, variance: float, least: float = 0.0, most: float = 1.0) -> Metric:
    """A figure within its limits, and its interval."""
    value = min(max(value, least), most)
    return Metric(value, within(value, math.sqrt(max(variance, 0.0)), least, most))


def area(pos: Floats, neg: Floats, inside: Floats | float = 0.5) -> tuple[float, Floats, Floats]:
    """ROC AUC of counts by growing score, and its gradients; ``inside``: the weight of a pair with equal scores.

    >>> round(area(np.array([0.0, 1, 2]), np.array([2.0, 1, 0]))[0], 4)
    0.9444
    """
    P, N = pos.sum(), neg.sum()
    below, above = np.cumsum(neg) - neg * (1 - inside), P - np.cumsum(pos) + pos * inside
    value = float(pos @ below / (P * N))
    return value, (below / N - value) / P, (above / P - value) / N


def calibration_of(gaps: Floats, noise: Floats, sampling: Floats) -> Metric:
    """Expected calibration error, sum of |gap|, from each bin's gap times its share, and the variances of these.

    What noise alone adds to a squared gap is taken off its square. The interval needs no normality of the sum: its lower
    end takes off all that errors can add (sum of |error|), the upper end is a deviation of a function of slope 1 in each gap,
    whose mean is not below the truth.
    """
    value = float(np.sqrt(np.maximum(gaps * gaps - noise, 0.0)).sum())
    raw, spread = float(np.abs(gaps).sum()), noise + sampling
    added = math.sqrt(2 / math.pi) * float(np.sqrt(spread).sum())
    low = raw - added - ABOUT_95 * math.sqrt((1 - 2 / math.pi) * float(spread.sum()))
    high = raw + ABOUT_95 * math.sqrt(float(spread.sum()))
    return Metric(min(value, 1.0), (min(max(low, 0.0), value), min(max(high, value), 1.0)))


def of_predictions(
    truth: Array, predicted: Array, scores: Array, probabilities: Array | None, names: Sequence[Any]
) -> Figures:
    """The figures of class numbers, predicted ones, scores (one for two classes, or a column each) and any probabilities."""
    n, classes = len(truth), len(names)
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (truth, predicted), 1)
    of_class, right = counts.sum(1), predicted == truth
    share, often = float(right.mean()), int(of_class.argmax())
    most = float(of_class[often] / n)
    there = of_class > 0
    recalls = np.diag(counts)[there] / of_class[there]
    errors = [of_a_share(r, m) for r, m in zip(recalls, of_class[there], strict=True)]
    gain = right.astype(float) - (truth == often)
    found = {
        "accuracy": measured(share, of_a_share(share, n) ** 2),
        "baseline_accuracy": measured(most, of_a_share(most, n) ** 2),
        "balanced_accuracy": measured(float(recalls.mean()), float(np.square(errors).sum()) / len(errors) ** 2),
        "roc_auc": _ranked(truth, scores, of_class),
    }
    curve = None
    if probabilities is not None:
        losses = -np.log(np.maximum(probabilities[np.arange(n), truth], MIN_PROBABILITY))
        found["log_loss"] = measured(float(losses.mean()), float(losses.var()) / n, most=math.inf)
        sure, happened = probabilities.max(1), probabilities.argmax(1) == truth
        if classes == 2:
            sure, happened = probabilities[:, 1], truth == 1
        found["calibration_error"], curve = _calibrated(sure, happened.astype(float))
    over_constant = measured(float(gain.mean()), float(gain.var()) / n, -1.0)
    confusion = {"classes": [str(name) for name in names], "counts": counts.tolist()}
    return Figures(found, over_constant, repr(str(names[often])), confusion, curve)


def _ranked(truth: Array, scores: Array, of_class: Array) -> Metric:
    """ROC AUC; of several classes the mean over those that are there, each against the rest."""
    n = len(truth)
    columns = {1: scores} if scores.ndim == 1 else {k: scores[:, k] for k in range(scores.shape[1])}
    values, influence, fewest = [], np.zeros(n), math.inf
    for k, column in columns.items():
        if not 0 < of_class[k] < n:
            continue
        _, place = np.unique(column, return_inverse=True)
        mine, size = truth == k, int(place.max()) + 1
        pos, neg = (np.bincount(place[which], minlength=size).astype(float) for which in (mine, ~mine))
        value, up, down = area(pos, neg)
        values.append(value)
        influence += np.where(mine, up[place], down[place])
        fewest = min(fewest, pos.sum(), neg.sum())
    if not values:
        return NONE
    error = max(float(np.sqrt(np.square(influence).sum())) / len(values), of_a_share(1.0, fewest))
    return measured(float(np.mean(values)), error**2)


def _calibrated(sure: Floats, happened: Floats) -> tuple[Metric, tuple[dict[str, float], ...]]:
    """Expected calibration error in bins of equal mass, and the shares in each."""
    n, order = len(sure), np.argsort(sure, kind="stable")
    parts = np.array_split(order, min(CALIBRATION_BINS, n))
    gaps = np.array([(happened[part] - sure[part]).sum() / n for part in parts])
    spread = np.array([(happened[part] - sure[part]).var() * len(part) / n**2 for part in parts])
    means = [(float(sure[part].mean()), float(happened[part].mean())) for part in parts]
    curve = [{"predicted": p, "observed": o, "share": len(part) / n} for (p, o), part in zip(means, parts, strict=True)]
    return calibration_of(gaps, np.zeros_like(gaps), spread), tuple(curve)


def of_numbers(predicted: Array, y: Array) -> Figures:
    """The figures of a regression's predicted and true numbers."""
    n, errors = len(y), predicted - y
    squares, centred = errors * errors, np.square(y - y.mean())
    mean, spread = float(squares.mean()), float(centred.mean())
    low, high = within(mean, float(squares.std()) / math.sqrt(n), 0.0, math.inf)
    found = {
        "rmse": Metric(math.sqrt(mean), (math.sqrt(low), math.sqrt(high))),
        "mae": measured(float(np.abs(errors).mean()), float(np.abs(errors).var()) / n, most=math.inf),
    }
    if spread > 0:
        ratio = mean / spread
        found["r2"] = measured(1 - ratio, float((squares - ratio * centred).var()) / spread**2 / n, -math.inf)
    return number_figures(found)


def number_figures(found: dict[str, Metric]) -> Figures:
    """Figures of a regression; one answer for all, the mean, has an R^2 of 0."""
    found = {name: found.get(name, NONE) for name in NAMES}
    return Figures(found, found["r2"], "the mean of the target")


@dataclass(frozen=True)
class Quality:
    """A score with a 95 % confidence interval, and the other figures."""

    metric: str
    value: float
    interval: tuple[float, float]
    budget: Budget | None
    figures: Figures
    events: tuple[dict[str, Any], ...] = ()


def public_quality(fitted: Fitted, X: NDArray[Any], y: NDArray[Any]) -> Quality:
    """The score on public rows, which is free: scaled rows and labels as ``fit`` takes them."""
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
    decisions = labels.decisions(scores)
    predicted = (decisions > 0).astype(int) if decisions.ndim == 1 else decisions.argmax(axis=1)
    truth = class_codes(labels.values, y)
    ranked = decisions if decisions.ndim == 1 or probabilities is None else probabilities
    return of_predictions(truth, predicted, ranked, probabilities, labels.values.tolist())
