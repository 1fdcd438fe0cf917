"""Generated tables for demos and tests: no download, no real person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray


@dataclass(frozen=True)
class Dataset:
    """A table with its labels and the bounds that a data holder would declare."""

    name: str
    X: pd.DataFrame
    y: NDArray[np.int64]
    schema: Mapping[str, tuple[float, float]]


def census(rows: int, *, seed: int = 0) -> Dataset:
    """A census-like table: age, schooling, hours, household and occupation, and whether income is high (about 1 in 4).

    >>> table = census(1000)
    >>> table.X.shape, 0.15 < float(table.y.mean()) < 0.35
    ((1000, 16), True)
    """
    rng = np.random.default_rng(seed)
    age = np.clip(rng.gamma(7.5, 5.3, rows), 17, 90)
    schooling = np.clip(np.round(rng.normal(10.5, 2.7, rows)), 1, 16)
    hours = np.clip(rng.normal(40, 12, rows), 1, 99)
    capital = np.where(rng.random(rows) < 0.08, rng.exponential(0.15, rows), 0.0).clip(0, 1)
    woman = rng.random(rows) < 0.48
    married = rng.random(rows) < np.clip((age - 18) / 40, 0.02, 0.65)
    children = np.minimum(rng.poisson(np.where(married, 1.4, 0.4)), 6)
    occupation = (rng.random(rows) < 0.5 / (1 + np.exp(-(schooling - 11)))).astype(int) * 4 + rng.integers(0, 4, rows)
    sector = rng.choice(3, rows, p=[0.7, 0.2, 0.1])
    pay = np.array([-0.7, -0.3, -0.1, 0.1, 0.3, 0.6, 0.9, 1.2])[occupation]
    score = (
        0.35 * (schooling - 10) + 0.035 * (hours - 40) - 0.0022 * (age - 50) ** 2 + 1.8 * married + 6 * capital
        + pay - 0.35 * woman - 0.1 * children + np.array([0.0, 0.15, -0.4])[sector] - 1.75
    )  # fmt: skip
    y = (rng.random(rows) < 1 / (1 + np.exp(-1.5 * score))).astype(np.int64)
    columns: dict[str, NDArray[np.float64]] = {
        "age": age, "schooling": schooling, "hours": hours, "capital": capital, "children": children.astype(float),
        "woman": woman.astype(float), "married": married.astype(float), "public_sector": (sector == 1).astype(float),
    }  # fmt: skip
    columns |= {f"occupation_{kind}": (occupation == kind).astype(float) for kind in range(8)}
    bounds = {"age": (17.0, 90.0), "schooling": (1.0, 16.0), "hours": (1.0, 99.0), "children": (0.0, 6.0)}
    return Dataset("census", pd.DataFrame(columns), y, {name: bounds.get(name, (0.0, 1.0)) for name in columns})


def people(rows: int, *, seed: int = 0) -> pd.DataFrame:
    """Part of the census with words for numbers, as in the files of the guide for analysts.

    >>> list(people(2).columns)
    ['age', 'schooling', 'hours', 'children', 'married', 'sector', 'income']
    """
    table = census(rows, seed=seed)
    frame = table.X[["age", "schooling", "hours", "children", "married"]].round(1)
    frame["sector"] = table.X["public_sector"].map({0: "private", 1: "public"})
    frame["income"] = ["high" if y else "low" for y in table.y]
    return frame


def measurements(rows: int, *, seed: int = 0, slack: float = 3.0) -> Dataset:
    """Ten heavy-tailed columns and a label that depends on them nonlinearly; bounds are ``slack`` times as wide as needed.

    Most values lie in a small part of their range, so that scaled rows differ little.

    >>> table = measurements(1000)
    >>> table.X.shape, 0.4 < float(table.y.mean()) < 0.6
    ((1000, 10), True)
    """
    rng = np.random.default_rng(seed)
    hidden = (rng.normal(size=(rows, 10)) + 0.7 * rng.normal(size=(rows, 1))) / np.sqrt(1.49)
    kinds = (
        lambda z: np.exp(1.2 * z),
        lambda z: 10 * np.exp(0.6 * z) * rng.gamma(1.0, 1.0, rows),
        lambda z: 3 * z + 2 * rng.standard_t(3, rows),
    )
    columns = {f"measure_{i}": kinds[i % 3](hidden[:, i]) for i in range(10)}
    a, b, c, d, e, f, g = hidden.T[:7]
    score = 1.2 * a - b + 0.8 * np.tanh(2 * c) + 0.6 * (d > 0.5) - 0.7 * e * (f > 0) + 0.5 * np.abs(g) - 0.6
    y = (score + 0.7 * rng.logistic(size=rows) > 0).astype(np.int64)
    bounds = {}
    for name, values in columns.items():
        far = slack * float(np.abs(values).max())
        bounds[name] = (-far if values.min() < 0 else 0.0, far)
    return Dataset("measurements", pd.DataFrame(columns), y, bounds)


def digits() -> Dataset:
    """scikit-learn's 1,797 handwritten digits of 8 x 8 pixels: few records, so a private model needs a large budget."""
    from sklearn.datasets import load_digits  # the generated tables need no scikit-learn

    X, y = load_digits(return_X_y=True)
    frame = pd.DataFrame(X, columns=[f"pixel_{i}" for i in range(X.shape[1])])
    return Dataset("digits", frame, y.astype(np.int64), dict.fromkeys(frame.columns, (0.0, 16.0)))
