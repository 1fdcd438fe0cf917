"""What the runs of a search may spend, agreed before the first of them.

A method names its terms; a search prices candidates by these terms before it trains one. A method may be untrusted code and
name others later, so a run's purse accepts exactly what was agreed, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..accounts import Budget, Terms
from ..accounts.account import Account, account_of, paying, private_fit_begins
from ..accounts.budget_warnings import chosen, warn_of
from ..accounts.purse import Purse, PurseShare
from ..tables.fit.fit import Fit
from ..trusted.accountants.base import currency
from ..trusted.accountants.common import Unpriceable, unsampled
from ..trusted.accountants.gdp import mu_of
from ..trusted.accountants.selection import whole_of
from ..trusted.events import ApproximateDP, Composed, Event, leaves
from ..trusted.facts import facts_of
from ..trusted.opening import rebuilt_terms
from .candidates import Candidate


def noise_in_words(budget: Budget, promise: Budget) -> str:
    """What the price of a search means for each of its runs."""
    whole, each = mu_of(budget.epsilon, budget.delta), mu_of(promise.epsilon, promise.delta)
    return (
        f"mu = {each:.3g} instead of {whole:.3g} for one run with the whole budget, {whole / each:.2f} times the noise"
    )


@dataclass(frozen=True)
class RunPrice:
    """What a candidate's run may spend: a promise, its method's terms for it, and their price as one event."""

    promise: Budget
    terms: Terms
    event: Event

    def purse(self) -> Purse:
        return AgreedPurse(self)


class AgreedPurse(Purse):
    """Gives one share, on the agreed terms and for the agreed promise."""

    __slots__ = ("_agreed", "_given")

    def __init__(self, agreed: RunPrice) -> None:
        super().__init__(agreed.promise)
        self._agreed, self._given = agreed, False

    def part(
        self,
        terms: Terms,
        budget: Budget | None = None,
        *,
        share: float = 1.0,
        what: str = "run",
        number: int | None = None,
    ) -> PurseShare:
        if self._given or rebuilt_terms(terms) != self._agreed.terms or (budget or self.budget) != self._agreed.promise:
            raise ValueError(
                "the method names other terms than those its candidate was priced by; it must name the same"
            )
        self._given = True
        return super().part(self._agreed.terms, self._agreed.promise, what=what)  # not what the method passed


def opened(
    candidates: Sequence[Candidate], budget: Budget, purse: Purse | Account | None
) -> tuple[Purse | Account, Budget, dict[str, Any] | None]:
    """Where a search takes its budget from, how much it gets, and the account that this is a part of, as a statement has it.

    Called once for a search, before a record is touched; its runs have purses of their own, within what it pays.
    """
    fit = candidates[0].fit
    simulation = fit.seed is not None
    account = None if simulation else account_of(purse)
    if account is not None and fit.preparation is not None:
        account.paid_for(fit.preparation)
    source, promise = paying(budget, purse, simulation=simulation, persons=fit.persons is not None)
    if not simulation:
        private_fit_begins(purse)
        warn_of(budget.epsilon, budget.delta, chosen=chosen(fit.settings))
    return source, promise, None if account is None else account.describe()


def agreed(fit: Fit, promise: Budget, size: float | None) -> RunPrice:
    """The terms of a fit for a promise, and their price as one event, from public facts alone."""
    facts = facts_of(fit.model, promise, size=size, row_bound=1.0, unit=fit.unit)
    terms = rebuilt_terms(fit.method.terms(facts))
    return RunPrice(promise, terms, _event_of(fit.method.name, terms, promise))


@lru_cache(maxsize=256)
def _event_of(name: str, terms: Terms, promise: Budget) -> Event:
    """The price of terms as one event; cached, because candidates often share their terms."""
    one_shot = any(isinstance(unsampled(leaf), ApproximateDP) for leaf in leaves(terms.events))
    if terms.one_shot_delta or one_shot:
        raise Unpriceable(
            f"{name} makes its promise by one (epsilon, delta) event, which has no Renyi price; take it out of the "
            "candidates, or tune on public rows"
        )
    if terms.kind == "plan":
        return terms.events[0] if len(terms.events) == 1 else Composed(terms.events)
    return whole_of(currency(promise, terms.accountant, order=terms.order))


def all_agreed(fits: Sequence[Fit], promise: Budget, sizes: Sequence[float | None]) -> list[RunPrice]:
    return [agreed(fit, promise, size) for fit, size in zip(fits, sizes, strict=True)]


def alike(fits: Sequence[Fit], promise: Budget, sizes: Sequence[float | None]) -> list[int]:
    """One candidate for each kind of terms: those with equal events are priced together while searching."""
    firsts: dict[tuple[Terms, Event], int] = {}
    for number, one in enumerate(all_agreed(fits, promise, sizes)):
        firsts.setdefault((one.terms, one.event), number)
    return [*firsts.values()]
