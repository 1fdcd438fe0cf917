"""Small models of every kind that can be exported, each with rows to predict that have everything in them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

import noisewise as nw
from noisewise.methods.additive import AdditiveDescent
from noisewise.tables.fit.fitted import Fitted
from noisewise.tables.schema import Column, Schema

BUDGET = {"epsilon": 4.0, "delta": 1e-6, "random_state": 1}
COLUMNS = (
    Column("age", "number", 17, 90),
    Column("hours", "number", 0, 99, missing=40),
    Column("pay", "number", 1, 1e5, scale="log"),
    Column("score", "number", 0, 10, knots=(0.0, 1.0, 4.0, 10.0)),
    Column("job", "category", categories=("clerk", "farmer", "nurse", "smith"), rare=("farmer", "smith")),
    Column("code", "category", categories=(1, 2.5, 3), missing=3),
    Column("own", "category", categories=(True, False), unknown="missing"),
)
NUMBERS = {
    "age": (17, 90),
    "hours": (0, 99),
    "pay": (1, 1e5),
}


def table(rows: int, seed: int, *, gaps: bool) -> pd.DataFrame:
    """Rows of those columns; ``gaps``: with values that are missing, too large, unknown, or written in other ways."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(17, 90, rows),
            "hours": rng.uniform(0, 99, rows).round(),
            "pay": np.exp(rng.uniform(0, 11.5, rows)),
            "score": rng.uniform(0, 10, rows),
            "job": rng.choice(["clerk", "farmer", "nurse", "smith"], rows),
            "code": rng.choice(["1", "2.5", "3"], rows),
            "own": rng.choice(["true", "false"], rows),
        }
    )
    if not gaps:
        return frame
    for column in ("age", "hours", "pay", "score"):
        frame.loc[rng.random(rows) < 0.2, column] = np.nan
        frame.loc[rng.random(rows) < 0.1, column] = rng.choice([-np.inf, np.inf, -1e6, 1e9])
    frame = frame.astype({"job": object, "code": object, "own": object})
    for column, odd in {
        "job": ["?", None, " nurse "],
        "code": ["1.0", "", 2.5, 3],
        "own": ["TRUE", "maybe", "NA"],
    }.items():
        for value in odd:
            frame.loc[rng.random(rows) < 0.1, column] = value
    return frame


def labels(frame: pd.DataFrame, classes: int) -> np.ndarray:
    rank = frame.age / 73 + (frame.job == "nurse") + np.log(frame.pay) / 10
    return np.asarray(pd.qcut(rank, classes, labels=False))


def _classifier(classes: list[object], schema: Schema | None = None, **settings: object) -> Fitted:
    X = table(400, 1, gaps=False)
    y = np.asarray(classes)[labels(X, len(classes))]
    if schema is None:
        X = X[list(NUMBERS)]
    model = nw.PrivateClassifier(**BUDGET, schema=NUMBERS if schema is None else schema, **settings)
    return model.fit(X, y).fitted_


def _regressor(**settings: object) -> Fitted:
    X = table(400, 1, gaps=False)
    y = labels(X, 50) * 3.0
    model = nw.PrivateRegressor(**BUDGET, schema=Schema(COLUMNS), target_bounds=(10, 140), **settings)
    return model.fit(X, y).fitted_


def _array(**settings: object) -> Fitted:
    X = table(400, 1, gaps=False)
    model = nw.PrivateClassifier(**BUDGET, bounds=list(NUMBERS.values()), **settings)
    return model.fit(X[list(NUMBERS)].to_numpy(), labels(X, 2) == 1).fitted_


PAIRED = AdditiveDescent(pairs=3, knots=6)
MAKERS = {
    "additive": lambda: _classifier(["no", "yes"], Schema(COLUMNS), method=PAIRED),
    "additive, three classes": lambda: _classifier([3, 1, 2], Schema(COLUMNS), method=PAIRED),
    "additive regression": lambda: _regressor(method=PAIRED),
    "additive, array": lambda: _array(method=AdditiveDescent(pairs=2)),
    "linear": lambda: _classifier(["no", "yes"], Schema(COLUMNS), method="dpsgd"),
    "linear, three classes": lambda: _classifier(["a", "b", "c"], Schema(COLUMNS), method="dpsgd"),
    "linear regression": lambda: _regressor(method="dpsgd"),
    "linear, array": lambda: _array(method="dpsgd"),
    "linear, no probabilities": lambda: _classifier([0, 1], method="dpsgd", loss="huber_hinge"),
    "perceptron": lambda: _classifier(["no", "yes"], Schema(COLUMNS), method="dpsgd", model=(5, 4)),
    "perceptron, softmax": lambda: _classifier(["no", "yes"], method="dpsgd", model=(5,), loss="softmax"),
    "perceptron, three classes": lambda: _classifier(["a", "b", "c"], method="dpsgd", model=(6,)),
    "perceptron regression": lambda: _regressor(method="dpsgd", model=(4,)),
}


@cache
def fitted(name: str) -> Fitted:
    """The model of that name; made once."""
    return MAKERS[name]()


def rows_for(name: str) -> pd.DataFrame:
    """Rows to predict by it."""
    model, frame = fitted(name), table(150, 2, gaps=True)
    return frame if model.encoder is not None else frame[list(NUMBERS)]


def told(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Predictions, scores and probabilities of those rows, as noisewise has them."""
    model, frame = fitted(name), rows_for(name)
    cells = model.scaling.cells
    if model.encoder is None:
        rows = model.scaling(frame.to_numpy(dtype=float))
    else:
        rows = model.encoder.table(frame) if cells else model.scaling(model.encoder(frame))
    scores = model.scores(rows)
    scores = scores if model.classes is None else model.labels.decisions(scores)
    return model.predictions(rows), scores, model.probabilities(rows) if model.likely else None
