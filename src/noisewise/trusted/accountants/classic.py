"""The accounting of older papers, to reproduce their baselines honestly: advanced composition and moments accountant.

Both are for plans fixed beforehand, and both are looser than PLD.

References: Dwork & Roth 2014, Theorems 3.20 and A.1; Bassily, Smith & Thakurta 2014; Abadi et al. 2016, Theorem 2.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from .. import validate
from ..events import ApproximateDP, AtOrder, BoundedRange, Event, FixedBatch, Gaussian, Leaf, Poisson, Selection
from . import rdp
from .base import Accountant, accountant
from .common import UP, Unpriceable, approximate, count_leaves, gaussian_scale, is_gaussian, renyi_only, rest_of_delta

LAMBDAS = range(1, 33)


def advanced_epsilon(events: Event | Iterable[Event], delta: float, adjacency: str) -> float:
    """The price by advanced composition, as the baseline of Bassily et al. 2014 used it; rounded up.

    epsilon = e sqrt(2 k log(2/delta)) + k e (e^e - 1) for k events of at most (e, delta_i) each.

    Half of delta goes to the composition theorem; the other half, less the deltas of one-shot events, is divided
    evenly among the Gaussians. A Gaussian with share d on batches of rate q is the classical mechanism: epsilon_0 =
    sqrt(2 log(1.25 q/d)) / sigma (sigma/2 under replace_one), valid for epsilon_0 <= 1, then
    log(1 + q (e^epsilon_0 - 1)) after sampling. The theorem is homogeneous, so e is the largest of all events.

    *Guarantee*: an upper bound for events fixed beforehand; refused where the classical mechanism is not proved.

    >>> round(advanced_epsilon([Gaussian(200.0)] * 10, 1e-5, "add_remove"), 3)
    0.432
    """
    validate.open_unit(delta=delta)
    counts = count_leaves(events, adjacency)
    steps = sum(counts.values())
    if not steps:
        return 0.0
    others = {leaf: approximate(leaf, adjacency) for leaf in counts if not is_gaussian(leaf)}
    taken = math.fsum(counts[leaf] * pair[1] for leaf, pair in others.items())
    gaussians = sum(counts[leaf] for leaf in counts if is_gaussian(leaf))
    if gaussians:
        each = rest_of_delta(delta / 2, taken) / gaussians
    elif taken > delta / 2:
        raise Unpriceable(f"one-shot events use delta {taken:.3g}, more than half of {delta:.3g}")
    prices = [pair[0] for pair in others.values()]
    prices += [_classical(leaf, each, adjacency) for leaf in counts if is_gaussian(leaf)]
    e = max(prices)
    return (e * math.sqrt(2 * steps * math.log(2 / delta)) + steps * e * math.expm1(e)) * UP * UP


def _classical(leaf: Leaf, share: float, adjacency: str) -> float:
    """epsilon of one Gaussian by the classical analysis, after sampling, rounded up."""
    rate = leaf.rate if isinstance(leaf, Poisson | FixedBatch) else 1.0
    mechanism = leaf.event if isinstance(leaf, Poisson | FixedBatch) else leaf
    assert isinstance(mechanism, Gaussian)
    scale = gaussian_scale(adjacency) / mechanism.noise_multiplier
    delta = min(share / rate, 0.5)
    epsilon = scale * math.sqrt(2 * math.log(1.25 / delta)) * UP * UP
    if epsilon > 1:
        raise Unpriceable(
            f"{leaf!r} would be ({epsilon:.4g}, {delta:.3g})-DP, but the classical Gaussian mechanism is proved for "
            "epsilon at most 1 only; use more noise"
        )
    return math.log1p(rate * math.expm1(epsilon)) * UP


def moments_epsilon(events: Event | Iterable[Event], delta: float, adjacency: str) -> float:
    """The price by the moments accountant of Abadi et al. 2016; rounded up. add_remove, Gaussians, full or Poisson.

    epsilon = min over whole lambda from 1 to 32 of (sum of alpha_t(lambda) + log(1/delta)) / lambda, where
    alpha(lambda) = lambda D_{lambda+1}.
    """
    validate.open_unit(delta=delta)
    counts = count_leaves(events, adjacency)
    if adjacency != "add_remove":
        raise Unpriceable(
            "the moments accountant is stated for adjacency='add_remove'; use 'rdp' or 'pld' for replace_one"
        )
    for leaf in counts:
        if isinstance(leaf, AtOrder | Selection):
            raise renyi_only(leaf)
        if not is_gaussian(leaf):
            raise Unpriceable(f"{leaf!r} has no price in the moments accountant, which knows Gaussians only")
    if not counts:
        return 0.0

    def price(moment: int) -> float:
        total = math.fsum(count * rdp.cost(leaf, adjacency, moment + 1) for leaf, count in counts.items())
        return total + math.log(1 / delta) / moment

    return min(price(moment) for moment in LAMBDAS) * UP


def basic_epsilon(events: Event | Iterable[Event], delta: float, adjacency: str) -> float:
    """The price by basic composition, for selections and one-shots only: epsilons and deltas add up.

    >>> from noisewise.events import ApproximateDP
    >>> basic_epsilon(ApproximateDP(0.5, 1e-6), 1e-6, "add_remove")
    0.5
    """
    validate.open_unit(delta=delta)
    pairs = [(count, *approximate(leaf, adjacency)) for leaf, count in count_leaves(events, adjacency).items()]
    taken = math.fsum(count * d for count, _, d in pairs)
    if taken > delta:
        raise Unpriceable(f"the events use delta {taken:.3g}, more than {delta:.3g}; pass a larger delta")
    total = math.fsum(count * epsilon for count, epsilon, _ in pairs)
    return total if sum(count for count, _, _ in pairs) == 1 else total * UP


@accountant
class Advanced(Accountant):
    """Advanced composition."""

    __slots__ = ()
    name, rank = "advanced", 6
    epsilon = staticmethod(advanced_epsilon)


@accountant
class Moments(Accountant):
    """The moments accountant."""

    __slots__ = ()
    name, rank, amplifies = "moments", 7, True
    relations, mechanisms, samplings = ("add_remove",), (Gaussian,), ("full", "poisson")
    epsilon = staticmethod(moments_epsilon)


@accountant
class Basic(Accountant):
    """Basic composition of selections and one-shots, which it prices exactly when there is one."""

    __slots__ = ()
    name, rank, mechanisms = "basic", 8, (BoundedRange, ApproximateDP)
    epsilon = staticmethod(basic_epsilon)

    def turn(self, counts: Counter[Leaf]) -> int | None:
        return None if any(is_gaussian(leaf) for leaf in counts) else 1
