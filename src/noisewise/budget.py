"""A promise (epsilon, delta), and the meters that keep it: each event is paid for before any record is touched.

What a run states is the cap of its meter, fixed before the first event, never what was spent in the end.
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NoReturn, Protocol, runtime_checkable

from noisewise import _validate
from noisewise.accounting import gdp, rdp, tcdp, zcdp
from noisewise.accounting._common import Unpriceable, approximate, count_leaves, unsampled
from noisewise.accounting.calibrate import ACCOUNTANTS, _auto, epsilon
from noisewise.events import (
    ADJACENCIES,
    FULL,
    Adjacency,
    ApproximateDP,
    Event,
    Gaussian,
    Leaf,
    Repeated,
    Sampling,
    from_dict,
    leaves,
    sampled,
    to_dict,
)


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


class BudgetExhausted(Exception):
    """The event asked for more than is left: it did not happen, and the meter is as before. Public facts only."""


@runtime_checkable
class Meter(Protocol):
    """Keeps one budget. Every implementation stops before its cap, whatever it is asked, in whatever order."""

    @property
    def budget(self) -> Budget: ...
    @property
    def name(self) -> str: ...
    @property
    def adaptive(self) -> bool: ...
    @property
    def spent_fraction(self) -> float: ...
    @property
    def events(self) -> Counter[Leaf]: ...
    def affords(self, event: Event) -> bool: ...
    def spend(self, event: Event) -> None: ...
    def noise_for(self, share: float, sampling: Sampling = FULL) -> float: ...
    def describe(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Currency:
    """A way of pricing whose costs add up, also when they are chosen adaptively, and how much of it a budget buys.

    ``order`` is the Renyi order ("rdp"), ``omega`` the omega_total ("tcdp", "ctcdp"); both fixed beforehand.
    """

    name: str
    cap: float
    adjacency: Adjacency
    order: int | None = None
    omega: float | None = None

    def cost(self, leaf: Leaf) -> float:
        """What one event costs, rounded up; refused by name when this currency cannot price it."""
        match self.name:
            case "gdp":
                return gdp.cost(leaf, self.adjacency)
            case "zcdp":
                return zcdp.cost(leaf, self.adjacency)
            case "rdp" if self.order is not None:
                return rdp.cost(leaf, self.adjacency, self.order)
            case "tcdp" | "ctcdp" if self.omega is not None:
                return tcdp.cost(leaf, self.adjacency, self.omega)
        raise Unpriceable(f"no currency is called {self.name!r}; pass one of {', '.join(CURRENCIES)}")

    def noise_for(self, cost: float, sampling: Sampling) -> float:
        """The noise multiplier of a Gaussian that costs at most ``cost``, rounded up and re-checked."""
        match self.name:
            case "gdp":
                return gdp.noise_for(cost, sampling, self.adjacency)
            case "zcdp":
                return zcdp.noise_for(cost, sampling, self.adjacency)
            case "rdp" if self.order is not None:
                return rdp.noise_for(cost, sampling, self.adjacency, self.order)
            case "tcdp" | "ctcdp" if self.omega is not None:
                return tcdp.noise_for(cost, sampling, self.adjacency, self.omega)
        raise Unpriceable(f"no currency is called {self.name!r}; pass one of {', '.join(CURRENCIES)}")


CURRENCIES = ("gdp", "rdp", "zcdp", "tcdp", "ctcdp")


def currency(budget: Budget, name: str, *, order: int | None = None, one_shot_delta: float = 0.0) -> Currency:
    """How much of a currency the budget buys, once ``one_shot_delta`` is set aside; rounded down.

    >>> round(currency(Budget(0.5, 1e-8), "gdp").cap ** 0.5, 6)
    0.101384
    """
    _validate.one_of(CURRENCIES, name=name)
    if not (isinstance(one_shot_delta, int | float) and 0 <= one_shot_delta < budget.delta):
        raise ValueError(f"one_shot_delta is {one_shot_delta!r}; pass a number from 0 to below delta={budget.delta}")
    delta = budget.delta if one_shot_delta == 0 else math.nextafter(budget.delta - one_shot_delta, 0.0)
    match name:
        case "gdp":
            return Currency(name, gdp.cap(budget.epsilon, delta), budget.adjacency)
        case "zcdp":
            return Currency(name, zcdp.rho_of(budget.epsilon, delta), budget.adjacency)
        case "rdp":
            if order is None:
                raise ValueError("order is None; pass the Renyi order to fix, e.g. from rdp.reference_order")
            return Currency(name, rdp.cap(order, budget.epsilon, delta), budget.adjacency, order=order)
    totals = tcdp.totals if name == "tcdp" else tcdp.ctcdp
    rho, omega = totals(budget.epsilon, delta)
    return Currency(name, rho, budget.adjacency, omega=omega)


class _NotCopied:
    """A meter is one purse: a copy, a pickle or a forked process would spend the same budget twice."""

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            "a meter cannot be copied or pickled: the copy would spend the same budget twice; "
            "keep one meter, or rebuild an empty one with meter_from(budget, description) for an audit"
        )

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError(
                "this meter belongs to another process: a forked copy would spend the same budget twice; "
                "ask the process that made it"
            )


# The cap is cut into 2^100 units and every charge is rounded up to whole units: the sum is exact.
_UNITS = 1 << 100


class AdditiveMeter(_NotCopied):
    """A filter for a currency whose costs add up: stops before the sum would exceed the cap.

    *Guarantee*: however the events are chosen, also from earlier answers, everything released under this meter is
    (epsilon, delta)-DP under the budget's relation. GDP: Smith & Thakurta 2022. RDP at one order fixed beforehand:
    Feldman & Zrnic 2021; tCDP and ctCDP are that filter at order omega. zCDP: Whitehouse et al. 2023.

    ``one_shot_delta`` sets a part of delta aside for events that are only (epsilon, delta)-DP; each is charged its
    pure epsilon here and its delta there (the proof is in ``accounting._common.split_delta``, and holds for any
    filter).

    >>> meter = AdditiveMeter(Budget(1.0, 1e-6), "gdp")
    >>> for _ in range(3):
    ...     meter.spend(Gaussian(meter.noise_for(0.5)))
    >>> round(meter.spent_fraction, 6)
    0.875
    """

    adaptive = True

    def __init__(self, budget: Budget, name: str, *, order: int | None = None, one_shot_delta: float = 0.0) -> None:
        super().__init__()
        self._budget = budget
        self._currency = currency(budget, name, order=order, one_shot_delta=one_shot_delta)
        self._one_shot_delta = float(one_shot_delta)
        self._cap = Fraction(self._currency.cap)
        self._spent = 0
        self._delta_spent = Fraction(0)
        self._events: Counter[Leaf] = Counter()

    @property
    def budget(self) -> Budget:
        """The promise this meter keeps."""
        return self._budget

    @property
    def name(self) -> str:
        """The currency's name."""
        return self._currency.name

    @property
    def currency(self) -> Currency:
        """The currency and its cap."""
        return self._currency

    @property
    def spent_fraction(self) -> float:
        """The share of the cap that is spent, from 0 to 1."""
        return self._spent / _UNITS

    @property
    def events(self) -> Counter[Leaf]:
        """What was paid for, with counts."""
        return Counter(self._events)

    def affords(self, event: Event) -> bool:
        """Whether :meth:`spend` would accept the event now; an event that has no price is refused by name."""
        units, delta, _ = self._price(event)
        return self._fits(units, delta)

    def spend(self, event: Event) -> None:
        """Pay for an event before it happens, or raise :class:`BudgetExhausted` and change nothing."""
        self._check_process()
        units, delta, counts = self._price(event)
        with self._lock:
            if not self._fits(units, delta):
                raise BudgetExhausted(self._shortage(units, delta))
            self._spent += units
            self._delta_spent += delta
            self._events.update(counts)

    def noise_for(self, share: float, sampling: Sampling = FULL) -> float:
        """The noise multiplier of a Gaussian that takes ``share`` of what is left, rounded up.

        *Guarantee*: the resulting event is affordable, its price having been computed; ``share=1`` included. When less
        than a ten-millionth of the cap is left, that counts as nothing: its noise would drown every answer.
        """
        _validate.share(share=share)
        if _UNITS - self._spent < _UNITS // 10_000_000:
            raise BudgetExhausted(f"asked for a share {share:.3g} of what is left, but nothing is left of this budget")
        top, bottom = float(share).as_integer_ratio()  # whole numbers: exact, and faster than fractions
        allowed = (_UNITS - self._spent) * top // bottom
        cost = self._cap.numerator * allowed / (self._cap.denominator * _UNITS)
        for _ in range(20):
            if cost < 1e-250:
                break
            sigma = self._currency.noise_for(cost, sampling)
            if self._units(self._currency.cost(sampled(sampling, Gaussian(sigma)))) <= allowed:
                return sigma
            cost *= 1 - 2.0**-50
        raise BudgetExhausted(f"asked for a share {share:.3g} of what is left, which is too little to buy any answer")

    def describe(self) -> dict[str, Any]:
        """Plain data for a statement, enough for :func:`meter_from` to rebuild this meter, empty."""
        return {"meter": "additive", "one_shot_delta": self._one_shot_delta, **asdict(self._currency)}

    def _units(self, cost: float) -> int:
        if not cost < math.inf:
            return _UNITS + 1
        top, bottom = float(cost).as_integer_ratio()
        return -(-top * _UNITS * self._cap.denominator // (bottom * self._cap.numerator))

    def _price(self, event: Event) -> tuple[int, Fraction, Counter[Leaf]]:
        units, delta = 0, Fraction(0)
        counts = leaves(event)
        for leaf, count in counts.items():
            mechanism = unsampled(leaf)
            charged = leaf
            if isinstance(mechanism, ApproximateDP) and mechanism.delta > 0:
                pure, one_shot = approximate(leaf, self._budget.adjacency)
                charged = ApproximateDP(pure)
                delta += count * Fraction(one_shot)
                if self._one_shot_delta == 0:
                    raise Unpriceable(
                        f"{leaf!r} has delta > 0 and this meter keeps no share of delta for such events; "
                        "build it with one_shot_delta"
                    )
            units += count * self._units(self._currency.cost(charged))
        return units, delta, counts

    def _fits(self, units: int, delta: Fraction) -> bool:
        return self._spent + units <= _UNITS and self._delta_spent + delta <= Fraction(self._one_shot_delta)

    def _shortage(self, units: int, delta: Fraction) -> str:
        left = (_UNITS - self._spent) / _UNITS
        text = f"asked for {units / _UNITS:.6g} of the {self.name} cap, {left:.6g} is left"
        if delta:
            rest = float(Fraction(self._one_shot_delta) - self._delta_spent)
            text += f"; asked for delta {float(delta):.3g} of the one-shot share, {rest:.3g} is left"
        return text


class PlanMeter(_NotCopied):
    """A meter for events that were all fixed beforehand: the whole plan is priced once, then used up.

    *Guarantee*: whatever the caller does with the plan, reordering it, skipping events or stopping, also by looking
    at earlier answers, everything released is (epsilon, delta)-DP at the price of the whole plan. Proof, by backward
    induction over the multiset of remaining events: let V(R, h) be the worst hockey-stick divergence that remains to
    be gained from the multiset R of dominating pairs after a history with likelihood ratio h. With R empty it does not
    depend on any choice. Otherwise each choice of an event E of R yields the expectation over E of V(R - E, .), which
    by hypothesis is the value of the product of all pairs of R - E; so every choice gives the value of the product of
    all of R, whatever comes first, and mixing choices changes nothing. An event that is skipped can be run and its
    answer thrown away, which is post-processing. What may NOT depend on answers is what the multiset contains.

    >>> meter = PlanMeter(Budget(1.0, 1e-5), Repeated(Gaussian(20.0), 25))
    >>> meter.spend(Gaussian(20.0))
    >>> meter.affords(Gaussian(19.0))
    False
    """

    adaptive = False
    name = "plan"

    def __init__(self, budget: Budget, plan_events: Event | Iterable[Event], accountant: str = "auto") -> None:
        super().__init__()
        _validate.one_of(("auto", *ACCOUNTANTS), accountant=accountant)
        counts = count_leaves(plan_events, budget.adjacency)
        self._budget = budget
        self._plan = counts
        self._remaining = Counter(counts)
        self._events: Counter[Leaf] = Counter()
        if accountant == "auto":
            self.accountant, self.epsilon = _auto(counts, budget.delta, budget.adjacency)
        else:
            self.accountant = accountant
            events = [Repeated(leaf, count) for leaf, count in counts.items()]
            self.epsilon = epsilon(events, delta=budget.delta, adjacency=budget.adjacency, accountant=accountant)
        if not self.epsilon <= budget.epsilon:
            raise ValueError(
                f"plan_events cost epsilon {self.epsilon:.6g} by {self.accountant}, more than the budget's "
                f"{budget.epsilon:.6g}; pass a plan with more noise, e.g. from calibrate(budget, steps=...)"
            )

    @property
    def budget(self) -> Budget:
        """The promise this meter keeps."""
        return self._budget

    @property
    def spent_fraction(self) -> float:
        """The share of the plan's events that were used; the whole plan stays charged."""
        total = sum(self._plan.values())
        return sum(self._events.values()) / total if total else 1.0

    @property
    def events(self) -> Counter[Leaf]:
        """What was paid for, with counts."""
        return Counter(self._events)

    @property
    def remaining(self) -> Counter[Leaf]:
        """What is left of the plan."""
        return Counter(self._remaining)

    def affords(self, event: Event) -> bool:
        """Whether the event is among what is left of the plan."""
        return leaves(event) <= self._remaining

    def spend(self, event: Event) -> None:
        """Take an event out of the plan. Raises :class:`BudgetExhausted` and changes nothing if it is not there."""
        self._check_process()
        with self._lock:
            if isinstance(event, Leaf) and self._remaining.get(event, 0) > 0:  # the common case: one planned mechanism
                self._remaining[event] -= 1
                self._events[event] += 1
                return
            counts = leaves(event)
            if not counts <= self._remaining:
                leaf = next(leaf for leaf, count in counts.items() if count > self._remaining[leaf])
                raise BudgetExhausted(
                    f"asked for {counts[leaf]} of {leaf!r}, {self._remaining[leaf]} left in the plan; "
                    "a plan pays only for the events it was made of"
                )
            self._remaining -= counts
            self._events.update(counts)

    def noise_for(self, share: float, sampling: Sampling = FULL) -> NoReturn:
        """Refused: the noise of a plan is fixed beforehand."""
        raise ValueError(
            "a plan has no noise to hand out: its noise was fixed beforehand, and its price is not valid for noise "
            "chosen while running; take the noise from the plan, or use an adaptive meter such as 'gdp' or 'rdp'"
        )

    def describe(self) -> dict[str, Any]:
        """Plain data for a statement, enough for :func:`meter_from` to rebuild this meter, unused."""
        return {
            "meter": "plan",
            "name": self.name,
            "adjacency": self._budget.adjacency,
            "accountant": self.accountant,
            "epsilon": self.epsilon,
            "plan": [{"event": to_dict(leaf), "count": count} for leaf, count in self._plan.items()],
        }


def meter_from(budget: Budget, description: Mapping[str, Any]) -> AdditiveMeter | PlanMeter:
    """An unused meter as described, for replaying the events of a statement; a cap that does not match is refused.

    >>> old = AdditiveMeter(Budget(1.0, 1e-6), "rdp", order=20)
    >>> meter_from(old.budget, old.describe()).currency == old.currency
    True
    """
    meter: AdditiveMeter | PlanMeter
    match description.get("meter"):
        case "additive":
            order, delta = description.get("order"), description.get("one_shot_delta", 0.0)
            meter = AdditiveMeter(budget, description["name"], order=order, one_shot_delta=delta)
        case "plan":
            plan = [Repeated(from_dict(item["event"]), item["count"]) for item in description["plan"]]
            meter = PlanMeter(budget, plan, description["accountant"])
        case other:
            raise ValueError(f"description has meter {other!r}; pass what describe() returned")
    _same(meter.describe(), description)
    return meter


def _same(own: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
    """Refuse a description that differs from that of the rebuilt meter in anything but rounding."""
    if set(own) != set(stated):
        raise ValueError(f"the meter is described by {sorted(stated)}, not by {sorted(own)}")
    for key, value in own.items():
        other = stated[key]
        close = isinstance(value, float) and isinstance(other, float | int) and math.isclose(value, other, rel_tol=1e-6)
        if key != "plan" and not close and (value != other or isinstance(value, bool) != isinstance(other, bool)):
            raise ValueError(f"the meter states {key} {other!r}, but this budget and these events give {value!r}")
