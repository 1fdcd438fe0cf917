"""Gaussian differential privacy: mu-GDP means that neighbours are no easier to tell apart than N(0,1) from N(mu,1).

The cost of an event is mu^2, which adds up. The filter "stop before the sum exceeds mu^2" is exact for noise levels
chosen adaptively (Smith & Thakurta 2022), for any answer that is mu_t-GDP given the past.

References: Dong, Roth & Su 2022; Balle & Wang 2018; Smith & Thakurta 2022.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from .. import validate
from ..events import Adjacency, Event, FixedBatch, Gaussian, Leaf, Poisson, Sampling, sampled
from . import special
from .base import Accountant, Currency, EventsAtNoise, accountant, least_scale
from .common import DOWN, FLOOR, UP, check_relation, gaussian_scale, rest_of_delta, selection, split_delta

if TYPE_CHECKING:
    from .terms import Budget

_SQRT2 = math.sqrt(2)
# Relative error of delta_of, checked against mpmath over epsilon 1e-4..50 and delta 1e-12..0.1 with a wide reserve.
_DELTA_ERROR = 1e-9


def delta_of(mu: float, epsilon: float) -> float:
    """The delta at which mu-GDP is exactly (epsilon, delta)-DP.

    delta = Phi(a) - e^epsilon Phi(b), a = -epsilon/mu + mu/2, b = -epsilon/mu - mu/2. For a < 0 this is computed as
    exp(-a^2/2) (erfcx(-a/sqrt 2) - erfcx(-b/sqrt 2)) / 2, where nothing large cancels.

    *Guarantee*: accurate to a relative 1e-9 (both ways) for epsilon in [0, 50].

    >>> round(delta_of(1.0, 1.0), 6)
    0.126937
    """
    a = mu / 2 - epsilon / mu
    b = -mu / 2 - epsilon / mu
    if a < 0:
        return float(0.5 * math.exp(-a * a / 2) * (special.erfcx(-a / _SQRT2) - special.erfcx(-b / _SQRT2)))
    return float(special.ndtr(a) - math.exp(min(epsilon + float(special.log_ndtr(b)), 0.0)))


def epsilon_of(mu: float, delta: float) -> float:
    """The least epsilon for which mu-GDP gives (epsilon, delta)-DP, rounded up by at most a relative 1e-8.

    *Guarantee*: ``delta_of(mu, epsilon_of(mu, delta))`` is at most delta, its own error included.

    >>> round(epsilon_of(1.0, 1e-5), 4)
    4.3772
    """
    validate.positive(mu=mu)
    validate.open_unit(delta=delta)
    target = delta * (1 - _DELTA_ERROR)
    if delta_of(mu, 0.0) <= target:
        return 0.0
    top = mu * mu / 2 + mu
    while delta_of(mu, top) > target:
        top *= 2
    root = root_of(lambda e: _log(delta_of(mu, e)) - math.log(target), 0.0, top)
    step = 1e-12
    while delta_of(mu, root * (1 + step)) > target:
        step *= 2
    return root * (1 + step)


def root_of(f: Callable[[float], float], low: float, high: float) -> float:
    """Where f, of different sign at both ends, is 0: Brent 1973, to a few units in the last place.

    The bits are those of ``scipy.optimize.brentq``, whose import takes longer and more memory than everything that is priced
    here. Whoever calls this rounds the root to the safe side and checks it.
    """
    last, at = float(low), float(high)  # the point before, and the best one
    f_last, f_at = f(last), f(at)
    other, f_other, step, step_before = last, f_last, 0.0, 0.0
    for _ in range(100):
        if f_last != 0 and f_at != 0 and (f_last < 0) != (f_at < 0):
            other, f_other = last, f_last
            step = step_before = at - last
        if abs(f_other) < abs(f_at):
            last, at, other = at, other, at
            f_last, f_at, f_other = f_at, f_other, f_at
        close = (1e-300 + 4 * sys.float_info.epsilon * abs(at)) / 2
        half = (other - at) / 2
        if f_at == 0 or abs(half) < close:
            return at
        bold = 0.0  # by secant, or by the inverse parabola through three points
        if abs(step_before) > close and abs(f_at) < abs(f_last):
            if last == other:
                bold = -f_at * (at - last) / (f_at - f_last)
            else:
                slope, wide = (f_last - f_at) / (last - at), (f_other - f_at) / (other - at)
                bold = -f_at * (f_other * wide - f_last * slope) / (wide * slope * (f_other - f_last))
            good = 2 * abs(bold) < min(abs(step_before), 3 * abs(half) - close)
            step_before, step = (step, bold) if good else (half, half)
        else:
            step_before = step = half
        last, f_last = at, f_at
        at += step if abs(step) > close else math.copysign(close, half)
        f_at = f(at)
    raise RuntimeError("no root was found; this is a bug")


MIN_MU = 1e-6  # delta_of subtracts two numbers that agree to mu: below, its error would pass 1e-9


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP is (epsilon, delta)-DP, rounded down by at most a relative 1e-8.

    *Guarantee*: ``delta_of(mu_of(epsilon, delta), epsilon)`` is at most delta, its own error included.

    >>> round(mu_of(0.1, 1e-8), 6)
    0.021769
    """
    validate.positive(epsilon=epsilon)
    validate.open_unit(delta=delta)
    target = delta * (1 - _DELTA_ERROR)
    low, high = epsilon, epsilon
    while delta_of(low, epsilon) > target and low >= MIN_MU:
        low /= 2
    if low < MIN_MU:
        raise ValueError(
            f"epsilon={epsilon!r} with delta={delta!r} is worth less than {MIN_MU} in Gaussian DP, too little to be "
            "priced exactly; pass a larger epsilon or delta"
        )
    while delta_of(high, epsilon) <= target:
        high *= 2
    root = root_of(lambda m: _log(delta_of(m, epsilon)) - math.log(target), low, high)
    step = 1e-12
    while delta_of(root * (1 - step), epsilon) > target:
        step *= 2
    return root * (1 - step)


def _log(value: float) -> float:
    return math.log(max(value, 1e-320))


def _mu_pure(epsilon: float) -> float:
    """mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)), rounded up by more than ndtri and expit can lose."""
    return -2 * float(special.ndtri(special.expit(-epsilon))) * (1 + 1e-12) + 2e-15


def cost(leaf: Leaf, adjacency: str) -> float:
    """mu^2 of one event, rounded up.

    * Gaussian: (1/sigma)^2, or (2/sigma)^2 under replace_one; sampling earns nothing here (joint convexity);
    * BoundedRange(epsilon): mu = 2 Phi^-1(e^(epsilon/2) / (1 + e^(epsilon/2)));
    * pure epsilon-DP: mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)); sampled selections are charged as pure
      log(1 + q (e^epsilon - 1)).

    *Guarantee*: the event is sqrt(cost)-GDP given everything released before. No (epsilon, delta > 0) event is.

    >>> cost(Gaussian(2.0), "add_remove") >= 0.25, cost(Gaussian(2.0), "replace_one") >= 1.0
    (True, True)
    """
    check_relation(leaf, adjacency)
    match leaf:
        case Gaussian(sigma) | Poisson(_, Gaussian(sigma)) | FixedBatch(_, Gaussian(sigma)):
            mu = gaussian_scale(adjacency) / sigma
        case _:
            pure, ranged = selection(leaf, adjacency, "is not mu-GDP for any mu")
            mu = min(_mu_pure(pure), _mu_pure(ranged / 2))
    return max(mu * mu * UP, FLOOR)


def noise_for(cost_allowed: float, sampling: Sampling, adjacency: str) -> float:
    """The least noise multiplier of a Gaussian that costs at most ``cost_allowed``, rounded up and re-checked.

    >>> round(noise_for(0.25, ("full",), "add_remove"), 9)
    2.0
    """
    validate.positive(cost_allowed=cost_allowed)
    sigma = gaussian_scale(adjacency) / math.sqrt(cost_allowed) * UP
    while cost(sampled(sampling, Gaussian(sigma)), adjacency) > cost_allowed:
        sigma *= UP
    return sigma


def plan_epsilon(events: Event | Iterable[Event], delta: float, adjacency: str) -> float:
    """The price of events fixed beforehand, by GDP: exact when all of them are full-batch Gaussians.

    >>> [round(plan_epsilon(Gaussian(4.0), 1e-5, relation), 3) for relation in ("add_remove", "replace_one")]
    [0.926, 1.993]
    """
    total, taken = _total(events, adjacency)
    return epsilon_of(math.sqrt(total) * UP, rest_of_delta(delta, taken)) if total else 0.0


def _total(events: Event | Iterable[Event], adjacency: str) -> tuple[float, float]:
    """The sum of mu^2, rounded up, and the part of delta that one-shot events take."""
    counts, taken = split_delta(events, adjacency)
    return math.fsum(count * cost(leaf, adjacency) for leaf, count in counts.items()) * UP, taken


def plan_delta(events: Event | Iterable[Event], epsilon: float, adjacency: str) -> float:
    """The delta of events fixed beforehand at ``epsilon``, rounded up.

    >>> round(plan_delta(Gaussian(4.0), 0.9263, "add_remove"), 7)
    1e-05
    """
    total, taken = _total(events, adjacency)
    return min(1.0, delta_of(math.sqrt(total) * UP, epsilon) * (1 + _DELTA_ERROR) + taken) if total else taken


def cap(epsilon: float, delta: float) -> float:
    """What a GDP meter may spend in all: mu_of(epsilon, delta)^2, rounded down."""
    mu = mu_of(epsilon, delta)
    return mu * mu * DOWN


_cap = lru_cache(maxsize=256)(cap)


@accountant
class Gdp(Accountant):
    """Gaussian DP: exact for Gaussians on the full batch, adaptive or not; sampling earns nothing."""

    __slots__ = ()
    name, rank, adaptive, exact = "gdp", 0, True, True
    reason = "the GDP filter is exact for Gaussian noise on the full batch, fixed or adaptive"

    epsilon, delta = staticmethod(plan_epsilon), staticmethod(plan_delta)
    cost, noise_for = staticmethod(cost), staticmethod(noise_for)

    def turn(self, counts: Counter[Leaf]) -> int:
        full = (leaf.event if isinstance(leaf, Poisson | FixedBatch) and leaf.rate == 1 else leaf for leaf in counts)
        return 0 if all(isinstance(leaf, Gaussian) for leaf in full) else 2

    def scale(self, plan: EventsAtNoise, budget: Budget, start: float) -> float:
        def excess(scale: float) -> float:
            """How far the plan is above the cap of the meter, as a log ratio of noise; the meter will then afford it."""
            counts, taken = split_delta(plan(scale), budget.adjacency)
            most = cap(budget.epsilon, rest_of_delta(budget.delta, taken)) * (1 - 1e-12)
            total = math.fsum(count * cost(leaf, budget.adjacency) for leaf, count in counts.items())
            return 0.5 * (math.log(total) - math.log(most))

        return least_scale(excess, start, budget)

    def buy(self, epsilon: float, delta: float, adjacency: Adjacency, order: int | None) -> Currency:
        return Currency(self.name, _cap(float(epsilon), float(delta)), adjacency)
