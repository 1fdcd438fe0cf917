"""What all accountants share: refusals, directed rounding, and sampling of mechanisms that are not Gaussian."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from typing import Any, TypeVar

from .. import validate
from ..events import (
    FULL,
    ApproximateDP,
    AtOrder,
    BoundedRange,
    Event,
    FixedBatch,
    Gaussian,
    Leaf,
    Mechanism,
    Poisson,
    Sampling,
    Selection,
    leaves,
)
from . import special

# Four units in the last place: more than the few correctly rounded operations of a closed form lose.
UP = 1 + 2.0**-50
DOWN = 1 - 2.0**-50
# The least price of any event: one that underflows is charged this, never zero.
FLOOR = 1e-280


F = TypeVar("F", bound=Callable[..., Any])
PLAIN = frozenset({float, int, str, tuple})


def kept(most: int) -> Callable[[F], F]:
    """``lru_cache`` for prices, only for plain numbers and strings: other objects could claim to equal what they are not."""

    def remembering(function: F) -> F:
        cached = lru_cache(maxsize=most)(function)

        @wraps(function)
        def price(*asked: Any) -> Any:
            return (cached if PLAIN.issuperset(map(type, asked)) else function)(*asked)

        price.cache_clear = cached.cache_clear  # type: ignore[attr-defined]
        return price  # type: ignore[return-value]

    return remembering


class Unpriceable(ValueError):
    """An event that a currency cannot price; the message names the event and the reason. Nothing is priced at zero."""


def check_relation(leaf: Leaf, adjacency: str) -> None:
    """Refuse an unknown relation, and fixed-size batches under add_remove."""
    if adjacency not in ("add_remove", "replace_one"):
        raise ValueError(f"adjacency is {adjacency!r}; pass 'add_remove' or 'replace_one'")
    if isinstance(leaf, FixedBatch) and adjacency == "add_remove":
        raise Unpriceable(
            f"{leaf!r} has no price under add_remove: a batch of fixed size is not the same share of two data sets "
            "that differ in size; use Poisson batches, or a budget with adjacency='replace_one'"
        )


def sampling_of(event: Leaf) -> Sampling:
    """How the batch of an event was drawn."""
    match event:
        case Poisson(rate):
            return ("poisson", rate)
        case FixedBatch(rate):
            return ("fixed", rate)
    return FULL


def unsampled(leaf: Leaf) -> Mechanism | AtOrder | Selection:
    """The mechanism that ran on the batch; what is known in Renyi divergences alone never ran on one.

    *Guarantee*: it costs at least what the sampled event costs, in every currency whose divergence is jointly
    quasi-convex (GDP, RDP, zCDP, hockey-stick): a batch is a mixture over draws that both neighbours share.
    """
    if isinstance(leaf, AtOrder | Selection):
        return leaf
    mechanism = leaf.event if isinstance(leaf, Poisson | FixedBatch) else leaf
    if not isinstance(mechanism, Gaussian | BoundedRange | ApproximateDP):
        raise Unpriceable(f"{leaf!r} has no price: sampling is known for Gaussian, BoundedRange and ApproximateDP only")
    return mechanism


def renyi_only(leaf: AtOrder | Selection) -> Unpriceable:
    """The refusal of what is known in Renyi divergences alone."""
    return Unpriceable(
        f"{type(leaf).__name__} has a price in RDP only; use accountant='rdp', or let it join as the (epsilon, delta) of "
        "accounting.selection.as_approximate"
    )


def is_gaussian(leaf: Leaf) -> bool:
    """Whether the mechanism is a Gaussian, on whatever batch."""
    return isinstance(leaf.event if isinstance(leaf, Poisson | FixedBatch) else leaf, Gaussian)


def gaussian_scale(adjacency: str) -> float:
    """Sensitivity of a clipped sum in units of the clip norm: 1 under add_remove, 2 under replace_one."""
    return 2.0 if adjacency == "replace_one" else 1.0


def approximate(leaf: Leaf, adjacency: str) -> tuple[float, float]:
    """The (epsilon, delta) of a selection or one-shot event, after sampling, rounded up.

    On a batch of rate q: epsilon' = log(1 + q (e^epsilon - 1)), delta' = q delta.

    *Guarantee*: an upper bound. Under replace_one with Poisson batches the amplification needs the mechanism to be
    private also when a record is added or removed; an ``ApproximateDP`` does not promise that, so it is charged as if
    it had seen all records.

    Reference: Balle, Barthe & Gaboardi 2018, Theorems 8 and 9.

    >>> approximate(ApproximateDP(1.0, 1e-6), "add_remove")
    (1.0, 1e-06)
    >>> epsilon, delta = approximate(Poisson(0.01, BoundedRange(1.0)), "add_remove")
    >>> round(epsilon, 6)
    0.017037
    """
    check_relation(leaf, adjacency)
    match unsampled(leaf):
        case BoundedRange(epsilon):
            delta = 0.0
        case ApproximateDP(epsilon, delta):
            pass
        case AtOrder() | Selection() as other:
            raise renyi_only(other)
        case other:
            raise Unpriceable(f"{other!r} is not (epsilon, delta)-DP for a single pair; price it as a Gaussian")
    if not isinstance(leaf, Poisson | FixedBatch) or leaf.rate == 1:
        return epsilon, delta
    if isinstance(leaf, Poisson) and isinstance(leaf.event, ApproximateDP) and adjacency == "replace_one":
        return epsilon, delta
    if epsilon > 700:
        return epsilon, leaf.rate * delta * UP
    return min(epsilon, math.log1p(leaf.rate * math.expm1(epsilon) * UP) * UP), leaf.rate * delta * UP


def selection(leaf: Leaf, adjacency: str, refusal: str) -> tuple[float, float]:
    """The pure epsilon of an event that is no Gaussian, after sampling, and the range of its losses where that is bounded."""
    epsilon, delta = approximate(leaf, adjacency)
    if delta > 0:
        raise Unpriceable(f"{leaf!r} {refusal}: an event with delta > 0 needs a share of delta")
    mechanism = unsampled(leaf)
    return epsilon, mechanism.epsilon if isinstance(mechanism, BoundedRange) else math.inf


def count_leaves(events: Event | Iterable[Event], adjacency: str) -> Counter[Leaf]:
    """Every mechanism with its count, each checked against the relation, in one order: one plan has one price."""
    counts: Counter[Leaf] = Counter(dict(sorted(leaves(events).items(), key=repr)))
    for leaf in counts:
        check_relation(leaf, adjacency)
        unsampled(leaf)
    return counts


def split_delta(events: Event | Iterable[Event], adjacency: str) -> tuple[Counter[Leaf], float]:
    """Take the deltas out of one-shot events: what remains is pure, and the sum of the deltas is returned rounded up.

    *Guarantee*: if what remains is (epsilon, delta)-DP, everything is (epsilon, delta + sum)-DP, adaptively too.
    An (epsilon_i, delta_i)-DP answer is post-processing of one that reveals everything with probability delta_i and is
    epsilon_i-DP otherwise (Kairouz, Oh & Viswanath 2015). While nothing has been revealed, both neighbours carry the same
    weights, so the hockey-stick divergence of the rest bounds theirs; the probability that anything is revealed is at most
    the sum of the deltas.
    """
    counts, pure, total = count_leaves(events, adjacency), Counter[Leaf](), 0.0
    for leaf, count in counts.items():
        mechanism = unsampled(leaf)
        if isinstance(mechanism, ApproximateDP) and mechanism.delta > 0:
            epsilon, delta = approximate(leaf, adjacency)
            pure[ApproximateDP(epsilon, 0.0)] += count
            total += count * delta * UP
        else:
            pure[leaf] += count
    return pure, total * (1 + len(counts) * 2.0**-52)


def rest_of_delta(delta: float, taken: float) -> float:
    """What one-shot events leave of delta, rounded down; refused when nothing is left."""
    left = delta if taken == 0 else (delta - taken) * DOWN
    if left <= 0:
        raise Unpriceable(
            f"one-shot events use delta {taken:.3g} of {delta:.3g}, nothing is left for the rest; "
            "pass a larger delta or one-shot events with a smaller one"
        )
    return left


def pair_mu(e: float, delta: float) -> float:
    """The largest m <= sqrt(2 e) with sqrt(2 pi) m exp(e) Phi(-e/m - m/2) <= delta, rounded down.

    That is E(1 - exp(e - m |g| - m^2/2))_+ for g a pair of independent standard normals: the delta, at e, of Gaussian noise
    along a difference that lies somewhere in a plane.
    """
    low, high = 0.0, math.sqrt(2 * e)
    for _ in range(60):
        m = (low + high) / 2
        within = math.log(m * math.sqrt(2 * math.pi)) + e + float(special.log_ndtr(-e / m - m / 2)) <= math.log(delta)
        low, high = (m, high) if within else (low, m)
    return low * (1 - 1e-9)


def joint_noise(*noise_multipliers: float) -> float:
    """The noise multiplier of one event that releases several noised sums of the same batch, rounded down.

    sigma^-2 = sum of sigma_i^-2. Divide each sum by its own noise: what is released is their concatenation with unit
    noise, which one record moves by at most sqrt(sum of sigma_i^-2), or twice that when it is replaced.

    >>> round(joint_noise(3.0, 4.0), 6)
    2.4
    """
    validate.positive(**{f"noise_multiplier {i}": float(sigma) for i, sigma in enumerate(noise_multipliers)})
    precision = math.fsum(float(sigma) ** -2 for sigma in noise_multipliers)
    return (1 - 2.0**-50) / math.sqrt(precision)


def split_noise(noise_multiplier: float, share: float) -> tuple[float, float]:
    """Noise multipliers of two sums whose joint release costs at most ``noise_multiplier``, the second ``share`` of it.

    >>> gradient, count = split_noise(10.0, 0.01)
    >>> round(gradient, 3), round(count, 3), joint_noise(gradient, count) >= 10.0
    (10.05, 100.0, True)
    """
    validate.open_unit(share=share)
    sigma = noise_multiplier * (1 + 2.0**-40)
    return sigma / (1 - share) ** 0.5, sigma / share**0.5
