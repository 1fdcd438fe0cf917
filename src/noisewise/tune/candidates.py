"""Candidates of a search, what a search returns, and the parts that private rows are dealt into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..accounts import Budget
from ..methods import makes_a_promise
from ..tables.fit.fit import Fit, refuse_without_torch
from ..tables.fit.fitted import Fitted
from ..train import Records
from ..trusted.selection import SCORED

EACH_RUN = 1 << 66  # added to a simulation's seed, run by run


@dataclass(frozen=True, eq=False)
class Candidate:
    """One setting: what it changes, and the fit that it makes, with rows scaled as that fit takes them."""

    settings: Mapping[str, Any]
    fit: Fit
    loss_bound: float = 2.0  # of a record's loss where candidates are compared by it

    @property
    def private(self) -> Records:
        """The private rows of the fit."""
        assert self.fit.private is not None
        return self.fit.private

    def __repr__(self) -> str:
        return f"Candidate({dict(self.settings)})"


@dataclass(frozen=True, eq=False)
class Tuned:
    """What a search released: the model, which candidate it is, and in words what was done and what it cost.

    ``score`` is the winner's, bought or on public rows; ``scores`` those of all, where all are public.
    """

    fitted: Fitted
    best: int
    how: str
    words: str
    score: float | None = None
    scores: tuple[float, ...] | None = None


class Parts(NamedTuple):
    """Rows to train on and rows to compare on, and how many there are to train on if the number of all is public."""

    trained: Records
    scored: Records
    expected: int | None

    def __repr__(self) -> str:
        return "Parts(...)"


def known_size(fit: Fit, private: Records) -> int | None:
    """The number of records where it is public, as :meth:`Fit.size` has it."""
    size = fit.public_size(private)
    return None if size is None else int(size)


def trained_on(candidate: Candidate, share: float) -> float | None:
    """How many records there are to train on, expected, where the number of all is public."""
    size = known_size(candidate.fit, candidate.private)
    return None if size is None else float(max(round((1 - share) * size), 1))


def dealt(candidate: Candidate, scored: NDArray[np.bool_], share: float = SCORED) -> Parts:
    """A candidate's rows in two parts. Their sizes are secret: what sums are divided by is a share of the public size."""
    rows, size = candidate.private, trained_on(candidate, share)
    expected = None if size is None else int(size)
    return Parts(
        Records(rows.X[~scored], rows.y[~scored], expected, store=rows.store),
        Records(rows.X[scored], rows.y[scored], store=rows.store),
        expected,
    )


def as_candidate(fit: Fit, promise: Budget, *, run: int | None = None) -> Fit:
    """The fit of one run of a search: for its own promise, with nothing bought before, and a seed of its own."""
    known = fit.size_is_public or fit.unit.fixes_size(promise.adjacency)
    seed = None if fit.seed is None or run is None else fit.seed + EACH_RUN * (run + 1)
    return replace(fit, budget=promise, preparation=None, size_is_public=known, seed=seed)


def same_task(candidates: Sequence[Candidate]) -> None:
    """Refuse candidates that would not be comparable, or that make other promises than the first."""
    if not candidates:
        raise ValueError("there are no candidates; pass at least one setting")
    first = candidates[0].fit
    for candidate in candidates:
        fit = candidate.fit
        refuse_without_torch(fit.model)  # later it would count as a candidate that failed, and be paid
        if not makes_a_promise(fit.method):  # by its type: an object can say what it likes
            raise ValueError(
                f"{fit.method.name} makes no promise, so it cannot be a candidate; take it out of the list"
            )
        same = (fit.seed, fit.budget.adjacency, fit.persons, fit.size_is_public, type(fit.labels))
        if same != (first.seed, first.budget.adjacency, first.persons, first.size_is_public, type(first.labels)):
            raise ValueError(
                "candidates differ in random_state, adjacency, unit or size_is_public; these are not settings to tune: "
                "set them once, in the estimator"
            )
