"""Every method on public rows, at a budget and a private size that are yours: an estimate before any record is touched.

Each repeat splits the public rows anew into test rows, a few rows that act as public ones for the methods that need
them, and the rest, from which ``size`` rows are drawn with replacement to stand for the private records. So many equal
rows make an estimate of the noise's cost, not of what a larger sample would teach.

*Guarantee*: none is needed, as no private record is read. Runs are seeded simulations with a public size.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ...accounts import Budget
from ...evidence.metrics import ABOUT_95, NAMES, class_figures, of_numbers
from ...guest import method_named
from ...methods import known_names
from ...tables.fit.labels import Classes
from ...trusted import validate
from ...trusted.events import Adjacency
from ...trusted.losses import USUAL
from ..sklearn import PrivateClassifier, PrivateRegressor
from .outcome import METRICS, MIN_REPEATS, Row, ranked

Array = NDArray[Any]
Report = Callable[[int, int], None]
TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Settings:
    """What all simulated runs share; public, and small enough to send to every process."""

    task: str
    epsilon: float
    delta: float
    adjacency: str
    size: int
    loss: Any
    model: Any
    bounds: Any
    classes: Any
    target_bounds: Any
    public_share: float
    seed: int


class RepeatRows(NamedTuple):
    """Row numbers of one repeat."""

    private: NDArray[np.int64]  # with repeats: drawn with replacement
    public: NDArray[np.int64]
    test: NDArray[np.int64]
    seed: int


class RepeatScore(NamedTuple):
    """One training: its score, or why it was refused."""

    method: str
    repeat: int
    score: float | None
    refused: str | None
    seconds: float
    warnings: tuple[str, ...]
    metrics: dict[str, float] = {}  # noqa: RUF012 - never changed


def compare(
    X: Any,
    y: Any,
    *,
    task: str,
    epsilon: float,
    delta: float,
    size: int,
    methods: Sequence[str] | None = None,
    loss: Any = None,
    model: Any = "linear",
    adjacency: str = "add_remove",
    bounds: Any = (-1.0, 1.0),
    classes: Any = None,
    target_bounds: Any = None,
    repeats: int = 5,
    public_share: float = 0.1,
    jobs: int = 1,
    seed: int = 0,
    report: Report | None = None,
) -> list[Row]:
    """Train every method ``repeats`` times on ``size`` rows drawn from public rows ``X``, ``y``; score held-out rows.

    ``task`` is "classification" (score: accuracy) or "regression" (mean squared error, which needs ``target_bounds``).
    ``methods`` None takes all of them. ``report(done, total)`` is called after each training.
    """
    validate.one_of(tuple(METRICS), task=task)
    validate.whole(size=size, repeats=repeats, jobs=jobs)
    validate.whole(at_least=0, seed=seed)
    rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    if rows.ndim != 2 or len(rows) != len(labels):
        raise ValueError(f"X has shape {rows.shape} and y {labels.shape}; pass rows and one label each")
    names = _known(methods)
    _check_budget(epsilon, delta, adjacency, size)
    chosen_loss = loss if loss is not None else "auto" if task == "classification" else USUAL["regression"]
    known = np.unique(labels).tolist() if classes is None and task == "classification" else classes
    budget = (epsilon, delta, adjacency)
    settings = Settings(task, *budget, size, chosen_loss, model, bounds, known, target_bounds, public_share, seed)
    sizes(len(rows), public_share)
    cells = [(name, repeat) for repeat in range(repeats) for name in names]  # every method is timed early
    outcomes = []
    for outcome in _run(cells, rows, labels, settings, jobs):
        outcomes.append(outcome)
        if report is not None:
            report(len(outcomes), len(cells))
    outcomes.sort(key=lambda outcome: outcome.repeat)
    summed = [_row(name, [outcome for outcome in outcomes if outcome.method == name]) for name in names]
    return ranked(_against_reference(summed, task), task)


def sizes(rows: int, public_share: float) -> tuple[int, int, int]:
    """How many of the rows stand for private records, act as public rows, and are held out for the score.

    >>> sizes(1000, 0.1)
    (720, 80, 200)
    """
    if not (isinstance(public_share, int | float) and 0 <= public_share < 1):
        raise ValueError(f"public_share is {public_share!r}; pass a share in [0, 1) of the training rows")
    test = math.ceil(TEST_SHARE * rows)
    public = 0 if public_share == 0 else max(2, round(public_share * (rows - test)))
    if rows < 20 or rows - test - public < 2:
        raise ValueError(f"there are {rows} public rows, too few to split; pass at least 20, better thousands")
    return rows - test - public, public, test


def constant_score(y: Any, *, task: str) -> float:
    """The score of one answer for all, the most frequent class or the mean: what a model has to beat."""
    labels = np.asarray(y)
    if task == "regression":
        return float(np.var(labels))
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def document(
    rows: Sequence[Row],
    *,
    task: str,
    epsilon: float,
    delta: float,
    adjacency: str,
    size: int,
    repeats: int,
    recommended: str,
    **facts: Any,
) -> dict[str, Any]:
    """The comparison as plain data, for ``comparison.json``; ``facts`` are what else a reader should know.

    ``recommended``: the method that "auto" chooses for such a table.
    """
    return {
        "format": "noisewise-comparison/1",
        "epsilon": epsilon,
        "delta": delta,
        "adjacency": adjacency,
        "size": size,
        "repeats": repeats,
        "metric": METRICS[task],
        "better": "higher" if task == "classification" else "lower",
        "recommended": recommended,
        "note": NOTE,
        **facts,
        "rows": [{**asdict(row), "scores": list(row.scores), "warnings": list(row.warnings)} for row in rows],
    }


NOTE = (
    "An estimate: seeded simulations on bootstrapped rows of public data (drawn with replacement to the private size), "
    "with the number of records taken as public; no private record was read."
)


def split_rows(rows: int, settings: Settings, repeat: int) -> RepeatRows:
    """The rows of one repeat, the same for every method."""
    rng = np.random.default_rng([settings.seed, repeat])
    private, public, _ = sizes(rows, settings.public_share)
    pool, given, test = np.split(rng.permutation(rows), [private, private + public])
    return RepeatRows(rng.choice(pool, settings.size), given, test, int(rng.integers(2**31)))


def _run(cells: Sequence[tuple[str, int]], X: Array, y: Array, settings: Settings, jobs: int) -> Iterator[RepeatScore]:
    if jobs == 1:
        yield from (_outcome(name, repeat, X, y, settings) for name, repeat in cells)
        return
    from joblib import Parallel, delayed  # one process does without

    yield from Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(_in_worker)(name, repeat, X, y, settings) for name, repeat in cells
    )


def _in_worker(name: str, repeat: int, X: Array, y: Array, settings: Settings) -> RepeatScore:
    os.environ["OMP_NUM_THREADS"] = "1"
    return _outcome(name, repeat, X, y, settings)


def _outcome(name: str, repeat: int, X: Array, y: Array, settings: Settings) -> RepeatScore:
    parts = split_rows(len(X), settings, repeat)
    estimator = _estimator(name, settings, parts.seed)
    given = method_named(name).needs_public and len(parts.public) > 0
    public = (X[parts.public], y[parts.public]) if given else None
    started, found = time.perf_counter(), {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            estimator.fit(X[parts.private], y[parts.private], public=public)
            score = _score(estimator, X[parts.test], y[parts.test], settings.task)
            refused = None if math.isfinite(score) else "its predictions are not finite"
            found = {} if refused else _metrics(estimator, X[parts.test], y[parts.test])
        except ValueError as error:
            score, refused = math.nan, " ".join(str(error).split())
    texts = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    return RepeatScore(name, repeat, None if refused else score, refused, time.perf_counter() - started, texts, found)


def _estimator(name: str, settings: Settings, seed: int) -> Any:
    same = ("loss", "model", "adjacency", "bounds")
    shared: dict[str, Any] = {"method": name, "size_is_public": True, "random_state": seed}
    shared |= {setting: getattr(settings, setting) for setting in same}
    if settings.task == "classification":
        return PrivateClassifier(settings.epsilon, settings.delta, classes=settings.classes, **shared)
    return PrivateRegressor(settings.epsilon, settings.delta, target_bounds=settings.target_bounds, **shared)


def _score(estimator: Any, X: Array, y: Array, task: str) -> float:
    predicted = estimator.predict(X)
    if task == "classification":
        return float(np.mean(predicted == y))
    return float(np.mean((predicted - y) ** 2))


def _metrics(estimator: Any, X: Array, y: Array) -> dict[str, float]:
    """All figures of held-out rows that there are."""
    labels = getattr(getattr(estimator, "fitted_", None), "labels", None)
    if labels is None:
        return {}
    if isinstance(labels, Classes):
        scores = estimator.decision_function(X)
        if not np.isfinite(scores).all():
            return {}
        figures = class_figures(labels, y, scores, estimator.predict_proba(X) if labels.likely else None)
    else:
        figures = of_numbers(estimator.predict(X), np.asarray(y, dtype=float))
    return {metric: one.value for metric, one in figures.metrics.items() if one.value is not None}


def _summed(outcomes: Sequence[RepeatScore]) -> dict[str, dict[str, Any]]:
    """Mean and 95 % interval over the repeats of each figure that all of them have."""
    shared = [metric for metric in NAMES if all(metric in outcome.metrics for outcome in outcomes)]
    summed: dict[str, dict[str, Any]] = {}
    for metric in shared:
        mean, error = _mean_and_error(np.array([outcome.metrics[metric] for outcome in outcomes]))
        ends = None if error is None else [mean - ABOUT_95 * error, mean + ABOUT_95 * error]
        summed[metric] = {"value": mean, "interval": ends}
    return summed


def _row(name: str, outcomes: Sequence[RepeatScore]) -> Row:
    kind = method_named(name)
    seconds = float(np.median([outcome.seconds for outcome in outcomes]))
    refused = next((outcome.refused for outcome in outcomes if outcome.refused), None)
    scores = tuple(outcome.score for outcome in outcomes if outcome.score is not None)
    mean, error = (None, None) if refused else _mean_and_error(np.array(scores))
    texts = tuple(dict.fromkeys(text for outcome in outcomes for text in outcome.warnings))
    found = {} if refused else _summed(outcomes)
    return Row(
        name, mean, error, refused, kind.needs_public, kind.private, seconds, scores, warnings=texts, metrics=found
    )


def _against_reference(rows: Sequence[Row], task: str) -> list[Row]:
    """The rows with ``worse``: differences repeat by repeat from the one that was trained without privacy."""
    reference = next((row for row in rows if not row.private and row.mean is not None), None)
    if reference is None:
        return list(rows)
    sign = 1.0 if task == "classification" else -1.0
    compared = []
    for row in rows:
        worse, error = None, None
        if row.private and row.mean is not None:
            worse, error = _mean_and_error(sign * (np.array(reference.scores) - np.array(row.scores)))
        compared.append(replace(row, worse=worse, worse_error=error))
    return compared


def _mean_and_error(values: NDArray[np.float64]) -> tuple[float, float | None]:
    """The mean and its standard error, which is None where there are too few values to tell."""
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) >= MIN_REPEATS else None
    return float(np.mean(values)), error


def _known(methods: Sequence[str] | None) -> list[str]:
    known = [*known_names()]
    names = known if methods is None else list(dict.fromkeys(methods))
    if not names:
        raise ValueError(f"methods is empty; pass some of {', '.join(known)}")
    if unknown := [name for name in names if name not in known and ":" not in name]:
        raise ValueError(f"methods has {unknown[0]!r}; pass some of {', '.join(known)}, or package.module:Class")
    for name in names:
        method_named(name)  # a guest is started here, once
    return names


def _check_budget(epsilon: float, delta: float, adjacency: str, size: int) -> None:
    """Refuse at once what every method would refuse."""
    Budget(epsilon, delta, adjacency=cast(Adjacency, adjacency))
    if delta > 1 / size:
        raise ValueError(
            f"delta is {delta!r}, above 1/size = {1 / size:.3g}, which allows publishing a record; "
            f"pass a delta well below it, e.g. {0.1 / size:.1g}"
        )
