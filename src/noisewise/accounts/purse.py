"""One budget for several runs on the same records: each reserves all it may spend before a record is touched."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ..trusted import validate
from ..trusted.accountants.base import as_events, currency
from ..trusted.accountants.common import Unpriceable
from ..trusted.accountants.terms import MIN_DELTA, Budget, Terms
from ..trusted.counts import BudgetExhausted, NotCopied
from ..trusted.events import ApproximateDP, Composed, Event, FixedBatch, Gaussian, Poisson, leaves
from ..trusted.meter import AdditiveMeter, Meter, PlanMeter
from ..trusted.opening import open_meter, rebuilt_terms
from .spending_file import CLAIM_SHARE, UNUSED, Amount, Closed, MemoryStore, PurseEntry, PurseStore, SpendingFile
from .spending_file import PurseShare as PurseShare

MAX_PROMISED_EPSILON = 1e3  # where a search for the largest epsilon stops


class Purse(NotCopied):
    """Counts what runs spend of one budget, in memory, in a file, or in another :class:`PurseStore`.

    Without ``terms`` the promises of the runs add up (basic composition): a run takes its epsilon and its delta whole,
    unless it asked nothing. With adaptive ``terms`` the purse is a filter over all runs: an adaptive run in the same
    currency takes what it was charged, and the rest comes back; a plan takes its price in that currency whole, unless
    nothing of it was asked. Any run, or a plan where that is cheaper, may count as the (epsilon, delta) that it promises,
    its delta taken from the ``one_shot_delta`` of the terms; then, too, all of it is taken.

    *Guarantee*: everything that all runs release together is (epsilon, delta)-DP under the budget's relation, however
    they are chosen, also from earlier answers, and also when they take turns. Basic composition: Rogers, Roth, Ullman &
    Vadhan 2016 for choices, Vadhan & Zhang 2023 for turns. A filter: its events are one adaptive sequence, whoever
    asks them, and one that did not happen was not charged; a run that counts as its promise is one event of it, since
    whatever is asked of an interactive (epsilon, delta)-DP mechanism is post-processing of one randomized response (Lyu
    2022, Vadhan & Zhang 2023). A part's own meter stays what it was: exactly an
    ``AdditiveMeter`` or a ``PlanMeter``, which stops at the part.

    >>> from noisewise.events import Gaussian
    >>> purse = Purse(Budget(1.0, 1e-6), Terms.adaptive("gdp"))
    >>> with purse.part(Terms.adaptive("gdp"), share=0.5, what="bounds") as bounds:
    ...     bounds.meter.spend(Gaussian(bounds.meter.noise_for(0.5)))
    >>> round(purse.spent_fraction, 6)
    0.25
    >>> with purse.part(Terms.plan(Gaussian(6.0)), what="training") as training:
    ...     training.meter.spend(Gaussian(6.0))
    >>> [entry.state for entry in purse.entries]
    ['spent', 'spent']
    """

    __slots__ = ("_budget", "_cap", "_filter", "_holders", "_store", "_terms")

    def __init__(
        self, budget: Budget, terms: Terms | None = None, *, store: PurseStore | str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__()
        self._budget, self._filter = budget, None
        self._holders: dict[int, list[Meter]] = {}  # by number of the share: its meters, the one that pays last
        cap, described = Amount(float(budget.epsilon), float(budget.delta)), None
        if terms is not None:
            terms = rebuilt_terms(terms)
            meter = open_meter(budget, terms)
            if not isinstance(meter, AdditiveMeter):
                raise ValueError(
                    "the terms of a purse are a plan; pass Terms.adaptive(...): several runs need a filter"
                )
            self._filter, own = terms, meter.currency
            described = {"name": own.name, "order": own.order, "one_shot_delta": terms.one_shot_delta}
            cap = Amount(own.cap, terms.one_shot_delta)
        self._cap = cap
        self._terms: Mapping[str, Any] = {
            **_promise(budget),
            "filter": described,
            "cap": {"cost": cap.cost, "delta": cap.delta},
        }
        self._store = (
            MemoryStore() if store is None else SpendingFile(store) if isinstance(store, str | os.PathLike) else store
        )
        self._store.left(self._terms)  # refuses an unreadable file before anything is planned

    @property
    def budget(self) -> Budget:
        """The promise of all runs together."""
        return self._budget

    @property
    def terms(self) -> Mapping[str, Any]:
        """The promise, the filter and its cap, as a store keeps them."""
        return self._terms

    @property
    def entries(self) -> tuple[PurseEntry, ...]:
        """The runs so far, as the store records them."""
        return self._store.entries(self._terms)

    @property
    def filtered(self) -> bool:
        """Whether it is a filter of a currency; otherwise promises add up."""
        return self._filter is not None

    @property
    def currency(self) -> str:
        """The currency of the filter, in words."""
        own = self._terms["filter"]
        return "epsilon" if own is None else own["name"] + (f" at order {own['order']}" if own["order"] else "")

    @property
    def durable(self) -> bool:
        """Whether spending is recorded where it outlives this process."""
        return not isinstance(self._store, MemoryStore)

    @property
    def left(self) -> tuple[Fraction, Fraction]:
        """What is neither spent nor reserved, exactly: of the epsilons or the filter's currency, and of delta."""
        return self._store.left(self._terms)

    @property
    def spent_fraction(self) -> float:
        """The share of the cap that is spent or reserved."""
        return 1 - float(self.left[0] / Fraction(self._cap.cost))

    def part(
        self,
        terms: Terms,
        budget: Budget | None = None,
        *,
        share: float = 1.0,
        what: str = "run",
        number: int | None = None,
    ) -> PurseShare:
        """Reserve a run on these terms, durably, before its meter can be charged.

        It promises ``budget``, or ``share`` of what is left. Raises ``BudgetExhausted`` when that is not there.
        ``number``: of a part that an earlier process of the same run has reserved and not settled, which is taken up: unless
        a journal says what that one used (:meth:`PurseShare.known`), it is settled as used whole.
        """
        self._check_process()
        validate.share(share=share)
        terms = rebuilt_terms(terms)
        promise = budget or self.largest(share, terms.one_shot_delta)
        if promise.adjacency != self._budget.adjacency:
            raise ValueError(
                f"the run is under {promise.adjacency}, the purse under {self._budget.adjacency}; pass the same"
            )
        meter = open_meter(promise, terms)
        described = {"what": str(what), **_promise(promise), "meter": meter.describe()}
        entries = [PurseEntry(described, most) for most in self.prices(meter)]
        if number is not None and 0 <= number < len(there := self.entries):
            entry = next((entry for entry in entries if there[number].is_that_of(entry)), None)
            if entry is None:
                raise ValueError(
                    "the run's part of the purse is settled, or was reserved on other terms; start it anew"
                )
            return self._held(number, entry, meter, there[number].claimed, unknown=True)
        for entry in entries[:-1]:
            with suppress(BudgetExhausted):
                return self._held(self._store.reserve(self._terms, entry), entry, meter)
        return self._held(self._store.reserve(self._terms, entries[-1]), entries[-1], meter)

    def _held(
        self, number: int, entry: PurseEntry, meter: Meter, claimed: float = 0.0, *, unknown: bool = False
    ) -> PurseShare:
        """The share, paid by this meter alone: an earlier meter of it, as of a stopped run, is closed."""
        with self._lock:
            before = self._holders.setdefault(number, [])
            for earlier in before:
                earlier.close()
            before.append(meter)
        return PurseShare(self, number, entry, meter, claimed, unknown=unknown)

    def largest(self, share: float = 1.0, one_shot_delta: float = 0.0, delta: float | None = None) -> Budget:
        """The largest promise that ``share`` of what is left can keep, rounded down; ``BudgetExhausted`` if none can.

        Of a filter it is at the purse's delta, or at another ``delta``.
        """
        cost, rest = (part * Fraction(share) for part in self.left)
        left = 0.0, 0.0
        if cost * 10_000_000 >= Fraction(self._cap.cost):  # less would buy nothing but noise
            left = (down(cost), down(rest))
            if self.filtered:
                left = (self._worth(cost, one_shot_delta, delta), self._budget.delta if delta is None else delta)
        if not (left[0] > 0 and left[1] >= MIN_DELTA):
            raise BudgetExhausted(f"asked for a share {share:.3g} of what is left of the purse, which is too little")
        return Budget(*left, self._budget.adjacency)

    def check(self, runs: Sequence[tuple[Terms, Budget]]) -> None:
        """Raise ``BudgetExhausted`` for runs that would not all fit, one after the other; nothing is reserved."""
        left = self.left
        for terms, promise in runs:
            found = self.prices(open_meter(promise, rebuilt_terms(terms)))
            fitting = next((one for one in found if one.cost <= left[0] and one.delta <= left[1]), None)
            if fitting is None:
                raise BudgetExhausted("more is asked for than is left of the purse; ask for less")
            left = left[0] - Fraction(fitting.cost), left[1] - Fraction(fitting.delta)

    def by_promise(self, terms: Terms) -> bool:
        """Whether a run on these terms counts, in a filter, as the (epsilon, delta) that it promises: one that is metered in
        another currency, or a plan whose price in the filter's currency is more. Only Renyi prices gain from sampling.
        """
        if self._filter is None:
            return False
        if terms.kind == "plan":
            priced = (Gaussian, Poisson, FixedBatch) if self._filter.accountant == "rdp" else (Gaussian,)
            return any(not isinstance(leaf, priced) for leaf in leaves(list(terms.events)))
        return (terms.accountant, terms.order) != (self._filter.accountant, self._filter.order)

    def largest_promise(self, delta: float) -> Budget | None:
        """The largest promise with at most this delta of a run that counts as its promise; None where none fits."""
        cost, share = self.left
        delta = min(float(delta), down(share))
        if not delta >= MIN_DELTA:
            return None

        def fits(epsilon: float) -> bool:
            own = self._filter_meter()
            try:
                own.spend(ApproximateDP(epsilon, delta))
            except (BudgetExhausted, Unpriceable):
                return False
            return own.charged[0] <= cost

        low, high = 0.0, float(self._budget.epsilon)
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return Budget(low, delta, self._budget.adjacency) if low > 0 else None

    def _worth(self, cost: Fraction, one_shot_delta: float, delta: float | None = None) -> float:
        """The largest epsilon, at this delta or the purse's, whose meter has at most this cap in the filter's currency."""
        whole = self._budget if delta is None else replace(self._budget, delta=delta)

        def bought(epsilon: float) -> float:
            assert self._filter is not None
            budget, order = replace(whole, epsilon=epsilon), self._filter.order
            return currency(budget, self._filter.accountant, order=order, one_shot_delta=one_shot_delta).cap

        low, high = 0.0, float(self._budget.epsilon)
        while delta is not None and high < MAX_PROMISED_EPSILON and bought(high) <= cost:
            high *= 2  # at a smaller delta the same cost is a larger epsilon
        if bought(high) <= cost:
            return high
        refused = True  # below some epsilon the currency can hold nothing
        for _ in range(60):
            middle = (low + high) / 2
            try:
                fits = bought(middle) <= cost
                refused = refused and not fits
            except ValueError:
                fits = True
            low, high = (middle, high) if fits else (low, middle)
        return 0.0 if refused else low

    def prices(self, meter: Meter) -> list[Amount]:
        """All that the run may spend, in the purse's unit: the ways to count it, the cheapest first.

        In a filter a run of the same currency counts as its cap, a plan as its events; either, and any other run, as
        the promise that it keeps, where the filter has a share of delta for that.
        """
        if self._filter is None:
            return [Amount(float(meter.budget.epsilon), float(meter.budget.delta))]
        if isinstance(meter, AdditiveMeter) and self._in_kind(meter):
            return [Amount(meter.currency.cap, meter.one_shot_delta)]
        events: list[Event] = []
        if isinstance(meter, PlanMeter):
            events.append(Composed(tuple(as_events(meter.remaining))))
        if self._filter.one_shot_delta:
            events.append(ApproximateDP(meter.budget.epsilon, meter.budget.delta))
        found, refused = [], None
        for event in events:
            own = self._filter_meter()
            try:
                own.spend(event)
                found.append(_amount(*own.charged))
            except (BudgetExhausted, Unpriceable) as error:
                refused = error
        if refused is not None and not found:
            raise refused
        if not found:
            raise ValueError(self._of_another_kind(meter))
        return sorted(found, key=lambda amount: amount.cost)

    def _filter_meter(self) -> AdditiveMeter:
        """An empty meter of the filter."""
        assert self._filter is not None
        meter = open_meter(self._budget, self._filter)
        assert isinstance(meter, AdditiveMeter)
        return meter

    def _in_kind(self, meter: Meter) -> bool:
        """Whether the meter counts in the filter's own currency, so that what the run does not spend can come back."""
        if self._filter is None or not isinstance(meter, AdditiveMeter):
            return False
        own, other = self._filter_meter().currency, meter.currency
        return (own.name, own.order) == (other.name, other.order) and (other.omega or 0.0) >= (own.omega or 0.0)

    def _of_another_kind(self, meter: Meter) -> str:
        assert isinstance(meter, AdditiveMeter)
        own = self._filter_meter()
        if (meter.name, meter.currency.order) == (own.name, own.currency.order):
            return "the run keeps a smaller omega than the purse; pass a budget with a smaller delta or epsilon"
        order = f" at order {own.currency.order}" if own.currency.order else ""
        return (
            f"the run is metered by {meter.name}, but the purse is a filter of {own.name}{order} without a share of delta "
            "for the promises of other runs; name the same in its terms, or give the purse a one_shot_delta"
        )

    def _claim(self, number: int, before: float, after: float) -> None:
        self._check_process()
        self._store.claim(self._terms, number, before, after)

    def settled(self, meter: Meter, reserved: Amount, claimed: float = 0.0, journal: Closed | None = None) -> Amount:
        """What a run takes in the end, given what it reserved and what its meter was charged.

        ``claimed``: the largest share that it ever claimed. It takes at least that, since it may have drawn it. Only where costs
        add up in its meter, and a closed ``journal`` lists nothing but what the meter was charged for, it takes less: by a
        block at most, since no run claims the next block before it has used the last.
        """
        own = isinstance(meter, AdditiveMeter) and self._in_kind(meter)
        spent = reserved
        if not meter.used:
            spent = Amount(0.0, 0.0)
        elif own and isinstance(meter, AdditiveMeter):
            spent = _amount(*meter.charged)
        if claimed <= UNUSED:
            return spent
        if not own:
            return reserved
        shown = _shows(journal, meter)
        least = _least(reserved.cost, max(claimed - CLAIM_SHARE * (1 + 1e-6), 0.0) if shown else claimed)
        return Amount(max(spent.cost, least), spent.delta if shown else reserved.delta)

    def _settle(
        self,
        number: int,
        entry: PurseEntry,
        meter: Meter,
        state: str,
        claimed: tuple[float, float],
        journal: Closed | None,
    ) -> None:
        self._check_process()  # a forked copy does not know what was spent since the fork
        meter.close()
        *before, last = self._holders[number]
        if last is not meter:
            raise ValueError("this part was taken up again since; the run that took it up settles it")
        last_claim, most = claimed
        journal = journal if _shows(journal, meter) else None
        spent = self.settled(meter, entry.reserved, most, journal)
        events = tuple(as_events(meter.events))
        if not all(
            earlier.events <= meter.events for earlier in before
        ):  # an earlier meter paid for events that this one lacks
            spent = entry.reserved
        settled = replace(entry, spent=spent, events=events, state=state, claimed=last_claim, journal=journal)
        self._store.settle(self._terms, number, settled)


def _promise(budget: Budget) -> dict[str, Any]:
    return {"epsilon": float(budget.epsilon), "delta": float(budget.delta), "adjacency": budget.adjacency}


def _amount(cost: Fraction, delta: Fraction) -> Amount:
    return Amount(-down(-cost), -down(-delta))


def _shows(journal: Closed | None, meter: Meter) -> bool:
    """Whether a journal lists events, and only events that the meter was charged for."""
    return journal is not None and journal.events.total() > 0 and journal.events <= meter.events


def _least(reserved: float, claimed: float) -> float:
    """The least that a run takes that claimed this share of its reservation; a store that counts in units rounds it up."""
    return reserved if claimed == 1 else down(Fraction(reserved) * Fraction(claimed) * (1 - Fraction(1, 1 << 50)))


def down(exact: Fraction) -> float:
    """The largest float that is at most this."""
    value = float(exact)
    return value if Fraction(value) <= exact else math.nextafter(value, -math.inf)
