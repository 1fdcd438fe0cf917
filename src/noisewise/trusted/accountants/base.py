"""What an accountant is, what its currency is, and which accountants there are.

A module of this package defines one or more accountants and registers them with :func:`accountant`; no other file names them.
The facts by which they are chosen are attributes of the accountant.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, TypeVar, get_args

from .. import validate
from ..events import ADJACENCIES, Adjacency, Event, FixedBatch, Leaf, Mechanism, Poisson, Repeated, Sampling
from .common import Unpriceable, unsampled

if TYPE_CHECKING:
    from .terms import Budget

# A cap is divided into that many units, and every charge is rounded up to whole units: the sum is exact.
UNITS_PER_CAP = 1 << 100
EventsAtNoise = Callable[[float], list[Event]]  # the events at a scale of their noise
Price = Callable[[Iterable[Event], float, str], float]


class Accountant:
    """Prices events. Prices are upper bounds, rounded up; what it cannot price it refuses by name (``Unpriceable``).

    An *adaptive* accountant has costs that add up, and stopping before their sum exceeds a cap is valid also when events
    are chosen from earlier answers: it may meter a run. The others price events that were all fixed beforehand.
    """

    __slots__ = ()  # no instance can have a method of its own
    name: ClassVar[str]
    rank: ClassVar[int] = 100  # its place in lists
    relations: ClassVar[tuple[Adjacency, ...]] = ADJACENCIES
    mechanisms: ClassVar[tuple[type[Leaf], ...]] = get_args(Mechanism)
    samplings: ClassVar[tuple[str, ...]] = ("full", "poisson", "fixed")
    adaptive: ClassVar[bool] = False
    exact: ClassVar[bool] = False  # for Gaussians on the full batch, where its filter serves plans too
    amplifies: ClassVar[bool] = False  # its price falls with the rate of a batch
    slow: ClassVar[bool] = False  # a table asks it only where no other is exact, through ``rough_scale``
    same_as: ClassVar[str | None] = None  # another name of the same numbers
    reason: ClassVar[str] = ""  # why it is chosen where it is the natural one
    not_a_filter: ClassVar[str] = "its price is valid only for noise fixed beforehand"

    @property
    def title(self) -> str:
        """How a statement names it."""
        return self.name.upper()

    def prices(self, leaf: Leaf, adjacency: str) -> bool:
        """Whether events of this kind have a price here; one with too little noise may still be refused."""
        kind = {Poisson: "poisson", FixedBatch: "fixed"}.get(type(leaf), "full")
        known = adjacency in self.relations and isinstance(unsampled(leaf), self.mechanisms) and kind in self.samplings
        return known and not (kind == "fixed" and adjacency == "add_remove")

    #: (events, delta, adjacency): the epsilon of events all fixed before any private record was touched, rounded up
    epsilon: ClassVar[Callable[..., float]]
    #: (events, epsilon, adjacency): their delta, rounded up, for those that compute it
    delta: ClassVar[Callable[..., float] | None] = None

    def turn(self, counts: Counter[Leaf]) -> int | None:
        """When ``auto`` asks it about these events: 0, alone, as it is exact; 1, first; 2, when those refuse; None, never."""
        return None

    def price(self, counts: Counter[Leaf], delta: float, adjacency: str) -> float:
        """:meth:`epsilon`, where what is not a finite number >= 0 is no price."""
        try:
            price = self.epsilon(as_events(counts), delta, adjacency)
        except ArithmeticError as error:
            raise Unpriceable(f"{self.name} has no finite price for these events ({error})") from None
        if not 0 <= price < math.inf:
            raise Unpriceable(f"{self.name} has no finite price for these events")
        return price

    def scale(self, plan: EventsAtNoise, budget: Budget, start: float) -> float:
        """The least scale of noise at which ``plan`` keeps within the budget, rounded up and re-priced."""
        return least_scale(log_ratio(self.epsilon, plan, budget), start, budget)

    def rough_scale(self, plan: EventsAtNoise, budget: Budget, enough: float) -> float | None:
        """:meth:`scale` to about a percent, for a table; ``enough`` is known to be enough. None: no price."""
        return self.scale(plan, budget, enough)

    # -- an adaptive accountant also has a currency; ``fixed`` is its order or its omega, if it has one ----------------

    #: (leaf, adjacency, *fixed): what one event costs, rounded up, given everything released before; never zero
    cost: ClassVar[Callable[..., float]]
    #: (cost, sampling, adjacency, *fixed): the noise multiplier of a Gaussian that costs at most that, re-checked
    noise_for: ClassVar[Callable[..., float]]

    def buy(self, epsilon: float, delta: float, adjacency: Adjacency, order: int | None) -> Currency:
        """How much of its currency (epsilon, delta) buys, rounded down."""
        raise NotImplementedError(f"{self.name} has no currency")

    def order_for(self, budget: Budget, steps: int | None, sampling: Sampling) -> int | None:
        """The Renyi order to fix before an adaptive run, for those that need one."""
        return None


@dataclass(frozen=True, slots=True)
class Currency:
    """Costs that add up, also when they are chosen adaptively, and how much of them a budget buys.

    ``order`` is the Renyi order ("rdp"), ``omega`` the omega_total ("tcdp", "ctcdp"); both fixed beforehand.
    """

    name: str
    cap: float
    adjacency: Adjacency
    order: int | None = None
    omega: float | None = None

    def cost(self, leaf: Leaf) -> float:
        """What one event costs, rounded up; refused by name when this currency cannot price it."""
        return _known[self.name].cost(leaf, self.adjacency, *self._fixed())

    def noise_for(self, cost: float, sampling: Sampling) -> float:
        """The noise multiplier of a Gaussian that costs at most ``cost``, rounded up and re-checked."""
        return _known[self.name].noise_for(cost, sampling, self.adjacency, *self._fixed())

    def _fixed(self) -> tuple[float, ...]:
        return tuple(value for value in (self.order, self.omega) if value is not None)

    def units(self, cost: float) -> int:
        """A cost in whole units of 2^-100 of the cap, rounded up; more than all of them when it is infinite."""
        if not cost < math.inf:
            return UNITS_PER_CAP + 1
        (top, bottom), (cap_top, cap_bottom) = float(cost).as_integer_ratio(), self.cap.as_integer_ratio()
        return -(-top * UNITS_PER_CAP * cap_bottom // (bottom * cap_top))


def as_events(counts: Counter[Leaf]) -> list[Event]:
    """Leaves with their counts, as events."""
    return [Repeated(leaf, count) for leaf, count in counts.items()]


# -- which there are ----------------------------------------------------------------------------------------------

A = TypeVar("A", bound=type[Accountant])
_known: dict[str, Accountant] = {}
_closed: list[bool] = []
ACCOUNTANTS: Mapping[str, Accountant] = MappingProxyType(_known)


def accountant(kind: A) -> A:
    """Register an accountant of this package: a price decides what is released, so none is registered from elsewhere."""
    if _closed or not kind.__module__.startswith("noisewise.trusted.accountants."):
        raise TypeError(
            f"{kind.__name__} is not defined in the accounting room; an accountant lives there, with its proof"
        )
    for needed in ("name", "epsilon", *(("cost", "noise_for") if kind.adaptive else ())):
        if not hasattr(kind, needed):
            raise TypeError(f"{kind.__name__} has no {needed}; an accountant brings everything about itself")
    if not isinstance(kind.name, str) or kind.name in (*_known, "auto"):
        raise TypeError(f"{kind.__name__} has no name of its own; give it one that no other accountant has")
    _known[kind.name] = kind()
    return kind


def close() -> None:
    """Sort the accountants, and accept none from now on: called when all modules are imported."""
    ordered = sorted(_known.values(), key=lambda known: (known.rank, known.name))
    _known.clear()
    _known.update((known.name, known) for known in ordered)
    _closed.append(True)


def names(wanted: Callable[[Accountant], bool] = lambda known: True) -> tuple[str, ...]:
    """The names of all accountants, or of those that are wanted, in order.

    >>> names(lambda known: known.exact)
    ('gdp',)
    """
    return tuple(known.name for known in _known.values() if wanted(known))


def currencies() -> tuple[str, ...]:
    """The names of the adaptive accountants."""
    return names(lambda known: known.adaptive)


def accountant_named(name: str) -> Accountant:
    """The accountant of this name; an unknown name is refused with a list of the known ones."""
    validate.one_of(names(), accountant=name)
    return _known[name]


def currency(budget: Budget, name: str, *, order: int | None = None, one_shot_delta: float = 0.0) -> Currency:
    """How much of a currency the budget buys, once ``one_shot_delta`` is set aside; rounded down.

    >>> from noisewise.accounts import Budget
    >>> round(currency(Budget(0.5, 1e-8), "gdp").cap ** 0.5, 6)
    0.101384
    """
    validate.one_of(currencies(), name=name)
    if not (isinstance(one_shot_delta, int | float) and 0 <= one_shot_delta < budget.delta):
        raise ValueError(f"one_shot_delta is {one_shot_delta!r}; pass a number from 0 to below delta={budget.delta}")
    delta = budget.delta if one_shot_delta == 0 else math.nextafter(budget.delta - one_shot_delta, 0.0)
    return _known[name].buy(budget.epsilon, delta, budget.adjacency, order)


# -- the least noise with which a plan keeps within a budget, for a price that falls as the noise grows --------------


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

    A plan without a price counts as too expensive; if no scale has a price, the first refusal is raised.
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
