"""Meters, made by trusted code from the terms that a method names, and the view of them that the method gets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from noisewise.trusted import validate
from noisewise.trusted.accountants.terms import Budget, Terms
from noisewise.trusted.events import FULL, Event, Leaf, Sampling, rebuilt, rebuilt_leaf
from noisewise.trusted.meter import AdditiveMeter, Meter, PlanMeter


def open_meter(budget: Budget, terms: object) -> Meter:
    """A new meter for exactly this budget, with nothing spent, as ``terms`` name it.

    >>> open_meter(Budget(1.0, 1e-6), Terms.adaptive("gdp")).name
    'gdp'
    """
    own = rebuilt_terms(terms)
    if own.kind == "plan":
        return PlanMeter(budget, own.events, own.accountant)
    return AdditiveMeter(budget, own.accountant, order=own.order, one_shot_delta=own.one_shot_delta)


def rebuilt_terms(terms: object) -> Terms:
    """The same terms made anew from plain numbers and events, because they come from an untrusted method.

    Only the exact type is accepted, and each field is read once; no other code holds the copy.
    """
    if type(terms) is not Terms:
        raise TypeError(
            f"terms are a {type(terms).__name__}; return exactly noisewise.accounts.Terms, e.g. from choose_terms(...): a "
            "method names its meter, and the meter is made from the budget that was asked for"
        )
    kind, accountant = _word("kind", terms.kind), _word("accountant", terms.accountant)
    if type(terms.events) is not tuple:
        raise TypeError(f"the events of terms are a {type(terms.events).__name__}; pass a tuple of events")
    events = tuple(rebuilt(event) for event in terms.events)
    order, share = terms.order, terms.one_shot_delta
    if order is not None and type(order) is not int:
        raise TypeError(f"the order of terms is a {type(order).__name__}; pass a whole number or None")
    if type(share) is not float and type(share) is not int:
        raise TypeError(f"the one_shot_delta of terms is a {type(share).__name__}; pass a plain number")
    if not 0 <= share < 1:
        raise ValueError("the one_shot_delta of terms is not a part of delta; pass a number from 0 to below delta")
    if kind == "plan":
        if order is not None or share:
            raise ValueError("a plan has neither order nor one_shot_delta; pass its events and an accountant")
        return Terms("plan", accountant, events)
    validate.one_of(("plan", "adaptive"), kind=kind)
    if events:
        raise ValueError("adaptive terms have no events; pass kind='plan' for events fixed beforehand")
    return Terms("adaptive", accountant, (), order, float(share))


def _word(name: str, value: object) -> str:
    if type(value) is not str:
        raise TypeError(f"the {name} of terms is a {type(value).__name__}; pass a plain string")
    return value


class MeterView:
    """What a method sees of the meter: released facts and the noise that a share of the rest buys. It cannot spend.

    Every answer is a copy, so nothing that is done to it reaches the meter.
    """

    __slots__ = ("__meter",)

    def __init__(self, meter: Meter) -> None:
        self.__meter = meter

    @property
    def budget(self) -> Budget:
        """The promise that the meter keeps."""
        return replace(self.__meter.budget)

    @property
    def spent_fraction(self) -> float:
        """The share of the budget, or of the plan's events, that is spent."""
        return self.__meter.spent_fraction

    @property
    def events(self) -> Counter[Leaf]:
        """What was paid for, with counts."""
        return Counter({rebuilt_leaf(leaf): count for leaf, count in self.__meter.events.items()})

    def noise_for(self, share: float, sampling: Sampling = FULL) -> float:
        """The noise multiplier of a Gaussian that takes ``share`` of what is left, rounded up; a plan refuses."""
        return self.__meter.noise_for(share, sampling)

    def share_after(self, event: Event) -> float:
        """What ``spent_fraction`` would be at most after an event; above 1 where it does not fit."""
        return self.__meter.share_after(event)

    def __repr__(self) -> str:
        return f"MeterView({self.budget}, spent_fraction={self.spent_fraction:.6g})"


def checked_meter(meter: object) -> Meter:
    """The meter itself if it is exactly one of the library's: any other could forget what was spent."""
    if type(meter) is AdditiveMeter or type(meter) is PlanMeter:
        return meter
    raise TypeError(f"meter is a {type(meter).__name__}; pass exactly an AdditiveMeter or a PlanMeter, not a subclass")
