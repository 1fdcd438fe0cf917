"""``PrivateSearchCV``: scikit-learn's habits, with the price of searching paid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ...accounts import Budget
from ...accounts.account import Account
from ...accounts.paying import payer
from ...accounts.purse import Purse
from ...statements.statement import Statement
from ...tables.file_pieces import Pinned
from ...tables.files import find_files
from ...tables.fit.fit import Fit
from ...tables.persons import Mask
from ...train import Records
from ...trusted import validate
from ...trusted.events import Repetitions
from ...trusted.selection import SCORED, SCORINGS
from ...tune import exponential, selection
from ...tune.candidates import Candidate, Tuned, applied, known_size, listed
from ...tune.public import public_scores
from ...tune.runs import Bill, in_words, stated
from ...tune.searches import advised, online
from .checks import refuse_others, warn_in_pipeline
from .estimator_base import PrivateEstimator

if TYPE_CHECKING:
    from ...accounts.ledger import Ledger

Prepare = Callable[[PrivateEstimator, Mask | None], Fit]  # with the rows of persons that count, once they are chosen
HOW = ("auto", "public", "selection", "exponential", "online", "none")


def _best_has(name: str) -> Callable[[Any], bool]:
    return lambda search: hasattr(getattr(search, "best_estimator_", search.estimator), name)


class PrivateSearchCV(MetaEstimatorMixin, BaseEstimator):
    """The best of several settings of a private estimator, for one budget that pays for the search too.

    Parameters
    ----------
    estimator
        A :class:`PrivateClassifier` or :class:`PrivateRegressor`; all that is not tuned is set in it.
    candidates
        A list of settings, e.g. ``[{"method": "descent"}, {"method": "descent", "max_grad_norm": 0.5}]``, or
        ``{"max_grad_norm": [0.1, 0.5, 1.0]}`` for all combinations. Parameters of the estimator, or settings of its method.
        Written down before the private rows are seen.
    budget
        A :class:`Budget` for everything; None takes the estimator's epsilon and delta.
    how
        "auto", "public" (on public rows, free), "selection" (private selection: a secret number of runs, one released),
        "exponential" (every candidate trained once, the best chosen by the exponential mechanism), "online" (one run that
        moves its clip norm and step size by what it has released, from the first candidate's), or "none" (the first
        candidate with the whole budget).
    scoring
        What "exponential" compares on private rows: "error" (wrong answers, squared errors) or "loss" (the model's
        loss, cut at a candidate's ``loss_bound``, 2 unless it says otherwise).
    jobs
        Processes that train side by side on one mapped copy of the rows. Which order they end in is not shown.
    size
        How many records there are, as far as anybody may know; "auto" and "public" plan by it.
    share
        Of the records, which private searches compare on and do not train on; drawn by secret coins.
    repetitions
        The distribution of the number of runs of a selection; None leaves it to a rule.
    search
        How public rows are searched: "all", "random", "halving" or "optuna" (``noisewise[tune]``).
    trials
        How many candidates are tried on public rows.
    repeats
        Over how many splits of public rows a candidate is tried.

    Notes
    -----
    After ``fit``: ``best_estimator_``, ``best_params_``, ``best_index_``, ``best_score_`` (a released or public score, or
    None), ``cv_results_`` (the settings, and scores where these are public), ``how_``, ``words_``, ``statement_``.

    Examples
    --------
    >>> import numpy as np
    >>> from noisewise import PrivateClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 3)); y = X[:, 0] > 0.2
    >>> model = PrivateClassifier(3.0, 1e-6, bounds=(-1, 1), method="descent", random_state=0)
    >>> search = PrivateSearchCV(model, {"max_grad_norm": [1e-3, 1.0]}, how="selection").fit(X, y)
    >>> search.statement_.data["tuning"]["how"], search.score(X, y) > 0.8
    ('selection', True)
    """

    def __init__(
        self,
        estimator: PrivateEstimator,
        candidates: Any,
        budget: Budget | None = None,
        how: str = "auto",
        *,
        scoring: str = "error",
        jobs: int = 1,
        size: float | None = None,
        share: float = SCORED,
        repetitions: Repetitions | None = None,
        search: str = "all",
        trials: int | None = None,
        repeats: int = 3,
    ) -> None:
        self.estimator = estimator
        self.candidates = candidates
        self.budget = budget
        self.how = how
        self.scoring = scoring
        self.jobs = jobs
        self.size = size
        self.share = share
        self.repetitions = repetitions
        self.search = search
        self.trials = trials
        self.repeats = repeats

    def watch(self, beat: Callable[[], None] | None) -> Self:
        """Call ``beat()`` for each run of an exponential search; once for a selection, where more would tell how many there are."""
        self._beat = beat
        return self

    def fit(
        self,
        X: Any,
        y: Any,
        public: Any = None,
        *,
        task: Any = None,
        purse: Purse | Account | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        **others: Any,
    ) -> Self:
        """Search and train on private rows; ``public`` is a pair (X, y) of public rows, ``purse`` where the budget is from,
        or the account of ``dataset`` in a ``ledger``.

        ``task``: a pair (X, y) of a public task of the same shape, to search on and not to train with.
        """

        refuse_others(others, weighs=hasattr(self.estimator, "class_weight"))
        warn_in_pipeline(self)

        def ready(face: PrivateEstimator, counted: Mask | None) -> Fit:
            return face.ready(X, y, public, counted=counted)

        def shown(face: PrivateEstimator, counted: Mask | None) -> Records | None:
            return face.ready(X, y, task, counted=counted).public

        return self._searched(ready, payer(purse, ledger, dataset), None if task is None else shown)

    def fit_files(
        self,
        paths: Any,
        *,
        purse: Purse | Account | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        **reading: Any,
    ) -> Self:
        """Search and train on files, read as :meth:`PrivateEstimator.ready_files` does."""
        pins: list[Pinned] = []

        def ready(face: PrivateEstimator, counted: Mask | None) -> Fit:
            if counted is None:
                pins.append(Pinned(find_files(paths)))
            one = face.ready_files(paths, counted=counted, **reading)
            pins[-1].check()  # rows that count were chosen once, for all candidates
            return one

        return self._searched(ready, payer(purse, ledger, dataset))

    def _searched(
        self,
        ready: Prepare,
        purse: Purse | Account | None,
        task: Callable[[PrivateEstimator, Mask | None], Records | None] | None = None,
    ) -> Self:
        """``task``: what makes rows of a public task for a candidate, to search on and not to train with."""
        validate.one_of(HOW, how=self.how)
        validate.open_unit(share=self.share)
        validate.whole(jobs=self.jobs)
        validate.one_of(SCORINGS, scoring=self.scoring)
        if not isinstance(self.estimator, PrivateEstimator):
            raise ValueError("estimator is not one of noisewise's; pass a PrivateClassifier or a PrivateRegressor")
        settings = listed(self.candidates)
        faces = [self._face(one) for one in settings]
        made = _prepared(faces, ready)
        candidates = [
            Candidate(one, each, float(one.get("loss_bound", 2.0))) for one, each in zip(settings, made, strict=True)
        ]
        shown = [one.public for one in made]
        if task is not None:
            shown = _shared(made, [task(face, _counted(one)) for face, one in zip(faces, made, strict=True)])
        tuned = self._tuned(candidates, shown, purse, handed=task is None)
        return self._become(faces, settings, tuned)

    def _face(self, settings: dict[str, Any]) -> PrivateEstimator:
        face: Any = clone(self.estimator)
        own = {name: value for name, value in settings.items() if name != "loss_bound"}
        face.set_params(**applied(own, face.get_params(deep=False), face.method))
        if self.budget is not None:
            face.set_params(epsilon=self.budget.epsilon, delta=self.budget.delta, adjacency=self.budget.adjacency)
        return face

    def _tuned(
        self,
        candidates: list[Candidate],
        shown: list[Records | None],
        purse: Purse | Account | None,
        *,
        handed: bool,
    ) -> Tuned:
        """``shown``: the public rows of each candidate; ``handed``: whether its private run will be given them."""
        budget = candidates[0].fit.training_budget()  # all, less what was paid for bounds before
        known = known_size(candidates[0].fit, candidates[0].private)
        size = self.size if known is None else float(known)
        how, why = self.how, ""
        if how == "auto":
            public = 0 if shown[0] is None else len(shown[0].y)
            advice = advised(budget, len(candidates), public=public, size=size)
            how, why = advice.how, advice.words
        if how == "public":
            return self._on_public_rows(candidates, shown, size, handed=handed, purse=purse)
        if how == "online":
            return _online(candidates, budget, purse)
        beat = getattr(self, "_beat", None)
        if how == "selection":
            return selection.select(
                candidates,
                budget,
                purse=purse,
                repetitions=self.repetitions,
                share=self.share,
                jobs=self.jobs,
                beat=beat,
            )
        if how == "exponential":
            return exponential.choose(
                candidates, budget, purse=purse, scoring=self.scoring, share=self.share, jobs=self.jobs, beat=beat
            )
        return _without_search(candidates, budget, purse, why or "no search; the first candidate has the whole budget")

    def _on_public_rows(
        self,
        candidates: list[Candidate],
        rows: list[Records | None],
        size: float | None,
        *,
        handed: bool,
        purse: Purse | Account | None,
    ) -> Tuned:
        """Search for nothing, then train the best with the whole budget."""
        if any(one is None for one in rows):
            raise ValueError(
                "public is missing; how='public' compares candidates on public rows, pass them, or task=(X, y)"
            )
        found = public_scores(
            [one.fit for one in candidates],
            cast(list[Records], rows),
            size=size,
            search=self.search,
            trials=self.trials,
            repeats=self.repeats,
            handed=handed,
        )
        best = candidates[found.best]
        fitted = best.fit.run(purse=purse)
        bill = Bill("public", in_words(candidates), best.fit.training_budget(), found.words.rstrip("."))
        tuned = stated(fitted, bill, candidates, found.best)
        return Tuned(tuned, found.best, "public", found.words, found.scores[found.best], found.scores)

    def _become(self, faces: list[PrivateEstimator], settings: list[dict[str, Any]], tuned: Tuned) -> Self:
        best = faces[tuned.best]
        best.become(tuned.fitted)
        self.best_estimator_, self.best_index_, self.best_params_ = best, tuned.best, settings[tuned.best]
        self.best_score_, self.how_, self.words_ = tuned.score, tuned.how, tuned.words
        self.statement_: Statement = tuned.fitted.statement
        self.cv_results_: dict[str, Any] = {"params": settings}
        if tuned.scores is not None:
            self.cv_results_["mean_test_score"] = np.array(tuned.scores)
        if hasattr(best, "classes_"):
            self.classes_ = best.classes_
        self.n_features_in_ = best.n_features_in_
        return self

    def predict(self, X: Any) -> Any:
        """What the best estimator predicts."""
        return self._best().predict(X)

    @available_if(_best_has("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the best estimator."""
        return self._best().predict_proba(X)

    @available_if(_best_has("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Scores of the best estimator."""
        return self._best().decision_function(X)

    def score(self, X: Any, y: Any) -> float:
        """The best estimator's score on rows with labels. Not private."""
        return float(self._best().score(X, y))

    def _best(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_beat", None)
        return state


def _prepared(faces: list[PrivateEstimator], ready: Prepare) -> list[Fit]:
    """Every candidate's fit and rows; candidates that scale rows alike share them.

    Which rows of a person count is chosen once for all: coins that deal rows into parts go by place, so candidates must
    have the same records at the same places, or no coins would be those of both neighbours.
    """
    made: list[Fit] = []
    for face in faces:
        one = ready(face, _counted(made[0]) if made else None)
        same = next((other for other in made if _alike(one, other)), one)
        made.append(replace(one, private=same.private, public=same.public))
    return made


def _counted(fit: Fit) -> Mask | None:
    """Which rows of persons count."""
    return None if fit.private is None else fit.private.counted


def _shared(made: list[Fit], tasks: list[Records | None]) -> list[Records | None]:
    """Rows of the public task, which candidates share that scale rows alike."""
    first = [
        next(j for j, other in enumerate(made[: i + 1]) if j == i or _alike(one, other)) for i, one in enumerate(made)
    ]
    return [tasks[j] for j in first]


def _alike(one: Fit, other: Fit) -> bool:
    assert one.private is not None and other.private is not None
    return (
        type(one.scaling) is type(other.scaling)
        and one.private.X.shape == other.private.X.shape
        and one.private.y.dtype == other.private.y.dtype
        and one.labels.__class__ is other.labels.__class__
        and getattr(one.labels, "numbered", None) == getattr(other.labels, "numbered", None)
    )


def _online(candidates: list[Candidate], budget: Budget, purse: Purse | Account | None) -> Tuned:
    first = candidates[0]
    fit, words = online(first.fit)
    fitted = fit.run(purse=purse)
    bill = Bill("online", in_words(candidates[:1]), budget, words.rstrip("."))
    return Tuned(stated(fitted, bill, candidates[:1], 0), 0, "online", words)


def _without_search(candidates: list[Candidate], budget: Budget, purse: Purse | Account | None, words: str) -> Tuned:
    first = candidates[0]
    fitted = first.fit.run(purse=purse)
    bill = Bill("none", in_words(candidates), budget, words)
    return Tuned(stated(fitted, bill, candidates, 0), 0, "none", words)
