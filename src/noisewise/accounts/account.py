"""One account for all private fits of a process on the same records, and a warning for fits outside of any.

Nothing here sees a record. Whether two fits use the same records is for the user to say, by the block that they stand in:
a warning that compared records would tell whether they are equal.
"""

from __future__ import annotations

import itertools
import multiprocessing
import warnings
from collections.abc import Iterator, Sequence
from decimal import ROUND_FLOOR, Context
from fractions import Fraction
from types import TracebackType
from typing import Any, Literal, NoReturn

from ..trusted.accountants.terms import MIN_DELTA, Budget, Terms
from ..trusted.counts import BudgetExhausted, NotCopied
from ..trusted.process import Process, this_process
from .purse import Purse, PurseShare, down
from .spending_file import Amount, PurseEntry

Sent = tuple[str, Process]  # the name of an account, and the process in which it was open
UnitName = Literal["record", "person"]
UNITS: tuple[UnitName, ...] = ("record", "person")
ROUNDING = Fraction(1, 10**10)  # a shortage this small comes from rounding: ten times 0.1 is more than 1 in floats
MAX_NAME_LETTERS = 100
PERSONS = ", a person protected"  # at the end of the names of runs that protect persons, as a spending file has them

_open: dict[
    Process, Account
] = {}  # by process: a forked child finds its parent's account here, and may not spend from it
_fits: dict[Process, Iterator[int]] = {}  # by process: counts the private fits outside of any account
_BORN = this_process()  # any other process with this module is a fork


class BudgetWarning(UserWarning):
    """Budgets may add up, or be larger than intended. The warning is made of public facts, and depends on no record."""


class Account(NotCopied):
    """A named budget that all private fits inside its ``with`` block share; made by :func:`noisewise.spending`.

    It stays readable after the block, and entering it again continues it. One account is open in a process at a time,
    for all of its threads: a thread that was started inside the block, as joblib starts them, would not find an account
    of its own. Entering another one meanwhile is refused; a fit can be given it as ``purse=`` instead.
    """

    __slots__ = ("_dataset", "_depth", "_purse", "_simulations", "_unit")

    def __init__(self, purse: Purse, dataset: str, unit: UnitName = "record") -> None:
        super().__init__()
        self._purse, self._dataset, self._unit = purse, dataset, unit
        self._depth = self._simulations = 0
        if any(entry.terms["what"].endswith(PERSONS) != (unit == "person") for entry in purse.entries):
            raise ValueError(
                f"the store holds runs that protect another unit than a {unit}; pass their unit, or another store"
            )

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            "an account is not copied or pickled: the copy would spend it twice; pass on the account itself"
        )

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    @property
    def dataset(self) -> str:
        """The name of the records."""
        return self._dataset

    @property
    def budget(self) -> Budget:
        """The promise of all runs together."""
        return self._purse.budget

    @property
    def unit(self) -> UnitName:
        """Whom the promise is to: a record, or a person with all rows."""
        return self._unit

    @property
    def durable(self) -> bool:
        """Whether spending is recorded where it outlives this process."""
        return self._purse.durable

    @property
    def entries(self) -> tuple[PurseEntry, ...]:
        """The runs that reserved a share; refused runs and simulations are not among them."""
        return self._purse.entries

    @property
    def simulations(self) -> int:
        """How many seeded fits there were: they are not private, their statements say so, and they took nothing."""
        return self._simulations

    @property
    def left(self) -> Budget | None:
        """The largest promise that a further run can get; None when too little is left for any answer."""
        return self.largest()

    def fitting(self, epsilon: float | None, delta: float | None) -> Budget:
        """The promise of a further run in the account's own currency: the requested one, or the largest if none was requested."""
        largest, own = self.largest(delta), self.budget
        asked = None
        if epsilon is not None:
            asked = Budget(epsilon, delta or (largest or own).delta, own.adjacency)
        if largest is None or (asked is not None and asked.epsilon > largest.epsilon):
            raise BudgetExhausted(self._shortage(None, asked, "plan"))
        return asked or Budget(float(rounded_down(largest.epsilon)), largest.delta, own.adjacency)  # as it is shown

    def largest(self, delta: float | None = None) -> Budget | None:
        """The largest promise at another ``delta``, where the account is a filter: a smaller delta allows a larger epsilon."""
        try:
            return self._purse.largest(delta=delta)
        except BudgetExhausted:
            return None

    @property
    def spent(self) -> Amount:
        """The sum of what the runs took: epsilons, or with ``terms`` the filter's currency; and deltas. No promise: that
        is the whole budget, fixed beforehand.
        """
        counted = [entry.counted for entry in self.entries]
        cost, delta = (sum(Fraction(getattr(one, name)) for one in counted) for name in ("cost", "delta"))
        return Amount(abs(down(-Fraction(cost))), abs(down(-Fraction(delta))))

    @property
    def spent_fraction(self) -> float:
        """The share that is spent or reserved."""
        return self._purse.spent_fraction

    def describe(self) -> dict[str, Any]:
        """Plain data for the statement of a run."""
        budget = self.budget
        promise = {"epsilon": float(budget.epsilon), "delta": float(budget.delta), "adjacency": budget.adjacency}
        return {"dataset": self._dataset, **promise}

    def __repr__(self) -> str:
        runs, budget = len(self.entries), self.budget
        seeded = f", {_several(self._simulations, 'simulation')} took nothing" if self._simulations else ""
        return (
            f"Account({self._dataset!r}: {self.spent_fraction:.4g} of ({budget.epsilon:g}, {budget.delta:g}) "
            f"{budget.adjacency} taken by {_several(runs, 'run')}{seeded})"
        )

    def __enter__(self) -> Account:
        self._check_process()
        with self._lock:
            if (other := _open.setdefault(self._process, self)) is not self:
                raise RuntimeError(
                    f"the account {other.dataset!r} is open in this process; leave it before entering "
                    f"{self._dataset!r}, or pass purse=account to the fits of one of them"
                )
            self._depth += 1
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if this_process() != self._process:
            return  # a forked child leaves a block that it never entered
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                del _open[self._process]

    def _check_process(self) -> None:
        if this_process() != self._process:
            raise RuntimeError(
                f"the account {self._dataset!r} belongs to another process, which would not see what is spent here; "
                "fit there, e.g. with n_jobs=1"
            )

    def admitted(self, asked: Budget, *, persons: bool) -> Budget:
        """The budget of a run that asks for ``asked``: exactly that, or what is left if the shortage is mere rounding."""
        self._check_process()
        own = self.budget
        if asked.adjacency != own.adjacency:
            raise ValueError(
                f"the run is under {asked.adjacency}, the account {self._dataset!r} under {own.adjacency}; pass "
                f"adjacency={own.adjacency!r}, or open an account under {asked.adjacency}"
            )
        unit = UNITS[persons]
        if unit != self._unit:
            raise ValueError(
                f"the run protects a {unit}, the account {self._dataset!r} a {self._unit}; open an account with "
                f"unit={unit!r}: the two do not add up"
            )
        if self._purse.filtered:
            return asked
        cost, delta = self._purse.left
        return Budget(_nearly(asked.epsilon, cost), max(_nearly(asked.delta, delta), MIN_DELTA), own.adjacency)

    def part(
        self,
        terms: Terms,
        budget: Budget | None = None,
        *,
        share: float = 1.0,
        what: str = "run",
        number: int | None = None,
    ) -> PurseShare:
        """Reserve a run on these terms, as :meth:`Purse.part` does; a run that does not fit is refused with a message for users."""
        self._check_process()
        try:
            of = PERSONS if self._unit == "person" else ""
            return self._purse.part(terms, budget, share=share, what=f"{what}{of}", number=number)
        except BudgetExhausted:
            raise BudgetExhausted(self._shortage(terms, budget, what)) from None
        except ValueError as error:
            if not self._purse.filtered:
                raise
            raise ValueError(f"{error} (the account {self._dataset!r}: without terms= it takes any method)") from None

    def check(self, runs: Sequence[tuple[Terms, Budget, str]]) -> None:
        """Refuse runs, given by terms, promise and name, that would not all fit; nothing is reserved.

        So that nothing is bought for a run that cannot be paid for.
        """
        for number in range(1, len(runs) + 1):
            try:
                self._purse.check([(terms, budget) for terms, budget, _ in runs[:number]])
            except BudgetExhausted:
                terms, budget, what = runs[number - 1]
                text = self._shortage(terms, budget, what)
                before = " and ".join(what for _, _, what in runs[: number - 1])
                raise BudgetExhausted(
                    f"{text} ({before} before it included; nothing was bought)" if before else text
                ) from None

    def _shortage(self, terms: Terms | None, asked: Budget | None, what: str) -> str:
        left, own = self.left, self.budget
        text = f"the account {self._dataset!r} of ({own.epsilon:g}, {own.delta:g}) has "
        text += "nothing" if left is None else f"({rounded_down(left.epsilon)}, {rounded_down(left.delta)})"
        text += f" left, and this {what.split()[0]} asks for {'more' if asked is None else f'({asked.epsilon:g}, {asked.delta:g})'}; "
        if left is None:
            return text + "stop here: what was released so far keeps the promise"
        if not self._purse.filtered:
            return f"{text}a run of {_at_most(left)} would fit"
        currency = self._purse.currency  # of runs that pay what they are charged in the account's currency
        kind = "a full-batch adaptive method (auto, descent)" if currency == "gdp" else f"a run metered in {currency}"
        full = f"{kind} of {_at_most(self.largest(None if asked is None else asked.delta) or left)} would fit"
        if terms is None or not self._purse.by_promise(terms):
            return text + full
        return f"{text}{self._of_promises(asked or own)}; {full}"

    def _of_promises(self, asked: Budget) -> str:
        """In words, what would fit of a run that counts as its promise: sampled batches, one-shot methods, searches."""
        share = down(self._purse.left[1])
        text = "it counts as the (epsilon, delta) that it promises, "
        if (fits := self._purse.largest_promise(asked.delta)) is None:
            return f"{text}and {rounded_down(share)} of the share of delta for such runs is left, so that none fits"
        return f"{text}of which {_at_most(fits)} would fit"

    def simulated(self) -> None:
        """Count a seeded fit, which takes nothing."""
        if this_process() == self._process:
            with self._lock:
                self._simulations += 1

    def paid_for(self, preparation: Any) -> None:
        """Refuse bounds that were bought elsewhere: a statement would add their price to the promise of the run."""
        for entry in self.entries:
            if all(entry.terms[name] == preparation[name] for name in ("epsilon", "delta", "meter")):
                return
        raise ValueError(
            f"the bounds of this fit were not bought in the account {self._dataset!r}; buy them inside its block, too"
        )


def account_of(purse: Purse | Account | None) -> Account | None:
    """The account that pays for a run: the given one, or without any purse the open one."""
    if isinstance(purse, Account):
        return purse
    if purse is not None:
        if not isinstance(purse, Purse):  # otherwise the fit would silently not be paid by the open account
            raise TypeError(
                f"purse is a {type(purse).__name__}; pass a Purse or an account, or leave it out to spend from the open one"
            )
        return None
    return _open.get(this_process()) or next(iter(_open.values()), None)


def paying(
    budget: Budget, purse: Purse | Account | None, *, simulation: bool, persons: bool
) -> tuple[Purse | Account, Budget]:
    """What pays for a run, and its budget; called once for each run, before a record is touched."""
    account = account_of(purse)
    if account is not None and not simulation:
        return account, account.admitted(budget, persons=persons)
    if account is not None:
        account.simulated()
    return (purse if isinstance(purse, Purse) else Purse(budget)), budget


def private_fit_begins(purse: Purse | Account | None) -> None:
    """Count a private fit outside of any account and warn once: at the second one, in a worker process at the first."""
    if purse is not None or account_of(None) is not None:
        return
    worker = multiprocessing.parent_process() is not None or this_process() != _BORN
    number = next(_fits.setdefault(this_process(), itertools.count(1)))
    if number == (1 if worker else 2):
        where = "in a worker process, which counts by itself" if worker else "the second private fit of this process"
        warnings.warn(
            f"budgets add up where the records are the same, and this is {where}; pay for all fits on them inside `with "
            "nw.spending(epsilon, delta, dataset=...):` in one process, or search with PrivateSearchCV",
            BudgetWarning,
            stacklevel=2,
        )


def sent_from(earlier: Sent | None) -> Sent | None:
    """The open account and its process, for an estimator that is pickled inside the block to remember.

    ``earlier``: what it remembers already, which stays when it is sent on by the process that it was sent to.
    """
    if (account := _open.get(this_process())) is not None:
        return account.dataset, this_process()
    return earlier if earlier is not None and earlier[1] != this_process() else None


def refuse_elsewhere(sent: Sent | None) -> None:
    """Refuse to fit an estimator that was sent from inside an account to another process, such as a worker of joblib."""
    if sent is not None and sent[1] != this_process():
        raise RuntimeError(
            f"this estimator was sent to another process from inside the account {sent[0]!r}, which cannot count what is "
            "spent here; fit in one process, e.g. with n_jobs=1"
        )


def named(dataset: str) -> None:
    """Refuse anything but a plain name of a data set."""
    if not isinstance(dataset, str) or not name_is_plain(dataset):
        raise ValueError(f"dataset is not a name; pass one line of at most {MAX_NAME_LETTERS} letters")


def name_is_plain(dataset: str) -> bool:
    """Whether a name is one line that a statement can quote."""
    return 0 < len(dataset) <= MAX_NAME_LETTERS and dataset.isprintable() and dataset == dataset.strip()


def _nearly(asked: float, left: Fraction) -> float:
    """The requested amount, or what is left if the difference is mere rounding."""
    lack = Fraction(float(asked)) - left
    return down(left) if 0 < lack <= Fraction(float(asked)) * ROUNDING else asked


def _at_most(promise: Budget) -> str:
    return f"at most epsilon={rounded_down(promise.epsilon)} and delta={rounded_down(promise.delta)}"


def rounded_down(value: float) -> str:
    """A number rounded down to six digits, so that what fits also fits as it is shown."""
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).create_decimal(repr(value))):g}"


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
