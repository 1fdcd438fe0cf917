"""Other learners of tables, one process for each: ``PYTHON tables_peer.py`` reads jobs and answers them, a line each.

It runs in the interpreter of the peer, so it imports nothing of noisewise and, until it is asked, nothing but numpy.
A table comes as ``split.npz`` (``numbers`` with NaN for what is missing, ``codes`` of categories with -1, ``y``; train
and test) and the bounds and numbers of categories that the schema declares: the same for every peer.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from typing import Any

import numpy as np

MODULES = {
    "ebm": "interpret.privacy",
    "ebm-fast": "interpret.privacy",
    "diffprivlib": "diffprivlib.models",
    "logistic": "sklearn.linear_model",
    "boosting": "sklearn.ensemble",
}
MAX_CATEGORIES = 255  # what HistGradientBoosting takes; a column with more becomes a number


class Table:
    """One split of a table, as arrays."""

    def __init__(self, path: str, facts: dict[str, Any]) -> None:
        arrays = np.load(path)
        self.train = (arrays["train_numbers"], arrays["train_codes"])
        self.test = (arrays["test_numbers"], arrays["test_codes"])
        self.y = arrays["train_y"]
        self.low, self.high = np.array(facts["low"], dtype=float), np.array(facts["high"], dtype=float)
        self.sizes: list[int] = facts["sizes"]
        self.classes: int | None = facts["classes"]
        self.target: tuple[float, float] = tuple(facts["target"])

    @property
    def regression(self) -> bool:
        return self.classes is None

    def filled(self, numbers: Any) -> Any:
        """A missing number is the middle of its bounds."""
        return np.where(np.isnan(numbers), (self.low + self.high) / 2, numbers)

    def one_hot(self, codes: Any, *, missing: bool) -> Any:
        """A column of zeros and ones for each category, and one for "missing" if it is wanted."""
        first = -1 if missing else 0
        blocks = [codes[:, [i]] == np.arange(first, size) for i, size in enumerate(self.sizes)]
        return np.hstack([np.empty((len(codes), 0)), *blocks]).astype(float)

    def unit(self, numbers: Any) -> Any:
        """Numbers scaled by their declared bounds to [-1, 1]."""
        return 2 * (self.filled(numbers) - self.low) / (self.high - self.low) - 1


def ebm(table: Table, job: dict[str, Any]) -> tuple[Any, Any, Any]:
    """DP-EBM by Gaussian differential privacy, every type and bound declared. It takes no missing values."""
    privacy = importlib.import_module("interpret.privacy")
    names = [f"n{i}" for i in range(len(table.low))] + [f"c{i}" for i in range(len(table.sizes))]

    def rows(part: tuple[Any, Any]) -> Any:
        numbers, codes = part
        texts = np.char.add("v", codes.astype(str))  # "v-1": missing, a category of its own
        columns = [np.ascontiguousarray(column) for column in (*table.filled(numbers).T, *texts.T)]
        return dict(zip(names, columns))  # noqa: B905

    settings: dict[str, Any] = {
        "feature_names": names,
        "feature_types": ["continuous"] * len(table.low) + ["nominal"] * len(table.sizes),
        "privacy_bounds": {name: (low, high) for name, low, high in zip(names, table.low, table.high)},  # noqa: B905
        "epsilon": job["epsilon"],
        "delta": job["delta"],
        "composition": "gdp",
        "random_state": job["seed"],
        "n_jobs": 1,
    }
    if job["peer"] == "ebm-fast":
        settings["learning_rate"] = 0.1
    if table.regression:
        low, high = table.target
        model = privacy.DPExplainableBoostingRegressor(privacy_target_min=low, privacy_target_max=high, **settings)
        return model, rows(table.train), rows(table.test)
    if table.classes != 2:
        raise ValueError("DP-EBM knows two classes only")
    return privacy.DPExplainableBoostingClassifier(**settings), rows(table.train), rows(table.test)


def diffprivlib(table: Table, job: dict[str, Any]) -> tuple[Any, Any, Any]:
    """diffprivlib's logistic or linear regression, bounds declared.

    The first on rows of length 1 with a constant, as noisewise scales them, with the penalty that C = 1 is for rows of
    numbers in [-1, 1]: of the ways to declare a norm, the best on average on the tables of ``tables_prepare``.
    """
    models = importlib.import_module("diffprivlib.models")

    def rows(part: tuple[Any, Any]) -> Any:
        numbers, codes = part
        return np.hstack([table.unit(numbers), table.one_hot(codes, missing=False)])

    def units(part: tuple[Any, Any]) -> Any:
        longer = np.hstack([rows(part), np.ones((len(part[0]), 1))])
        return longer / np.linalg.norm(longer, axis=1, keepdims=True)

    shared = {"epsilon": job["epsilon"], "random_state": job["seed"]}
    if table.regression:
        train = rows(table.train)
        ends = (np.r_[-np.ones(len(table.low)), np.zeros(sum(table.sizes))], np.ones(train.shape[1]))
        return models.LinearRegression(bounds_X=ends, bounds_y=table.target, **shared), train, rows(table.test)
    columns = len(table.low) + len(table.sizes)
    model = models.LogisticRegression(data_norm=1.0, C=columns, fit_intercept=False, max_iter=1000, **shared)
    return model, units(table.train), units(table.test)


def logistic(table: Table, job: dict[str, Any]) -> tuple[Any, Any, Any]:
    """scikit-learn without privacy: logistic regression or ridge on standardised numbers and one-hot categories."""
    linear = importlib.import_module("sklearn.linear_model")
    pipeline = importlib.import_module("sklearn.pipeline").make_pipeline
    impute = importlib.import_module("sklearn.impute").SimpleImputer(keep_empty_features=True)
    scaler = importlib.import_module("sklearn.preprocessing").StandardScaler()

    def rows(part: tuple[Any, Any]) -> Any:
        numbers, codes = part
        return np.hstack([numbers, table.one_hot(codes, missing=True)])

    model = linear.Ridge() if table.regression else linear.LogisticRegression(max_iter=2000)
    return pipeline(impute, scaler, model), rows(table.train), rows(table.test)


def boosting(table: Table, job: dict[str, Any]) -> tuple[Any, Any, Any]:
    """scikit-learn without privacy: histogram gradient boosting, categories as categories, missing values as they are."""
    ensemble = importlib.import_module("sklearn.ensemble")

    def rows(part: tuple[Any, Any]) -> Any:
        numbers, codes = part
        return np.hstack([numbers, np.where(codes < 0, np.nan, codes)])

    category = [False] * len(table.low) + [size <= MAX_CATEGORIES for size in table.sizes]
    kind = ensemble.HistGradientBoostingRegressor if table.regression else ensemble.HistGradientBoostingClassifier
    return kind(categorical_features=category, random_state=job["seed"]), rows(table.train), rows(table.test)


PEERS = {"ebm": ebm, "ebm-fast": ebm, "diffprivlib": diffprivlib, "logistic": logistic, "boosting": boosting}


def fit(table: Table, job: dict[str, Any]) -> dict[str, Any]:
    """Fit a peer and write the scores of the test rows: a number each, or one for each of several classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, train, test = PEERS[job["peer"]](table, job)
        started = _processor()
        model.fit(train, table.y)
        seconds = _processor() - started
        answers = model.predict(test)
        scores = answers if table.regression else class_scores(model, test, table)
    np.savez(job["to"], answers=answers, scores=scores)
    return {"cpu_s": seconds}


def class_scores(model: Any, test: Any, table: Table) -> Any:
    """Scores by position of the class; a class that no training row has gets the lowest."""
    scores = model.decision_function(test) if hasattr(model, "decision_function") else model.predict_proba(test)
    if table.classes == 2:
        return scores[:, 1] if np.ndim(scores) == 2 else scores
    assert table.classes is not None
    every = np.full((len(test), table.classes), np.min(scores) - 1.0)
    every[:, np.asarray(model.classes_, dtype=int)] = scores
    return every


def _processor() -> float:
    """Processor seconds of this process and of those it started and has waited for."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def _version(peer: str) -> str:
    importlib.import_module(MODULES[peer])
    root = importlib.import_module(MODULES[peer].partition(".")[0])
    return str(getattr(root, "__version__", "unknown"))


def answer(job: dict[str, Any], table: Table | None) -> tuple[dict[str, Any], Table | None]:
    """What comes back for one line, and the table that is open from now on."""
    try:
        if job["do"] == "hello":
            return {"version": _version(job["peer"])}, table
        if job["do"] == "load":
            return {"loaded": True}, Table(job["path"], job["facts"])
        assert table is not None
        return fit(table, job), table
    except Exception as error:  # whatever a library raises; bad input is a row that says so
        lines = str(error).strip().splitlines() or [type(error).__name__]
        refused = isinstance(error, ValueError) and job["do"] == "fit"
        return {"refused" if refused else "error": lines[0]}, table


def main() -> None:
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print what they like
    table: Table | None = None
    for line in sys.stdin:
        said, table = answer(json.loads(line), table)
        channel.write(json.dumps(said) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
