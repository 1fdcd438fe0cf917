"""The meters that keep a budget: each event is paid for before any record is touched."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from fractions import Fraction
from typing import Any, NoReturn

from noisewise.trusted import validate
from noisewise.trusted.accountants.base import UNITS_PER_CAP, Currency, currencies, currency
from noisewise.trusted.accountants.calibrate import price_of
from noisewise.trusted.accountants.common import Unpriceable, approximate, count_leaves, kept, unsampled
from noisewise.trusted.accountants.terms import Budget
from noisewise.trusted.counts import BudgetExhausted, Counts, up
from noisewise.trusted.events import (
    FULL,
    ApproximateDP,
    Event,
    Gaussian,
    Leaf,
    Repeated,
    Sampling,
    from_dict,
    leaves,
    plain_sampling,
    rebuilt_leaf,
    sampled,
    to_dict,
)


class AdditiveMeter(Counts):
    """A filter for a currency whose costs add up: stops before the sum would exceed the cap.

    *Guarantee*: however the events are chosen, also from earlier answers, everything released under this meter is
    (epsilon, delta)-DP under the budget's relation. GDP: Smith & Thakurta 2022. RDP at one order fixed beforehand:
    Feldman & Zrnic 2021; tCDP and ctCDP are that filter at order omega. zCDP: Whitehouse et al. 2023.

    ``one_shot_delta`` sets a part of delta aside for events that are only (epsilon, delta)-DP; each is charged its
    pure epsilon here and its delta there (the proof is in ``accountants.common.split_delta``, and holds for any
    filter).

    >>> from noisewise.accounts import Budget
    >>> meter = AdditiveMeter(Budget(1.0, 1e-6), "gdp")
    >>> for _ in range(3):
    ...     meter.spend(Gaussian(meter.noise_for(0.5)))
    >>> round(meter.spent_fraction, 6)
    0.875
    """

    __slots__ = ("_cap", "_currency", "_delta_spent", "_one_shot_delta", "_spent")
    adaptive = True

    def __init__(self, budget: Budget, name: str, *, order: int | None = None, one_shot_delta: float = 0.0) -> None:
        super().__init__(budget)
        self._currency = currency(budget, name, order=order, one_shot_delta=one_shot_delta)
        self._one_shot_delta = float(one_shot_delta)
        self._cap = Fraction(self._currency.cap)
        self._spent = 0
        self._delta_spent = Fraction(0)

    @property
    def name(self) -> str:
        """The currency's name."""
        return self._currency.name

    @property
    def currency(self) -> Currency:
        """The currency and its cap."""
        return self._currency

    @property
    def one_shot_delta(self) -> float:
        """The part of delta that is kept for events that are only (epsilon, delta)-DP."""
        return self._one_shot_delta

    @property
    def spent_fraction(self) -> float:
        """The share of the cap that is spent, from 0 to 1."""
        return self._spent / UNITS_PER_CAP

    @property
    def charged(self) -> tuple[Fraction, Fraction]:
        """What was charged, in the currency and of the share of delta."""
        return self._cap * Fraction(self._spent, UNITS_PER_CAP), self._delta_spent

    def affords(self, event: Event) -> bool:
        """Whether :meth:`spend` would accept the event now; an event that has no price is refused by name."""
        units, delta, _ = self._price(event)
        return not self._closed and self._fits(units, delta)

    def spend(self, event: Event) -> None:
        """Pay for an event before it happens, or raise :class:`BudgetExhausted` and change nothing."""
        self._check_process()
        units, delta, counts = self._price(event)
        with self._lock:
            self._check_open()
            if not self._fits(units, delta):
                raise BudgetExhausted(self._shortage(units, delta))
            self._spent += units
            self._delta_spent += delta
            self._events.update(counts)

    @property
    def used(self) -> bool:
        """Whether anything was paid for, or given up."""
        return self._spent > 0 or self._delta_spent > 0

    def share_after(self, event: Event) -> float:
        """What :attr:`spent_fraction` would be at most after the event, rounded up; above 1 where it does not fit."""
        units, delta, _ = self._price(event)
        return up(Fraction(self._spent + units, UNITS_PER_CAP)) if self._fits(units, delta) else math.inf

    def forfeit(self, share: float) -> Counter[Leaf]:
        """Give up the budget up to this share of it: it may have paid for answers that were lost.

        Gaussians of that price stand for them; the delta set aside is given up whole, as a one-shot event may be among them.
        """
        self._check_process()
        validate.share(share=share)
        with self._lock:
            self._check_open()
            target, gone = min(int(-(-Fraction(share) * UNITS_PER_CAP // 1)), UNITS_PER_CAP), Counter[Leaf]()
            if (left := target - self._spent) > 0:
                while left * 10**12 > UNITS_PER_CAP and (sigma := self._sigma(left)) is not None:
                    gone[Gaussian(sigma)] += 1  # the noise is rounded up: a second one makes up for that
                    left -= self._price(Gaussian(sigma))[0]
                self._spent, self._delta_spent = target, Fraction(self._one_shot_delta)
                self._events.update(gone)
            return gone

    def noise_for(self, share: float, sampling: Sampling = FULL) -> float:
        """The noise multiplier of a Gaussian that takes ``share`` of what is left, rounded up.

        *Guarantee*: the resulting event is affordable, its price having been computed; ``share=1`` included. When less
        than a ten-millionth of the cap is left, that counts as nothing: its noise would drown every answer.
        """
        validate.share(share=share)
        sampling = plain_sampling(sampling)
        if UNITS_PER_CAP - self._spent < UNITS_PER_CAP // 10_000_000:
            raise BudgetExhausted(f"asked for a share {share:.3g} of what is left, but nothing is left of this budget")
        top, bottom = float(share).as_integer_ratio()  # whole numbers: exact, and faster than fractions
        if (sigma := self._sigma((UNITS_PER_CAP - self._spent) * top // bottom, sampling)) is None:
            raise BudgetExhausted(
                f"asked for a share {share:.3g} of what is left, which is too little to buy any answer"
            )
        return sigma

    def _sigma(self, allowed: int, sampling: Sampling = FULL) -> float | None:
        """The noise multiplier of a Gaussian that costs at most ``allowed`` units; None where that is too little."""
        cost = self._cap.numerator * allowed / (self._cap.denominator * UNITS_PER_CAP)
        for _ in range(20):
            if cost < 1e-250:
                break
            sigma = self._currency.noise_for(cost, sampling)
            if self._currency.units(self._currency.cost(sampled(sampling, Gaussian(sigma)))) <= allowed:
                return sigma
            cost *= 1 - 2.0**-50
        return None

    def describe(self) -> dict[str, Any]:
        """Plain data for a statement, enough for :func:`meter_from` to rebuild this meter, empty."""
        return {"meter": "additive", "one_shot_delta": self._one_shot_delta, **asdict(self._currency)}

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
            units += count * self._currency.units(self._currency.cost(charged))
        return units, delta, counts

    def _fits(self, units: int, delta: Fraction) -> bool:
        return self._spent + units <= UNITS_PER_CAP and self._delta_spent + delta <= Fraction(self._one_shot_delta)

    def _shortage(self, units: int, delta: Fraction) -> str:
        left = (UNITS_PER_CAP - self._spent) / UNITS_PER_CAP
        text = f"asked for {units / UNITS_PER_CAP:.6g} of the {self.name} cap, {left:.6g} is left"
        if delta:
            rest = float(Fraction(self._one_shot_delta) - self._delta_spent)
            text += f"; asked for delta {float(delta):.3g} of the one-shot share, {rest:.3g} is left"
        return text


class PlanMeter(Counts):
    """A meter for events that were all fixed beforehand: the whole plan is priced once, then used up.

    *Guarantee*: whatever the caller does with the plan, reordering it, skipping events or stopping, also by looking
    at earlier answers, everything released is (epsilon, delta)-DP at the price of the whole plan. Proof, by backward
    induction over the multiset of remaining events: let V(R, h) be the worst hockey-stick divergence that remains to
    be gained from the multiset R of dominating pairs after a history with likelihood ratio h. With R empty it does not
    depend on any choice. Otherwise each choice of an event E of R yields the expectation over E of V(R - E, .), which
    by hypothesis is the value of the product of all pairs of R - E; so every choice gives the value of the product of
    all of R, whatever comes first, and mixing choices changes nothing. An event that is skipped can be run and its
    answer thrown away, which is post-processing. What may NOT depend on answers is what the multiset contains.

    >>> from noisewise.accounts import Budget
    >>> meter = PlanMeter(Budget(1.0, 1e-5), Repeated(Gaussian(20.0), 25))
    >>> meter.spend(Gaussian(20.0))
    >>> meter.affords(Gaussian(19.0))
    False
    """

    __slots__ = ("_accountant", "_epsilon", "_plan", "_remaining", "_total", "_used")
    adaptive = False
    name = "plan"

    def __init__(self, budget: Budget, plan_events: Event | Iterable[Event], accountant: str = "auto") -> None:
        super().__init__(budget)
        asked = count_leaves(plan_events, budget.adjacency)
        counts: Counter[Leaf] = Counter()
        for leaf, count in asked.items():
            counts[rebuilt_leaf(leaf)] += int(count)
        self._plan = counts
        self._remaining = Counter(counts)
        self._total, self._used = counts.total(), 0
        self._accountant, self._epsilon = _price_of(tuple(counts.items()), budget.delta, budget.adjacency, accountant)
        if not self.epsilon <= budget.epsilon:
            raise ValueError(
                f"plan_events cost epsilon {self.epsilon:.6g} by {self.accountant}, more than the budget's "
                f"{budget.epsilon:.6g}; pass a plan with more noise, e.g. from calibrate(budget, steps=...)"
            )

    @property
    def accountant(self) -> str:
        """Who priced the plan."""
        return self._accountant

    @property
    def epsilon(self) -> float:
        """What the plan costs at the budget's delta, rounded up."""
        return self._epsilon

    @property
    def spent_fraction(self) -> float:
        """The share of the plan's events that were used; the whole plan stays charged."""
        return self._used / self._total if self._total else 1.0

    @property
    def remaining(self) -> Counter[Leaf]:
        """What is left of the plan."""
        return Counter(self._remaining)

    def affords(self, event: Event) -> bool:
        """Whether the event is among what is left of the plan."""
        return not self._closed and leaves(event) <= self._remaining

    def spend(self, event: Event) -> None:
        """Take an event out of the plan. Raises :class:`BudgetExhausted` and changes nothing if it is not there."""
        self._check_process()
        with self._lock:
            self._check_open()
            if isinstance(event, Leaf) and (left := self._remaining.get(event, 0)) > 0:  # the common case
                self._remaining[event] = left - 1
                self._events[event] += 1
                self._used += 1
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
            self._used += counts.total()

    @property
    def used(self) -> bool:
        """Whether anything was paid for, or given up."""
        return self._used > 0

    def share_after(self, event: Event) -> float:
        """What :attr:`spent_fraction` would be after the event, rounded up; above 1 where it is not in the plan."""
        counts = leaves(event)
        share = Fraction(self._used + counts.total(), max(self._total, 1))
        return up(share) if counts <= self._remaining else math.inf

    def forfeit(self, share: float) -> Counter[Leaf]:
        """Give up the plan up to this share of its events: some may have happened, and it is not known which.

        So as many are taken from *each* kind of event that is left: whichever happened, none happens twice.
        """
        self._check_process()
        validate.share(share=share)
        with self._lock:
            self._check_open()
            lost = max(int(-(-Fraction(share) * self._total // 1)) - self._used, 0)
            gone = self._remaining & Counter(dict.fromkeys(self._remaining, lost))
            self._remaining -= gone
            self._used += gone.total()
            self._events.update(gone)
            return gone

    def noise_for(self, share: float, sampling: Sampling = FULL) -> NoReturn:
        """Refused: the noise of a plan is fixed beforehand."""
        raise ValueError(
            "a plan has no noise to hand out: its noise was fixed beforehand, and its price is not valid for noise "
            "chosen while running; take the noise from the plan, or use an adaptive meter such as "
            f"{' or '.join(map(repr, currencies()[:2]))}"
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


Meter = AdditiveMeter | PlanMeter  # each stops before its cap, whatever it is asked, in whatever order


@kept(256)
def _price_of(plan: tuple[tuple[Leaf, int], ...], delta: float, adjacency: str, accountant: str) -> tuple[str, float]:
    """The accountant and its epsilon: a plan that comes again, as in every run of an audit, is not priced again."""
    return price_of([Repeated(leaf, count) for leaf, count in plan], delta, adjacency, accountant)


def meter_from(budget: Budget, description: Mapping[str, Any]) -> Meter:
    """An unused meter as described, for replaying the events of a statement; a cap that does not match is refused.

    >>> from noisewise.accounts import Budget
    >>> old = AdditiveMeter(Budget(1.0, 1e-6), "rdp", order=20)
    >>> meter_from(old.budget, old.describe()).currency == old.currency
    True
    """
    meter: Meter
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
