"""The published comparison of private learners with small public data (Wang & Zhou 2020, Table 2), run anew.

80/20 split, 0.1 % of the training rows public, features and real labels in [-1, 1], unit rows with an intercept, hinge
and squared loss, delta 1e-8, replace_one. Every method runs with its one default configuration on all data sets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from noisewise.accounts import Budget
from noisewise.asking import PublicCurator
from noisewise.faces.sklearn import PrivateClassifier, PrivateRegressor
from noisewise.methods import Method, registry
from noisewise.train import Records, train
from noisewise.trusted.losses import HuberHinge, Loss, Squared, loss_named
from noisewise.trusted.models import Linear

from .datasets import Missing, Table, load
from .threads import use_threads

DELTA = 1e-8
AUTO = "auto"
Places = NDArray[np.int64]
MERGED = ("sgd_adv", "agd", "output_perturbation", "objective_perturbation")  # public rows join the private ones
PUBLISHED = {
    "ppsgd": "PPSGD", "ppsgd_paper": "PPSGD", "sgd_adv": "SgdAdv", "agd": "Agd", "output_perturbation": "OutPert",
    "objective_perturbation": "ObjPert", "pnsgd": "PNSGD", "agd_avg": "AgdAvg", "only_public": "OnlyPub",
    "nonprivate": "NonPriv",
}  # fmt: skip
PRIVATE_COLUMNS = ["PPSGD", "SgdAdv", "Agd", "OutPert", "ObjPert", "PNSGD", "AgdAvg"]


# Learning rate, batch, rho_0 and C_0 are not in the paper: chosen in hindsight per loss and epsilon, to come near its numbers.
AS_PUBLISHED: dict[str, Any] = {"optimizer": "sgd", "tail": 0.0, "accounting": "paper", "sampling": ("fixed", 0.1)}
PAPER_SETTINGS: dict[tuple[str, float], dict[str, Any]] = {
    ("hinge", 0.1): {"steps": 40, "learning_rate": 8.0, "max_grad_norm": 0.25, "reuse": 1.0},
    ("hinge", 0.5): {"steps": 200, "learning_rate": 4.0, "max_grad_norm": 0.5, "reuse": 10.0},
    ("squared", 0.1): {"steps": 20, "learning_rate": 8.0, "max_grad_norm": 0.25, "reuse": 0.1},
    ("squared", 0.5): {"steps": 200, "learning_rate": 2.0, "max_grad_norm": 1.0, "reuse": 1.0},
    ("squared", 0.3): {"steps": 80, "learning_rate": 2.0, "max_grad_norm": 0.25, "reuse": 0.1},
    ("squared", 0.7): {"steps": 60, "learning_rate": 8.0, "max_grad_norm": 0.1, "reuse": 1.0},
}


@dataclass(frozen=True)
class Table2Cell:
    """One cell of the table, one repeat of it."""

    dataset: str
    loss: str
    epsilon: float
    method: str
    repeat: int


def cells(datasets: Iterable[Table], methods: Iterable[str], repeats: int) -> Iterator[Table2Cell]:
    names = list(methods)
    for table in datasets:
        losses, epsilons = (("squared",), (0.3, 0.7)) if table.regression else (("hinge", "squared"), (0.1, 0.5))
        for loss in losses:
            for epsilon in epsilons:
                for method in names:
                    for repeat in range(repeats):
                        yield Table2Cell(table.name, loss, epsilon, method, repeat)


def method_of(cell: Table2Cell) -> Method | str:
    """The method with its defaults; ``ppsgd_paper`` is ppsgd with the paper's accounting and settings in hindsight.

    ``auto`` is what the estimators do with nothing set, with the loss that they take: the same in both losses' cells.
    """
    if cell.method == AUTO:
        return AUTO
    if cell.method == "ppsgd_paper":
        return registry()["ppsgd"](**AS_PUBLISHED, **PAPER_SETTINGS[cell.loss, cell.epsilon])
    return registry()[cell.method]()


def loss_of(cell: Table2Cell, table: Table, method: Method) -> Loss | None:
    """The loss of the cell as the method can take it: the Huberised hinge where smoothness is needed; None if neither."""
    if cell.loss == "squared":
        return Squared(signs=not table.regression) if "squared" in method.losses else None
    if "hinge" in method.losses:
        return loss_named("hinge")
    return HuberHinge(0.5) if "huber_hinge" in method.losses else None


def run_cell(cell: Table2Cell, table: Table) -> float | None:
    """Accuracy or mean squared error on the test rows of one repeat; None where the method has no such loss."""
    order = np.random.default_rng([cell.repeat, 2020]).permutation(len(table.X))
    train_rows, test_rows = np.split(order, [int(0.8 * len(order))])
    public_rows, private_rows = np.split(train_rows, [max(2, round(table.public_share * len(train_rows)))])
    method = method_of(cell)
    if isinstance(method, str):
        return _auto(cell, table, public_rows, private_rows, test_rows)
    loss = loss_of(cell, table, method)
    if loss is None:
        return None
    model = Linear(table.X.shape[1], loss)
    X, y = table.X, table.y
    public = PublicCurator(X[public_rows], y[public_rows], model=model, seed=cell.repeat)
    rows = train_rows if cell.method in MERGED or not method.private else private_rows
    records = Records(X[rows], y[rows], float(len(rows)), row_bound=1.0)
    budget = Budget(cell.epsilon, DELTA, adjacency="replace_one")
    uses_public = cell.method not in MERGED
    run = train(method, records, model=model, budget=budget, public=public if uses_public else None, seed=cell.repeat)
    scores = X[test_rows] @ run.theta
    if table.regression:
        return float(np.square(scores - y[test_rows]).mean())
    return float(((scores > 0) == (y[test_rows] > 0)).mean())


def _auto(cell: Table2Cell, table: Table, public: Places, private: Places, test: Places) -> float:
    """What an estimator reaches that is told the bounds, with nothing else set; columns as they were before rows had norm 1."""
    columns = table.X[:, :-1].astype(float) / table.X[:, -1:]
    common: dict[str, Any] = {"adjacency": "replace_one", "bounds": (-1, 1), "random_state": cell.repeat}
    if table.regression:
        face: Any = PrivateRegressor(cell.epsilon, DELTA, target_bounds=(-1, 1), **common)
    else:
        face = PrivateClassifier(cell.epsilon, DELTA, classes=[-1, 1], **common)
    y = table.y if table.regression else table.y.astype(int)
    face.fit(columns[private], y[private], (columns[public], y[public]))
    predicted = face.predict(columns[test])
    return float(np.square(predicted - y[test]).mean() if table.regression else (predicted == y[test]).mean())


def timed_cell(cell: Table2Cell, table: Table) -> dict[str, Any]:
    use_threads(1)
    started = time.perf_counter()
    try:
        value, refused = run_cell(cell, table), None
    except ValueError as error:
        value, refused = None, str(error)
    return {**vars(cell), "value": value, "refused": refused, "seconds": time.perf_counter() - started}


def published() -> pd.DataFrame:
    """The legible cells of the published table."""
    path = files("noisewise_lab").joinpath("published/ppsgd_table2.csv")
    with path.open() as file:
        return pd.read_csv(file).replace({"loss": {"square": "squared"}})


def summary(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per dataset, loss, epsilon and method: mean, std, what was published for it, and the best published."""
    frame = pd.DataFrame(results).dropna(subset=["value"])
    table = {(row["dataset"], row["loss"], row["epsilon"]): row for row in published().to_dict("records")}
    rows = []
    for (dataset, loss, epsilon, method), group in frame.groupby(["dataset", "loss", "epsilon", "method"], sort=False):
        regression = dataset in ("cadata", "electrical")
        cell = table.get((dataset, loss, epsilon))
        private = [] if cell is None else [cell[name] for name in PRIVATE_COLUMNS if pd.notna(cell[name])]
        best = float(min(private) if regression else max(private)) if private else None
        mean, column = float(group["value"].mean()), PUBLISHED.get(str(method))
        theirs = None if cell is None or column is None or pd.isna(cell[column]) else float(cell[column])
        rows.append(
            {
                "dataset": dataset, "loss": loss, "epsilon": epsilon, "method": method, "mean": mean,
                "std": float(group["value"].std(ddof=1)) if len(group) > 1 else 0.0, "repeats": len(group),
                "published": theirs, "published_best": best,
                "beats_best": None if best is None else bool(mean < best if regression else mean > best),
            }
        )  # fmt: skip
    return rows


def all_methods() -> list[str]:
    """Every method of the registry, the recommended one first, and ppsgd with the paper's accounting."""
    return [AUTO, "descent", "ppsgd", "ppsgd_paper", *(name for name in registry() if name not in ("descent", "ppsgd"))]


class Store:
    """Finished cells in a file of JSON lines, so that an interrupted table goes on where it stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[str, dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self.done[row["key"]] = row

    @staticmethod
    def key(cell: Table2Cell) -> str:
        return f"{cell} {method_of(cell)!r}"

    def add(self, cell: Table2Cell, row: dict[str, Any]) -> None:
        row = {"key": self.key(cell), **row}
        self.done[row["key"]] = row
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def run_table(
    folder: Path, *, datasets: list[str], methods: list[str], repeats: int, jobs: int, out: Path, report: Any
) -> list[dict[str, Any]]:
    """Run what is not in the store yet, in parallel; ``report(done, total)`` after each; the results of all cells."""
    from joblib import Parallel, delayed

    tables: dict[str, Table] = {}
    for name in datasets:
        try:
            tables[name] = load(name, folder)
        except Missing as missing:
            report(f"skipping {name}: {missing}")
    out.mkdir(parents=True, exist_ok=True)
    store = Store(out / "results.jsonl")
    wanted = list(cells(tables.values(), methods, repeats))
    todo = [cell for cell in wanted if Store.key(cell) not in store.done]
    todo.sort(key=lambda cell: cell.repeat)  # every cell gets its first repeat early
    results = Parallel(n_jobs=jobs, return_as="generator")(
        delayed(timed_cell)(cell, tables[cell.dataset]) for cell in todo
    )
    for number, (cell, row) in enumerate(zip(todo, results, strict=True), 1):
        store.add(cell, row)
        report((len(wanted) - len(todo) + number, len(wanted)))
    return [store.done[Store.key(cell)] for cell in wanted]
