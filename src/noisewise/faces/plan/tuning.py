"""What it costs to tune k settings, against one run with the whole budget, worth mu in Gaussian DP.

- selection: a secret random number of runs, each with a setting drawn at random; only the best gets out (Liu & Talwar 2019,
  Papernot & Steinke 2022). Priced by Renyi DP for a geometric number of runs with mean 4 (k - 1), which tries a given setting
  with probability 0.8: P(not tried) = E[(1 - 1/k)^K] = 0.2. Among the laws that ``choose_repetitions`` compares it is the
  best or within a few hundredths of it, and one law has a price in a third of the time.
- exponential: every setting is trained, and the exponential mechanism chooses; the k runs share the budget, mu / sqrt(k).
- public: settings are compared on public rows, so that the private run has the whole budget.

A budget for which Renyi DP has no price (epsilon 0.001, say) has no selection. Both private ways must score a model on private rows: that takes ``SCORING`` of mu^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...trusted import validate
from ...trusted.accountants import gdp
from ...trusted.accountants.selection import candidate_budget
from ...trusted.accountants.terms import Budget
from ...trusted.events import TruncatedNegativeBinomial
from .expected import Expected, expected

CANDIDATES = (1, 4, 8, 16, 64)
SCORING = 0.05
NONE, SELECTION, EXPONENTIAL, PUBLIC = "none", "selection", "exponential", "public"
WORDS = {
    NONE: "no tuning",
    SELECTION: "private selection",
    EXPONENTIAL: "the exponential mechanism",
    PUBLIC: "public rows",
}


@dataclass(frozen=True, slots=True)
class Tuning:
    """A way to choose among ``candidates`` settings.

    ``mu``: what the training of one setting may spend; ``factor``: how many times as much noise that is; ``kept``: what to
    expect of a model with that noise, where simulations say so.
    """

    candidates: int
    how: str
    mu: float
    factor: float
    kept: Expected | None


def tunings(
    budget: Budget, clarity: float, columns: int | None, classes: int | None, candidates: Sequence[int] = CANDIDATES
) -> tuple[Tuning, ...]:
    """Each way for each number of settings; one setting is no tuning.

    ``clarity`` is n mu of the whole budget; ``columns`` is None where simulations say nothing.
    """
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise ValueError(f"candidates is {candidates!r}; pass numbers of settings to tune, e.g. 1,8")
    if not candidates:
        raise ValueError("candidates is empty; pass numbers of settings to tune, e.g. 1,8")
    for count in candidates:
        validate.whole(candidates=count)
    whole = gdp.mu_of(budget.epsilon, budget.delta)
    found = []
    for count in sorted(set(candidates)):
        for how, mu in _ways(budget, whole, count):
            kept = None if columns is None else expected(clarity * (mu / whole), columns, classes)
            found.append(Tuning(count, how, mu, whole / mu, kept))
    return tuple(found)


def _ways(budget: Budget, whole: float, count: int) -> list[tuple[str, float]]:
    if count == 1:
        return [(NONE, whole)]
    training, selected = math.sqrt(1 - SCORING), _selected(budget, count)
    private = [] if selected is None else [(SELECTION, training * selected)]
    return [*private, (EXPONENTIAL, training * whole / math.sqrt(count)), (PUBLIC, whole)]


@lru_cache(maxsize=256)
def _selected(budget: Budget, count: int) -> float | None:
    """What every run of a selection among so many settings may spend; None where no noise keeps it within the budget."""
    try:
        return candidate_budget(budget, TruncatedNegativeBinomial(1.0, 0.25 / (count - 1))).mu
    except ValueError:
        return None


def cheapest(ways: Sequence[Tuning], count: int) -> Tuning:
    """The private way with the least noise for so many settings."""
    private = [way for way in ways if way.candidates == count and way.how in (SELECTION, EXPONENTIAL)]
    return min(private, key=lambda way: way.factor)
