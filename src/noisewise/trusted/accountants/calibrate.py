"""From events to an epsilon, and from a budget to noise, for plans fixed before any private record is touched."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import overload

import numpy as np
import numpy.typing as npt

from .. import validate
from ..events import (
    ADJACENCIES,
    FULL,
    Adjacency,
    AtOrder,
    Event,
    FixedBatch,
    Gaussian,
    Leaf,
    Poisson,
    Repeated,
    Sampling,
    Selection,
    plain_sampling,
    sampled,
)
from . import gdp
from .base import ACCOUNTANTS, EventsAtNoise, accountant_named, as_events, names
from .common import Unpriceable, count_leaves, is_gaussian, unsampled
from .terms import Budget

Floats = npt.NDArray[np.float64]
RENYI_ONLY = {AtOrder, Selection}


def accountants_for(events: Event | Iterable[Event], adjacency: str) -> tuple[str, ...]:
    """The accountants that ``auto`` asks, in order: a choice from public facts, so any of them may be taken.

    One that is exact for these events is asked alone; else the tightest, and then those for what it refuses.

    >>> from noisewise.events import Gaussian, Poisson
    >>> accountants_for(Gaussian(1.0), "add_remove"), accountants_for(Poisson(0.1, Gaussian(1.0)), "add_remove")
    (('gdp',), ('pld', 'rdp', 'gdp'))
    """
    return tuple(name for turn in _turns(count_leaves(events, adjacency)) for name in turn)


def _turns(counts: Counter[Leaf]) -> list[list[str]]:
    """The same in groups: the first with a price decides, and its least price counts."""
    kinds = {type(unsampled(leaf)) for leaf in counts}
    asked = {
        name: None if kinds & RENYI_ONLY and not kinds <= {*known.mechanisms} else known.turn(counts)
        for name, known in ACCOUNTANTS.items()
    }
    turns = sorted({turn for turn in asked.values() if turn is not None})
    grouped = [[name for name in reversed(asked) if asked[name] == turn] for turn in turns]
    return grouped[:1] if turns[0] == 0 else grouped


def price_of(events: Event | Iterable[Event], delta: float, adjacency: str, accountant: str) -> tuple[str, float]:
    """The accountant that "auto" settles on, or the one that was named, and its price: see ``calibrate.epsilon``."""
    validate.open_unit(delta=delta)
    if delta < 1e-300:
        raise ValueError(f"delta is {delta!r}; pass at least 1e-300: floats end there")
    validate.one_of(ADJACENCIES, adjacency=adjacency)
    validate.one_of(("auto", *names()), accountant=accountant)
    counts = count_leaves(events, adjacency)
    if accountant != "auto":
        return accountant, accountant_named(accountant).price(counts, delta, adjacency)
    refusals: list[Unpriceable] = []
    for turn in _turns(counts):
        prices: list[tuple[float, str]] = []
        for name in turn:
            try:
                prices.append((accountant_named(name).price(counts, delta, adjacency), name))
            except Unpriceable as error:
                refusals.append(error)
        if prices:
            price, name = min(prices)
            return name, price
    raise refusals[0]


def epsilon(
    events: Event | Iterable[Event], *, delta: float, adjacency: str = "add_remove", accountant: str = "auto"
) -> float:
    """The epsilon of events whose parameters were all fixed before any private record was touched, rounded up.

    *Guarantee*: the events are (epsilon, delta)-DP under the relation. Not for noise chosen from earlier answers: the
    price of an adaptive run is the cap of its meter.

    >>> round(epsilon(Repeated(Gaussian(20.0), 25), delta=1e-5), 4)
    0.9263
    >>> round(epsilon(Repeated(Poisson(0.01, Gaussian(1.0)), 1000), delta=1e-5), 2)
    1.83
    """
    return price_of(events, delta, adjacency, accountant)[1]


@overload
def calibrate(
    budget: Budget,
    *,
    steps: int,
    sampling: Sampling = ...,
    shape: None = None,
    accountant: str = ...,
    also: Event | Iterable[Event] = ...,
) -> float: ...


@overload
def calibrate(
    budget: Budget,
    *,
    steps: int,
    sampling: Sampling = ...,
    shape: Sequence[float] | Floats,
    accountant: str = ...,
    also: Event | Iterable[Event] = ...,
) -> Floats: ...


def calibrate(
    budget: Budget,
    *,
    steps: int,
    sampling: Sampling = FULL,
    shape: Sequence[float] | Floats | None = None,
    accountant: str = "auto",
    also: Event | Iterable[Event] = (),
) -> float | Floats:
    """The least noise multiplier with which ``steps`` Gaussian events, and ``also``, keep within the budget.

    With ``shape``, one positive number per step, the multipliers are in those proportions and come as an array.

    *Guarantee*: rounded up (by about a relative 1e-7; 1e-4 with PLD, 1e-3 with many noise levels), and the very events
    of the result were priced and found within the budget.

    >>> round(calibrate(Budget(0.5, 1e-8), steps=300), 2)
    170.84
    """
    validate.whole(steps=steps)
    if accountant != "auto":
        validate.one_of(("auto", *names()), accountant=accountant)
    extra = [] if also == () else as_events(count_leaves(also, budget.adjacency))
    if extra:
        _check_extra(extra, budget, accountant)
    if shape is None:
        sampled(sampling, Gaussian(1.0))  # refused by name before it is looked up
        promise = float(budget.epsilon), float(budget.delta), budget.adjacency
        return _even(*promise, int(steps), plain_sampling(sampling), accountant, tuple(extra))
    relative = _relative(shape, steps)

    def plan(scale: float) -> list[Event]:
        counts = Counter((relative * scale).tolist())
        return [*(Repeated(sampled(sampling, Gaussian(sigma)), count) for sigma, count in counts.items()), *extra]

    return relative * least_noise(plan, budget, accountant)


@lru_cache(maxsize=256)
def _even(
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    steps: int,
    sampling: Sampling,
    accountant: str,
    extra: tuple[Event, ...],
) -> float:
    """The least noise of equal steps; remembered, as candidates of a search often share a plan."""

    def plan(scale: float) -> list[Event]:
        return [Repeated(sampled(sampling, Gaussian(scale)), steps), *extra]

    return float(least_noise(plan, Budget(epsilon, delta, adjacency), accountant))


def least_noise(plan: EventsAtNoise, budget: Budget, accountant: str = "auto") -> float:
    """The least scale of noise at which a plan keeps within the budget; when the first accountant refuses, by the others."""
    first, *others = accountants_for(plan(1.0), budget.adjacency) if accountant == "auto" else (accountant,)
    start = _start(plan, budget)
    try:
        return accountant_named(first).scale(plan, budget, start)
    except ValueError as refusal:
        scales = []
        for name in others:
            try:
                scales.append(accountant_named(name).scale(plan, budget, start))
            except ValueError:
                continue
        if not scales:
            raise refusal from None
        return min(scales)


def _relative(shape: Sequence[float] | Floats, steps: int) -> Floats:
    try:
        relative = np.asarray(shape, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"shape is no list of numbers; pass {steps} finite numbers > 0, one per step") from None
    if relative.shape != (steps,) or not (np.isfinite(relative).all() and (relative > 0).all()):
        raise ValueError(f"shape has {relative.shape} numbers; pass {steps} finite numbers > 0, one per step")
    return relative


def _check_extra(extra: list[Event], budget: Budget, accountant: str) -> None:
    price = epsilon(extra, delta=budget.delta, adjacency=budget.adjacency, accountant=accountant)
    if price >= budget.epsilon:
        raise ValueError(
            f"also alone costs epsilon {price:.4g} of {budget.epsilon:.4g}, which leaves nothing for the steps; "
            "pass events with more noise or a larger budget"
        )


def _start(plan: EventsAtNoise, budget: Budget) -> float:
    """A guess: the scale at which the plan's order-2 Renyi price is that of a mu-GDP answer worth the budget."""
    mu = gdp.mu_of(budget.epsilon, budget.delta)
    counts = count_leaves(plan(1.0), budget.adjacency)
    weight = sum(
        count * (leaf.rate if isinstance(leaf, Poisson | FixedBatch) else 1.0) ** 2 * gdp.cost(leaf, budget.adjacency)
        for leaf, count in counts.items()
        if is_gaussian(leaf)
    )
    return max(math.sqrt(weight) / mu, 0.3)
