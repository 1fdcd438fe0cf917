"""The price of events fixed beforehand, and which accountants are asked for it: all that a meter needs of plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .. import validate
from ..events import ADJACENCIES, AtOrder, Event, Leaf, Selection
from .base import ACCOUNTANTS, accountant_named, names
from .common import Unpriceable, count_leaves, unsampled

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
