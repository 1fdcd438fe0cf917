"""A promise (epsilon, delta), and the terms on which a method wants to spend it: frozen data that names a meter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .. import validate
from ..events import ADJACENCIES, Adjacency, Event
from . import gdp, zcdp

MIN_DELTA = 1e-15


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
        validate.positive(epsilon=self.epsilon)
        validate.open_unit(delta=self.delta)
        if self.epsilon > 1e6:
            raise ValueError(f"epsilon is {self.epsilon!r}; pass at most 1e6: more promises nothing")
        if self.delta < MIN_DELTA:
            raise ValueError(
                f"delta is {self.delta!r}; pass at least {MIN_DELTA}: what a computer draws as noise is not Gaussian to "
                "so small a probability, so a smaller delta cannot be delivered"
            )
        validate.one_of(ADJACENCIES, adjacency=self.adjacency)

    @classmethod
    def from_gdp(cls, mu: float, delta: float = 1e-5, adjacency: Adjacency = "add_remove") -> Budget:
        """The (epsilon, delta) promise that mu-GDP makes, rounded down: its GDP meter recovers at most mu.

        >>> round(Budget.from_gdp(1.0).epsilon, 4)
        4.3772
        """
        _priceable(delta, mu=mu)
        mu, delta = float(mu), float(delta)
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
        _priceable(delta, rho=rho)
        rho, delta = float(rho), float(delta)
        exact = zcdp.epsilon_of(rho, delta)
        step = 1e-16
        while zcdp.rho_of(exact * (1 - step), delta) > rho:
            step *= 2
        return cls(exact * (1 - step), delta, adjacency)


def _priceable(delta: float, **named: float) -> None:
    """Refuse what no float can be converted from: below, differences vanish; above, nothing is promised."""
    Budget(1.0, delta)
    validate.positive(**named)
    for name, value in named.items():
        if not 1e-12 <= value <= 1e6:
            raise ValueError(f"{name} is {value!r}; pass a number from 1e-12 to 1e6")


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
