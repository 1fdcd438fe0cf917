"""How good standard errors are: reported ones against the spread of theta over many runs on the same records.

``python -m noisewise_lab.standard_errors [--data FOLDER] [--runs N] [--all] [METHOD ...]`` prints the tables of
``docs/standard-errors.md``: on generated records, or on real tables in FOLDER; ``--all`` also measures methods whose
standard errors are kept back.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noisewise.accounts import Budget
from noisewise.asking import PublicCurator
from noisewise.methods import Method, method_named, registry
from noisewise.protect.learned.zoo import OutsideRange
from noisewise.statements.standard_errors import UNKNOWN, standard_errors
from noisewise.train import Records, train
from noisewise.trusted.losses import loss_named
from noisewise.trusted.models import Linear

from .datasets import load
from .threads import use_threads

RUNS, REPORTED = 150, 8  # runs that are trained, and those of them whose standard errors are computed


@dataclass(frozen=True)
class Setting:
    """A method on ``size`` records: generated, with ``features`` columns, or those of a real ``table``."""

    method: str
    loss: str = "logistic"
    size: int = 2000
    features: int = 6
    epsilon: float = 1.0
    adjacency: str = "add_remove"
    table: str | None = None

    def __str__(self) -> str:
        where = f"n = {self.size:,}, d = {self.features}" if self.table is None else f"{self.table}, n = {self.size:,}"
        return f"{self.method}, {self.loss}, {where}, epsilon = {self.epsilon:g}"

    def records(self, folder: Path | None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Rows of norm 1 and labels; of a table, the first ``size`` in a random order."""
        if self.table is None or folder is None:
            return generated(self.size, self.features)
        table = load(self.table, folder)
        rows = np.random.default_rng(0).permutation(len(table.X))[: self.size]
        return table.X[rows], table.y[rows]


@dataclass(frozen=True)
class Measured:
    """Reported over empirical standard deviations: the median, and the lowest and highest coordinate."""

    setting: Setting
    median: float
    lowest: float
    highest: float
    train_ms: float
    replay_ms: float


def generated(size: int, features: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Unit rows with two correlated columns, a weak one and a constant one; labels -1 and 1 from a logistic model."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (size, features))
    X[:, 1] = (X[:, 0] + X[:, 1]) / 2
    X[:, 2] *= 0.3
    X[:, -1] = 1.0
    weights = np.random.default_rng(1).normal(size=features) * 3
    y = np.where(rng.random(size) < 1 / (1 + np.exp(-X @ weights)), 1.0, -1.0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), y.astype(np.float32)


def measure(
    setting: Setting,
    runs: int = RUNS,
    reported: int = REPORTED,
    method: Method | None = None,
    folder: Path | None = None,
) -> Measured:
    """Train many times on the same records and compare; NaN where the standard error is not known."""
    method = method or method_named(setting.method)
    X, y = setting.records(folder)
    model = Linear(X.shape[1], loss_named(setting.loss))
    public = PublicCurator(*generated(100, X.shape[1], seed=2), model=model) if method.needs_public else None
    budget = Budget(setting.epsilon, 1e-6, adjacency=setting.adjacency)  # type: ignore[arg-type]
    records = Records(X, y, float(setting.size), row_bound=1.0)
    thetas, errors, seconds, replaying = [], [], 0.0, 0.0
    for seed in range(runs):
        started = time.perf_counter()
        run = train(method, records, model=model, budget=budget, public=public, seed=seed)
        seconds += time.perf_counter() - started
        thetas.append(run.theta.astype(np.float64))
        if seed < reported:
            started = time.perf_counter()
            error = standard_errors(method, run.tape, public)
            replaying += time.perf_counter() - started
            if error is None:
                return Measured(setting, *[math.nan] * 5)
            errors.append(error)
    ratios = np.stack(errors) / np.stack(thetas).std(0, ddof=1)
    by_coordinate = np.median(ratios, axis=0)
    return Measured(
        setting,
        float(np.median(ratios)),
        float(by_coordinate.min()),
        float(by_coordinate.max()),
        1000 * seconds / runs,
        1000 * replaying / reported,
    )


def settings() -> Iterator[Setting]:
    """Every private method at one place, the recommended one at several."""
    for name, kind in registry().items():
        if kind.private and getattr(kind, "asks_private", True):
            loss = "logistic" if "logistic" in kind.losses else kind.losses[0]
            adjacency = "replace_one" if name == "pnsgd" else "add_remove"
            epsilon = 2.0 if name == "sgd_ma" else 1.0  # the moments accountant's orders end before 1 at this delta
            yield Setting(name, loss, epsilon=epsilon, adjacency=adjacency)
    for size, features, epsilon in (
        (500, 6, 1.0),
        (20_000, 6, 1.0),
        (2000, 20, 1.0),
        (20_000, 20, 1.0),
        (2000, 60, 1.0),
    ):
        yield Setting("descent", size=size, features=features, epsilon=epsilon)
    yield Setting("descent", loss="hinge")
    yield Setting("descent", loss="squared")


def real_settings() -> Iterator[Setting]:
    """Methods without public rows on real tables, on which nothing here was tuned."""
    for method in ("descent", "dpsgd"):
        yield Setting(method, size=5000, table="ipums-br")
        yield Setting(method, size=5000, table="adult")
        yield Setting(method, loss="squared", size=5000, table="cadata")
    yield Setting("sufficient_statistics", loss="squared", size=5000, table="cadata")


def main(arguments: list[str]) -> None:
    """Print a row per setting, or per setting of the named methods."""
    parser = argparse.ArgumentParser(prog="python -m noisewise_lab.standard_errors")
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--runs", type=int, default=RUNS)
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore", OutsideRange)
    if asked.all:
        UNKNOWN.pop("choose")  # others cannot be computed
    print("| setting | reported / empirical | lowest coordinate | highest | train, ms | replay, ms |")
    print("|---|---|---|---|---|---|")
    for setting in settings() if asked.data is None else real_settings():
        if asked.methods and setting.method not in asked.methods:
            continue
        row = measure(setting, runs=asked.runs, folder=asked.data)
        if math.isnan(row.median):
            print(f"| {setting} | unknown | | | | |", flush=True)
            continue
        ratios = f"{row.median:.2f} | {row.lowest:.2f} | {row.highest:.2f}"
        print(f"| {setting} | {ratios} | {row.train_ms:.0f} | {row.replay_ms:.0f} |", flush=True)


if __name__ == "__main__":
    use_threads(1)
    main(sys.argv[1:])
