"""``noisewise train --tune``: a search among the settings of a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .main import errors
from .request import TrainingOptions, loss_of, of_classes

if TYPE_CHECKING:
    from ...accounts.account import Account
    from ...accounts.purse import Purse
    from ...tables.addresses import Place
    from ...tables.fit.fitted import Fitted
    from ...tables.schema import Schema
    from ..sklearn import PrivateClassifier, PrivateRegressor

    Estimator = PrivateClassifier | PrivateRegressor

HOW = ("auto", "public", "selection", "exponential", "online", "none")
EXAMPLE = '[[candidate]]\nmethod = "descent"\nmax_grad_norm = 0.5'


@dataclass(frozen=True)
class TuningOptions:
    """How to search, and among which settings."""

    how: str
    candidates: list[dict[str, Any]]
    jobs: int = 1
    size: int | None = None


def tuning_of(how: str | None, candidates: Path | None, jobs: int, size: int | None) -> TuningOptions | None:
    """The search that the options ask for; None for no search."""
    from ...tune.candidates import read_candidates

    if how is None:
        if candidates is not None:
            raise ValueError("--candidates is a list to search; pass --tune too, e.g. --tune selection")
        return None
    if how not in HOW:
        raise ValueError(f"--tune is {how!r}; pass one of {', '.join(HOW)}")
    if candidates is None:
        raise ValueError("--candidates is missing; pass a file of settings to search, see noisewise train --help")
    return TuningOptions(how, read_candidates(candidates), jobs, size)


def unfitted(asked: TrainingOptions, schema: Schema) -> Estimator:
    """The estimator whose settings are searched: a classifier for classes, a regressor for a number."""
    from ..sklearn import PrivateClassifier, PrivateRegressor

    face = PrivateClassifier if of_classes(schema) else PrivateRegressor
    return face(
        asked.epsilon, asked.delta, adjacency=asked.adjacency, method=asked.chosen, loss=loss_of(asked, schema), model=asked.layers,
        max_grad_norm=asked.max_grad_norm, size_is_public=asked.size_is_public, isolation=asked.isolation, schema=schema,
        random_state=asked.seed,
    )  # fmt: skip


def searched(
    estimator: Estimator,
    tuning: TuningOptions,
    data: list[Place],
    reading: dict[str, Any],
    purse: Purse | Account,
    report: Callable[..., None],
) -> tuple[Fitted, str]:
    """The fitted winner of the search, and how it was found, in words."""
    from ..sklearn.search import PrivateSearchCV

    search = PrivateSearchCV(estimator, tuning.candidates, how=tuning.how, jobs=tuning.jobs, size=tuning.size)
    search.watch(lambda: report("searching", 0.5, news="how many runs there are stays secret"))
    search.fit_files(data, purse=purse, **reading)
    return search.best_estimator_.fitted_, search.words_


def show_search(words: str) -> None:
    """Say how settings were chosen."""
    errors.print(f"Search: {words.rstrip('.')}.", highlight=False, markup=False, soft_wrap=True)
