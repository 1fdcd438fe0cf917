"""Adversaries who spend from meters, purses and accounts, and an oracle that adds up what was let through.

An adversary chooses every event, share, part and moment from what happened before, likes the edges (all that is left, one ulp
more, counts without end), and goes on after refusals. After every sequence the oracle adds up, in whole numbers, what was paid
for: it may not exceed what (epsilon, delta) is worth by a formula that is written anew in ``oracle``.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from noisewise.accounts import AdditiveMeter, Budget, BudgetExhausted, PlanMeter, Terms
from noisewise.accounts.account import Account
from noisewise.accounts.purse import Purse, PurseShare
from noisewise.trusted.events import (
    ApproximateDP,
    BoundedRange,
    Composed,
    Event,
    FixedBatch,
    Gaussian,
    Leaf,
    Poisson,
    Repeated,
    leaves,
)

from . import oracle
from .core import target
from .places import folder

BUDGETS = tuple(
    Budget(epsilon, delta, adjacency)
    for epsilon, delta in ((1.0, 1e-6), (0.1, 1e-8), (8.0, 1e-5))
    for adjacency in ("add_remove", "replace_one")
)  # fmt: skip
CURRENCIES: tuple[tuple[str, int | None], ...] = (
    ("gdp", None), ("zcdp", None), ("rdp", 8), ("rdp", 32), ("rdp", 128), ("tcdp", None), ("ctcdp", None),
)  # fmt: skip
SHARES = (1.0, 0.5, 1e-3, 1e-9, 1 / 3, math.nextafter(1.0, 0.0))
EPSILONS = (1e-4, 0.01, 0.1, 0.5)
REFUSED = (BudgetExhausted, ValueError, TypeError)
SIZE = 12


class Executed:
    """What was let through, in one currency: the sum of the costs, and of the deltas of one-shots."""

    def __init__(self, name: str, order: int | None, adjacency: str) -> None:
        self.what = name, order, adjacency
        self.cost, self.delta = 0, Fraction(0)
        self.events: Counter[Leaf] = Counter()

    def add(self, event: Event) -> None:
        for leaf, count in leaves(event).items():
            self.cost += count * oracle.cost(leaf, *self.what)
            if isinstance(leaf, ApproximateDP):
                self.delta += count * Fraction(leaf.delta)
            self.events[leaf] += count

    def within(self, budget: Budget, one_shot_delta: float) -> None:
        """Fail if it is more than (epsilon, delta) is worth."""
        name, order, _ = self.what
        rest = Fraction(float(budget.delta)) - Fraction(one_shot_delta)
        promise = float(budget.epsilon), float(rest)
        if budget in BUDGETS:
            assert self.cost <= oracle.cap(name, order, *promise), f"{name} {order}: over {promise}"
        elif self.cost:
            assert not oracle.over(self.cost, name, order, *promise), f"{name} {order}: over {promise}"
        assert self.delta <= Fraction(one_shot_delta), "more delta than its share"


def terms_for(rng: Random, budget: Budget, usual: tuple[tuple[str, int | None], ...] = CURRENCIES) -> Terms:
    name, order = rng.choice(usual)
    return Terms.adaptive(name, order=order, one_shot_delta=rng.choice((0.0, 0.0, budget.delta / 2)))


def wish(rng: Random, meter: Any) -> Event:
    """The next event, chosen from what is left of a meter: often all of it, or a little more."""
    kind = rng.random()
    if kind < 0.5:
        sampling: Any = ("full",) if rng.random() < 0.85 else rng.choice((("poisson", 0.01), ("fixed", 0.05)))
        sigma = meter.noise_for(rng.choice(SHARES), sampling)
        if rng.random() < 0.3:
            sigma = math.nextafter(sigma, 0.0)  # one ulp too little
        event: Any = Gaussian(sigma)
        if sampling[0] != "full":
            return (Poisson if sampling[0] == "poisson" else FixedBatch)(sampling[1], event)
        return Repeated(event, rng.choice((1, 1, 1, 2, 10**15))) if rng.random() < 0.3 else event
    if kind < 0.65:
        return Gaussian(rng.choice((1e-6, 1.0, 30.0, 1e4, 1e12)))
    if kind < 0.75:
        return BoundedRange(rng.choice(EPSILONS))
    if kind < 0.9:
        return ApproximateDP(rng.choice(EPSILONS), rng.choice((0.0, 1e-9, float(meter.budget.delta) / 4, 0.5)))
    return Composed((Gaussian(rng.choice((30.0, 1e4))), Repeated(BoundedRange(1e-4), rng.choice((0, 1, 7, 10**9)))))


def spend(rng: Random, meter: Any, executed: list[Executed]) -> None:
    """Try to spend; what was paid for is executed."""
    try:
        event = wish(rng, meter)
        promised = meter.affords(event) if rng.random() < 0.2 else None
        meter.spend(event)
    except REFUSED:
        return
    assert promised is not False, "an event was paid for that the meter did not afford"
    for one in executed:
        one.add(event)


def a_meter(rng: Random) -> None:
    """One filter alone."""
    budget = rng.choice(BUDGETS)
    terms = terms_for(rng, budget)
    try:
        meter = AdditiveMeter(budget, terms.accountant, order=terms.order, one_shot_delta=terms.one_shot_delta)
    except ValueError:
        return  # this order can hold nothing of the budget
    executed = Executed(terms.accountant, terms.order, budget.adjacency)
    for _ in range(rng.randrange(3, SIZE)):
        spend(rng, meter, [executed])
    executed.within(budget, terms.one_shot_delta)
    assert meter.events == executed.events and meter.spent_fraction <= 1


@target("one filter (gdp, zcdp, rdp, tcdp, ctcdp)", lambda rng: rng.getrandbits(60), group="purses", weight=60)
def meters(seed: int) -> None:
    a_meter(Random(seed))


def a_plan(rng: Random) -> None:
    """A plan: whatever is asked, in any order, is among its events, and Gaussians on all records keep its promise."""
    budget = rng.choice(BUDGETS)
    base = rng.choice((5.0, 20.0, 100.0))
    events = [Repeated(Gaussian(base * (i + 1)), rng.choice((1, 3))) for i in range(rng.randrange(1, 4))]
    try:
        meter = PlanMeter(budget, events, rng.choice(("auto", "gdp", "zcdp")))
    except ValueError:
        return
    executed = Executed("gdp", None, budget.adjacency)
    asked = [
        *events,
        *(event.event for event in events),
        Gaussian(math.nextafter(base, 0.0)),
        Gaussian(base),
        Composed(tuple(events)),
    ]
    for _ in range(rng.randrange(3, SIZE)):
        try:
            event = rng.choice(asked)
            meter.spend(event)
        except REFUSED:
            continue
        executed.add(event)
    executed.within(budget, 0.0)
    assert executed.events <= leaves(events), "more than was planned"


@target("a plan", lambda rng: rng.getrandbits(60), group="purses", weight=15)
def plans(seed: int) -> None:
    a_plan(Random(seed))


class Hand:
    """One part in an adversary's hands, with what it let through."""

    def __init__(self, part: PurseShare, terms: Terms) -> None:
        meter, currency = part.meter, (terms.accountant, terms.order) if terms.kind == "adaptive" else ("gdp", None)
        self.part, self.terms, self.budget = part, terms, meter.budget
        self.own = Executed(*currency, meter.budget.adjacency)


class Adversary:
    """Opens parts of one purse, spends in turns, settles early or by failing, takes up, and goes on after the end."""

    def __init__(self, rng: Random, budget: Budget, terms: Terms | None, purse: Any, reopen: Any = None) -> None:
        self.rng, self.budget, self.terms, self.purse, self.reopen = rng, budget, terms, purse, reopen
        self.hands: list[Hand] = []
        self.dead: list[Hand] = []  # of processes that are gone; what they released stays released
        self.whole: set[int] = set()
        self.all = None if terms is None else Executed(terms.accountant, terms.order, budget.adjacency)

    def play(self) -> None:
        for _ in range(self.rng.randrange(3, 2 * SIZE)):
            kind = self.rng.random()
            if kind < 0.3 or not self.hands:
                self.open_part()
            elif kind < 0.75:
                self.spend_some()
            elif kind < 0.92:
                self.settle_one()
            else:
                self.take_up()
        self.check()  # what was let through only grows, so the end tells

    def open_part(self) -> None:
        rng, terms = self.rng, self.own_terms()
        budget, share = None, 1.0
        if rng.random() < (0.97 if self.terms is not None else 0.5):  # finding a share's worth in a currency takes long
            budget = Budget(
                self.budget.epsilon * rng.choice((0.1, 0.25, 0.5, 1.0, 1.0000001)), self.budget.delta * rng.choice((1.0, 0.1)),
                self.budget.adjacency,
            )  # fmt: skip
        else:
            share = rng.choice(SHARES)
        try:
            part = self.purse.part(terms, budget, share=share)
        except (*REFUSED, RuntimeError):
            return
        self.hands.append(Hand(part, terms))

    def own_terms(self) -> Terms:
        rng = self.rng
        if rng.random() < 0.2:
            return Terms.plan((Repeated(Gaussian(rng.choice((20.0, 60.0, 200.0))), rng.choice((1, 4))),), "gdp")
        if self.terms is None or rng.random() < 0.05:
            return terms_for(rng, self.budget, CURRENCIES[:3])
        return Terms.adaptive(
            self.terms.accountant,
            order=self.terms.order,
            one_shot_delta=rng.choice((0.0, self.terms.one_shot_delta / 2)),
        )

    def spend_some(self) -> None:
        hand = self.rng.choice(self.hands)
        meter, before = hand.part.meter, hand.own.events.total()
        in_kind = self.terms is not None and (hand.terms.accountant, hand.terms.order) == (
            self.terms.accountant,
            self.terms.order,
        )
        executed = (
            [hand.own, self.all] if self.all is not None and in_kind and hand.terms.kind == "adaptive" else [hand.own]
        )
        if isinstance(meter, PlanMeter):
            try:
                event = hand.terms.events[0]
                meter.spend(event)
            except REFUSED:
                return
            hand.own.add(event)
        else:
            spend(self.rng, meter, executed)
        if len(executed) == 1 and self.all is not None and hand.own.events.total() > before:
            self.count_whole(hand)

    def count_whole(self, hand: Hand) -> None:
        """A plan, or a run of another currency, counts once: as its events, or as the promise that it keeps."""
        if self.all is None or hand.part.number in self.whole:
            return
        self.whole.add(hand.part.number)
        by_promise = self.purse.entries[hand.part.number].reserved.delta > 0
        promise = ApproximateDP(float(hand.budget.epsilon), float(hand.budget.delta))
        self.all.add(promise if by_promise else Composed(hand.terms.events))

    def settle_one(self) -> None:
        hand = self.rng.choice(self.hands)
        try:
            if self.rng.random() < 0.3:
                with hand.part:
                    raise KeyError("a run fails")
            hand.part.settle(self.rng.choice(("spent", "failed")))
        except (KeyError, ValueError, RuntimeError):
            pass
        assert hand.part.meter.closed

    def take_up(self) -> None:
        """As after a crash: another purse on the same store, where the run is replayed; or boldly, in this process."""
        number = self.rng.choice(self.hands).part.number
        hand = [hand for hand in self.hands if hand.part.number == number][
            -1
        ]  # the last to hold it has all of its past
        if self.reopen is not None and self.rng.random() < 0.5:
            self.purse = self.reopen()
            self.dead, self.hands = [*self.dead, *self.hands], []
        try:
            part = self.purse.part(hand.terms, hand.budget, number=hand.part.number)
        except (*REFUSED, RuntimeError):
            return
        again = Hand(part, hand.terms)
        for leaf, count in hand.own.events.items():
            part.meter.spend(Repeated(leaf, count))  # the journal, which is trusted, pays again for what was released
        again.own.add(Composed(tuple(Repeated(leaf, count) for leaf, count in hand.own.events.items())))
        self.hands.append(again)

    def check(self) -> None:
        every = [*self.dead, *self.hands]
        for hand in every:
            hand.own.within(hand.budget, hand.terms.one_shot_delta)
        if self.all is not None and self.terms is not None:
            self.all.within(self.budget, self.terms.one_shot_delta)
            return
        used = {hand.part.number: hand.budget for hand in every if hand.own.events}
        assert sum(Fraction(float(one.epsilon)) for one in used.values()) <= Fraction(float(self.budget.epsilon)), (
            "epsilons"
        )
        assert sum(Fraction(float(one.delta)) for one in used.values()) <= Fraction(float(self.budget.delta)), "deltas"


@target("a purse of promises", lambda rng: rng.getrandbits(60), group="purses", weight=10)
def promises(seed: int) -> None:
    rng = Random(seed)
    budget = rng.choice(BUDGETS)
    Adversary(rng, budget, None, Purse(budget)).play()


@target("a purse that is a filter", lambda rng: rng.getrandbits(60), group="purses", weight=10)
def filters(seed: int) -> None:
    rng = Random(seed)
    budget = rng.choice(BUDGETS)
    terms = terms_for(rng, budget)
    try:
        purse = Purse(budget, terms)
    except ValueError:
        return
    Adversary(rng, budget, terms, purse).play()


@target("an account", lambda rng: rng.getrandbits(60), group="purses", weight=3)
def accounts(seed: int) -> None:
    rng = Random(seed)
    budget = rng.choice(BUDGETS)
    terms = None if rng.random() < 0.5 else Terms.adaptive("gdp")
    Adversary(rng, budget, terms, Account(Purse(budget, terms), "patients")).play()


@target("a spending file, closed and opened", lambda rng: rng.getrandbits(60), group="purses", weight=1)
def files(seed: int) -> None:
    rng = Random(seed)
    budget = rng.choice(BUDGETS)
    terms = None if rng.random() < 0.5 else Terms.adaptive("gdp", one_shot_delta=budget.delta / 2)
    path = folder(0) / "purse.json"
    path.unlink(missing_ok=True)
    adversary = Adversary(
        rng, budget, terms, Purse(budget, terms, store=path), lambda: Purse(budget, terms, store=path)
    )
    adversary.play()
    if path.exists():
        _written(path)


def _written(path: Path) -> None:
    """What the file says adds up to at most its own cap, by somebody else's reading."""
    document = json.loads(path.read_text())
    for name in ("cost", "delta"):
        counted = [Fraction((entry["spent"] or entry["reserved"])[name]) for entry in document["entries"]]
        assert sum(counted) <= Fraction(document["terms"]["cap"][name])


@target("threads that race for one filter", lambda rng: rng.getrandbits(60), group="purses", weight=0.3)
def threads(seed: int) -> None:
    rng = Random(seed)
    budget = rng.choice(BUDGETS)
    meter, executed = AdditiveMeter(budget, "gdp"), [Executed("gdp", None, budget.adjacency) for _ in range(3)]

    def race(own: Executed, seed: int) -> None:
        mine = Random(seed)
        for _ in range(6):
            spend(mine, meter, [own])

    racing = [threading.Thread(target=race, args=(own, rng.getrandbits(60))) for own in executed]
    for thread in racing:
        thread.start()
    for thread in racing:
        thread.join()
    together = Executed("gdp", None, budget.adjacency)
    together.cost = sum(own.cost for own in executed)
    together.within(budget, 0.0)
