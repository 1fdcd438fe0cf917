"""Privacy loss distributions: the tightest price of a plan, through dp-accounting.

For noise fixed beforehand only: composing privacy loss distributions is NOT a filter, and adaptively chosen noise must
never be priced here.

Distributions are discretised pessimistically (connect-the-dots, Doroshenko et al. 2022), so each one dominates the
true one; what the Fourier transforms may lose is taken out of delta. Selections and batches of fixed size are entered
through their exact worst-case hockey-stick curves, which dominate them also under composition (Zhu, Dong & Wang 2022).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .. import validate
from ..events import ApproximateDP, BoundedRange, Event, FixedBatch, Gaussian, Leaf, Poisson, leaves
from . import gdp, rdp, special
from .base import Accountant, EventsAtNoise, accountant, least_scale, log_ratio
from .common import DOWN, UP, Unpriceable, approximate, count_leaves, gaussian_scale, is_gaussian

if TYPE_CHECKING:
    from .terms import Budget

Floats = npt.NDArray[np.float64]
LEVELS = 64
FINE, COARSE = 2**16, 2**13
TOLERANCE = 0.005  # rough noise is rounded up by about this share: a table for people needs no more


def epsilon_of(
    events: Event | Iterable[Event], delta: float, adjacency: str, *, bins: int | None = None, levels: int = LEVELS
) -> float:
    """The epsilon of events fixed beforehand, an upper bound.

    ``bins`` sets how finely the losses are cut; any number is sound, more is tighter. Left out, it is 65,536 shared
    among the distinct noise levels, and at least 8,192.

    *Guarantee*: every distribution is pessimistic, noise levels beyond ``levels`` are rounded down to a geometric grid,
    and delta is reduced by what rounding in the Fourier transforms may add.
    """
    validate.open_unit(delta=delta)
    counts = _grouped(_merged(count_leaves(events, adjacency), adjacency), levels)
    if not counts:
        return 0.0
    slack = (sum(counts.values()) + 64) * 2.0**-48
    if slack > delta / 10:
        raise Unpriceable(
            f"delta={delta} is too small for {sum(counts.values())} events: the Fourier transforms of PLD are accurate "
            f"to about {slack:.1g}; pass a larger delta or use accountant='rdp'"
        )
    interval = _interval(counts, adjacency, bins or max(COARSE, FINE // len(counts)))
    total: Any = None
    try:
        for leaf, count in counts.items():
            single = _distribution(leaf, adjacency, interval)
            composed = single.self_compose(count) if count > 1 else single
            total = composed if total is None else total.compose(composed)
        return float(total.get_epsilon_for_delta(delta - slack)) * UP
    except OverflowError as error:
        raise Unpriceable(
            "the privacy losses of these events are too large for PLD; use more noise or accountant='rdp'"
        ) from error


def _merged(counts: Counter[Leaf], adjacency: str) -> Counter[Leaf]:
    """All full-batch Gaussians as one, exactly: their mu^2 add up. The one is stated for add_remove."""
    squares = 0.0
    others: Counter[Leaf] = Counter()
    for leaf, count in counts.items():
        if isinstance(leaf, Poisson | FixedBatch) and leaf.rate == 1:
            leaf = leaf.event
        if isinstance(leaf, Gaussian):
            squares += count * gdp.cost(leaf, adjacency) * UP
        else:
            others[leaf] += count
    if squares:
        scale = gaussian_scale(adjacency)
        others[Gaussian(scale / math.sqrt(squares) * DOWN)] += 1
    return others


def _grouped(counts: Counter[Leaf], levels: int) -> Counter[Leaf]:
    """At most ``levels`` noise levels per rate: beyond that, noise multipliers are rounded DOWN to a geometric grid."""
    groups: dict[tuple[type[Leaf], float], list[Leaf]] = {}
    for leaf in counts:
        if isinstance(leaf, Poisson | FixedBatch) and isinstance(leaf.event, Gaussian):
            groups.setdefault((type(leaf), leaf.rate), []).append(leaf)
    grouped = Counter(counts)
    for (kind, rate), members in groups.items():
        if len(members) <= levels:
            continue
        sigmas = np.array([leaf.event.noise_multiplier for leaf in members])  # type: ignore[union-attr]
        grid = np.geomspace(sigmas.min() * DOWN, sigmas.max(), levels)
        for leaf, sigma in zip(members, sigmas, strict=True):
            level = float(grid[np.searchsorted(grid, sigma, side="right") - 1])
            count = grouped.pop(leaf)
            grouped[kind(rate, Gaussian(min(level, float(sigma))))] += count  # type: ignore[call-arg, arg-type]
    return grouped


def _interval(counts: Counter[Leaf], adjacency: str, bins: int) -> float:
    """A loss interval that cuts the composed distribution into about ``bins`` cells; any value would be sound."""
    mean = sum(count * rdp.cost(_pure_part(leaf, adjacency), adjacency, 2) for leaf, count in counts.items())
    widths = [
        20 * gaussian_scale(adjacency) / leaf.event.noise_multiplier
        for leaf in counts
        if isinstance(leaf, Poisson | FixedBatch) and isinstance(leaf.event, Gaussian)
    ]
    composed = 2 * (mean + 12 * math.sqrt(2 * mean))
    return max(composed / bins, max(widths, default=0.0) / (4 * bins), 1e-9)


def _pure_part(leaf: Leaf, adjacency: str) -> Leaf:
    if is_gaussian(leaf):
        return leaf
    return ApproximateDP(approximate(leaf, adjacency)[0])


def _distribution(leaf: Leaf, adjacency: str, interval: float) -> Any:
    """A privacy loss distribution that dominates one event."""
    from dp_accounting import NeighboringRelation  # slow to import, and other accountants do without
    from dp_accounting.pld import common, privacy_loss_distribution

    replace = adjacency == "replace_one"
    match leaf:
        case Gaussian(sigma) | Poisson(_, Gaussian(sigma)):
            sigma = min(sigma, 1e70)  # less noise costs more; beyond this squares overflow
            return privacy_loss_distribution.from_gaussian_mechanism(
                standard_deviation=sigma,
                pessimistic_estimate=True,
                value_discretization_interval=interval,
                sampling_prob=leaf.rate if isinstance(leaf, Poisson) else 1.0,
                use_connect_dots=True,
                neighboring_relation=(
                    NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
                ),
            )
        case FixedBatch(rate, Gaussian(sigma)):
            mu = 2 / min(sigma, 1e70)
            top = _amplified(mu * mu / 2 + 10 * mu, rate)
            return _from_curve(lambda loss: _fixed_curve(loss, rate, mu), top, interval)
        case BoundedRange(epsilon):
            return _from_curve(lambda loss: _range_curve(loss, epsilon), epsilon, interval)
    epsilon, delta = approximate(leaf, adjacency)
    return privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(epsilon, delta), value_discretization_interval=interval
    )


def _amplified(epsilon: float, rate: float) -> float:
    return math.log1p(rate * math.expm1(epsilon)) if epsilon < 700 else epsilon


def _from_curve(curve: Callable[[Floats], Floats], top: float, interval: float) -> Any:
    """The pessimistic distribution of a symmetric event with hockey-stick ``curve`` at losses >= 0.

    For a negative loss -x the curve is 1 - e^-x + e^-x curve(x), by symmetry.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    cells = math.ceil(top / interval) + 1
    losses: Floats = interval * np.arange(1, cells + 1, dtype=np.float64)
    right = np.minimum.accumulate(np.clip(curve(losses), 0.0, 1.0))
    left = (-np.expm1(-losses) + np.exp(-losses) * right)[::-1]
    middle = np.clip(curve(np.zeros(1, dtype=np.float64)), 0.0, 1.0)
    deltas = np.minimum.accumulate(np.clip(np.concatenate([left, middle, right]) * UP, 0.0, 1.0))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -cells, cells, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def _range_curve(loss: Floats, epsilon: float) -> Floats:
    """Worst hockey-stick divergence of a bounded-range answer: (1 - e^((x - epsilon)/2))^2 / (1 - e^-epsilon).

    The maximum over t of the two-point pair with losses -t and epsilon - t (Dong, Durfee & Rogers 2020).
    """
    return np.asarray(np.expm1(np.minimum(loss - epsilon, 0.0) / 2) ** 2 / -math.expm1(-epsilon))


def _fixed_curve(loss: Floats, rate: float, mu: float) -> Floats:
    """Batches of fixed size: q delta_mu(log(1 + (e^x - 1)/q)) (Balle, Barthe & Gaboardi 2018, Theorem 9)."""
    inner = np.where(loss < 30, np.log1p(np.expm1(np.minimum(loss, 30.0)) / rate), loss - math.log(rate))
    a, b = mu / 2 - inner / mu, -mu / 2 - inner / mu
    tail = (
        0.5
        * np.exp(-a * a / 2)
        * (special.erfcx(-np.minimum(a, 0.0) / math.sqrt(2)) - special.erfcx(-b / math.sqrt(2)))
    )
    return np.asarray(
        rate * np.where(a < 0, tail, special.ndtr(a) - np.exp(np.minimum(inner + special.log_ndtr(b), 0.0)))
    )


@accountant
class Pld(Accountant):
    """Privacy loss distributions: for plans only, the tightest where batches are sampled."""

    __slots__ = ()
    name, rank, amplifies, slow = "pld", 5, True, True
    reason = "it is the tightest price for noise fixed beforehand"
    not_a_filter = "composing privacy loss distributions is valid only for noise fixed beforehand"

    epsilon = staticmethod(epsilon_of)

    def turn(self, counts: Counter[Leaf]) -> int:
        return 1

    def scale(self, plan: EventsAtNoise, budget: Budget, start: float) -> float:
        coarse = log_ratio(partial(epsilon_of, bins=COARSE // 2, levels=16), plan, budget)
        near = least_scale(coarse, start, budget, tolerance=1e-3)
        tolerance = 1e-4 if len(plan(1.0)) <= 8 else 1e-3
        return least_scale(log_ratio(epsilon_of, plan, budget), near, budget, factor=1.0005, tolerance=tolerance)

    def rough_scale(self, plan: EventsAtNoise, budget: Budget, enough: float) -> float | None:
        """From few and coarse prices: any number of bins is sound, and what is returned was found within the budget."""
        steps = leaves(plan(1.0)).total()
        bins = 2 ** min(16, max(11, math.ceil(math.log2(128 * math.sqrt(steps)))))

        def excess(log_scale: float) -> float:
            price = epsilon_of(plan(math.exp(log_scale)), budget.delta, budget.adjacency, bins=bins)
            return math.log(price / budget.epsilon)

        try:
            high = math.log(enough)
            f_high = excess(high)
            if f_high > 0:
                return None
            slope = _slope(plan, budget, enough)
            low, f_low = -math.inf, math.inf
            for _ in range(8):
                if high - low <= TOLERANCE or -f_high <= slope * TOLERANCE:
                    break
                if math.isfinite(f_low):
                    slope = (f_low - f_high) / (high - low)
                guess = high + f_high / slope + TOLERANCE / 4  # a little above, so that it is likely within the budget
                guess = min(max(guess, low + TOLERANCE / 4), high - TOLERANCE / 4)
                value = excess(guess)
                if value > 0:
                    low, f_low = guess, value
                else:
                    slope = max((value - f_high) / (high - guess), 0.5)
                    high, f_high = guess, value
        except Unpriceable:
            return None
        return math.exp(high)


def _slope(plan: EventsAtNoise, budget: Budget, scale: float) -> float:
    """How fast the log price falls with the log noise, by RDP, which is quick."""
    below, above = (rdp.plan_epsilon(plan(scale * by), budget.delta, budget.adjacency) for by in (0.9, 1.0))
    if not 0 < above <= below < math.inf:
        return 1.0
    return max(math.log(below / above) / -math.log(0.9), 0.5)
