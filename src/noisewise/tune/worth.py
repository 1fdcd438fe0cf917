"""Whether a search is worth its price, and which: decided from public numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

from ..accounts import Budget
from ..trusted.accountants.gdp import mu_of
from ..trusted.accountants.selection import candidate_budget
from .selection import law_for

MIN_CLARITY = 4000.0  # n mu of a run from which more noise costs little
PUBLIC_ROWS = 400  # from which a search on public rows tells settings apart


@dataclass(frozen=True)
class Advice:
    """Which search to take, and why, with the numbers that decided."""

    how: str
    words: str


def advised(budget: Budget, candidates: int, *, public: int, size: float | None) -> Advice:
    """Public rows where there are enough; private selection where its runs still have little noise; else no search.

    ``size``: the number of records, as far as it is public or guessed.
    """
    if candidates == 1:
        return Advice("none", "there is one candidate only; it gets the whole budget")
    if public >= PUBLIC_ROWS:
        return Advice("public", f"{public} public rows are enough to compare {candidates} candidates on, for nothing")
    halved = 2 if budget.adjacency == "replace_one" else 1
    whole = mu_of(budget.epsilon, budget.delta) / halved
    each = candidate_budget(budget, law_for(budget, candidates)).mu / halved
    price = (
        f"private selection among {candidates} candidates would leave each run mu = {each:.3g} instead of {whole:.3g}, "
        f"{whole / each:.2f} times the noise"
    )
    few = f"{public} public rows are too few to compare on; " if public else ""
    if size is None:
        return Advice(
            "none",
            f"{few}{price}, and nobody has said how many records there are (size=, --size-guess); the first candidate gets the whole budget",
        )
    if size * each < MIN_CLARITY:
        return Advice(
            "none",
            f"{few}{price}: records x mu = {size * each:,.0f}, below {MIN_CLARITY:,.0f}, where noise costs more than settings "
            "usually bring; the first candidate gets the whole budget",
        )
    return Advice(
        "selection",
        f"{few}{price}: records x mu = {size * each:,.0f}, at least {MIN_CLARITY:,.0f}, where that costs little",
    )
