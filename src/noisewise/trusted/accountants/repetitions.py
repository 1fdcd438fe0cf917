"""What it costs to run a mechanism a secret random number of times and to release the best run alone.

Let Q be one run, on a totally ordered set of outputs (ties are broken by an independent uniform, which is part of the output
and changes no divergence), K >= 1 the number of runs, f(x) = E[x^K], and A the best of K runs; primes for the neighbour.
P(A <= y) = f(Q(<= y)), so A(y) = Q(y) times the mean of f' over [Q(< y), Q(<= y)]. The map (u, v) -> u^a v^(1-a) is jointly
convex, hence (Papernot & Steinke 2022, Lemma 7)

    (a - 1) D_a(A, A') <= (a - 1) D_a(Q, Q') + log max f'(q)^a f'(q')^(1-a),

over pairs (q, q') of probabilities of one event, chosen with a coin that both neighbours share, under Q and Q'.

*Truncated negative binomial.* f'(x) = E[K] gamma^(1+eta) (1 - (1-gamma) x)^-(1+eta). With u = 1 - (1-gamma) q, which is at
least gamma and the probability of an event too, the logarithm is

    log E[K] + (1+eta) ((a - 1) log(u'/u) - log(u/gamma)),

and D_b(Q', Q) <= r gives u'^b u^(1-b) <= e^((b-1) r), that is log(u'/u) <= (1 - 1/b) r + log(1/u)/b. So for every b >= 1
(for b = 1, u' <= 1 is enough; a pure epsilon-DP run has b = infinity, r = epsilon), Theorem 2:

    D_a(A, A') <= D_a(Q, Q') + (1+eta) ((1 - 1/b) r + log(1/gamma)/b) + log E[K] / (a - 1).

*Poisson.* Given K >= 1, f'(x) = m e^(m(x-1)) / (1 - e^-m), and the logarithm is log(m / (1 - e^-m)) + m ((a-1)(1-q') - a(1-q)).
If a run is (e, d)-DP with e^e <= 1 + 1/(a-1), then (a-1)(1-q') <= a (1-q) + (a-1) d. K = 0 has the same probability e^-m
for both neighbours and its release depends on nothing, so altogether

    D_a(A, A') <= log(e^-m + m exp((a-1)(D_a(Q, Q') + m d))) / (a - 1).

For large m that is D_a(Q, Q') + m d + log(m)/(a - 1), Theorem 6. Without e^-m the theorem would fail for m < 1, where it can
be negative; it is charged everywhere.

*Pure.* If a run is epsilon-DP, b = infinity and a -> infinity make K truncated negative binomial (2 + eta) epsilon-DP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..events import PoissonRepetitions, Repetitions, TruncatedNegativeBinomial
from .common import UP

SLACK = 1e-13  # relative and absolute: hundreds of times what the operations of one formula lose


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RunPrivacy:
    """What is known of one run: ``rdp`` at each of ``orders`` (infinite: nothing), and its pure epsilon (or infinite)."""

    orders: Floats = field(repr=False)
    rdp: Floats
    pure: float = math.inf


class BestOf:
    """The RDP of the best run at the orders of ``run``, by the theorems of the module's text; rounded up."""

    __slots__ = ("_orders", "_theorem")

    def __init__(self, run: RunPrivacy, repetitions: Repetitions) -> None:
        self._orders, self._theorem = run.orders, theorem(run, repetitions)

    def at(self, order: int) -> float:
        """The divergence at the next of the orders; infinite if nothing is known there. It grows with its order."""
        return float(self._theorem[int(np.searchsorted(self._orders, order))])


def theorem(run: RunPrivacy, repetitions: Repetitions) -> Floats:
    """The RDP of the best run at each order by Theorems 2 and 6, or the pure bound; also that of any larger order."""
    if isinstance(repetitions, PoissonRepetitions):
        price = _poisson(run, repetitions.mean)
    else:
        price = _negative_binomial(run, repetitions)
    return np.asarray(np.minimum.accumulate(price[::-1])[::-1] * (1 + SLACK) + SLACK)


def _negative_binomial(run: RunPrivacy, law: TruncatedNegativeBinomial) -> Floats:
    orders = run.orders
    factor, log_gamma = 1 + law.eta, -math.log(law.gamma)
    shared = min(float(np.min((1 - 1 / orders) * run.rdp + log_gamma / orders)), log_gamma, run.pure)
    price = run.rdp + factor * shared + log_mean(law) / (orders - 1)
    return np.minimum(price, (1 + factor) * run.pure * UP)


def _poisson(run: RunPrivacy, mean: float) -> Floats:
    orders = run.orders
    delta = leaks(run, np.log1p(1 / (orders - 1)))
    exponent = (orders - 1) * (run.rdp + mean * delta)
    return np.asarray(np.logaddexp(-mean, math.log(mean) + exponent) / (orders - 1))


def leaks(run: RunPrivacy, epsilons: Floats) -> Floats:
    """A delta with which one run is (epsilon, delta)-DP, for each epsilon >= 0; rounded up.

    The least of what follows from its Renyi divergences (Canonne, Kamath & Steinke 2020, Proposition 12; and the total
    variation, at most sqrt(1 - e^-D_a), Bretagnolle & Huber 1979), and from pure DP (that of randomised response). An epsilon is lowered by more than rounding can have raised it.
    """
    epsilons = epsilons * (1 - SLACK)
    known = np.isfinite(run.rdp)
    b, rdp = run.orders[known], run.rdp[known]
    delta = np.ones_like(epsilons)
    if known.any():
        logs = (b - 1) * (rdp + np.log1p(-1 / b) - epsilons[:, None]) - np.log(b)
        delta = np.minimum(np.exp(np.minimum(logs.min(axis=1), 0.0)), math.sqrt(-math.expm1(-float(rdp.min()))))
    if math.isfinite(run.pure):
        rest = np.maximum(run.pure * UP - epsilons, 0.0)  # (e^p - e^e) / (1 + e^p)
        delta = np.minimum(delta, -np.expm1(-rest) / (1 + math.exp(-run.pure)))
    return np.asarray(delta * (1 + SLACK))


# -- the numbers of runs ------------------------------------------------------------------------------------------


def log_mean(law: TruncatedNegativeBinomial) -> float:
    """log E[K]: E[K] is eta (1-gamma) / (gamma (1 - gamma^eta)), and (1/gamma - 1) / log(1/gamma) for eta = 0.

    >>> round(math.exp(log_mean(TruncatedNegativeBinomial(1.0, 0.01))), 9)
    100.0
    """
    if law.gamma == 1:
        return 0.0
    log_gamma = -math.log(law.gamma)
    falls = log_gamma if law.eta == 0 else -math.expm1(-law.eta * log_gamma) / law.eta
    return max(0.0, math.log1p(-law.gamma) + log_gamma - math.log(falls))


def mean_runs(law: Repetitions) -> float:
    """E[K]: how many runs to expect.

    >>> round(mean_runs(TruncatedNegativeBinomial(0.0, 0.01)), 3)
    21.498
    """
    return law.mean if isinstance(law, PoissonRepetitions) else math.exp(log_mean(law))


def chance_missed(law: Repetitions, candidates: int) -> float:
    """The probability f(1 - 1/k) that a given one of k equally likely candidates is never run.

    >>> round(chance_missed(PoissonRepetitions(30.0), 10), 4)
    0.0498
    """
    rest = 1 - 1 / candidates
    if isinstance(law, PoissonRepetitions):
        return math.exp(-law.mean / candidates)
    if law.gamma == 1:
        return rest
    log_gamma, log_u = -math.log(law.gamma), -math.log1p(-(1 - law.gamma) * rest)
    if law.eta == 0:
        return log_u / log_gamma
    return math.expm1(law.eta * log_u) / math.expm1(law.eta * log_gamma)
