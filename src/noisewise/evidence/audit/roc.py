"""How well members are told from non-members, and how well a promise allows it at most.

A membership attack gives every candidate a score, higher for "was in the training data". Its ROC curve is judged
against the trade-off that (epsilon, delta)-DP, or mu-GDP, imposes on every attack there can be.

References: Kairouz, Oh & Viswanath 2015 (the region of (epsilon, delta)); Dong, Roth & Su 2022 (GDP).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ...trusted import validate
from ...trusted.accountants.gdp import mu_of
from .error_bounds import upper_bound

Floats = NDArray[np.float64]
RATES = (0.001, 0.01, 0.1)


@dataclass(frozen=True)
class Allowed:
    """The largest true-positive rate that a promise allows at each false-positive rate.

    TPR <= min(e^eps FPR + delta, 1 - e^-eps (1 - delta - FPR)); under mu-GDP also TPR <= Phi(Phi^-1(FPR) + mu).

    >>> [round(float(rate), 4) for rate in Allowed(1.0, 0.0)([0.0, 0.1, 0.5, 1.0])]
    [0.0, 0.2718, 0.8161, 1.0]
    """

    epsilon: float
    delta: float
    mu: float | None = None

    def __post_init__(self) -> None:
        validate.not_negative(epsilon=self.epsilon, delta=self.delta)
        if self.mu is not None:
            validate.not_negative(mu=self.mu)

    def __call__(self, fpr: Any) -> Floats:
        rate = np.asarray(fpr, dtype=float)
        steep = np.exp(min(self.epsilon, 700.0)) * rate + self.delta
        flat = 1 - math.exp(-self.epsilon) * (1 - self.delta - rate)
        best = np.clip(np.minimum(steep, flat), 0.0, 1.0)
        if self.mu is not None:
            best = np.minimum(best, ndtr(ndtri(rate) + self.mu))
        return best

    @property
    def advantage(self) -> float:
        """The largest TPR - FPR that is allowed.

        >>> round(Allowed(1.0, 0.0).advantage, 4), round(Allowed(1.0, 1e-5, mu=0.268).advantage, 4)
        (0.4621, 0.1066)
        """
        most = math.tanh(self.epsilon / 2) + 2 * self.delta / (1 + math.exp(min(self.epsilon, 700.0)))
        return min(most, 1.0) if self.mu is None else min(most, 2 * float(ndtr(self.mu / 2)) - 1)

    def to_dict(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "delta": self.delta, "mu": self.mu, "advantage": self.advantage}


def allowed_by(statement: Any) -> Allowed | None:
    """What the promise of a statement, or of its data, allows; None without a promise. A run priced by GDP has the GDP curve too.

    A simulation is held to what its private twin would promise.
    """
    data: Any = getattr(statement, "data", statement)
    if data is None or data["promise"] is None:
        return None
    epsilon, delta, meter = data["promise"]["epsilon"], data["promise"]["delta"], data["meter"]
    gaussian = meter["accountant"] == "gdp" if meter["meter"] == "plan" else meter["name"] == "gdp"
    whole = not meter.get("one_shot_delta")  # a share of delta spent on one-shot answers is outside the GDP curve
    return Allowed(epsilon, delta, mu_of(epsilon, delta) if gaussian and whole else None)


@dataclass(frozen=True)
class Rate:
    """A share of successes with its Clopper-Pearson interval.

    >>> Rate.of(0, 100).high < 0.04, Rate.of(100, 100).high
    (True, 1.0)
    """

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, successes: int, trials: int, confidence: float = 0.95) -> Rate:
        """Exact binomial: each end is missed with probability at most (1 - confidence) / 2."""
        miss = (1 - confidence) / 2
        low = 1 - float(upper_bound(trials - successes, trials, miss))
        return cls(successes / trials, low, float(upper_bound(successes, trials, miss)))

    def to_dict(self) -> dict[str, Any]:
        return {"value": self.value, "interval": [self.low, self.high]}


@dataclass(frozen=True)
class RocPoint:
    """The true-positive rate at a small false-positive rate, and the most that is allowed there."""

    at: float
    fpr: Rate
    tpr: Rate
    allowed: float | None
    violates: bool

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "fpr": self.fpr.to_dict(), "tpr": self.tpr.to_dict()}


@dataclass(frozen=True)
class Curve:
    """False- and true-positive rate of "score above the threshold", for every threshold, from (0, 0) to (1, 1)."""

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]

    @property
    def auc(self) -> float:
        """Area under the curve: the probability that a member scores above a non-member."""
        tpr = np.asarray(self.tpr)
        return float(np.sum(np.diff(self.fpr) * (tpr[1:] + tpr[:-1]) / 2))


def roc(members: Floats, non_members: Floats) -> Curve:
    """The ROC curve of scores that are higher for members.

    >>> roc(np.array([2.0, 1.0]), np.array([1.0, 0.0]))
    Curve(fpr=(0.0, 0.0, 0.5, 1.0), tpr=(0.0, 0.5, 1.0, 1.0))
    """
    scores = np.concatenate([members, non_members])
    cuts = np.unique(scores)[::-1]
    tpr = 1 - np.searchsorted(np.sort(members), cuts) / len(members)
    fpr = 1 - np.searchsorted(np.sort(non_members), cuts) / len(non_members)
    return Curve((0.0, *fpr.tolist()), (0.0, *tpr.tolist()))


def point(
    members: Floats, non_members: Floats, at: float, *, allowed: Allowed | None, confidence: float, tests: int
) -> RocPoint:
    """The rates of "score above the (k+1)-th highest non-member's", k = floor(at * non-members).

    The true FPR of that threshold is distributed as Beta(k+1, n-k) (ties make it smaller), whose quantile is the upper
    end of the Clopper-Pearson interval of k: choosing the threshold by the non-members costs nothing. ``violates``
    when the least plausible TPR is above what is allowed at the largest plausible FPR, ``tests`` such questions
    being right together with probability ``confidence``.
    """
    k = min(math.floor(at * len(non_members) + 1e-9), len(non_members) - 1)
    threshold = np.sort(non_members)[::-1][k]
    hits, alarms = int((members > threshold).sum()), int((non_members > threshold).sum())
    strict = 1 - (1 - confidence) / tests  # two ends, one miss each
    worst = Rate.of(k, len(non_members), strict).high
    least = Rate.of(hits, len(members), strict).low
    return RocPoint(
        at=at,
        fpr=Rate.of(alarms, len(non_members), confidence),
        tpr=Rate.of(hits, len(members), confidence),
        allowed=None if allowed is None else float(allowed(at)),
        violates=allowed is not None and least > float(allowed(worst)),
    )


def membership_advantage(members: Floats, non_members: Floats, *, confidence: float, seed: int) -> Rate:
    """TPR - FPR at the threshold that is best on one half of the candidates, measured on the other half.

    The interval joins two Clopper-Pearson intervals, each missed half as often.
    """
    rng = np.random.default_rng(seed)
    (chosen_in, held_in), (chosen_out, held_out) = (_halves(part, rng) for part in (members, non_members))
    cuts = np.unique(np.concatenate([chosen_in, chosen_out]))
    gain = np.searchsorted(np.sort(chosen_out), cuts) / len(chosen_out)
    gain = gain - np.searchsorted(np.sort(chosen_in), cuts) / len(chosen_in)
    cut = cuts[int(np.argmax(gain))]
    strict = 1 - (1 - confidence) / 2
    tpr = Rate.of(int((held_in >= cut).sum()), len(held_in), strict)
    fpr = Rate.of(int((held_out >= cut).sum()), len(held_out), strict)
    return Rate(tpr.value - fpr.value, tpr.low - fpr.high, tpr.high - fpr.low)


def _halves(scores: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    mixed = rng.permutation(scores)
    return mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]
