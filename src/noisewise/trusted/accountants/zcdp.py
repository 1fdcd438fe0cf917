"""Zero-concentrated differential privacy: D_a <= rho a for every order a > 1. Costs are rho and add up, adaptively too.

References: Bun & Steinke 2016; Whitehouse, Ramdas, Rogers & Wu 2023 (filters).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .. import validate
from ..events import Adjacency, Event, FixedBatch, Gaussian, Leaf, Poisson, Sampling, sampled
from .base import Accountant, Currency, accountant
from .common import DOWN, FLOOR, UP, check_relation, gaussian_scale, rest_of_delta, selection, split_delta


def rho_of(epsilon: float, delta: float) -> float:
    """The largest rho whose conversion gives (epsilon, delta), rounded down.

    rho = epsilon + 2L - 2 sqrt(L (epsilon + L)) with L = log(1/delta), computed as (epsilon / (sqrt(L + epsilon) +
    sqrt(L)))^2, where nothing cancels.

    >>> round(rho_of(0.5, 1e-8), 5)
    0.00335
    """
    validate.positive(epsilon=epsilon)
    validate.open_unit(delta=delta)
    L = -math.log(delta)
    root = epsilon / (math.sqrt(L + epsilon) + math.sqrt(L))
    rho = root * root * DOWN * DOWN
    while epsilon_of(rho, delta) > epsilon:
        rho *= DOWN
    return rho


def epsilon_of(rho: float, delta: float) -> float:
    """rho-zCDP gives (rho + 2 sqrt(rho log(1/delta)), delta)-DP; rounded up.

    >>> round(epsilon_of(0.1, 1e-5), 4)
    2.246
    """
    validate.positive(rho=rho)
    validate.open_unit(delta=delta)
    return (rho + 2 * math.sqrt(rho * -math.log(delta))) * UP


def cost(leaf: Leaf, adjacency: str) -> float:
    """rho of one event, rounded up; sampling earns nothing here for Gaussians.

    * Gaussian: 1/(2 sigma^2), or 2/sigma^2 under replace_one;
    * BoundedRange(epsilon): epsilon^2/8; pure epsilon-DP: epsilon^2/2; sampled selections: pure log(1+q(e^epsilon-1)).

    *Guarantee*: the event is cost-zCDP given everything released before. An ``ApproximateDP`` with delta > 0 is
    delta-approximate epsilon^2/2-zCDP: the meter charges its delta to a separate share.
    """
    check_relation(leaf, adjacency)
    match leaf:
        case Gaussian(sigma) | Poisson(_, Gaussian(sigma)) | FixedBatch(_, Gaussian(sigma)):
            mu = gaussian_scale(adjacency) / sigma
            return max(mu * mu / 2 * UP, FLOOR)
    pure, ranged = selection(leaf, adjacency, "is not zCDP")
    return max(min(pure * pure / 2 * UP, ranged * ranged / 8 * UP), FLOOR)


def noise_for(cost_allowed: float, sampling: Sampling, adjacency: str) -> float:
    """The least noise multiplier of a Gaussian that costs at most ``cost_allowed``, rounded up and re-checked.

    >>> round(noise_for(0.125, ("full",), "add_remove"), 9)
    2.0
    """
    validate.positive(cost_allowed=cost_allowed)
    sigma = gaussian_scale(adjacency) / math.sqrt(2 * cost_allowed) * UP
    while cost(sampled(sampling, Gaussian(sigma)), adjacency) > cost_allowed:
        sigma *= UP
    return sigma


def plan_epsilon(events: Event | Iterable[Event], delta: float, adjacency: str) -> float:
    """The price of events fixed beforehand, by zCDP."""
    counts, taken = split_delta(events, adjacency)
    total = math.fsum(count * cost(leaf, adjacency) for leaf, count in counts.items()) * UP
    return epsilon_of(total, rest_of_delta(delta, taken)) if total else 0.0


@accountant
class Zcdp(Accountant):
    """Zero-concentrated DP: its filter is valid, and looser than those of GDP and RDP."""

    __slots__ = ()
    name, rank, adaptive = "zcdp", 2, True

    epsilon, cost, noise_for = staticmethod(plan_epsilon), staticmethod(cost), staticmethod(noise_for)

    def buy(self, epsilon: float, delta: float, adjacency: Adjacency, order: int | None) -> Currency:
        return Currency(self.name, rho_of(epsilon, delta), adjacency)
