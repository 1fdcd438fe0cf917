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

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, ndtri

from ...trusted import validate
from ...trusted.accountants.gdp import epsilon_of
from .finished_run import SCORES

if TYPE_CHECKING:
    from .lower_bound import Audit


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


# An alarm is confirmed on fresh runs before it is called a violation.
#
# The first stage (:mod:`noisewise.evidence.audit.lower_bound`) alarms when its bound, at ``confidence``, exceeds the claim. Then the
# test it used, that is score, threshold and kind of interval, meets runs of other seeds. They are looked at after 1, 2, 4
# and 8 times as many trials as the first stage measured, each time at a level of LEVEL / 4; the first look whose bound
# exceeds the claim confirms. A strong violation is confirmed by the first look; one that the first stage finds half of the
# time lies about 1.6 standard errors beyond the claim there, but 4.7 at the last look, which asks for 3.7.
#
# *Guarantee*. Let the claim be true and fix everything that the first stage saw. The test is then fixed and the fresh runs
# are independent of it, so each look's bound exceeds the true epsilon with probability at most LEVEL / 4, and any of them
# with at most LEVEL (a union bound: the looks share runs). The first stage alarms with probability at most 1 - confidence. So
#
# P(false violation) = P(alarm) P(confirmed | alarm) <= (1 - confidence) LEVEL,
#
# 2.5e-5 at 95 %. Over m audits, dependent or not, it is at most m times that: for up to 40 private methods at most 0.1 % at
# 95 %, and 1 % at every confidence that is accepted (at least 50 %). LEVEL alone would not do: 40 LEVEL is 2 %. The runs
# count as independent because each has a seed of its own, from SHA-256, and a cryptographic stream grown from it.


Fresh = Callable[[int, int], Floats]
LEVEL = 5e-4
LOOKS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Confirmation:
    """What fresh runs say of an alarm. ``lower_bound`` holds at ``confidence`` over all looks together."""

    confirmed: bool
    lower_bound: float
    confidence: float
    runs: int
    false_positives: int
    false_negatives: int
    trials: int


def confirm(audit: Audit, fresh: Fresh) -> Audit:
    """The audit with its alarm, if it raised one, tried on fresh runs.

    ``fresh(start, stop)`` gives the scores of the fresh runs with these numbers, of shape (2 worlds, runs, kinds of score).
    """
    if not audit.alarm:
        return audit
    fp = fn = seen = 0
    bound = 0.0
    for look in LOOKS:
        until = look * audit.trials
        without, with_it = scores_named(fresh(seen, until), audit.score)
        fp, fn, seen = fp + int((without > audit.threshold).sum()), fn + int((with_it <= audit.threshold).sum()), until
        bound = max(bound, epsilon_bound(audit.interval, fp, fn, seen, audit.delta, 1 - LEVEL / len(LOOKS)))
        if bound > audit.claimed:
            break
    return replace(audit, confirmation=Confirmation(bound > audit.claimed, bound, 1 - LEVEL, 2 * seen, fp, fn, seen))


def scores_named(scores: Floats, score: str) -> Floats:
    """(2 worlds, runs): the score of this name; one with a minus in front speaks for the record where it is small."""
    name = score.removeprefix("- ")
    values: Floats = scores[:, :, SCORES.index(name)]
    return values if name == score else -values
