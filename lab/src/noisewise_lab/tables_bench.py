"""Private models of tables beside other libraries and beside learners without privacy, by one protocol.

Three quarters of the rows to train on by a fixed seed, add_remove, several noise seeds, bounds and categories declared,
the same for every method. A finished fit is a line of a file (one for each table and method), so that a run goes on
where it stopped; a line counts for the same data, settings and, for noisewise, the same source only.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

import noisewise
from noisewise import PrivateClassifier, PrivateRegressor
from noisewise.methods import registry

from .store import Report, Row, run_cells, unfinished
from .tables_split import Array, Listed, Split, split
from .tables_workers import PEERS, Missing, Workers

DEFAULT = "noisewise"  # a face of noisewise with nothing set but budget and schema
PROTOCOL = 1  # of the peers: raise it when they are used in another way
MIN_GAP, ERRORS = (
    0.002,
    4,
)  # a smaller way to boosting, or one of few standard errors, has no share that means much
SCORES = ("accuracy", "roc_auc", "rmse", "r2")


@dataclass(frozen=True)
class Asked:
    """What is to be run."""

    tables: Sequence[Listed]
    methods: Sequence[str]
    against: Sequence[str]
    epsilons: Sequence[float]
    seeds: int = 5
    delta: float = 1e-6
    split_seed: int = 0
    widen: float = 1.0

    def __post_init__(self) -> None:
        known = [DEFAULT, "auto", *registry()]
        if unknown := [name for name in self.methods if name not in known]:
            raise ValueError(f"--methods has {unknown[0]!r}; pass some of {', '.join(known)}")
        if unknown := [name for name in self.against if name not in PEERS]:
            raise ValueError(f"--against has {unknown[0]!r}; pass some of {', '.join(PEERS)}")
        if bad := [epsilon for epsilon in self.epsilons if not 0 < epsilon < math.inf]:
            raise ValueError(f"--epsilons has {bad[0]:g}; pass positive numbers")
        if not 1 <= self.widen < math.inf:
            raise ValueError(f"--widen is {self.widen:g}; pass 1 or more")

    @property
    def names(self) -> list[str]:
        """Methods in the order they are run: what the others are compared with first."""
        references = [name for name in PEERS if name in self.against and not PEERS[name].private]
        return [*references, *self.methods, *(name for name in self.against if name not in references)]


@dataclass(frozen=True)
class TableCell:
    """One fit. ``data`` and ``code`` are digests: of the table, and of noisewise or the way a peer is used."""

    table: str
    data: str
    method: str
    code: str
    epsilon: float | None
    delta: float
    seed: int
    split_seed: int
    widen: float


def cells(asked: Asked, table: Listed, method: str) -> list[TableCell]:
    """The fits of one method on one table: once for each epsilon and seed, where they matter."""
    about = PEERS.get(method)
    private = about is None or about.private
    seeds = range(asked.seeds if about is None or about.seeded else 1)
    code = source_digest() if about is None else f"peer-{PROTOCOL}"
    return [
        TableCell(
            table.name, table.digest, method, code, epsilon, asked.delta if private else 0.0, seed,
            asked.split_seed, asked.widen if private else 1.0,
        )
        for epsilon in (asked.epsilons if private else (None,))
        for seed in seeds
    ]  # fmt: skip


@cache
def source_digest() -> str:
    """Of everything in noisewise that can change a model."""
    digest, root = hashlib.sha256(), Path(noisewise.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".safetensors"):
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def run(asked: Asked, out: Path, *, interpreters: dict[str, str], report: Report) -> list[Row]:
    """Every fit that is not in the folder ``out`` yet; ``report`` hears (done, total), or a line. Rows of the fits."""
    groups = [(table, method, cells(asked, table, method)) for table in asked.tables for method in asked.names]
    total, before, rows = sum(len(group) for _, _, group in groups), 0, []
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(Workers(interpreters, Path(folder)))
        try:
            for table, method, group in groups:
                file = out / f"{table.name}.{method}.jsonl"
                here = bench.possible(group, file, report)
                work = bench.work(table)
                rows += run_cells(here, work, out=file, jobs=1, report=_part(report, before, total))
                before += len(group)
        finally:
            bench.workers.close()
    return rows


def _part(report: Report, before: int, total: int) -> Callable[[Any], None]:
    return lambda news: report((before + news[0], total))


class _Bench:
    """One split at a time, and the processes of the peers."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self._split: tuple[object, Split] | None = None
        self._told: set[str] = set()
        self._warm: set[tuple[str, bool]] = set()

    def possible(self, group: list[TableCell], file: Path, report: Report) -> list[TableCell]:
        """All of the cells or, where their peer is missing, those that are finished."""
        todo = unfinished(group, file)
        if not todo or todo[0].method not in PEERS:
            return group
        try:
            self.workers.version(todo[0].method)
        except Missing as missing:
            if todo[0].method not in self._told:
                report(f"noisewise: {missing}")
                self._told.add(todo[0].method)
            return [cell for cell in group if cell not in todo]
        return group

    def work(self, table: Listed) -> Callable[[TableCell], Row]:
        def one(cell: TableCell) -> Row:
            rows = self._rows(table, cell)
            version = None
            if cell.method in PEERS:
                version = self.workers.version(cell.method)
                done = self.workers.fit(cell.method, rows, epsilon=cell.epsilon, delta=cell.delta, seed=cell.seed)
            else:
                done = self._own(rows, cell)
            if "refused" in done:
                return {"refused": done["refused"], "version": version}
            return {**scored(rows, done["answers"], done["scores"]), "cpu_s": done["cpu_s"], "version": version}

        return one

    def _rows(self, table: Listed, cell: TableCell) -> Split:
        wanted = (table.name, cell.split_seed, cell.widen)
        if self._split is None or self._split[0] != wanted:
            self._split = (wanted, split(table, seed=cell.split_seed, widen=cell.widen))
        return self._split[1]

    def _own(self, rows: Split, cell: TableCell) -> dict[str, Any]:
        if (
            cell.method,
            rows.classes is None,
        ) not in self._warm:  # kernels are compiled once, which is no part of a fit
            few = Split(rows.schema, rows.classes, rows.train[:300], rows.test[:9], rows.train_y[:300], rows.test_y[:9])
            own(few, cell)
            self._warm.add((cell.method, rows.classes is None))
        return own(rows, cell)


def own(rows: Split, cell: TableCell) -> dict[str, Any]:
    """A fit of noisewise; or what it ``refused``."""
    settings: dict[str, Any] = {} if cell.method == DEFAULT else {"method": cell.method}
    face: Any = PrivateRegressor if rows.classes is None else PrivateClassifier
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = face(cell.epsilon, cell.delta, schema=rows.schema, random_state=cell.seed, **settings)
            started = time.process_time()
            model.fit(rows.train, rows.labels)
            seconds = time.process_time() - started
        except ValueError as error:
            return {"refused": str(error)}
        answers = model.predict(rows.test)
        if rows.classes is None:
            return {"answers": answers, "scores": answers, "cpu_s": seconds}
        places = np.searchsorted(rows.classes, answers)
        return {"answers": places, "scores": model.decision_function(rows.test), "cpu_s": seconds}


def scored(rows: Split, answers: Array, scores: Array) -> Row:
    """Accuracy and ROC AUC (several classes: one against the rest, averaged), or RMSE and R^2 within declared bounds."""
    y = rows.test_y
    if rows.classes is None:
        target = rows.schema[rows.schema.target or ""]
        squares = float(np.mean((np.clip(answers, target.low, target.high) - y) ** 2))
        return {"rmse": math.sqrt(squares), "r2": 1 - squares / float(np.var(y))}
    columns = {1: scores} if len(rows.classes) == 2 else {place: scores[:, place] for place in range(len(rows.classes))}
    areas = [
        float(roc_auc_score(y == place, score)) for place, score in columns.items() if 0 < np.sum(y == place) < len(y)
    ]
    return {"accuracy": float(np.mean(answers == y)), "roc_auc": mean(areas) if areas else None}


def summary(results: Sequence[Row], asked: Asked) -> list[Row]:
    """A row for each table, method and epsilon: means, their standard errors, and the share of the way to boosting."""
    groups: dict[tuple[str, float | None, str], list[Row]] = {}
    for row in results:
        groups.setdefault((row["table"], row["epsilon"], row["method"]), []).append(row)
    regression = {table.name: table.regression for table in asked.tables}
    rows = [_mean_row(*key, group, regression[key[0]]) for key, group in groups.items()]
    order = [table.name for table in asked.tables]
    rows.sort(key=lambda row: (order.index(row["table"]), row["epsilon"] or 0.0, asked.names.index(row["method"])))
    reference = {(row["table"], row["method"]): row for row in rows if row["epsilon"] is None}
    for row in rows:
        start, end = (reference.get((row["table"], name)) for name in ("logistic", "boosting"))
        if start is not None and end is not None:
            row["way"] = way(row[measure(row)], start[measure(row)], end[measure(row)], end["se"])
    return rows


def measure(row: Row) -> str:
    """By what the way to boosting is measured."""
    return "r2" if row["task"] == "regression" else "roc_auc"


def way(value: float | None, start: float | None, end: float | None, error: float | None = 0.0) -> float | None:
    """The share of the way from start to end; None where that is too short, also for the ``error`` of its end.

    >>> way(0.75, 0.7, 0.8), way(0.75, 0.8, 0.8), way(0.75, 0.7, 0.8, 0.1)
    (0.5, None, None)
    """
    if value is None or start is None or end is None or end - start < max(MIN_GAP, ERRORS * (error or 0.0)):
        return None
    return round((value - start) / (end - start), 6)


def _mean_row(table: str, epsilon: float | None, method: str, group: list[Row], regression: bool) -> Row:
    finished = [row for row in group if "refused" not in row]
    found: dict[str, float | None] = {}
    for name in SCORES:
        values = [row[name] for row in finished if row.get(name) is not None]
        found[name] = mean(values) if values else None
        found[f"{name}_se"] = (stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0) if values else None
    return {
        "table": table,
        "task": "regression" if regression else "classification",
        "method": method,
        "epsilon": epsilon,
        "accuracy": found["accuracy"],
        "roc_auc": found["roc_auc"],
        "se": found["r2_se" if regression else "roc_auc_se"],
        "cpu_s": median(row["cpu_s"] for row in finished) if finished else None,
        "way": None,
        "accuracy_se": found["accuracy_se"],
        "rmse": found["rmse"],
        "rmse_se": found["rmse_se"],
        "r2": found["r2"],
        "seeds": len(finished),
        "refused": next((row["refused"] for row in group if "refused" in row), None),
    }


def mean_ways(rows: Sequence[Row]) -> list[Row]:
    """By method and epsilon: the share of the way, averaged over tables, the smallest, and how many tables."""
    groups: dict[tuple[float, str], list[float]] = {}
    for row in rows:
        if row["epsilon"] is not None and row["way"] is not None:
            groups.setdefault((row["epsilon"], row["method"]), []).append(row["way"])
    return [
        {"method": method, "epsilon": epsilon, "mean_way": mean(ways), "smallest": min(ways), "tables": len(ways)}
        for (epsilon, method), ways in sorted(groups.items(), key=lambda item: item[0][0])
    ]
