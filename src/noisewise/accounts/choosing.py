"""The meter of a run without a method that names one, as for bounds and evaluations."""

from __future__ import annotations

from collections.abc import Iterable

from ..trusted.accountants.base import currencies
from ..trusted.accountants.choose import choose_terms
from ..trusted.accountants.terms import Budget
from ..trusted.events import FULL, Event, Sampling
from ..trusted.meter import Meter
from ..trusted.opening import checked_meter, open_meter


def choose_meter(
    budget: Budget,
    *,
    adaptive: bool,
    sampling: Sampling = FULL,
    steps: int | None = None,
    plan: Event | Iterable[Event] | None = None,
    meter: str | Meter | None = None,
) -> Meter:
    """A new meter on the terms of :func:`choose_terms`; ``meter`` names another one, or is one for this budget.

    >>> choose_meter(Budget(1.0, 1e-6), adaptive=True).name
    'gdp'
    """
    if meter is not None and not isinstance(meter, str):
        given = checked_meter(meter)
        if given.budget != budget:
            raise ValueError("meter is not a meter for this budget; pass a meter built with it, a name, or None")
        if adaptive and not given.adaptive:
            raise ValueError(
                f"meter is a plan, but the run is adaptive; pass one of {', '.join(map(repr, currencies()))}"
            )
        return given
    return open_meter(
        budget, choose_terms(budget, adaptive=adaptive, sampling=sampling, steps=steps, plan=plan, meter=meter)
    )
