"""Which public pair of digits teaches a protector to learn 3 against 5: a protector for each of 28 pairs.

Each is meta-trained on one pair alone, with column subsets of its images, and then trains logistic regression on the
private pair at (0.05, 1e-8), add_remove, size public. Beside them: the rule's protector and the one without weights.

Hong, Wang, Wang & Zhou 2021, Figure 4.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from noisewise.accounts import Budget
from noisewise.learned.meta_training import Recipe, Training
from noisewise.learned.tasks import Tasks, TaskSource
from noisewise.methods.l2p import L2P
from noisewise.protect.learned.weights import Design
from noisewise.protect.learned.zoo import OutsideRange, save_protector
from noisewise.train import Records, train

from .figure3 import ZeroWeight
from .l2p_data import accuracy, fingerprint, is_there, labelled, model_for, problem
from .store import Report, Row, run_cells

EPSILON, DELTA = 0.05, 1e-8
QUICK_PAIRS = ((0, 1), (1, 2), (4, 6))
COLUMNS = (60, 300)
ROWS = 2000
RANGES = {"epsilon": (0.025, 0.1), "size": (6000.0, 24000.0), "horizon": (40, 60)}  # around what the private pair has
HORIZON = 50


@dataclass(frozen=True)
class Figure4Cell:
    """A protector for one pair, or one that needs no training here, and its private runs."""

    source: str  # "pair", "rule" or "zero_weight"
    pair: tuple[int, int] | None
    epochs: int
    repeats: int
    settings: str = ""


def cells(pairs: Sequence[tuple[int, int]], epochs: int, repeats: int) -> list[Figure4Cell]:
    digest = fingerprint()
    trained = [Figure4Cell("pair", pair, epochs, repeats, f"{COLUMNS} {ROWS} {RANGES}") for pair in pairs]
    return [
        *trained,
        Figure4Cell("rule", None, 0, repeats, digest),
        Figure4Cell("zero_weight", None, 0, repeats, digest),
    ]


def pair_tasks(pair: tuple[int, int], folder: Path) -> Tasks:
    """Public tasks that tell these two digits apart."""
    source = TaskSource("images", "mnist.npz", pairs=(pair,), columns=COLUMNS, basis=1.0)
    horizon = RANGES["horizon"]
    return Tasks(
        f"{pair[0]} vs {pair[1]}", (source,), epsilon=RANGES["epsilon"], delta=DELTA, size=RANGES["size"],
        horizon=(int(horizon[0]), int(horizon[1])), rows=ROWS, folder=folder,
    )  # fmt: skip


def trained_on(pair: tuple[int, int], folder: Path, epochs: int, path: Path) -> None:
    """Meta-train a protector on one pair and write it."""
    tasks = pair_tasks(pair, folder)
    training = Training(tasks, Design(), Recipe(epochs=epochs))
    for _ in training:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {
        "name": path.stem, "horizon": HORIZON, "trained_on": [{"data": f"mnist.npz, {tasks.name}", "licence": "CC BY-SA 3.0"}], "held_out": [],
        "recipe": training.recipe.to_dict(), "tasks": {},
        "ranges": {**{name: list(span) for name, span in RANGES.items()}, "dimension": [COLUMNS[0], 800]},
    }  # fmt: skip
    save_protector(path, training.weights, training.design, header)


def run_cell(cell: Figure4Cell, folder: Path, out: Path) -> Row:
    """Train the protector if it has to be, then run it on the private pair; accuracies of all repeats."""
    started = time.perf_counter()
    method = ZeroWeight() if cell.source == "zero_weight" else L2P()
    if cell.pair is not None:
        path = out / "protectors" / f"{cell.pair[0]}-{cell.pair[1]}.safetensors"
        trained_on(cell.pair, folder, cell.epochs, path)
        method = L2P(protector=str(path))
    trained = time.perf_counter()
    rows = problem("mnist35", folder)
    model = model_for(rows.train, "linear")
    X, y = labelled(rows.train, model)
    records, budget = Records(X, y, float(len(X)), row_bound=1.0), Budget(EPSILON, DELTA, adjacency="add_remove")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutsideRange)
        thetas = [train(method, records, model=model, budget=budget, seed=seed).theta for seed in range(cell.repeats)]
    return {
        "accuracies": [accuracy(model, theta, rows.test) for theta in thetas],
        "training_seconds": trained - started, "seconds": time.perf_counter() - started,
    }  # fmt: skip


def run_figure4(
    folder: Path, *, pairs: Sequence[tuple[int, int]], epochs: int, repeats: int, jobs: int, out: Path, report: Report
) -> list[Row]:
    """Every pair that is not in ``out`` yet, and the two references."""
    is_there("mnist35", folder)
    work = partial(run_cell, folder=folder, out=out)
    return run_cells(cells(pairs, epochs, repeats), work, out=out / "results.jsonl", jobs=jobs, report=report)


def summary(results: Sequence[Row]) -> list[Row]:
    """Mean accuracy of each pair's protector with its standard error, best pair first, then the references."""
    rows = []
    for result in results:
        values, pair = result["accuracies"], result["pair"]
        rows.append(
            {
                "trained_on": result["source"] if pair is None else f"{pair[0]} vs {pair[1]}", "repeats": len(values),
                "accuracy": float(np.mean(values)),
                "accuracy_se": float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None,
                "training_seconds": round(result["training_seconds"], 1),
            }
        )  # fmt: skip
    return sorted(rows, key=lambda row: (row["trained_on"] in ("rule", "zero_weight"), -row["accuracy"]))
