"""Paying again for events that happened elsewhere, to check a statement, a search or a ledger: nothing is released."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ..trusted.events import Event
from ..trusted.meter import AdditiveMeter, PlanMeter

M = TypeVar("M", bound=AdditiveMeter | PlanMeter)


def replayed(meter: M, events: Iterable[Event]) -> M:
    """The meter after paying for the events, or its refusal."""
    for event in events:
        meter.spend(event)
    return meter
