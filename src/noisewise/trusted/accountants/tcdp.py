"""Truncated concentrated differential privacy, as the papers use it: D_a <= rho a for every order a in (1, omega).

Only to reproduce published results: it is looser than every other currency here. Every condition of the theorems is
enforced, among them the one PPSGD leaves out: the amplified omega must be at least omega_total.

A meter in this currency is a Renyi filter at the single order omega_total, fixed beforehand, so adaptive choices of
rho are covered.

References: Bun, Dwork, Rothblum & Steinke 2018; Wang & Zhou 2020 (PPSGD), Theorems 2 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .. import validate
from ..events import Adjacency, Event, FixedBatch, Gaussian, Leaf, Poisson, Sampling, sampled
from . import zcdp
from .base import Accountant, Currency, accountant
from .common import DOWN, UP, Unpriceable, check_relation, rest_of_delta, split_delta


def totals(epsilon: float, delta: float) -> tuple[float, float]:
    """(rho_total, omega_total) whose conversion gives (epsilon, delta): rho rounded down, omega rounded up.

    rho = epsilon + 2L - 2 sqrt(L (epsilon + L)), omega = sqrt(L / rho) + 1, L = log(1/delta) (PPSGD Eq. 3).

    >>> rho, omega = totals(0.5, 1e-8)
    >>> round(rho, 5), round(omega, 2)
    (0.00335, 75.18)
    """
    rho = zcdp.rho_of(epsilon, delta)
    return rho, (math.sqrt(-math.log(delta) / rho) + 1) * UP


def ctcdp(epsilon: float, delta: float) -> tuple[float, float]:
    """(rho_a, omega_a) of ctCDP: rho rounded down, omega rounded up.

    a = log(1/delta) / epsilon, rho_a = epsilon (sqrt(a+1) - sqrt(a))^2, omega_a = (1 + a) + sqrt(a (a+1)); the
    difference of roots is computed as 1 / (sqrt(a+1) + sqrt(a)).

    *Guarantee*: equal to :func:`totals` up to rounding. The formula in print has the bracket of rho_a inverted.

    >>> rho, omega = ctcdp(0.5, 1e-8)
    >>> round(rho, 5), round(omega, 2)
    (0.00335, 75.18)
    """
    validate.positive(epsilon=epsilon)
    validate.open_unit(delta=delta)
    a = -math.log(delta) / epsilon
    rho = epsilon / (math.sqrt(a + 1) + math.sqrt(a)) ** 2 * DOWN * DOWN
    return min(rho, zcdp.rho_of(epsilon, delta)), ((1 + a) + math.sqrt(a * (a + 1))) * UP


def amplify(rho: float, omega: float, rate: float) -> tuple[float, float]:
    """(rho, omega)-tCDP on a batch of fixed size, ``rate`` of the data, under replace_one: rho rounded up, omega down.

    (13 s^2 rho, log(1/s) / (4 rho)), provided rho <= 0.1, s <= 0.1, log(1/s) >= 3 rho (2 + log2(1/rho)) and
    omega >= log(1/s) / (2 rho). A broken condition is refused with its numbers.

    Reference: PPSGD Theorem 4 (Bun et al. 2018, Theorem 12).
    """
    log_rate = -math.log(rate)
    if rate > 0.1:
        raise Unpriceable(f"tCDP sampling needs a rate of at most 0.1, here {rate:.6g}; use smaller batches")
    if rho > 0.1:
        raise Unpriceable(f"tCDP sampling needs rho of at most 0.1 on the batch, here {rho:.6g}; use more noise")
    if log_rate < 3 * rho * (2 + math.log2(1 / rho)):
        need = 3 * rho * (2 + math.log2(1 / rho))
        raise Unpriceable(
            f"tCDP sampling needs log(1/s) >= 3 rho (2 + log2(1/rho)), here {log_rate:.6g} < {need:.6g}; use more noise"
        )
    if omega < log_rate / (2 * rho):
        need = log_rate / (2 * rho)
        raise Unpriceable(
            f"tCDP sampling needs omega >= log(1/s)/(2 rho), here {omega:.6g} < {need:.6g}; use more noise"
        )
    return 13 * rate * rate * rho * UP * UP, log_rate / (4 * rho) * DOWN


def pair(leaf: Leaf, adjacency: str) -> tuple[float, float]:
    """(rho, omega) of one event; omega is infinite without sampling.

    Poisson batches are refused: the amplification theorem is about batches of fixed size.
    """
    check_relation(leaf, adjacency)
    match leaf:
        case FixedBatch(rate, Gaussian() as inner) if rate < 1:
            return amplify(zcdp.cost(inner, adjacency), math.inf, rate)
        case FixedBatch(rate, _) if rate < 1:
            raise Unpriceable(f"{leaf!r} has no tCDP price: sampling is priced for Gaussians only")
        case Poisson(rate, _) if rate < 1:
            raise Unpriceable(f"{leaf!r} has no tCDP price: its sampling theorem is for batches of fixed size")
    return zcdp.cost(leaf, adjacency), math.inf


def cost(leaf: Leaf, adjacency: str, omega_total: float) -> float:
    """rho of one event inside a budget that needs ``omega_total``; refused when the event's own omega is smaller."""
    rho, omega = pair(leaf, adjacency)
    if omega < omega_total:
        raise Unpriceable(
            f"{leaf!r} has omega {omega:.6g} after sampling, but the budget needs at least omega_total "
            f"{omega_total:.6g}; use more noise or larger batches"
        )
    return rho


def noise_for(cost_allowed: float, sampling: Sampling, adjacency: str, omega_total: float) -> float:
    """The noise multiplier of a Gaussian that costs at most ``cost_allowed`` and meets every condition.

    When a condition asks for more noise than the cost does, the condition wins and less than ``cost_allowed`` is spent.
    """
    validate.positive(cost_allowed=cost_allowed)
    if sampling[0] == "full" or sampling[1] == 1:
        return zcdp.noise_for(cost_allowed, sampling, adjacency)
    check_relation(sampled(sampling, Gaussian(1.0)), adjacency)
    rate = sampling[1]
    rho = min(cost_allowed / (13 * rate * rate), 0.1, -math.log(rate) / (4 * omega_total)) if rate < 1 else cost_allowed
    sigma = math.sqrt(2 / rho) * UP * UP
    for _ in range(64):
        try:
            if cost(sampled(sampling, Gaussian(sigma)), adjacency, omega_total) <= cost_allowed:
                return sigma
        except Unpriceable as refusal:
            last = refusal
        sigma *= 1 + 1e-14
    raise last


def plan_epsilon(events: Event | Iterable[Event], delta: float, adjacency: str) -> float:
    """The price of events fixed beforehand: rho + 2 sqrt(rho log(1/delta)), for delta >= exp(-(omega - 1)^2 rho).

    Composition adds rho and takes the least omega.
    """
    counts, taken = split_delta(events, adjacency)
    left = rest_of_delta(delta, taken)
    pairs = [(count, *pair(leaf, adjacency)) for leaf, count in counts.items()]
    if not pairs:
        return 0.0
    rho = math.fsum(count * rho for count, rho, _ in pairs) * UP
    least = min(omega for _, _, omega in pairs)
    need = (math.sqrt(-math.log(left) / rho) + 1) * UP
    if least < need:
        raise Unpriceable(
            f"the least omega of the plan is {least:.6g}, but converting rho {rho:.6g} at delta {left:.3g} needs "
            f"{need:.6g}; use more noise or larger batches"
        )
    return zcdp.epsilon_of(rho, left)


@accountant
class Tcdp(Accountant):
    """Truncated CDP: a Renyi filter at the order omega_total; sampling for Gaussians on batches of fixed size only."""

    __slots__ = ()
    name, rank, adaptive, samplings = "tcdp", 3, True, ("full", "fixed")
    epsilon, cost, noise_for = staticmethod(plan_epsilon), staticmethod(cost), staticmethod(noise_for)
    totals = staticmethod(totals)

    def buy(self, epsilon: float, delta: float, adjacency: Adjacency, order: int | None) -> Currency:
        rho, omega = self.totals(epsilon, delta)
        return Currency(self.name, rho, adjacency, omega=omega)


@accountant
class Ctcdp(Tcdp):
    """The same numbers from the formulas of ctCDP."""

    __slots__ = ()
    name, rank, same_as = "ctcdp", 4, "tcdp"
    totals = staticmethod(ctcdp)
