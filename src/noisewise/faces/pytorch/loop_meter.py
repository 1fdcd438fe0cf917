"""What a training loop of the user's own pays with: a plan, a filter, or a counter that has no cap.

* plan: noise and length were fixed beforehand. All batches are priced together (PLD), and then used up.
* filter: noise may be chosen while running. It is charged at one Renyi order (GDP on full batches), up to a cap.
* counter: nothing ends it. Its price is that of a length fixed beforehand, which nobody checks.
* nothing: ``noise_multiplier=0``. Nothing is private, and it says so.
"""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from ...accounts import Meter, PlanMeter
from ...accounts.account import Account, account_of, paying, private_fit_begins
from ...accounts.purse import Purse, PurseShare
from ...accounts.replay import replayed
from ...trusted import validate
from ...trusted.accountants.base import currency
from ...trusted.accountants.calibrate import epsilon
from ...trusted.accountants.choose import choose_terms
from ...trusted.accountants.rdp import ORDERS
from ...trusted.accountants.terms import Budget, Terms
from ...trusted.events import FULL, Adjacency, Gaussian, Leaf, Repeated, Sampling, from_dict, leaves, sampled, to_dict
from ...trusted.gate import Gate
from ...trusted.tickets import Tally, Ticket

MAX_STEPS = 10**9
USUAL_DELTA = 1e-5  # of a plan for which no budget was given; its events have a price at any other
MeterKind = Literal["plan", "filter", "counter", "nothing"]

NEEDS_CAP = (
    "noise that changes while training needs a cap that was fixed beforehand: pass budget=nw.Budget(epsilon, delta) to "
    "make_private, or use make_private_with_epsilon"
)


class LoopMeter:
    """Pays for every batch before it is drawn, and says what that costs."""

    def __init__(
        self,
        sampling: Sampling,
        adjacency: Adjacency,
        noise: float,
        *,
        steps: int | None = None,
        budget: Budget | None = None,
        accountant: str = "auto",
        purse: Purse | Account | None = None,
    ) -> None:
        validate.not_negative(noise_multiplier=noise)
        self.sampling, self.adjacency, self.steps = sampling, adjacency, steps
        self._accountant, self._purse = accountant, purse
        self.account: Account | None = account_of(purse)
        self.identity = uuid.uuid4().hex  # of this run, in its checkpoints
        self._resumed: dict[str, Counter[Leaf]] = {}
        self._part: PurseShare | None = None
        self.budget = budget
        self.kind: MeterKind = "counter"
        self._meter(Tally())
        if noise == 0:
            if budget is not None:
                raise ValueError("noise_multiplier is 0, which keeps no budget; pass a positive one, or no budget")
            self.kind, self.gate = "nothing", Gate(None)
        elif steps is not None:
            self._open_plan(noise, steps)
        elif budget is not None:
            self._open_filter(noise)
        elif self.account is not None:
            raise ValueError(
                f"make_private has no cap, so it cannot be paid for by the account {self.account.dataset!r}; pass epochs= or "
                "budget="
            )

    def _open_plan(self, noise: float, steps: int) -> None:
        event = Repeated(self.leaf(noise), steps)
        promise = self.budget
        if promise is None:
            promise = Budget(
                _price(self.leaf(noise), steps, USUAL_DELTA, self.adjacency, self._accountant),
                USUAL_DELTA,
                self.adjacency,
            )
        self._open(promise, Terms.plan(event, self._accountant))
        self.kind = "plan"

    def _open_filter(self, noise: float) -> None:
        assert self.budget is not None
        full, steps = self.sampling == FULL, self.steps
        if steps is None and not full:
            steps = most_steps(self.budget, self.leaf(noise))
        self._open(self.budget, choose_terms(self.budget, adaptive=True, sampling=self.sampling, steps=steps))
        self.kind = "filter"

    def _open(self, budget: Budget, terms: Terms) -> None:
        if self._part is None:
            private_fit_begins(self._purse)
        else:
            self._part.settle("failed")  # nothing was asked of it
        place, granted = paying(budget, self._purse, simulation=False, persons=False)
        self._part = place.part(terms, granted, what="make_private")
        self._meter(self._part.meter)

    def _meter(self, meter: Meter | Tally) -> None:
        """From now on this one is charged; nothing was charged to another."""
        self.meter, self.gate = meter, Gate(meter)

    def leaf(self, noise: float) -> Leaf:
        return sampled(self.sampling, Gaussian(noise))

    @property
    def events(self) -> Counter[Leaf]:
        """What was paid for."""
        return self.meter.events

    def draw(self, noise: float, records: Sized) -> Ticket:
        """Pay for a batch and draw it; raises ``BudgetExhausted`` when it may not be."""
        if self.kind == "nothing" and noise:
            raise RuntimeError(NEEDS_CAP)
        return self.gate.open(noise, self.sampling, records)

    def may_change(self, noise: float) -> None:
        """Make ready for noise that is chosen while running, at first this, or refuse: a plan's price does not cover it."""
        if self.kind == "filter":
            return
        if self.budget is None:
            raise RuntimeError(NEEDS_CAP)
        if self.meter.events:
            raise RuntimeError(
                "noise and length of this run were fixed beforehand, and its price does not cover noise that is chosen "
                "later; make the scheduler, or change noise_multiplier, before the first batch is drawn"
            )
        self._open_filter(noise)

    def epsilon(self, delta: float) -> float:
        """A plan or counter: the price of what was paid for so far. A filter: its cap."""
        validate.open_unit(delta=delta)
        if self.kind == "nothing":
            return math.inf
        if self.kind == "filter":
            assert self.budget is not None
            if delta < self.budget.delta:
                raise ValueError(
                    f"delta is {delta!r}, but the cap was fixed at delta={self.budget.delta!r}; ask for that, or a larger one"
                )
            return float(self.budget.epsilon)
        return _price_all(tuple(self.events.items()), delta, self.adjacency, self._accountant)

    def stated(self, delta: float | None) -> tuple[Budget, Meter] | None:
        """The promise and the meter that keeps it, with what was paid for; None where nothing is promised."""
        if self.kind == "nothing" or not self.events:
            return None
        if isinstance(self.meter, Tally):  # taken for a plan that was fixed beforehand, which a statement has to say
            return self._as_plan(self.events, USUAL_DELTA if delta is None else delta)
        own = self.meter.budget
        if delta is None or delta == own.delta:
            return own, self.meter
        if not isinstance(self.meter, PlanMeter):
            raise ValueError(f"delta is {delta!r}, but the cap was fixed at delta={own.delta!r}; leave it out")
        return self._as_plan(self.meter.remaining + self.events, delta)

    def _as_plan(self, plan: Counter[Leaf], delta: float) -> tuple[Budget, Meter]:
        events = [Repeated(leaf, count) for leaf, count in plan.items()]
        price = _price_all(tuple(plan.items()), delta, self.adjacency, self._accountant)
        budget = Budget(price, delta, self.adjacency)
        meter = PlanMeter(budget, events, self._accountant)
        replayed(meter, [Repeated(leaf, count) for leaf, count in self.events.items()])
        return budget, meter

    def state(self) -> dict[str, Any]:
        """What was paid for, as plain data for a checkpoint."""
        return {
            "run": self.identity,
            "kind": self.kind,
            "events": [to_dict(Repeated(leaf, n)) for leaf, n in self.events.items()],
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Pay for what a checkpoint had paid for; what this run paid for itself is never taken back."""
        run, events = str(state["run"]), _events(state["events"])
        if run == self.identity:
            return
        if state.get("kind") == "nothing" and self.kind != "nothing":
            raise ValueError(
                "the checkpoint was trained with noise_multiplier=0, so that its weights keep no promise; start from others"
            )
        before = self._resumed.get(run, Counter())
        for leaf, count in (events - before).items():
            self.gate.charge(Repeated(leaf, count))
        self._resumed[run] = before | events

    @property
    def resumed(self) -> bool:
        return bool(self._resumed)


class Spent(NamedTuple):
    """What was spent."""

    ledger: LoopMeter

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """(noise multiplier, sampling rate, steps), as often as noise changed."""
        return [(*_noise_and_rate(leaf), count) for leaf, count in self.ledger.events.items()]

    def get_epsilon(self, delta: float) -> float:
        return self.ledger.epsilon(float(delta))


def _noise_and_rate(leaf: Any) -> tuple[float, float]:
    return (leaf.noise_multiplier, 1.0) if isinstance(leaf, Gaussian) else (leaf.event.noise_multiplier, leaf.rate)


def most_steps(budget: Budget, leaf: Leaf) -> int:
    """How many such events the best Renyi order lets through, at least one: from public facts, to choose that order by."""
    most = 1.0
    for order in ORDERS:
        try:
            own = currency(budget, "rdp", order=order)
        except ValueError:  # this order can hold nothing
            continue
        most = max(most, own.cap / own.cost(leaf))
    return min(int(most), MAX_STEPS)


def _events(stated: Sequence[Mapping[str, Any]]) -> Counter[Leaf]:
    return leaves([from_dict(event) for event in stated])


@lru_cache(maxsize=256)
def _price_all(counts: tuple[tuple[Leaf, int], ...], delta: float, adjacency: str, accountant: str) -> float:
    if not counts:
        return 0.0
    events = [Repeated(leaf, count) for leaf, count in counts]
    return epsilon(events, delta=delta, adjacency=adjacency, accountant=accountant)


def _price(leaf: Leaf, count: int, delta: float, adjacency: str, accountant: str) -> float:
    return _price_all(((leaf, count),), delta, adjacency, accountant)
