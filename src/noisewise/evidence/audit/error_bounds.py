"""From errors that were counted to a lower bound on epsilon, at a stated confidence.

A test guesses from what was released which of two neighbouring data sets was used. In n runs on each it errs FP times
(it says "with" when the record was not there) and FN times (the other way round). Three bounds follow.

*exact*. With probability 1 - a the true rates are at most the Clopper-Pearson bounds FPR_hi and FNR_hi, each at a/2. An
(epsilon, delta)-DP mechanism has TPR <= e^epsilon FPR + delta and TNR <= e^epsilon FNR + delta for every test, so

    epsilon >= max( log((1 - FNR_hi - delta) / FPR_hi),  log((1 - FPR_hi - delta) / FNR_hi) ).

Both directions use the same two rates, so both hold at once and the larger one counts.

*gdp*. If the mechanism's best tests trade errors as those of N(0, 1) against N(mu, 1) do (Gaussian DP), then

    mu >= Phi^-1(1 - FPR_hi) - Phi^-1(FNR_hi),

and epsilon is that of mu-GDP at the stated delta. It sees small probabilities through their shape, which the exact bound
has to count.

*pooled*. The same premise, one interval instead of two: mu-GDP bounds the mean error by (FPR + FNR)/2 >= Phi(-mu/2). FP +
FN is a sum of 2n independent coin flips of mean error e; its lower tail is no heavier than that of 2n flips of
probability e each (Hoeffding 1956, Theorem 4, up to one below the mean, which is all that a level a <= 1/2 looks at). So
e <= e_hi, the Clopper-Pearson bound of FP + FN out of 2n at level a, and mu >= -2 Phi^-1(e_hi).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, ndtri

from ...trusted import validate
from ...trusted.accountants.gdp import epsilon_of

Floats = npt.NDArray[np.float64]
KINDS = ("exact", "gdp", "pooled")


def upper_bound(errors: Any, trials: int, level: float) -> Floats:
    """Clopper-Pearson: the largest rate under which so few errors have probability ``level``.

    The ``1 - level`` quantile of Beta(errors + 1, trials - errors); 1 when all trials erred.

    >>> float(upper_bound(0, 100, 0.05).round(5))
    0.02951
    """
    errors = np.asarray(errors, dtype=np.float64)
    right = trials - errors
    bound: Floats = np.where(right > 0, betaincinv(errors + 1, np.maximum(right, 1), 1 - level), 1.0)
    return bound


def exact_epsilon(false_positives: Any, false_negatives: Any, trials: int, delta: float, confidence: float) -> Floats:
    """The exact bound of the module's text, at least 0; arrays of counts are taken one by one.

    >>> float(exact_epsilon(0, 0, 1000, 1e-5, 0.95).round(2))  # errors never made
    5.6
    """
    fpr, fnr = _rates(false_positives, false_negatives, trials, confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        forth = np.log(np.maximum(1 - fnr - delta, 0.0) / fpr)
        back = np.log(np.maximum(1 - fpr - delta, 0.0) / fnr)
    best: Floats = np.maximum(np.maximum(forth, back), 0.0)
    return best


def gdp_mu(false_positives: Any, false_negatives: Any, trials: int, confidence: float) -> Floats:
    """The gdp bound on mu, at least 0."""
    fpr, fnr = _rates(false_positives, false_negatives, trials, confidence)
    mu: Floats = np.maximum(-ndtri(fpr) - ndtri(fnr), 0.0)
    return mu


def pooled_mu(false_positives: Any, false_negatives: Any, trials: int, confidence: float) -> Floats:
    """The pooled bound on mu, at least 0.

    >>> float(pooled_mu(3100, 3100, 10_000, 0.95).round(3))  # 31 % errors: mu = 0.99
    0.961
    """
    errors = np.asarray(false_positives) + np.asarray(false_negatives)
    mu: Floats = np.maximum(-2 * ndtri(upper_bound(errors, 2 * trials, 1 - confidence)), 0.0)
    return mu


def strength(
    kind: str, false_positives: Any, false_negatives: Any, trials: int, delta: float, confidence: float
) -> Floats:
    """What a kind of bound grows with: epsilon itself (exact) or mu (the others)."""
    validate.one_of(KINDS, kind=kind)
    if kind == "exact":
        return exact_epsilon(false_positives, false_negatives, trials, delta, confidence)
    mu = gdp_mu if kind == "gdp" else pooled_mu
    return mu(false_positives, false_negatives, trials, confidence)


def epsilon_bound(
    kind: str, false_positives: int, false_negatives: int, trials: int, delta: float, confidence: float
) -> float:
    """The lower bound on epsilon at ``delta`` from one pair of counts.

    >>> round(epsilon_bound("gdp", 3100, 3100, 10_000, 1e-5, 0.95), 2)
    4.08
    """
    value = float(strength(kind, false_positives, false_negatives, trials, delta, confidence))
    return value if kind == "exact" else epsilon_at(value, delta)


def epsilon_at(mu: float, delta: float) -> float:
    """The epsilon of mu-GDP at delta, rounded down: a lower bound must not be rounded up; 0 for no mu."""
    return epsilon_of(mu, delta) * (1 - 1e-7) if mu > 1e-6 else 0.0


def _rates(false_positives: Any, false_negatives: Any, trials: int, confidence: float) -> tuple[Floats, Floats]:
    level = (1 - confidence) / 2
    return upper_bound(false_positives, trials, level), upper_bound(false_negatives, trials, level)
