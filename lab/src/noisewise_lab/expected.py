"""How much of what a model learns without privacy a private one keeps, on generated tasks and on tables.

kept = (private score - constant's) / (best score without privacy - constant's), both trained on the same n rows and scored
on others; the score is ROC AUC (of a constant: 0.5; several classes: one against the rest) or R^2 (0). Without privacy, the
better of linear and boosted trees counts. A private model is what "auto" makes of the table with a budget worth mu in
Gaussian DP; ``clarity`` is n mu. A finished cell is a line of a file and is not run again while the code that trains is the
same.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import noisewise
from noisewise import Budget, PrivateClassifier, PrivateRegressor
from noisewise.tables.schema import Column, Schema

from . import tables_peer
from .store import Report, Row, run_cells
from .tables_bench import scored
from .tables_split import Array, Listed, Split, listed, split

DELTA = 1e-6
CLARITIES = (30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0, 30_000.0)
MIN_TRAINING_ROWS, MAX_TRAINING_ROWS = 300, 16_000
MAX_MU, MIN_MU = 2.0, 0.03  # at delta 1e-6: epsilon from about 0.1 to about 10
KINDS = ("linear", "wavy", "pairs", "noisy")
COLUMNS = (4, 12, 40)
TARGETS = ("two classes", "number", "four classes")
TEST_ROWS = 4000
MIN_GAIN = 0.03  # a task where nothing is learnt without privacy has no share that means something
TRAINS = "accounting budget curator data estimators fitting kernels losses methods models noise prepare protect records"


@dataclass(frozen=True)
class ExpectedCell:
    """One private fit and its two neighbours without privacy. ``task``: a kind of :data:`KINDS`, or a table's name."""

    task: str
    target: str
    columns: int
    size: int
    clarity: float
    seed: int
    code: str
    data: str = ""

    @property
    def mu(self) -> float:
        return self.clarity / self.size


@cache
def code_digest() -> str:
    """Of the rooms of noisewise that make a model."""
    digest, root = hashlib.sha256(), Path(noisewise.__file__).parent
    for room in TRAINS.split():
        for path in sorted([*root.glob(f"{room}.py"), *root.glob(f"{room}/**/*.py")]):
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def sizes(clarity: float, most: int = MAX_TRAINING_ROWS) -> list[int]:
    """Two numbers of rows for a clarity, as far apart as mu may be; one where they would be much alike, or none.

    >>> sizes(30), sizes(1000), sizes(30_000), sizes(30_000, most=10_000)
    ([300, 1000], [500, 16000], [15000], [])
    """
    low, high = max(MIN_TRAINING_ROWS, math.ceil(clarity / MAX_MU)), min(most, int(clarity / MIN_MU))
    return [] if low > high else [low] if high < 1.5 * low else [low, high]


def cells(tables: Sequence[Listed], *, seeds: int, quick: bool) -> list[ExpectedCell]:
    """The grid: kinds, columns and targets of generated tasks, and the tables, each over clarities and numbers of rows."""
    clarities = CLARITIES[2:5:2] if quick else CLARITIES
    columns = COLUMNS[:1] if quick else COLUMNS
    made = [
        ExpectedCell(kind, target, width, size, clarity, seed, code_digest())
        for kind in KINDS
        for target in TARGETS
        for width in columns
        if target != TARGETS[2] or (kind in KINDS[:2] and width == columns[len(columns) // 2])
        for clarity in clarities
        for size in (sizes(clarity)[:1] if quick else sizes(clarity))
        for seed in range(seeds)
    ]
    for table in tables:
        rows = int(0.75 * len(pd.read_parquet(table.path, columns=[str(table.schema.target)])))
        target = TARGETS[1] if table.regression else TARGETS[0]
        made += [
            ExpectedCell(
                table.name, target, len(table.schema.features), size, clarity, seed, code_digest(), table.digest
            )
            for clarity in clarities
            for size in sizes(clarity, min(MAX_TRAINING_ROWS, rows))
            for seed in range(seeds)
        ]
    return made


def measure(
    data: Path | None, *, seeds: int, jobs: int, quick: bool, out: Path, report: Report
) -> tuple[list[Row], list[str]]:
    """Every cell, and the names of the tables that took part."""
    tables = [] if data is None else listed(data)
    every = cells(tables, seeds=seeds, quick=quick)
    np.random.default_rng(0).shuffle(every)  # so that a part of a run is a part of everything
    found = run_cells(
        every,
        _Work({table.name: table for table in tables}),
        out=out / "expected.jsonl",
        jobs=jobs,
        report=report,
    )
    return [row for row in found if row["kept"] is not None], [table.name for table in tables]


@dataclass(frozen=True)
class _Work:
    """What a process does with a cell."""

    tables: dict[str, Listed]

    def __call__(self, cell: ExpectedCell) -> Row:
        rows = generated(cell) if cell.task in KINDS else _of_table(self.tables[cell.task], cell)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            private = _score(rows, *_private(rows, cell))
            table = _arrays(rows)
            plain = {name: _score(rows, *_plain(table, name, cell.seed)) for name in ("logistic", "boosting")}
        start = 0.0 if rows.classes is None else 0.5
        gain = max(plain.values()) - start
        kept = None if gain < MIN_GAIN else (private - start) / gain
        return {"private": private, **plain, "kept": kept}


def _of_table(table: Listed, cell: ExpectedCell) -> Split:
    """Some rows of a table to train on; the rows to test on are always the same."""
    whole = _whole(table)
    some = np.random.default_rng(cell.seed).permutation(len(whole.train))[: cell.size]
    return replace(whole, train=whole.train.iloc[some], train_y=whole.train_y[some])


@lru_cache(maxsize=8)
def _whole(table: Listed) -> Split:
    return split(table, seed=0)


def _private(rows: Split, cell: ExpectedCell) -> tuple[Array, Array]:
    budget = Budget.from_gdp(cell.mu, DELTA)
    face: Any = PrivateRegressor if rows.classes is None else PrivateClassifier
    model = face(budget.epsilon, budget.delta, schema=rows.schema, random_state=cell.seed)
    model.fit(rows.train, rows.labels)
    answers = model.predict(rows.test)
    if rows.classes is None:
        return answers, answers
    return np.searchsorted(rows.classes, answers), model.decision_function(rows.test)


def _plain(table: tables_peer.Table, name: str, seed: int) -> tuple[Array, Array]:
    """Answers and scores of a learner without privacy."""
    model, train, test = tables_peer.PEERS[name](table, {"seed": seed})
    model.fit(train, table.y)
    answers = model.predict(test)
    return answers, answers if table.regression else tables_peer.class_scores(model, test, table)


def _arrays(rows: Split) -> tables_peer.Table:
    """The rows as the learners without privacy take them."""
    with tempfile.TemporaryDirectory() as folder:
        rows.save(path := Path(folder) / "split.npz")
        return tables_peer.Table(str(path), rows.facts())


def _score(rows: Split, answers: Array, scores: Array) -> float:
    found = scored(rows, answers, scores)
    return float(found["r2"] if rows.classes is None else found["roc_auc"])


# --- tasks -----------------------------------------------------------------------------------------------------------


def generated(cell: ExpectedCell) -> Split:
    """A task of a kind, another for each cell: half of the columns matter, every third has a long tail."""
    rng = np.random.default_rng([KINDS.index(cell.task), cell.columns, cell.size, round(cell.clarity), cell.seed])
    rank = rng.random((cell.size + TEST_ROWS, cell.columns))
    score = _KIND[cell.task](rank[:, : (cell.columns + 1) // 2], rng)
    score = (score - score.mean()) / score.std()
    tails = [-0.3 * np.log1p(-column) if i % 3 == 2 else 2 * column - 1 for i, column in enumerate(rank.T)]
    names = [f"x{i}" for i in range(cell.columns)]
    schema = tuple(
        Column(name, "number", 0.0, 4.0) if i % 3 == 2 else Column(name, "number", -1.2, 1.2)
        for i, name in enumerate(names)
    )
    frame = pd.DataFrame(dict(zip(names, tails, strict=True)))
    target, classes, y = _target(cell, score, rng)
    return Split(
        Schema((*schema, target), target="y"),
        classes,
        frame.iloc[: cell.size],
        frame.iloc[cell.size :],
        y[: cell.size],
        y[cell.size :],
    )


def _target(cell: ExpectedCell, score: Array, rng: Any) -> tuple[Column, Array | None, Array]:
    """Labels with noise: half the spread of the score, or twice its spread where the task is noisy."""
    noise = 2.0 if cell.task == "noisy" else 0.5
    if cell.target == "number":
        y = np.clip(score + noise * rng.normal(size=len(score)), -4, 4)
        return Column("y", "number", -4.0, 4.0), None, y
    told = score + noise * 0.6 * rng.logistic(size=len(score))
    ends = [0.0] if cell.target == "two classes" else [-0.8, 0.0, 0.8]
    names = np.array([f"c{i}" for i in range(len(ends) + 1)])
    return Column("y", "category", categories=tuple(names)), names, np.searchsorted(ends, told)


def _linear(u: Array, rng: Any) -> Array:
    return (2 * u - 1) @ rng.normal(size=u.shape[1])


def _wavy(u: Array, rng: Any) -> Array:
    """A bend, a wave or a step for each column."""
    weight, turn = rng.normal(size=u.shape[1]), rng.random(u.shape[1])
    shapes: tuple[Callable[[Array, float], Array], ...] = (
        lambda x, a: 4 * (x - 0.3 - 0.4 * a) ** 2,
        lambda x, a: np.sin(2 * np.pi * (1.5 * x + a)),
        lambda x, a: 2.0 * (x > 0.3 + 0.4 * a),
    )
    return np.sum([weight[i] * shapes[i % 3](u[:, i], turn[i]) for i in range(u.shape[1])], axis=0)


def _pairs(u: Array, rng: Any) -> Array:
    """As much from products of neighbours as from bends."""
    alone, x = _wavy(u, rng), 2 * u - 1
    both = (x[:, :-1] * x[:, 1:]) @ rng.normal(size=u.shape[1] - 1)
    return alone / alone.std() + both / both.std()


_KIND = {"linear": _linear, "wavy": _wavy, "pairs": _pairs, "noisy": _wavy}
