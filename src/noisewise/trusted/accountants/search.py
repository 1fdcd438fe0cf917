"""The least noise with which a plan keeps within a budget, for a price that falls as the noise grows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..events import Event
from .common import Unpriceable

if TYPE_CHECKING:
    from .terms import Budget

EventsAtNoise = Callable[[float], list[Event]]  # the events at a scale of their noise
Price = Callable[[Iterable[Event], float, str], float]


def log_ratio(price: Price, plan: EventsAtNoise, budget: Budget) -> Callable[[float], float]:
    """How far a plan is above the budget at a scale, as a log ratio of epsilons."""

    def excess(scale: float) -> float:
        value = price(plan(scale), budget.delta, budget.adjacency)
        return math.log(max(value, 1e-300)) - math.log(budget.epsilon)

    return excess


def least_scale(
    excess: Callable[[float], float], start: float, budget: Budget, *, factor: float = 1.5, tolerance: float = 1e-7
) -> float:
    """The least scale with excess <= 0, to a relative ``tolerance`` above: a bracket, then a safeguarded secant.

    What has no price is too much; when nothing has one, the first refusal is raised.
    """
    refusals: list[Unpriceable] = []

    def at(scale: float) -> float:
        try:
            return excess(scale)
        except Unpriceable as error:
            refusals.append(error)
            return math.inf

    low = high = math.log(start)
    f_low = f_high = at(start)
    step = math.log(factor)
    if math.isfinite(f_low):
        step = min(max(step, 1.02 * abs(f_low)), 1.0)  # a price falls about as fast as the noise grows, or faster
    while f_high > 0:
        low, f_low = high, f_high
        high += step
        step = min(2 * step, 3.0)
        if high > 30:
            raise refusals[0] if refusals and math.isinf(f_high) else _too_small(budget)
        f_high = at(math.exp(high))
    while f_low <= 0:
        high, f_high = low, f_low
        low -= step
        step = min(2 * step, 3.0)
        if low < -30:
            return math.exp(high)
        f_low = at(math.exp(low))
    for turn in range(60):
        if high - low <= tolerance or f_high > -tolerance / 2:
            break
        if math.isinf(f_low) or turn % 4 == 3:
            guess = (low + high) / 2
        else:
            guess = high - f_high * (high - low) / (f_high - f_low) + tolerance / 4
        guess = min(max(guess, low + 0.01 * (high - low)), high - 0.01 * (high - low))
        value = at(math.exp(guess))
        if value > 0:
            low, f_low = guess, value
        else:
            high, f_high = guess, value
    return math.exp(high)


def _too_small(budget: Budget) -> ValueError:
    return ValueError(
        f"epsilon={budget.epsilon}, delta={budget.delta} cannot be met by any noise with this accountant; "
        "pass a larger epsilon or delta, fewer steps, or accountant='auto'"
    )
