"""Candidates of a search, as settings, a grid or a file, its result, and the parts that private rows are dealt into."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..accounts import Budget
from ..guest import method_named
from ..methods import Method, makes_a_promise
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


class CandidateRows(NamedTuple):
    """Rows to train on and rows to compare on, and the expected number to train on where the size is public."""

    trained: Records
    scored: Records
    expected: int | None

    def __repr__(self) -> str:
        return "CandidateRows(...)"


def known_size(fit: Fit, private: Records) -> int | None:
    """The number of records where it is public."""
    size = fit.public_size(private)
    return None if size is None else int(size)


def trained_on(candidate: Candidate, share: float) -> float | None:
    """The expected number of records to train on, where the number of all is public."""
    size = known_size(candidate.fit, candidate.private)
    return None if size is None else float(max(round((1 - share) * size), 1))


def dealt(candidate: Candidate, scored: NDArray[np.bool_], share: float = SCORED) -> CandidateRows:
    """A candidate's rows in two parts. Their sizes are secret, so sums are divided by a share of the public size."""
    rows, size = candidate.private, trained_on(candidate, share)
    expected = None if size is None else int(size)
    return CandidateRows(
        Records(rows.X[~scored], rows.y[~scored], expected, store=rows.store),
        Records(rows.X[scored], rows.y[scored], store=rows.store),
        expected,
    )


def as_candidate(fit: Fit, promise: Budget, *, run: int | None = None) -> Fit:
    """The fit of one run of a search: for its own promise, with nothing bought before, and its own seed."""
    known = fit.size_is_public or fit.unit.fixes_size(promise.adjacency)
    seed = None if fit.seed is None or run is None else fit.seed + EACH_RUN * (run + 1)
    return replace(fit, budget=promise, preparation=None, size_is_public=known, seed=seed)


def same_task(candidates: Sequence[Candidate]) -> None:
    """Refuse candidates that are not comparable, or whose promises differ."""
    if not candidates:
        raise ValueError("there are no candidates; pass at least one setting")
    first = candidates[0].fit
    for candidate in candidates:
        fit = candidate.fit
        refuse_without_torch(fit.model)  # later it would be a failed candidate, and charged
        if not makes_a_promise(fit.method):  # by its type: attributes of an object may lie
            raise ValueError(
                f"{fit.method.name} makes no promise, so it cannot be a candidate; take it out of the list"
            )
        same = (fit.seed, fit.budget.adjacency, fit.persons, fit.size_is_public, type(fit.labels))
        if same != (first.seed, first.budget.adjacency, first.persons, first.size_is_public, type(first.labels)):
            raise ValueError(
                "candidates differ in random_state, adjacency, unit or size_is_public; these are not settings to tune: "
                "set them once, in the estimator"
            )


MAX_CANDIDATES = 10_000
FIXED = {
    "epsilon", "delta", "adjacency", "random_state", "bounds", "schema", "classes", "target_bounds", "size_is_public",
    "unit", "rows_per_unit", "class_weight",
}  # fmt: skip
EXAMPLE = '[{"method": "descent"}, {"method": "additive", "max_grad_norm": 0.5}]'


def listed(candidates: Any) -> list[dict[str, Any]]:
    """Candidates as a list of settings: a list as it is, or every combination of a mapping from names to lists.

    >>> listed({"method": ["descent"], "max_grad_norm": [0.5, 1.0]})
    [{'method': 'descent', 'max_grad_norm': 0.5}, {'method': 'descent', 'max_grad_norm': 1.0}]
    """
    if isinstance(candidates, Mapping):
        lists = [_values(name, values) for name, values in candidates.items()]
        found = [dict(zip(candidates, combination, strict=True)) for combination in product(*lists)]
    elif isinstance(candidates, Iterable) and not isinstance(candidates, str | bytes):
        found = []
        for one in candidates:
            if not isinstance(one, Mapping):
                raise ValueError(f"a candidate is a {type(one).__name__}; pass settings by name, e.g. {EXAMPLE}")
            found.append(dict(one))
    else:
        raise ValueError(f"candidates is a {type(candidates).__name__}; pass a list of settings, e.g. {EXAMPLE}")
    if not 1 <= len(found) <= MAX_CANDIDATES:
        raise ValueError(f"there are {len(found)} candidates; pass from 1 to {MAX_CANDIDATES}")
    for one in found:
        for name in one:
            if name in FIXED:
                raise ValueError(f"a candidate sets {name!r}, which is no setting to tune; set it in the estimator")
    return found


def _values(name: str, values: Any) -> Sequence[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values:
        raise ValueError(f"candidates[{name!r}] is {values!r}; pass a list of values to try")
    return values


def applied(settings: Mapping[str, Any], parameters: Iterable[str], method: str | Method) -> dict[str, Any]:
    """The estimator's parameters for a candidate's settings; settings that it does not have go to the method."""
    own = {*parameters}
    values = {name: value for name, value in settings.items() if name in own}
    others = {name: value for name, value in settings.items() if name not in own}
    if not others:
        return values
    chosen = values.get("method", method)
    if isinstance(chosen, str) and chosen == "auto":
        raise ValueError(
            f"a candidate sets {', '.join(sorted(others))} of a method, but its method is 'auto'; name the method in it too"
        )
    made = method_named(chosen)
    if unknown := sorted({*others} - {*made.settings()}):
        raise ValueError(
            f"a candidate sets {unknown[0]!r}, which neither the estimator nor {made.name} has; {made.name} has "
            f"{', '.join(made.settings())}"
        )
    return {**values, "method": made.with_settings(**others)}


def read_candidates(path: Path) -> list[dict[str, Any]]:
    """Candidates from a file: TOML with [[candidate]] tables or a [grid] of lists, or JSON with a list or a grid.

    Example: ``[[candidate]]`` / ``method = "descent"`` / ``max_grad_norm = 0.5``.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); pass a file of candidates") from None
    except (ValueError, RecursionError):
        raise ValueError(
            f"{path}: is neither TOML nor JSON; write [[candidate]] tables, or {EXAMPLE} in a .json"
        ) from None
    if isinstance(data, Mapping) and path.suffix != ".json":
        if {*data} not in ({"candidate"}, {"grid"}):
            raise ValueError(
                f"{path}: has {', '.join(data) or 'nothing'}; write [[candidate]] tables, or one [grid] of lists"
            )
        data = data.get("candidate") or data.get("grid")
    try:
        return listed(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
