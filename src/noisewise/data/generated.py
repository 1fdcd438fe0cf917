"""Generated tables for demos and tests: no download, no real person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray


@dataclass(frozen=True)
class Dataset:
    """A table with its label and the bounds that its holder would declare."""

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


def digits() -> Dataset:
    """scikit-learn's 1,797 handwritten digits of 8 x 8 pixels: few records, so a private model needs a large budget."""
    from sklearn.datasets import load_digits  # the generated tables need no scikit-learn

    X, y = load_digits(return_X_y=True)
    frame = pd.DataFrame(X, columns=[f"pixel_{i}" for i in range(X.shape[1])])
    return Dataset("digits", frame, y.astype(np.int64), dict.fromkeys(frame.columns, (0.0, 16.0)))
