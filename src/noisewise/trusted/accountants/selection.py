"""Planning a private selection: what each candidate may spend, how often to draw, and how the whole joins other answers.

Everything here is computed from public numbers: the budget, the number of candidates and the plans of their runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .. import validate
from ..events import (
    MIN_GAMMA,
    Adjacency,
    ApproximateDP,
    AtOrder,
    Event,
    Gaussian,
    PoissonRepetitions,
    Repetitions,
    Selection,
    TruncatedNegativeBinomial,
)
from . import gdp, rdp
from .base import Currency, least_scale, log_ratio
from .common import DOWN, UP, Unpriceable, gaussian_scale
from .repetitions import chance_missed, mean_runs
from .terms import Budget

CLOSE = 1e-4  # what a candidate may spend is rounded down by about this share
ETAS = (0.0, 1.0, 2.0)
MAX_RUNS_PER_CANDIDATE = 100.0  # distributions that need more are not considered


def as_approximate(event: Event | Iterable[Event], delta: float, adjacency: Adjacency) -> ApproximateDP:
    """The (epsilon, delta) of events that have a price in RDP only, for meters of another currency.

    A selection is RDP and not GDP, so it joins a GDP, zCDP or PLD account as this, with delta from the account's share.

    >>> event = Selection((Gaussian(10.0),), TruncatedNegativeBinomial(1.0, 0.01))
    >>> round(as_approximate(event, 1e-6, "add_remove").epsilon, 3)
    1.121
    """
    epsilon = rdp.plan_epsilon(event, delta, adjacency)
    return ApproximateDP(max(epsilon, 1e-12), delta)


def whole_of(currency: Currency) -> Event:
    """A run under a filter of this currency, as one event: all that its cap admits.

    A GDP filter with cap mu^2 is mu-GDP, as a Gaussian is; its noise multiplier is rounded down, so the price rounds up. An
    RDP filter is known at its own order. A zCDP or tCDP filter is no Gaussian and is refused.

    >>> from noisewise.trusted.accountants.base import currency
    >>> whole_of(currency(Budget(1.0, 1e-6), "rdp", order=20)).order
    20
    """
    if currency.name == "gdp":
        return gaussian_worth(math.sqrt(currency.cap) * UP, currency.adjacency)
    if currency.name == "rdp" and currency.order is not None:
        return AtOrder(currency.order, currency.cap)
    raise Unpriceable(f"a candidate metered by {currency.name} has no price in a selection; meter it by gdp or rdp")


def gaussian_worth(mu: float, adjacency: Adjacency) -> Gaussian:
    """The Gaussian event that costs mu^2 under the relation; noise rounded down, so that it costs no less."""
    validate.positive(mu=mu)
    sigma = gaussian_scale(adjacency) / mu * DOWN
    while gdp.cost(Gaussian(sigma), adjacency) < mu * mu:
        sigma *= DOWN
    return Gaussian(sigma)


@dataclass(frozen=True, slots=True)
class CandidateBudget:
    """What one run of a selection may spend.

    ``budget`` is its promise as (epsilon, delta), worth at most ``mu`` in a GDP meter; ``event`` is what such a run costs;
    ``price`` is the epsilon of the whole selection.
    """

    mu: float
    budget: Budget
    event: Event
    price: float


def candidate_budget(
    budget: Budget, repetitions: Repetitions, *, delta: float | None = None, also: Iterable[Event] = ()
) -> CandidateBudget:
    """The largest GDP cap mu that every run may have, so that the selection, and ``also``, keep within the budget.

    ``delta`` is that of the candidate's promise, by default the budget's: what counts in the selection is mu alone.

    *Guarantee*: rounded down, by at most a relative 1e-4, and the event of the result was priced and found within.

    >>> round(candidate_budget(Budget(1.0, 1e-6), TruncatedNegativeBinomial(1.0, 0.02)).mu, 3)
    0.094
    """
    others = tuple(also)

    def events(scale: float) -> list[Event]:
        return [Selection((gaussian_worth(1 / scale, budget.adjacency),), repetitions), *others]

    start = 3 / gdp.mu_of(budget.epsilon, budget.delta)
    scale = least_scale(log_ratio(rdp.plan_epsilon, events, budget), start, budget, factor=1.2, tolerance=CLOSE)
    price = rdp.plan_epsilon(events(scale), budget.delta, budget.adjacency)
    if not price <= budget.epsilon:
        raise ValueError(f"no candidate fits into epsilon={budget.epsilon}, delta={budget.delta}; pass a larger budget")
    mu = 1 / scale
    each = Budget.from_gdp(mu, delta or budget.delta, budget.adjacency)
    return CandidateBudget(mu, each, gaussian_worth(mu, budget.adjacency), price)


Plans = Callable[[Budget], Iterable[Event]]


def calibrated_candidates(
    budget: Budget, repetitions: Repetitions, plans: Plans, *, tolerance: float = 1e-3
) -> tuple[Budget, Selection]:
    """The largest promise (epsilon, delta) of a run, and the selection, for candidates that are plans of their own.

    ``plans(promise)`` gives the event of each candidate when it is calibrated to a promise, with more noise for a smaller
    epsilon. The promise has the budget's delta.

    *Guarantee*: rounded down by about ``tolerance``, and the very selection that is returned was priced and found within.
    """
    made: dict[float, Selection] = {}

    def selection(scale: float) -> Selection:
        if scale not in made:
            promise = Budget(budget.epsilon / scale, budget.delta, budget.adjacency)
            made[scale] = Selection(tuple(dict.fromkeys(plans(promise))), repetitions)
        return made[scale]

    excess = log_ratio(rdp.plan_epsilon, lambda scale: [selection(scale)], budget)
    scale = least_scale(excess, 3.0, budget, tolerance=tolerance)
    if not excess(scale) <= 0:
        raise ValueError(f"no candidate fits into epsilon={budget.epsilon}, delta={budget.delta}; pass a larger budget")
    return Budget(budget.epsilon / scale, budget.delta, budget.adjacency), selection(scale)


@dataclass(frozen=True, slots=True)
class Drawing:
    """How often to draw candidates, what each draw may spend, and what other distributions would leave.

    ``mean`` is the expected number of runs, ``seen`` the probability that a given candidate is run at all.
    """

    repetitions: Repetitions
    mean: float
    seen: float
    each: CandidateBudget
    alternatives: tuple[Drawing, ...] = ()


def choose_repetitions(budget: Budget, candidates: int, *, seen: float = 0.8) -> Drawing:
    """The distribution of the number of runs that leaves each run the most, for k candidates drawn uniformly.

    Compared are the truncated negative binomials with eta = 0 (logarithmic), 1 (geometric) and 2, and the Poisson
    distribution, each with the least mean at which a given candidate is run with probability at least ``seen``:
    f(1 - 1/k) <= 1 - seen, f(x) = E[x^K]. At the default that is about 1.6 k runs for Poisson, 2.5 k for eta = 2 and 4 k for
    geometric. The logarithmic one is often a single run and needs far more for the same chance; what needs more than 100 k
    runs is left out. The largest mu per run wins; among those within two hundredths of it, the fewest expected runs.

    >>> drawing = choose_repetitions(Budget(1.0, 1e-6), 10)
    >>> type(drawing.repetitions).__name__, round(drawing.mean, 1), round(drawing.each.mu, 2)
    ('TruncatedNegativeBinomial', 36.0, 0.1)
    """
    validate.whole(candidates=candidates)
    validate.open_unit(seen=seen)
    if candidates == 1:
        laws: list[Repetitions] = [TruncatedNegativeBinomial(0.0, 1.0)]
    else:
        laws = [law for eta in ETAS if (law := _enough(eta, candidates, seen)) is not None]
        laws.append(PoissonRepetitions(-math.log1p(-seen) * candidates * (1 + 1e-9)))
    found = [
        Drawing(law, mean_runs(law), 1 - chance_missed(law, candidates), candidate_budget(budget, law)) for law in laws
    ]
    most = max(drawing.each.mu for drawing in found)
    best = min((one for one in found if one.each.mu >= 0.98 * most), key=lambda one: one.mean)
    others = tuple(one for one in found if one is not best)
    return Drawing(best.repetitions, best.mean, best.seen, best.each, others)


def _enough(eta: float, candidates: int, seen: float) -> TruncatedNegativeBinomial | None:
    """The largest gamma, so the fewest runs, that misses a candidate seldom enough; None if it needs too many runs."""
    low, high = math.log(MIN_GAMMA), 0.0
    for _ in range(60):
        middle = (low + high) / 2
        missed = chance_missed(TruncatedNegativeBinomial(eta, math.exp(middle)), candidates)
        low, high = (middle, high) if missed <= 1 - seen else (low, middle)
    law = TruncatedNegativeBinomial(eta, max(math.exp(low), MIN_GAMMA))
    enough = chance_missed(law, candidates) <= 1 - seen and mean_runs(law) <= MAX_RUNS_PER_CANDIDATE * candidates
    return law if enough else None
