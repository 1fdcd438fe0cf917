"""Runs of a search, one by one or in processes: train on one part of the rows, score on the other; and the winner's statement."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..accounts import Budget, Meter, Terms
from ..accounts.account import BudgetWarning
from ..asking import Correct, Curator, SquaredError
from ..evidence.bought_quality import scored_by
from ..methods.preparation.choices import parts_of
from ..statements.reading_list import USES, also
from ..statements.statement import promised, worded
from ..tables.fit.build import SETTINGS
from ..tables.fit.fit import Fit, as_labels
from ..tables.fit.fitted import Fitted
from ..tables.fit.labels import Classes
from ..train import Records
from ..trusted.accountants.gdp import cost, epsilon_of
from ..trusted.arithmetic import Arithmetic
from ..trusted.events import Gaussian, Repeated, to_dict
from ..trusted.opening import open_meter
from .candidates import Candidate, CandidateRows, as_candidate
from .price import RunPrice

SCORING_STREAM = 1 << 67
MIN_MAPPED_BYTES = 1 << 20  # of rows, from which processes share one mapped copy
SHARED, ROOM = "/dev/shm", 2 << 30  # bytes free, from which rows are kept in memory


@dataclass(frozen=True, eq=False)
class CandidateRun:
    """The input of one run; ``score`` is the noise of its score, None where nothing is scored."""

    fit: Fit
    agreed: RunPrice
    scored: Records
    score: Gaussian | None

    @classmethod
    def of(
        cls, candidate: Candidate, agreed: RunPrice, parts: CandidateRows, number: int, score: Gaussian | None = None
    ) -> CandidateRun:
        """Run ``number``: a candidate as it was agreed on, on its parts of the rows."""
        fit = as_candidate(candidate.fit, agreed.promise, run=number).on(parts.trained, candidate.fit.public)
        return cls(fit, agreed, parts.scored, score)

    def __repr__(self) -> str:
        return "CandidateRun(...)"


@dataclass(frozen=True, eq=False)
class Outcome:
    """A fitted model with its score, larger is better; None for a failed run, which counts as worst."""

    fitted: Fitted | None
    score: float = -np.inf

    def __repr__(self) -> str:
        return "Outcome(...)"


def outcome(run: CandidateRun) -> Outcome:
    """Train and score. A failure of any kind is an outcome, because it must not be seen that there was one.

    Warnings are hidden too: counted, they would tell how many runs there were.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", BudgetWarning)  # of other threads: no run gives one
            fitted = run.fit.run(purse=run.agreed.purse())
            return Outcome(fitted, 0.0 if run.score is None else noisy_score(fitted, run))
    except Exception:
        return Outcome(None)


def noisy_score(fitted: Fitted, run: CandidateRun) -> float:
    """Right answers less wrong ones, over two, or minus squared errors: a sum over the rows that were not trained on.

    *Guarantee*: one question to a curator of those rows, for exactly the Gaussian that was priced.
    """
    assert run.score is not None
    promise, model = run.agreed.promise, scored_by(fitted)
    meter = open_meter(_enough(run.score, promise), Terms.plan(run.score, "gdp"))
    curator = Curator(
        run.scored.X,
        as_labels(run.scored.y, model),
        model=model,
        meter=meter,
        size=1.0,  # sums are compared, not means
        row_bound=1.0,
        seed=None if run.fit.seed is None else run.fit.seed + SCORING_STREAM,
        store=run.scored.store,
        rows_per_unit=run.fit.unit.rows,
    )
    if fitted.made is not None:
        curator.prepare(fitted.made)
    theta = tuple(float(entry) for entry in fitted.theta.tolist())
    sorts = isinstance(fitted.labels, Classes)
    question = Correct(theta) if sorts else SquaredError(theta)
    answer = float(curator.statistic(question, noise_multiplier=run.score.noise_multiplier).value)
    return answer if sorts else -answer


def _enough(event: Gaussian, promise: Budget) -> Budget:
    """A budget in which the event just fits: the whole search has paid for it already."""
    epsilon = epsilon_of(cost(event, promise.adjacency) ** 0.5 * (1 + 1e-6), promise.delta)
    return replace(promise, epsilon=max(epsilon, 1e-9) * (1 + 1e-6))


def outcomes(runs: Sequence[CandidateRun], jobs: int, beat: Callable[[], None] | None = None) -> Iterator[Outcome]:
    """The outcome of each run, one after the other, or by ``jobs`` processes that share one mapped copy of the rows.

    ``beat`` is called for each run, so that searches whose number of runs is a secret do without it.
    """
    if jobs == 1 or len(runs) < 2:
        for run in runs:
            if beat is not None:
                beat()
            yield outcome(run)
        return
    from joblib import Parallel, delayed

    # processes of this machine, whatever joblib is set to: another backend would send the rows to others, or run in threads
    options: dict[str, Any] = {"backend": "loky", "max_nbytes": MIN_MAPPED_BYTES, "mmap_mode": "r", "verbose": 0}
    with _folder() as own:
        work: Any = Parallel(n_jobs=jobs, return_as="generator", temp_folder=own, **options)
        for done in work(delayed(outcome)(run) for run in runs):
            if beat is not None:
                beat()
            yield done


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for mapped rows that no other user can read: file sizes there tell how many records were dealt."""
    roomy = os.access(SHARED, os.W_OK) and shutil.disk_usage(SHARED).free >= ROOM
    return tempfile.TemporaryDirectory(prefix="noisewise-", dir=SHARED if roomy else None, ignore_cleanup_errors=True)


LISTED = "the list of candidate settings, written down without the private rows"
CHOSEN = {
    "selection": "chosen among candidates by private selection on the private records, whose price is part of the promise",
    "exponential": "chosen among candidates by the exponential mechanism on the private records, all runs charged",
    "public": "chosen on public rows, which costs nothing",
    "online": "moved during the run from what it had released, which its meter covers",
    "none": "the first candidate's; no search was made",
}


@dataclass(frozen=True, eq=False)
class Bill:
    """How settings were chosen, among which candidates, and the meter that paid for it; None if it was free."""

    how: str
    settings: tuple[str, ...]
    budget: Budget
    words: str
    meter: Meter | None = None
    account: Mapping[str, Any] | None = None


def in_words(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """The settings of each candidate, as a statement lists them."""
    return tuple(json.dumps(dict(candidate.settings), default=str, sort_keys=True) for candidate in candidates)


def stated(
    fitted: Fitted, bill: Bill, candidates: Sequence[Candidate], best: int, agreed: RunPrice | None = None
) -> Fitted:
    """The model with the statement of the search that found it."""
    data: dict[str, Any] = dict(fitted.statement.data)
    candidate = candidates[best]
    tuning: dict[str, Any] = {
        "how": bill.how,
        "candidates": len(bill.settings),
        "settings": list(bill.settings),
        "price": None,
        "words": bill.words,
        "run": None,
    }
    if bill.meter is not None and agreed is not None:
        before = candidate.fit.preparation
        tuning["price"] = {"epsilon": bill.budget.epsilon, "delta": bill.budget.delta}
        tuning["run"] = {
            "epsilon": agreed.promise.epsilon,
            "delta": agreed.promise.delta,
            "meter": data["meter"],
            "events": data["events"],
        }
        data |= {
            "promise": promised(bill.budget, before, candidate.fit.unit),
            "preparation": None if before is None else dict(before),
            "meter": bill.meter.describe(),
            "events": [to_dict(Repeated(leaf, count)) for leaf, count in bill.meter.events.items()],
        }
        if bill.account is not None:
            data["account"] = dict(bill.account)
        plan = tuning["run"]["meter"]["meter"] == "plan"
        if prepared := parts_of(fitted.trace, fitted.made, bounds=before, plan=plan):
            data["prepared"] = prepared
        if "arithmetic" in data:
            data["arithmetic"] = _arithmetic(data["arithmetic"], candidates)
        data["assumed"] = [LISTED if words == SETTINGS else words for words in data["assumed"]]
    data |= {"tuning": tuning, "hyper_parameters": CHOSEN[bill.how]}
    if "code" in data and bill.how in USES:
        data["code"] = also(data["code"], bill.how)
    whole = candidate.fit.budget if candidate.fit.preparation is not None else bill.budget
    settings = {**fitted.settings, "epsilon": whole.epsilon, "delta": whole.delta}
    return replace(fitted, statement=worded(data), settings=settings)


def _arithmetic(own: Mapping[str, Any], candidates: Sequence[Candidate]) -> dict[str, Any]:
    """The grade of the winner, or the worst that a run of any candidate may have had: by the list, which is public."""
    arithmetic = Arithmetic(own["grade"], tuple(own["assumptions"]))
    for fit in (candidate.fit for candidate in candidates):
        if not (fit.model.linear or fit.model.table) or fit.method.whole is not None:
            arithmetic = arithmetic.bounded(
                "runs of other candidates, not released, had parts in floats, with a margin"
            )
    return arithmetic.to_dict()
