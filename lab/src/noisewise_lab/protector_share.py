"""The trade-off that Learning to Protect leaves open: a share of the budget trains the protector on the private rows themselves.

Test accuracy over that share, on the census table and on pairs of digits, beside the protectors of the package and zero weights,
which spend all of the budget on training. add_remove, delta 1e-8, sizes public, fixed seeds. A share of 0 is the start
itself: zero weights, or the rule's protector. ``census-large`` is generated, because shards want many rows.

Hong, Wang, Wang & Zhou 2021, "Private meta-optimization".
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from noisewise.accounts import Budget
from noisewise.methods.l2p import L2P
from noisewise.protect.learned.zoo import OutsideRange
from noisewise.tables.generated import census
from noisewise.train import Records, train

from .datasets import Missing
from .figure3 import ZeroWeight
from .l2p_data import (
    FEATURES,
    Problem,
    Rows,
    accuracy,
    fingerprint,
    is_there,
    labelled,
    model_for,
    problem,
    scaled_rows,
)
from .store import Report, Row, run_cells

DELTA = 1e-8
SHARES = (0.0, 0.05, 0.1, 0.2, 0.4)
EPSILONS = (0.1, 0.8)
PLACES = ("ipums-br", "mnist35", "mnist35-features", "census-large")
STARTS = ("zero", "auto")
LARGE, HELD_OUT = 400_000, 20_000  # rows of the generated census


@dataclass(frozen=True)
class ShareCell:
    """One run; ``start`` is what the protector's training starts from."""

    place: str
    epsilon: float
    start: str
    share: float
    repeat: int
    protectors: str


def method_at(cell: ShareCell) -> L2P:
    """The method of a cell; nothing is bought for rows in public components, which are centred."""
    deflate = FEATURES.get(cell.place, "pixels") == "pixels"
    if cell.share == 0:
        return ZeroWeight(deflate=deflate) if cell.start == "zero" else L2P(deflate=deflate)
    return L2P("private", deflate=deflate, protector_share=cell.share, start=cell.start)


@lru_cache(maxsize=1)
def place_rows(place: str, folder: Path, repeat: int) -> Problem:
    """Rows to train on and to test on; the large table is generated, so that there are many."""
    if place != "census-large":
        return problem(place, folder, repeat=repeat)
    table = census(LARGE + HELD_OUT, seed=repeat)
    X, y = table.X.to_numpy(dtype=float), table.y
    low, high = X.min(0), X.max(0)
    whole: Rows = scaled_rows(place, 2 * (X - low) / (high - low) - 1, np.where(y, 1.0, -1.0))
    return Problem(Rows(place, whole.X[:LARGE], whole.y[:LARGE]), Rows(place, whole.X[LARGE:], whole.y[LARGE:]))


def run_cell(cell: ShareCell, folder: Path) -> Row:
    """Accuracy on the test rows, and what meta-training did."""
    started, rows = time.perf_counter(), place_rows(cell.place, folder, cell.repeat)
    model = model_for(rows.train, "linear")
    X, y = labelled(rows.train, model)
    records, budget = Records(X, y, float(len(X)), row_bound=1.0), Budget(cell.epsilon, DELTA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutsideRange)
        run = train(method_at(cell), records, model=model, budget=budget, seed=cell.repeat)
    made: dict[str, Any] = {} if run.protector is None else run.protector.header
    return {
        "accuracy": accuracy(model, run.theta, rows.test), "shards": made.get("recipe", {}).get("shards"),
        "meta_steps": made.get("recipe", {}).get("steps"), "added": made.get("added"),
        "seconds": time.perf_counter() - started,
    }  # fmt: skip


def plan(
    places: Sequence[str], epsilons: Sequence[float], shares: Sequence[float], starts: Sequence[str], repeats: int
) -> list[ShareCell]:
    """Every run, the package's protector always among them; the first repeat of all comes first."""
    named, shipped = fingerprint(), () if "auto" in starts or 0.0 not in shares else (("auto", 0.0),)
    kinds = [*((start, share) for start in starts for share in shares), *shipped]
    return [
        ShareCell(place, epsilon, start, share, repeat, named)
        for repeat in range(repeats)
        for place in places
        for epsilon in epsilons
        for start, share in kinds
    ]


def run_shares(
    folder: Path, *, places: Sequence[str], epsilons: Sequence[float], shares: Sequence[float], starts: Sequence[str],
    repeats: int, jobs: int, out: Path, report: Report,
) -> list[Row]:  # fmt: skip
    """Run every cell that is not in ``out`` yet; all results."""
    there = [place for place in places if _readable(place, folder, report)]
    cells = plan(there, epsilons, shares, starts, repeats)
    work = partial(run_cell, folder=folder)
    return run_cells(cells, work, out=out / "results.jsonl", jobs=jobs, report=report)


def _readable(place: str, folder: Path, report: Report) -> bool:
    if place == "census-large":
        return True
    try:
        is_there(place, folder)
    except Missing as missing:
        report(f"skipping {place}: {missing}")
        return False
    return True


def summary(results: Sequence[Row]) -> list[Row]:
    """Per place, epsilon, start and share: accuracy, and how much better than zero weights and than the rule's protector,
    paired by repeat; each with its standard error."""
    frame, rows = pd.DataFrame(results), []
    for (place, epsilon), group in frame.groupby(["place", "epsilon"], sort=False):
        table = group.pivot_table(index="repeat", columns=["start", "share"], values="accuracy")
        kinds: list[Any] = list(table.columns.to_flat_index())
        for start, share in kinds:
            values = table[(start, share)]
            row: Row = {"place": place, "epsilon": epsilon, "start": start, "share": share, "repeats": len(values)}
            row |= _moments("accuracy", values)
            for name, reference in (("over_zero", ("zero", 0.0)), ("over_shipped", ("auto", 0.0))):
                if reference in table.columns:
                    row |= _moments(name, values - table[reference])
            rows.append(row)
    return rows


def _moments(name: str, values: Any) -> Row:
    error = float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
    return {name: float(values.mean()), f"{name}_se": error}


def plot_shares(rows: Sequence[Row], path: Path) -> None:
    """A panel for each place and epsilon: accuracy over the share, with standard errors."""
    import matplotlib.pyplot as plt

    frame = pd.DataFrame(rows)
    places, epsilons = list(frame["place"].unique()), list(frame["epsilon"].unique())
    figure, panels = plt.subplots(
        len(epsilons), len(places), figsize=(3.6 * len(places), 2.8 * len(epsilons)), squeeze=False, sharex=True
    )
    for line, epsilon in zip(panels, epsilons, strict=True):
        for panel, place in zip(line, places, strict=True):
            here = frame[(frame["place"] == place) & (frame["epsilon"] == epsilon)]
            panel.set_visible(bool(len(here)))
            for start, name in (("zero", "from zero weights"), ("auto", "from the package's")):
                some = here[here["start"] == start].sort_values("share")
                if len(some):
                    errors = (100 * some["accuracy_se"]).fillna(0)
                    panel.errorbar(some["share"], 100 * some["accuracy"], errors, marker="o", capsize=2, label=name)
            panel.set_title(f"{place}, ε = {epsilon:g}", fontsize=9)
            panel.set_xlabel("share for the protector")
            panel.set_ylabel("test accuracy, %")
    panels[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
