"""From events to an epsilon, and from a budget to noise, for plans fixed before any private record is touched."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, overload

import numpy as np
import numpy.typing as npt

from noisewise import _validate
from noisewise.accounting import advanced, gdp, pld, rdp, tcdp, zcdp
from noisewise.accounting._common import Unpriceable, count_leaves, rest_of_delta, split_delta
from noisewise.events import ADJACENCIES, FULL, Event, FixedBatch, Gaussian, Leaf, Poisson, Repeated, Sampling, sampled

Floats = npt.NDArray[np.float64]
Price = Callable[[Iterable[Event], float, str], float]

PRICES: dict[str, Price] = {
    "gdp": gdp.plan_epsilon,
    "rdp": rdp.plan_epsilon,
    "zcdp": zcdp.plan_epsilon,
    "pld": pld.epsilon_of,
    "tcdp": tcdp.plan_epsilon,
    "ctcdp": tcdp.plan_epsilon,  # the same numbers under another name
    "advanced": advanced.advanced_epsilon,
    "moments": advanced.moments_epsilon,
    "basic": advanced.basic_epsilon,
}
ACCOUNTANTS: tuple[str, ...] = tuple(PRICES)


class Promise(Protocol):
    """What calibration needs to know of a budget."""

    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def adjacency(self) -> str: ...


def accountants_for(events: Event | Iterable[Event], adjacency: str) -> tuple[str, ...]:
    """The accountants that ``auto`` takes the least price of: a choice from public facts, so any of them may be taken.

    GDP alone when every event is a full-batch Gaussian (it is exact there); basic composition and PLD when none is
    Gaussian; else PLD. The last two are for what the others refuse.

    >>> accountants_for(Gaussian(1.0), "add_remove"), accountants_for(Poisson(0.1, Gaussian(1.0)), "add_remove")
    (('gdp',), ('pld', 'rdp', 'gdp'))
    """
    counts = count_leaves(events, adjacency)
    if all(isinstance(_full(leaf), Gaussian) for leaf in counts):
        return ("gdp",)
    if not any(advanced._is_gaussian(leaf) for leaf in counts):
        return ("basic", "pld", "rdp", "gdp")
    return ("pld", "rdp", "gdp")


def _full(leaf: Leaf) -> Leaf:
    return leaf.event if isinstance(leaf, Poisson | FixedBatch) and leaf.rate == 1 else leaf


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
    _validate.open_unit(delta=delta)
    _validate.one_of(ADJACENCIES, adjacency=adjacency)
    _validate.one_of(("auto", *ACCOUNTANTS), accountant=accountant)
    counts = count_leaves(events, adjacency)
    if accountant != "auto":
        return _priced(accountant, counts, delta, adjacency)
    return _auto(counts, delta, adjacency)[1]


def _priced(name: str, counts: Counter[Leaf], delta: float, adjacency: str) -> float:
    """The price by one accountant; what is not a finite number >= 0 is no price."""
    try:
        price = PRICES[name](_as_events(counts), delta, adjacency)
    except ArithmeticError as error:
        raise Unpriceable(f"{name} has no finite price for these events ({error})") from None
    if not 0 <= price < math.inf:
        raise Unpriceable(f"{name} has no finite price for these events")
    return price


def _auto(counts: Counter[Leaf], delta: float, adjacency: str) -> tuple[str, float]:
    """The accountant ``auto`` settles on, and its price."""
    names = accountants_for(_as_events(counts), adjacency)
    refusal: Unpriceable | None = None
    prices: list[tuple[float, str]] = []
    for name in names:
        if name == "rdp" and prices:
            break  # the rest are fallbacks
        try:
            prices.append((_priced(name, counts, delta, adjacency), name))
        except Unpriceable as error:
            refusal = refusal or error
    if not prices:
        assert refusal is not None
        raise refusal
    price, name = min(prices)
    return name, price


def _as_events(counts: Counter[Leaf]) -> list[Event]:
    return [Repeated(leaf, count) for leaf, count in counts.items()]


@overload
def calibrate(
    budget: Promise,
    *,
    steps: int,
    sampling: Sampling = ...,
    shape: None = None,
    accountant: str = ...,
    also: Event | Iterable[Event] = ...,
) -> float: ...


@overload
def calibrate(
    budget: Promise,
    *,
    steps: int,
    sampling: Sampling = ...,
    shape: Sequence[float] | Floats,
    accountant: str = ...,
    also: Event | Iterable[Event] = ...,
) -> Floats: ...


def calibrate(
    budget: Promise,
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

    >>> from types import SimpleNamespace
    >>> budget = SimpleNamespace(epsilon=0.5, delta=1e-8, adjacency="add_remove")
    >>> round(calibrate(budget, steps=300), 2)
    170.84
    """
    _validate.positive(epsilon=budget.epsilon)
    _validate.open_unit(delta=budget.delta)
    _validate.one_of(ADJACENCIES, adjacency=budget.adjacency)
    _validate.whole(steps=steps)
    _validate.one_of(("auto", *ACCOUNTANTS), accountant=accountant)
    relative = _relative(shape, steps)
    extra = _as_events(count_leaves(also, budget.adjacency))

    def plan(scale: float) -> list[Event]:
        counts = Counter((relative * scale).tolist())
        return [*(Repeated(sampled(sampling, Gaussian(sigma)), count) for sigma, count in counts.items()), *extra]

    if extra:
        _check_extra(extra, budget, accountant)
    names = accountants_for(plan(1.0), budget.adjacency) if accountant == "auto" else (accountant,)
    noise = relative * _least_scale(plan, names, budget)
    return float(noise[0]) if shape is None else noise


def _least_scale(plan: Callable[[float], list[Event]], names: tuple[str, ...], budget: Promise) -> float:
    """The scale by the first accountant; when it refuses, the least scale by the others."""
    try:
        return _scale(plan, names[0], budget)
    except ValueError as refusal:
        scales = []
        for name in names[1:]:
            try:
                scales.append(_scale(plan, name, budget))
            except ValueError:
                continue
        if not scales:
            raise refusal from None
        return min(scales)


def _relative(shape: Sequence[float] | Floats | None, steps: int) -> Floats:
    if shape is None:
        return np.ones(steps)
    relative = np.asarray(shape, dtype=np.float64)
    if relative.shape != (steps,) or not (np.isfinite(relative).all() and (relative > 0).all()):
        raise ValueError(f"shape has {relative.shape} numbers; pass {steps} finite numbers > 0, one per step")
    return relative


def _check_extra(extra: list[Event], budget: Promise, accountant: str) -> None:
    price = epsilon(extra, delta=budget.delta, adjacency=budget.adjacency, accountant=accountant)
    if price >= budget.epsilon:
        raise ValueError(
            f"also alone costs epsilon {price:.4g} of {budget.epsilon:.4g}, which leaves nothing for the steps; "
            "pass events with more noise or a larger budget"
        )


def _scale(plan: Callable[[float], list[Event]], name: str, budget: Promise) -> float:
    """The least scale whose plan keeps within the budget by this accountant, rounded up and re-priced."""

    def excess(price: Price, scale: float) -> float:
        try:
            value = price(plan(scale), budget.delta, budget.adjacency)
        except Unpriceable as error:
            refusals.append(error)
            return math.inf
        return math.log(max(value, 1e-300)) - math.log(budget.epsilon)

    refusals: list[Unpriceable] = []
    start = _start(plan, budget)
    if name == "gdp":
        return _search(partial(_gdp_excess, plan, budget), start, 1.5, 1e-7, budget, refusals)
    if name != "pld":
        return _search(partial(excess, PRICES[name]), start, 1.5, 1e-7, budget, refusals)
    coarse = partial(excess, partial(pld.epsilon_of, bins=pld.COARSE // 2, levels=16))
    near = _search(coarse, start, 1.5, 1e-3, budget, refusals)
    tolerance = 1e-4 if len(plan(1.0)) <= 8 else 1e-3
    return _search(partial(excess, pld.epsilon_of), near, 1.0005, tolerance, budget, refusals)


def _gdp_excess(plan: Callable[[float], list[Event]], budget: Promise, scale: float) -> float:
    """How far the plan is above the cap of the GDP meter, as a log ratio of noise; the meter will then afford it."""
    counts, taken = split_delta(count_leaves(plan(scale), budget.adjacency), budget.adjacency)
    cap = gdp.cap(budget.epsilon, rest_of_delta(budget.delta, taken)) * (1 - 1e-12)
    total = math.fsum(count * gdp.cost(leaf, budget.adjacency) for leaf, count in counts.items())
    return 0.5 * (math.log(total) - math.log(cap))


def _start(plan: Callable[[float], list[Event]], budget: Promise) -> float:
    """A guess: the scale at which the plan's order-2 Renyi price is that of a mu-GDP answer worth the budget."""
    mu = gdp.mu_of(budget.epsilon, budget.delta)
    counts = count_leaves(plan(1.0), budget.adjacency)
    weight = sum(
        count * (leaf.rate if isinstance(leaf, Poisson | FixedBatch) else 1.0) ** 2 * gdp.cost(leaf, budget.adjacency)
        for leaf, count in counts.items()
        if advanced._is_gaussian(leaf)
    )
    return max(math.sqrt(weight) / mu, 0.3)


def _search(
    excess: Callable[[float], float],
    start: float,
    factor: float,
    tolerance: float,
    budget: Promise,
    refusals: list[Unpriceable],
) -> float:
    """The least scale with excess <= 0, to a relative ``tolerance`` above: a bracket, then a safeguarded secant."""
    low = high = math.log(start)
    f_low = f_high = excess(start)
    step = math.log(factor)
    if math.isfinite(f_low):
        step = min(max(step, 1.02 * abs(f_low)), 1.0)  # a price falls about as fast as the noise grows, or faster
    while f_high > 0:
        low, f_low = high, f_high
        high += step
        step = min(2 * step, 3.0)
        if high > 30:
            raise refusals[0] if refusals and math.isinf(f_high) else _too_small(budget)
        f_high = excess(math.exp(high))
    while f_low <= 0:
        high, f_high = low, f_low
        low -= step
        step = min(2 * step, 3.0)
        if low < -30:
            return math.exp(high)
        f_low = excess(math.exp(low))
    for turn in range(60):
        if high - low <= tolerance or f_high > -tolerance / 2:
            break
        if math.isinf(f_low) or turn % 4 == 3:
            guess = (low + high) / 2
        else:
            guess = high - f_high * (high - low) / (f_high - f_low) + tolerance / 4
        guess = min(max(guess, low + 0.01 * (high - low)), high - 0.01 * (high - low))
        value = excess(math.exp(guess))
        if value > 0:
            low, f_low = guess, value
        else:
            high, f_high = guess, value
    return math.exp(high)


def _too_small(budget: Promise) -> ValueError:
    return ValueError(
        f"epsilon={budget.epsilon}, delta={budget.delta} cannot be met by any noise with this accountant; "
        "pass a larger epsilon or delta, fewer steps, or accountant='auto'"
    )
