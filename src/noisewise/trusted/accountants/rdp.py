"""Renyi differential privacy at one integer order a, fixed before the first event. Costs are D_a and add up.

The filter "stop before the sum exceeds the cap of that one order" is valid for noise levels and rates chosen
adaptively (Feldman & Zrnic 2021). "Continue while some order is within its cap" is not.

Every price is an upper bound; those of single Gaussians are computed in :mod:`renyi`.

References: Mironov 2017; Canonne, Kamath & Steinke 2020, Proposition 12 (conversion); Feldman & Zrnic 2021 (filter).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, get_args

import numpy as np

from .. import validate
from ..events import (
    MAX_COUNT,
    Adjacency,
    AtOrder,
    Event,
    FixedBatch,
    Gaussian,
    Leaf,
    Mechanism,
    Poisson,
    Sampling,
    Selection,
    leaves,
    rebuilt_leaf,
    sampled,
)
from . import gdp
from .base import Accountant, Currency, accountant
from .common import (
    DOWN,
    FLOOR,
    UP,
    Unpriceable,
    approximate,
    check_relation,
    gaussian_scale,
    is_gaussian,
    rest_of_delta,
    selection,
    split_delta,
)
from .renyi import MARGIN, fixed_gaussian_replace, log_expm1, poisson_gaussian, poisson_gaussian_replace
from .repetitions import BestOf, Floats, RunPrivacy

if TYPE_CHECKING:
    from .terms import Budget

ORDERS: tuple[int, ...] = (*range(2, 33), *range(34, 64, 2), *range(64, 128, 4), *range(128, 256, 8))
ORDERS += (*range(256, 512, 32), *range(512, 1025, 64))
_ORDERS = np.array(ORDERS, dtype=np.float64)
Costs = Callable[[int], float]


def _check_order(order: int) -> None:
    if not isinstance(order, int) or not 2 <= order <= 1024:
        raise ValueError(f"order is {order!r}; pass a whole number from 2 to 1024")


# -- from a Renyi bound to a promise ------------------------------------------------------------------------------


def cap(order: int, epsilon: float, delta: float) -> float:
    """What a meter at this order may spend in all, rounded down.

    cap = epsilon - log(1 - 1/a) + log(delta a) / (a - 1)

    *Guarantee*: an adaptive sequence whose D_a sum to at most the cap is (epsilon, delta)-DP. Refused when <= 0.

    >>> round(cap(56, 0.5, 1e-8), 5)
    0.25629
    """
    _check_order(order)
    validate.positive(epsilon=epsilon)
    validate.open_unit(delta=delta)
    value = epsilon - _conversion(order, delta)
    if value <= 0:
        raise ValueError(
            f"order {order} leaves nothing to spend for epsilon={epsilon}, delta={delta} (cap {value:.3g}); "
            "pass a larger order, or a larger epsilon or delta"
        )
    return value * DOWN


def epsilon_of(rdp: float, order: int, delta: float) -> float:
    """The epsilon that D_a <= rdp gives at this delta, rounded up: rdp + log(1 - 1/a) - log(delta a) / (a - 1)."""
    _check_order(order)
    validate.open_unit(delta=delta)
    return max(0.0, rdp + _conversion(order, delta))


def _conversion(order: int, delta: float) -> float:
    """log(1 - 1/a) - log(delta a)/(a - 1), rounded up."""
    value = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
    return value + 1e-14 * (1 + abs(value))


# -- the price of any event ---------------------------------------------------------------------------------------


def pure(epsilon: float, order: int) -> float:
    """D_a of any pure epsilon-DP answer: that of randomised response, at most min(a epsilon^2/2, epsilon); rounded up.

    log(1 + (r^a - r)(1 - r^-a)/(1 + r)) / (a - 1) with r = e^epsilon.
    """
    gain = float(log_expm1(np.asarray((order - 1) * epsilon, dtype=np.float64))) + math.log(
        -math.expm1(-order * epsilon)
    )
    value = float(np.logaddexp(0.0, gain - math.log1p(math.exp(-epsilon)))) / (order - 1)
    return min(value * MARGIN, order * epsilon**2 / 2 * UP, epsilon * UP)


def cost(leaf: Leaf, adjacency: str, order: int) -> float:
    """D_a of one event, rounded up.

    *Guarantee*: the event is (a, cost)-RDP in both directions, given everything released before.

    >>> round(cost(Gaussian(2.0), "add_remove", 8), 9)
    1.0
    """
    _check_order(order)
    check_relation(leaf, adjacency)
    match leaf:
        case Gaussian(sigma) | Poisson(_, Gaussian(sigma)) | FixedBatch(_, Gaussian(sigma)):
            rate = leaf.rate if isinstance(leaf, Poisson | FixedBatch) else 1.0
            # Less noise costs more, so 1e70 stands for anything above it; below 0.1 quadrature is not worth its time.
            price = _gaussian(type(leaf), rate, min(sigma, 1e70), adjacency, order)
        case AtOrder(known, rdp):
            if order > known:
                raise Unpriceable(f"{leaf!r} has no price at order {order}; fix an order of at most {known}")
            price = rdp
        case Selection():
            price = costs_of(leaf, adjacency)(order)
        case _:
            epsilon, ranged = selection(leaf, adjacency, "has no Renyi price")
            price = min(pure(epsilon, order), order * ranged**2 / 8 * UP)
    return max(price, FLOOR)


def _gaussian(kind: type[Leaf], rate: float, sigma: float, adjacency: str, order: int) -> float:
    """D_a of a Gaussian on the full batch, a Poisson batch or a batch of fixed size."""
    mu = gaussian_scale(adjacency) / sigma
    if rate == 1:
        return order * mu * mu / 2 * UP
    if adjacency == "add_remove":
        return float(poisson_gaussian(rate, sigma, order))
    if sigma < 0.1:
        return order * mu * mu / 2 * UP
    sampled_price = poisson_gaussian_replace if kind is Poisson else fixed_gaussian_replace
    return sampled_price(rate, sigma, order)


def costs_of(leaf: Leaf, adjacency: str) -> Costs:
    """:func:`cost` at every order; that of a selection is computed once, at ``ORDERS``, and between them the next one's."""
    if not isinstance(leaf, Selection):
        return lambda order: cost(leaf, adjacency, order)
    plain = rebuilt_leaf(leaf)
    assert isinstance(plain, Selection)
    best = BestOf(one_run(plain, adjacency), plain.repetitions)

    def at(order: int) -> float:
        price = best.at(order)
        if not price < math.inf:
            raise Unpriceable(f"this Selection has no price at order {order}, which some candidate is not known at")
        return max(price, FLOOR)

    return at


def one_run(event: Selection, adjacency: str) -> RunPrivacy:
    """What is known of one run, which draws a candidate: the largest divergence of any candidate.

    *Guarantee*: a mixture over what both neighbours share; Renyi and hockey-stick divergences are jointly quasi-convex.
    """
    runs = [_candidate(tuple(leaves(one).items()), adjacency) for one in dict.fromkeys(event.candidates)]
    rdp = np.max([run.rdp for run in runs], axis=0)
    return RunPrivacy(_ORDERS, rdp, max(run.pure for run in runs))


@lru_cache(maxsize=4096)
def _candidate(counts: tuple[tuple[Leaf, int], ...], adjacency: str) -> RunPrivacy:
    """One candidate, made of plain numbers; all its full-batch Gaussians are one."""
    rdp, squares, pure = np.zeros(len(ORDERS)), 0.0, 0.0
    for leaf, count in counts:
        if not isinstance(leaf, Gaussian):
            rdp += count * _leaf_curve(leaf, adjacency)
        else:
            squares += count * gdp.cost(leaf, adjacency) * UP
        pure += count * approximate(leaf, adjacency)[0] * UP if _is_pure(leaf) else math.inf
    rdp += _ORDERS * (squares / 2 * UP)
    rdp *= 1 + len(counts) * 2.0**-50
    rdp.flags.writeable = False
    return RunPrivacy(_ORDERS, rdp, pure)


@lru_cache(maxsize=4096)
def _leaf_curve(leaf: Leaf, adjacency: str) -> Floats:
    known = leaf.order if isinstance(leaf, AtOrder) else ORDERS[-1]
    return np.array([cost(leaf, adjacency, order) if order <= known else math.inf for order in ORDERS])


def _is_pure(leaf: Leaf) -> bool:
    return isinstance(leaf, Mechanism | Poisson | FixedBatch) and not is_gaussian(leaf)


def noise_for(cost_allowed: float, sampling: Sampling, adjacency: str, order: int) -> float:
    """The noise multiplier of a Gaussian that costs at most ``cost_allowed``, rounded up by at most a relative 1e-7.

    Safeguarded secant in (log sigma, log cost), in which the price is nearly a straight line.

    *Guarantee*: the price of the result was computed and is at most ``cost_allowed``.

    >>> round(noise_for(cap(56, 0.5, 1e-8) / 300, ("poisson", 1000 / 26048), "add_remove", 56), 2)
    7.13
    """
    _check_order(order)
    validate.positive(cost_allowed=cost_allowed)

    def excess(log_sigma: float) -> float:
        return math.log(cost(sampled(sampling, Gaussian(math.exp(log_sigma))), adjacency, order)) - target

    target = math.log(cost_allowed)
    high = math.log(gaussian_scale(adjacency)) + 0.5 * (math.log(order / 2) - target) + 1e-9
    low = high + math.log(sampling[1]) - 0.5 if len(sampling) == 2 else high - 1e-6
    f_high = excess(high)
    while f_high > 0:
        high, f_high = high + 1e-9, excess(high + 1e-9)
    f_low = excess(low)
    while f_low <= 0:
        high, f_high = low, f_low
        low -= 1.0
        f_low = excess(low)
    for step in range(100):
        if high - low <= 1e-8 or f_high > -1e-9:
            break
        guess = high - f_high * (high - low) / (f_high - f_low) if step % 3 < 2 else (low + high) / 2
        guess = min(max(guess + 2e-9, low + 1e-3 * (high - low)), high - 1e-3 * (high - low))
        value = excess(guess)
        if value > 0:
            low, f_low = guess, value
        else:
            high, f_high = guess, value
    sigma = math.exp(high)
    while cost(sampled(sampling, Gaussian(sigma)), adjacency, order) > cost_allowed:
        sigma *= 1 + 1e-12
    return sigma


# -- choosing the order -----------------------------------------------------------------------------------------


def best_order(events: Event | Iterable[Event], delta: float, adjacency: str) -> tuple[int, float]:
    """The order that prices events fixed beforehand best, and the epsilon it gives.

    *Guarantee*: the order depends on public facts only; for a plan, any choice of order is valid.
    """
    counts, taken = split_delta(events, adjacency)
    left = rest_of_delta(delta, taken)
    costs = [(count, costs_of(leaf, adjacency)) for leaf, count in counts.items()]
    partly = any(isinstance(leaf, AtOrder | Selection) for leaf in counts)

    def price(order: int) -> float:
        try:
            total = math.fsum(count * at(order) for count, at in costs)
        except Unpriceable:
            if partly and order > ORDERS[0]:
                return math.inf
            raise
        return epsilon_of(total * UP, order, left) if total else 0.0

    return _least(price)


def plan_epsilon(events: Event | Iterable[Event], delta: float, adjacency: str) -> float:
    """The price of events fixed beforehand, by RDP at the best integer order.

    >>> round(plan_epsilon(Gaussian(4.0), 1e-5, "add_remove"), 3)
    1.013
    """
    return best_order(events, delta, adjacency)[1]


@lru_cache(maxsize=64)
def reference_order(epsilon: float, delta: float, steps: int, sampling: Sampling, adjacency: str) -> int:
    """The order to fix for an adaptive run: the best one for the plan that would spend evenly over ``steps`` steps.

    *Guarantee*: made of public facts only, so fixing it reveals nothing.

    >>> reference_order(0.5, 1e-8, 300, ("poisson", 1000 / 26048), "add_remove")
    56
    """
    validate.whole(steps=steps)

    def sigma(order: int) -> float:
        try:
            share = cap(order, epsilon, delta) / steps
        except ValueError:
            return math.inf
        return noise_for(share, sampling, adjacency, order)

    order, least = _least(sigma)
    if least == math.inf:
        raise ValueError(
            f"epsilon={epsilon}, delta={delta} is too small for every order up to {ORDERS[-1]}; "
            "pass a larger epsilon or delta, or use the full batch"
        )
    return order


def _least(value: Callable[[int], float]) -> tuple[int, float]:
    """The order with the least value: every eighth candidate first, then around the best, then its neighbours."""
    seen: dict[int, float] = {}

    def look(orders: Iterable[int]) -> int:
        for order in orders:
            if order not in seen:
                seen[order] = value(order)
        return min(seen, key=lambda order: (seen[order], order))

    best = ORDERS.index(look(ORDERS[::8]))
    centre = look(ORDERS[max(0, best - 8) : best + 9 : 2])
    around = [order for order in ORDERS if abs(ORDERS.index(order) - ORDERS.index(centre)) <= 1]
    for _ in range(10):
        low, high = around[0], around[-1]
        middle = look(around)
        around = sorted(
            {max(low, (low + middle) // 2), middle - 1, middle, middle + 1, min(high, (middle + high + 1) // 2)}
        )
        around = [order for order in around if 2 <= order <= ORDERS[-1]]
        if all(order in seen for order in around):
            break
    best_seen = look(())
    return best_seen, seen[best_seen]


@accountant
class Rdp(Accountant):
    """Renyi DP: a plan at its best order, an adaptive run at one order that is fixed beforehand."""

    __slots__ = ()
    name, rank, adaptive, amplifies = "rdp", 1, True, True
    mechanisms = (*get_args(Mechanism), AtOrder, Selection)
    reason = (
        "noise chosen while running on sampled batches needs a filter, and RDP at one order fixed beforehand is one"
    )

    epsilon, cost, noise_for = staticmethod(plan_epsilon), staticmethod(cost), staticmethod(noise_for)

    def turn(self, counts: Counter[Leaf]) -> int:
        return 2

    def buy(self, epsilon: float, delta: float, adjacency: Adjacency, order: int | None) -> Currency:
        if order is None:
            raise ValueError("order is None; pass the Renyi order to fix, e.g. from rdp.reference_order")
        return Currency(self.name, cap(order, epsilon, delta), adjacency, order=order)

    def order_for(self, budget: Budget, steps: int | None, sampling: Sampling) -> int:
        if steps is None:
            raise ValueError(
                "steps is None; pass the number of steps the run expects: it fixes the order of the RDP meter"
            )
        validate.whole(steps=steps)
        if steps > MAX_COUNT:
            raise ValueError("steps is more than 10^15; pass the number of steps the run expects")
        return reference_order(budget.epsilon, budget.delta, steps, sampling, budget.adjacency)
