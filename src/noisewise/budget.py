"""A promise (epsilon, delta), the terms on which a method wants to spend it, and the view it gets of the meter.

What a run states is the cap of its meter, fixed before the first event, never what was spent in the end. A method only
*names* its meter (:class:`Terms`); the trusted side makes it (:func:`open_meter`) and shows a view (:class:`MeterView`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from noisewise import _validate
from noisewise.accounting import gdp, zcdp
from noisewise.accounting.currency import CURRENCIES, Currency, currency
from noisewise.events import ADJACENCIES, FULL, Adjacency, Event, Leaf, Sampling, rebuilt, rebuilt_leaf
from noisewise.meters import AdditiveMeter, BudgetExhausted, Meter, PlanMeter, meter_from

__all__ = [
    "CURRENCIES",
    "LEAST_DELTA",
    "AdditiveMeter",
    "Budget",
    "BudgetExhausted",
    "Currency",
    "Meter",
    "MeterView",
    "PlanMeter",
    "Terms",
    "checked_meter",
    "currency",
    "meter_from",
    "open_meter",
]

LEAST_DELTA = 1e-15


@dataclass(frozen=True, slots=True)
class Budget:
    """What is promised: (epsilon, delta)-DP under a named adjacency relation.

    >>> Budget(epsilon=0.5, delta=1e-8)
    Budget(epsilon=0.5, delta=1e-08, adjacency='add_remove')
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "add_remove"

    def __post_init__(self) -> None:
        _validate.positive(epsilon=self.epsilon)
        _validate.open_unit(delta=self.delta)
        if self.epsilon > 1e6:
            raise ValueError(f"epsilon is {self.epsilon!r}; pass at most 1e6: more promises nothing")
        if self.delta < LEAST_DELTA:
            raise ValueError(
                f"delta is {self.delta!r}; pass at least {LEAST_DELTA}: what a computer draws as noise is not Gaussian to "
                "so small a probability, so a smaller delta cannot be delivered"
            )
        _validate.one_of(ADJACENCIES, adjacency=self.adjacency)

    @classmethod
    def from_gdp(cls, mu: float, delta: float = 1e-5, adjacency: Adjacency = "add_remove") -> Budget:
        """The (epsilon, delta) promise that mu-GDP makes, rounded down: its GDP meter recovers at most mu.

        >>> round(Budget.from_gdp(1.0).epsilon, 4)
        4.3772
        """
        _validate.positive(mu=mu)
        _validate.open_unit(delta=delta)
        exact = gdp.epsilon_of(mu, delta)
        if exact == 0:
            raise ValueError(f"mu is {mu!r}, which is (0, {delta})-DP; pass a larger mu or a smaller delta")
        step = 1e-12
        while gdp.mu_of(exact * (1 - step), delta) > mu:
            step *= 2
        return cls(exact * (1 - step), delta, adjacency)

    @classmethod
    def from_zcdp(cls, rho: float, delta: float = 1e-5, adjacency: Adjacency = "add_remove") -> Budget:
        """The (epsilon, delta) promise that rho-zCDP makes, rounded down: its zCDP meter recovers at most rho.

        >>> round(Budget.from_zcdp(0.1).epsilon, 4)
        2.246
        """
        _validate.positive(rho=rho)
        _validate.open_unit(delta=delta)
        exact = zcdp.epsilon_of(rho, delta)
        step = 1e-16
        while zcdp.rho_of(exact * (1 - step), delta) > rho:
            step *= 2
        return cls(exact * (1 - step), delta, adjacency)


Kind = Literal["plan", "adaptive"]


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a method wants to spend its budget: frozen data that names a meter and is none.

    ``kind="plan"``: ``events`` are all that will be asked, fixed beforehand, and ``accountant`` prices them together
    ("auto": the tightest that can). ``kind="adaptive"``: events may be chosen while running, from earlier answers, and
    the filter of the currency ``accountant`` stops them; ``order`` is the Renyi order of "rdp", and ``one_shot_delta``
    the part of delta kept for events that are only (epsilon, delta)-DP.
    How much there is to spend is not among the terms: that is the budget, which the user gives.

    >>> Terms.adaptive("gdp")
    Terms(kind='adaptive', accountant='gdp', events=(), order=None, one_shot_delta=0.0)
    """

    kind: Kind
    accountant: str
    events: tuple[Event, ...] = ()
    order: int | None = None
    one_shot_delta: float = 0.0

    @classmethod
    def plan(cls, events: Event | Iterable[Event], accountant: str = "auto") -> Terms:
        """All events of the run, fixed beforehand."""
        return cls("plan", accountant, tuple(events) if isinstance(events, Iterable) else (events,))

    @classmethod
    def adaptive(cls, accountant: str, *, order: int | None = None, one_shot_delta: float = 0.0) -> Terms:
        """Events chosen while running, under the filter of a currency."""
        return cls("adaptive", accountant, order=order, one_shot_delta=one_shot_delta)


def open_meter(budget: Budget, terms: object) -> AdditiveMeter | PlanMeter:
    """A new meter for exactly this budget, with nothing spent, as ``terms`` name it.

    Terms come from a method, that is from strangers: only the exact type is read, each field once, and the meter is
    made of plain numbers and events that were made anew.

    >>> open_meter(Budget(1.0, 1e-6), Terms.adaptive("gdp")).name
    'gdp'
    """
    if type(terms) is not Terms:
        raise TypeError(
            f"terms are a {type(terms).__name__}; return exactly noisewise.budget.Terms, e.g. from choose_terms(...): a "
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
    if kind == "plan":
        if order is not None or share:
            raise ValueError("a plan has neither order nor one_shot_delta; pass its events and an accountant")
        return PlanMeter(budget, events, accountant)
    _validate.one_of(("plan", "adaptive"), kind=kind)
    if events:
        raise ValueError("adaptive terms have no events; pass kind='plan' for events fixed beforehand")
    return AdditiveMeter(budget, accountant, order=order, one_shot_delta=float(share))


def _word(name: str, value: object) -> str:
    if type(value) is not str:
        raise TypeError(f"the {name} of terms is a {type(value).__name__}; pass a plain string")
    return value


class MeterView:
    """What a method sees of the meter: released facts and the noise that a share of the rest buys. It cannot spend.

    Every answer is a copy, so nothing that is done to it reaches the meter.
    """

    __slots__ = ("__meter",)

    def __init__(self, meter: AdditiveMeter | PlanMeter) -> None:
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

    def __repr__(self) -> str:
        return f"MeterView({self.budget}, spent_fraction={self.spent_fraction:.6g})"


def checked_meter(meter: object) -> AdditiveMeter | PlanMeter:
    """The meter itself if it is exactly one of the library's: any other could forget what was spent."""
    if type(meter) is AdditiveMeter or type(meter) is PlanMeter:
        return meter
    raise TypeError(f"meter is a {type(meter).__name__}; pass exactly an AdditiveMeter or a PlanMeter, not a subclass")
