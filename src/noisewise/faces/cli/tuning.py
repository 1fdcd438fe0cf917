"""Settings of ``noisewise train`` that are found: ``--tune`` searches those of a file, ``--protector`` names or trains one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .main import errors

if TYPE_CHECKING:
    from ...accounts.account import Account
    from ...accounts.purse import Purse
    from ...methods import Method
    from ...tables.addresses import Place
    from ...tables.fit.fitted import Fitted
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
    """What the options ask for; None for no search."""
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


def searched(
    estimator: Estimator,
    tuning: TuningOptions,
    data: list[Place],
    reading: dict[str, Any],
    purse: Purse | Account,
    report: Callable[..., None],
) -> tuple[Fitted, str]:
    """What the winner became, and in words how it was found."""
    from ..sklearn.search import PrivateSearchCV

    search = PrivateSearchCV(estimator, tuning.candidates, how=tuning.how, jobs=tuning.jobs, size=tuning.size)
    search.watch(lambda: report("searching", 0.5, news="how many runs there are stays secret"))
    search.fit_files(data, purse=purse, **reading)
    return search.best_estimator_.fitted_, search.words_


def show_search(words: str) -> None:
    """Say how settings were chosen."""
    errors.print(f"Search: {words.rstrip('.')}.", highlight=False, markup=False, soft_wrap=True)


def with_protector(
    method: str | None, protector: str | None, share: float | None, max_grad_norm: float | None
) -> str | Method | None:
    """The method asked for; a protector is one of l2p."""
    if protector is None and share is None:
        return method
    if method not in (None, "l2p"):
        raise ValueError(f"--method is {method!r}, which has no protector; pass --method l2p, or leave --protector out")
    from ...methods.l2p import L2P, PRIVATE

    if share is not None and protector != PRIVATE:
        raise ValueError(
            "--protector-share is for a protector trained on the private records; pass --protector private"
        )
    known: dict[str, Any] = {"protector": protector, "protector_share": share, "max_grad_norm": max_grad_norm}
    return L2P(**{name: value for name, value in known.items() if value is not None})
