"""Estimators: odd arguments, and rows and labels of every kind that arrays and frames can have. Fits are on tiny data."""

from __future__ import annotations

import datetime
from random import Random
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

import noisewise as nw
from noisewise.accounts import BudgetExhausted

from .core import NUMBER, WORD, target
from .mutate import odd

METHODS = (
    "auto",
    "descent",
    "dpsgd",
    "additive",
    "agd",
    "output_perturbation",
    "sufficient_statistics",
    "l2p",
    "dynamic",
)


def settings(rng: Random, strange: float) -> dict[str, Any]:
    """Arguments of an estimator, a few of them odd."""
    usual: dict[str, tuple[Any, ...]] = {
        "epsilon": (1.0, 5, 0.1), "delta": (1e-6,), "bounds": ((-1, 1), [(-1, 1)] * 3, {"a": (-1, 1), "b": (-1, 1), "c": (-1, 1)}),
        "method": METHODS, "loss": ("auto", "logistic", "hinge", "squared", "softmax"), "model": ("auto", "linear", (2,)),
        "adjacency": ("add_remove", "replace_one"), "max_grad_norm": (None, 1.0), "size_is_public": (False, True),
        "random_state": (0, 3), "classes": (None, [0, 1]), "class_weight": (None, {0: 1.0, 1: 0.5}),
    }  # fmt: skip
    chosen: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "bounds": (-1, 1),
        "random_state": 0,
        "method": rng.choice(METHODS),
    }
    for name, values in usual.items():
        if rng.random() < strange:
            chosen[name] = odd(rng) if rng.random() < 0.5 else rng.choice(values)
    if rng.random() < 0.03:
        chosen["schema"] = odd(rng)
    return chosen


def rows(rng: Random) -> tuple[Any, Any]:
    """Rows and labels, most of them wrong in some way, with planted cells in them."""
    n = rng.choice((0, 1, 2, 8, *[30] * 16))
    X: Any = np.random.default_rng(rng.randrange(2**31)).uniform(-1, 1, (n, 3))
    y: Any = np.arange(n) % 2
    return (_odd_rows(X, rng) if rng.random() < 0.4 else X), (_odd_labels(y, rng) if rng.random() < 0.4 else y)


def _odd_rows(X: Any, rng: Random) -> Any:
    kind = rng.randrange(22)
    n = len(X)
    if kind == 0:
        X[: min(n, 1)] = rng.choice((np.nan, np.inf, -np.inf, 1e308, NUMBER))
    changes = {
        1: lambda: X.astype(object), 2: lambda: np.array([[WORD] * 3] * n, dtype=object), 3: lambda: X.astype(np.float16),
        4: lambda: X.reshape(n, 3, 1), 5: lambda: X[:, 0], 6: lambda: X.astype(complex) + 1j, 7: lambda: sparse.csr_matrix(X),
        8: lambda: pd.DataFrame(X, columns=["a", "b", "c"]), 9: lambda: pd.DataFrame(X, columns=["a", "a", "b"]),
        10: lambda: pd.DataFrame(X, columns=["a", "b", "c"], index=[WORD] * n), 11: lambda: pd.DataFrame(X).astype("Float64"),
        12: lambda: [[10**400] * 3] * n, 13: lambda: X.tolist(), 14: lambda: np.array([[datetime.date(2001, 2, 3)] * 3] * n, dtype=object),
        15: lambda: pd.DataFrame({"a": [WORD] * n, "b": [None] * n, "c": [NUMBER] * n}), 16: lambda: np.ma.masked_array(X, X > 0),
        17: lambda: np.full((n, 3), WORD), 18: lambda: odd(rng), 19: lambda: np.zeros((n, 0)),
    }  # fmt: skip
    return changes[kind]() if kind in changes else X


def _odd_labels(y: Any, rng: Random) -> Any:
    kind, n = rng.randrange(22), len(y)
    changes = {
        0: lambda: y.astype(float) + 0.5, 1: lambda: np.array([WORD] * n, dtype=object), 2: lambda: np.zeros(n), 3: lambda: y[:-1],
        4: lambda: np.where(y == 0, np.nan, 1.0), 5: lambda: y.reshape(-1, 1), 6: lambda: pd.Series(y, index=[WORD] * n, dtype="Int64"),
        7: lambda: [None] * n, 8: lambda: np.arange(n) * NUMBER, 9: lambda: np.array([WORD, "b"] * n, dtype=object)[:n],
        10: lambda: y.astype(bool), 11: lambda: y.astype(object) * 10**30, 12: lambda: np.stack([y, y], 1), 13: lambda: odd(rng), 14: lambda: [10**400] * n,
        15: lambda: pd.Categorical(np.where(y == 0, WORD, "b")),
    }  # fmt: skip
    return changes[kind]() if kind in changes else y


def fit_asked(rng: Random) -> tuple[str, dict[str, Any], Any, Any, bool]:
    kind = rng.choice(("classifier", "classifier", "regressor"))
    arguments = settings(rng, rng.choice((0.0, 0.0, 0.0, 0.1)))
    X, y = rows(rng)
    if kind == "regressor":
        for name in ("classes", "class_weight"):
            arguments.pop(name, None)
        arguments["target_bounds"] = rng.choice(((0, 1), (0, 1), odd(rng)))
    return kind, arguments, X, y, rng.random() < 0.3


def shown(given: tuple[str, dict[str, Any], Any, Any, bool]) -> str:
    """What may be quoted: arguments, and the names of columns."""
    columns = given[2].columns if isinstance(given[2], pd.DataFrame) else ""
    return f"{given[1]!r} {columns}"


def fitted(given: tuple[str, dict[str, Any], Any, Any, bool]) -> None:
    kind, arguments, X, y, public = given
    estimator = (nw.PrivateClassifier if kind == "classifier" else nw.PrivateRegressor)(**arguments)
    estimator.fit(X, y, public=(X, y) if public else None)
    estimator.predict(X)
    str(estimator.statement_)


target(
    "fit, odd arguments, rows and labels",
    fit_asked,
    group="fits",
    also=(BudgetExhausted,),
    shown=shown,
    seconds=60,  # the first ones compile kernels
)(fitted)
