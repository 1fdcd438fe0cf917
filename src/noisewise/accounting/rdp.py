"""Renyi differential privacy at one integer order a, fixed before the first event. Costs are D_a and add up.

The filter "stop before the sum exceeds the cap of that one order" is valid for noise levels and rates chosen
adaptively (Feldman & Zrnic 2021). "Continue while some order is within its cap" is not.

Every price is an upper bound: sums have positive terms only, quadratures are refined until two grids agree and then
moved up by what they disagree on, and a relative 1e-9 is added for floating point.

References: Mironov 2017; Mironov, Talwar & Zhang 2019 (Poisson); Balle, Barthe & Gaboardi 2018 (batches of fixed
size); Canonne, Kamath & Steinke 2020, Proposition 12 (conversion); Feldman & Zrnic 2021 (filter).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise import _validate
from noisewise.accounting._common import (
    DOWN,
    FLOOR,
    UP,
    Unpriceable,
    approximate,
    check_relation,
    count_leaves,
    gaussian_scale,
    rest_of_delta,
    split_delta,
    unsampled,
)
from noisewise.events import LEAST_NOISE, BoundedRange, Event, FixedBatch, Gaussian, Leaf, Poisson, Sampling, sampled

Floats = npt.NDArray[np.float64]
ORDERS: tuple[int, ...] = (*range(2, 33), *range(34, 64, 2), *range(64, 128, 4), *range(128, 256, 8))
ORDERS += (*range(256, 512, 32), *range(512, 1025, 64))
_MARGIN = 1 + 1e-9


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
    _validate.positive(epsilon=epsilon)
    _validate.open_unit(delta=delta)
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
    _validate.open_unit(delta=delta)
    return max(0.0, rdp + _conversion(order, delta))


def _conversion(order: int, delta: float) -> float:
    """log(1 - 1/a) - log(delta a)/(a - 1), rounded up."""
    value = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
    return value + 1e-14 * (1 + abs(value))


# -- the price of one Gaussian --------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _binomials(order: int) -> tuple[Floats, Floats, Floats]:
    """log C(a, k), k and k (k - 1) / 2 for k = 2..a."""
    k = np.arange(2, order + 1, dtype=np.float64)
    logs = np.array([math.log(math.comb(order, j)) for j in range(2, order + 1)])
    return logs, k, k * (k - 1) / 2


@lru_cache(maxsize=1024)
def _log_weights(order: int, rate: float) -> Floats:
    """log of C(a, k) (1-q)^(a-k) q^k for k = 2..a."""
    logs, k, _ = _binomials(order)
    return logs + (order - k) * math.log1p(-rate) + k * math.log(rate)


def poisson_gaussian(rate: float, sigma: npt.ArrayLike, order: int) -> Floats:
    """D_a of a Poisson-sampled Gaussian under add_remove, the larger of the two directions, for one or many sigmas.

    log(1 + sum_{k>=2} C(a,k) (1-q)^(a-k) q^k (exp(k(k-1)/(2 sigma^2)) - 1)) / (a - 1): the binomial sum with its ones
    taken out, so that all terms are positive and small prices keep their digits.

    *Guarantee*: an upper bound within a relative 1e-8. Reference: Mironov, Talwar & Zhang 2019, Section 3.3.

    >>> prices = poisson_gaussian(0.01, [1.0, 2.0], 16)
    >>> [round(price, 6) for price in prices.tolist()]
    [3.087851, 0.000238]
    """
    sigma = np.asarray(sigma, dtype=np.float64)
    if not (sigma >= LEAST_NOISE).all():
        raise Unpriceable(f"a noise multiplier below {LEAST_NOISE:g} is no noise")
    if rate == 1:
        return order / (2 * sigma**2) * UP
    exponent = _binomials(order)[2] / (sigma * sigma)[..., None]
    terms = _log_weights(order, rate) + _log_expm1(exponent)
    top = terms.max(axis=-1)
    total = top + np.log(np.exp(terms - top[..., None]).sum(axis=-1))
    return np.asarray(np.logaddexp(0.0, total) * (_MARGIN / (order - 1)))


def _log_expm1(x: Floats) -> Floats:
    """log(e^x - 1) for x > 0: x + log(1 - e^-x), without overflow or cancellation."""
    return np.asarray(x + np.log(-np.expm1(-x)))


def _refined(log_integrand: Any, low: float, high: float, step: float) -> float:
    """log of a trapezoid sum over [low, high], the step halved until it agrees with the doubled step; rounded up.

    The integrands vanish at both ends and are analytic, so the error falls exponentially with 1/step; what the last
    two grids disagree on is added on top.
    """
    for _ in range(12):
        points = 2 * math.ceil((high - low) / (2 * step)) + 1
        x, width = np.linspace(low, high, points, retstep=True)
        logs = log_integrand(x)
        top = float(logs.max())
        if top == -math.inf:
            return -math.inf
        values = np.exp(logs - top)
        fine, coarse = width * float(values.sum()), 2 * width * float(values[::2].sum())
        if abs(fine - coarse) <= 1e-9 * fine:
            return top + math.log(fine + abs(fine - coarse))
        step /= 2
    raise Unpriceable("the quadrature of a Renyi divergence did not settle; use a larger noise multiplier or rate")


@lru_cache(maxsize=4096)
def poisson_gaussian_replace(rate: float, sigma: float, order: int) -> float:
    """D_a of a Poisson-sampled Gaussian under replace_one.

    The pair is P = (1-q) N(0, s^2) + q N(1, s^2) against its mirror image Q, so both directions are equal. With
    r = P/Q, D_a = log(1 + E_Q[r^a - 1 - a (r - 1)]) / (a - 1), whose integrand is positive everywhere.

    *Guarantee*: an upper bound within a relative 1e-7.
    """
    if rate == 1:
        return 2 * order / sigma**2 * UP
    variance = sigma * sigma
    log_stay, log_join = math.log1p(-rate), math.log(rate) - 0.5 / variance
    log_norm = -math.log(sigma) - 0.5 * math.log(2 * math.pi)

    def log_integrand(x: Floats) -> Floats:
        z = x / variance
        log_q = np.logaddexp(log_stay, log_join - z)
        log_r = np.logaddexp(log_stay, log_join + z) - log_q
        small = np.abs(z) < 30
        with np.errstate(over="ignore"):
            excess = np.where(small, 2 * np.sinh(np.where(small, z, 0.0)) * np.exp(log_join - log_q), np.expm1(log_r))
        return np.asarray(log_norm - 0.5 * x * z + log_q + _log_convex(excess, log_r, order))

    # r^a Q has its mode at about a where Q is mostly N(0, s^2) there, and at 2a - 1 where it is still N(-1, s^2).
    low, high = -(12 * sigma + 1), 2 * order + 12 * sigma + 1
    total = _refined(log_integrand, low, high, min(sigma / 4, variance / 2))
    return float(np.logaddexp(0.0, total)) * _MARGIN / (order - 1)


def _log_convex(d: Floats, log_r: Floats, order: int) -> Floats:
    """log of r^a - 1 - a (r - 1) for r = 1 + d: series near r = 1, the definition elsewhere, r^a when that is huge."""
    a = float(order)
    t = np.clip(d, -0.02 / a, 0.02 / a)
    series = 1 + t * (a - 2) / 3 * (1 + t * (a - 3) / 4 * (1 + t * (a - 4) / 5 * (1 + t * (a - 5) / 6)))
    near, huge = np.abs(d) <= 0.02 / a, a * log_r > 40
    plain = np.expm1(np.where(huge, 1.0, a * log_r)) - a * np.where(huge, 0.0, d)
    with np.errstate(divide="ignore"):
        close = np.log(a * (a - 1) / 2 * t * t * series)
        return np.asarray(np.where(near, close, np.where(huge, a * log_r, np.log(np.where(near, 1.0, plain)))))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


@lru_cache(maxsize=4096)
def fixed_gaussian_replace(rate: float, sigma: float, order: int) -> float:
    """D_a of a Gaussian on a batch of fixed size drawn without replacement, under replace_one.

    For every t >= 1 and both directions the hockey-stick divergence is at most that of r = 1 - q + q e^(2(x-1)/s^2)
    under x ~ N(0, s^2) (Balle et al. 2018, Theorem 9, with sensitivity 2). Since the Renyi moment is
    1 + a (a-1) * integral over t >= 1 of (t^(a-2) H_t(P, Q) + t^(-a-1) H_t(Q, P)), it is at most
    1 + E[(r^a - r)(1 - r^-a); r > 1].

    *Guarantee*: an upper bound, never above the price without sampling. It is tighter than Theorem 9 of Wang, Balle &
    Kasiviswanathan 2019, whose factors 2 and 4 come from bounding the same moment term by term.
    """
    full = 2 * order / sigma**2 * UP
    if rate == 1:
        return full
    variance = sigma * sigma
    log_norm = -math.log(sigma) - 0.5 * math.log(2 * math.pi)

    def log_integrand(x: Floats) -> Floats:
        y = 2 * (x - 1) / variance
        mild = np.log1p(rate * np.expm1(np.minimum(y, 30.0)))
        log_r = np.where(y < 30, mild, np.logaddexp(math.log1p(-rate), math.log(rate) + y))
        value = log_r + _log_expm1((order - 1) * log_r) + np.log(-np.expm1(-order * log_r))
        return np.asarray(value - 0.5 * x * x / variance + log_norm)

    high = 2 * order + 12 * sigma + 1
    total = _panels(log_integrand, 1.0, high, min(2 * sigma, 2 * variance))
    return min(full, float(np.logaddexp(0.0, total)) * _MARGIN / (order - 1))


def _panels(log_integrand: Any, low: float, high: float, width: float) -> float:
    """log of a Gauss-Legendre sum over panels, their number doubled until it settles; rounded up."""
    last = math.nan
    for _ in range(10):
        edges = np.linspace(low, high, math.ceil((high - low) / width) + 1)
        half = np.diff(edges)[:, None] / 2
        logs = log_integrand((edges[:-1, None] + half) + half * _NODES) + np.log(half * _WEIGHTS)
        top = float(logs.max())
        total = top + math.log(float(np.exp(logs - top).sum()))
        if abs(total - last) <= 1e-9:
            return total + abs(total - last)
        last, width = total, width / 2
    raise Unpriceable("the quadrature of a Renyi divergence did not settle; use a larger noise multiplier or rate")


# -- the price of any event ---------------------------------------------------------------------------------------


def pure(epsilon: float, order: int) -> float:
    """D_a of any pure epsilon-DP answer: that of randomised response, at most min(a epsilon^2/2, epsilon); rounded up.

    log(1 + (r^a - r)(1 - r^-a)/(1 + r)) / (a - 1) with r = e^epsilon.
    """
    gain = float(_log_expm1(np.asarray((order - 1) * epsilon, dtype=np.float64))) + math.log(
        -math.expm1(-order * epsilon)
    )
    value = float(np.logaddexp(0.0, gain - math.log1p(math.exp(-epsilon)))) / (order - 1)
    return min(value * _MARGIN, order * epsilon**2 / 2 * UP, epsilon * UP)


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
        case _:
            epsilon, delta = approximate(leaf, adjacency)
            if delta > 0:
                raise Unpriceable(f"{leaf!r} has no Renyi price: an event with delta > 0 needs a share of delta")
            price = pure(epsilon, order)
            if isinstance(unsampled(leaf), BoundedRange):
                price = min(price, order * unsampled(leaf).epsilon ** 2 / 8 * UP)  # type: ignore[union-attr]
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


def noise_for(cost_allowed: float, sampling: Sampling, adjacency: str, order: int) -> float:
    """The noise multiplier of a Gaussian that costs at most ``cost_allowed``, rounded up by at most a relative 1e-7.

    Safeguarded secant in (log sigma, log cost), in which the price is nearly a straight line.

    *Guarantee*: the price of the result was computed and is at most ``cost_allowed``.

    >>> round(noise_for(cap(56, 0.5, 1e-8) / 300, ("poisson", 1000 / 26048), "add_remove", 56), 2)
    7.13
    """
    _check_order(order)
    _validate.positive(cost_allowed=cost_allowed)

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
    counts, taken = split_delta(count_leaves(events, adjacency), adjacency)
    left = rest_of_delta(delta, taken)

    def price(order: int) -> float:
        total = math.fsum(count * cost(leaf, adjacency, order) for leaf, count in counts.items())
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
    _validate.whole(steps=steps)

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


def _least(value: Any) -> tuple[int, float]:
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
