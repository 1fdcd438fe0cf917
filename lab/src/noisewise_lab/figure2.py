"""Training loss and spent budget per iteration: a support vector machine by ``l2p`` and by ``agd``.

(0.05, 1e-8), add_remove, size public. An iteration is a gradient that was paid for; what else is paid between two of
them (a basis, choices among step sizes) counts to the first. The loss of private records is not a released fact: it is
measured here because these are simulations.

Hong, Wang, Wang & Zhou 2021, Figure 2.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from noisewise.accounts import Budget, BudgetExhausted, open_meter
from noisewise.asking import Curator
from noisewise.methods import registry
from noisewise.protect.learned.zoo import OutsideRange
from noisewise.trusted.facts import Released, facts_of

from .datasets import Missing
from .l2p_data import accuracy, fingerprint, labelled, model_for, problem
from .store import Report, Row, run_cells

EPSILON, DELTA = 0.05, 1e-8
METHODS = ("l2p", "agd")
TABLES = ("ipums-us", "ipums-br")  # the first that is there


@dataclass(frozen=True)
class Figure2Cell:
    """One run of one method."""

    task: str
    method: str
    repeat: int
    settings: str


def table_in(folder: Path) -> str:
    """The census table that is there: the paper's, else the other one."""
    files = {name: f"{name.replace('-', '_')}.parquet" for name in TABLES}
    for name, file in files.items():
        if (folder / file).is_file():
            return name
    raise Missing(f"neither {' nor '.join(files.values())} is in {folder}")


def run_cell(cell: Figure2Cell, folder: Path) -> Row:
    """Loss and spent share of the budget after each paid gradient; entry 0 is before the first. The loop of ``train``."""
    rows = problem(cell.task, folder, repeat=cell.repeat)
    model = model_for(rows.train, "svm")
    X, y = labelled(rows.train, model)
    size, budget, method = float(len(X)), Budget(EPSILON, DELTA, adjacency="add_remove"), registry()[cell.method]()
    meter = open_meter(budget, method.terms(facts_of(model, budget, size=size, row_bound=1.0)))
    curator = Curator(X, y, model=model, meter=meter, size=size, row_bound=1.0, seed=cell.repeat)
    batch = model.lay_out(X, y)
    state = method.init(model.start(), curator.facts, None)
    theta, asked = model.start(), 0
    losses = [float(model.losses(theta, batch).mean(dtype=np.float64))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutsideRange)
        while not method.done(state):
            try:
                state = method.step(state, curator, None)
            except BudgetExhausted:
                break  # as in training: what was released so far stands
            theta, now = method.finish(state, None), len(spent_by(curator.trace)) - 1
            loss = float(model.losses(theta, batch).mean(dtype=np.float64))
            losses = [*losses[: asked + (now > asked)], *[loss] * max(now - asked, 1)]
            asked = now
    return {"losses": losses, "spent": spent_by(curator.trace), "accuracy": accuracy(model, theta, rows.test)}


def spent_by(trace: Sequence[Released]) -> list[float]:
    """Spent share of the budget before the first gradient, and after each with what was asked until the next."""
    spent = [0.0]
    for released in trace:
        if released.question == "gradient":
            spent.append(released.spent)
        else:
            spent[-1] = released.spent
    return spent


def run_figure2(folder: Path, *, repeats: int, jobs: int, out: Path, report: Report) -> list[Row]:
    """Every run that is not in ``out`` yet; all results."""
    task = table_in(folder)
    if task != TABLES[0]:
        report(f"{TABLES[0]} is not in {folder}; taking {task}")
    settings = {name: f"{registry()[name]()!r}" for name in METHODS}
    settings["l2p"] += f" {fingerprint()}"
    cells = [Figure2Cell(task, name, repeat, settings[name]) for repeat in range(repeats) for name in METHODS]
    return run_cells(cells, partial(run_cell, folder=folder), out=out / "results.jsonl", jobs=jobs, report=report)


def curves(results: Sequence[Row]) -> list[Row]:
    """Mean and standard deviation over repeats at each iteration; a run that has ended stays where it ended.

    ``runs`` is how many had not ended. ``step_spent`` is what the iteration spent, ``spent`` all until then.
    """
    rows = []
    for method in dict.fromkeys(row["method"] for row in results):
        own = [row for row in results if row["method"] == method]
        longest = max(len(row["losses"]) for row in own)
        losses = np.array([row["losses"] + [row["losses"][-1]] * (longest - len(row["losses"])) for row in own])
        spent = np.array([row["spent"] + [row["spent"][-1]] * (longest - len(row["spent"])) for row in own])
        steps = np.diff(spent, axis=1, prepend=0.0)
        for number in range(longest):
            row: Row = {"method": method, "iteration": number, "runs": sum(len(r["losses"]) > number for r in own)}
            for name, values in (("loss", losses), ("spent", spent), ("step_spent", steps)):
                row[name] = float(values[:, number].mean())
                row[f"{name}_std"] = float(values[:, number].std(ddof=1)) if len(own) > 1 else 0.0
            rows.append(row)
    return rows


def summary(results: Sequence[Row]) -> list[Row]:
    """Where the runs ended: iterations, spent share, training loss and test accuracy, with standard errors."""
    rows = []
    for method in METHODS:
        own = [row for row in results if row["method"] == method]
        row: Row = {"task": own[0]["task"], "method": method, "repeats": len(own)}
        row["iterations"] = float(np.mean([len(r["losses"]) - 1 for r in own]))
        row["spent"] = float(np.mean([r["spent"][-1] for r in own]))
        ends = (("loss", [r["losses"][-1] for r in own]), ("accuracy", [r["accuracy"] for r in own]))
        for name, values in ends:
            row[name] = float(np.mean(values))
            row[f"{name}_se"] = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
        rows.append(row)
    return rows
