"""From single simulations to a few quantiles: by which variable, and with which spread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from noisewise.evidence.figures import GREY, STYLES, band, label_axes, legend_below, panels, save_figure

from .expected import KINDS
from .store import Row
from .tables_split import Array

POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
QUANTILES = (0.1, 0.5, 0.9)
WINDOW = 2.5  # values of the variable within this factor count at a point
MIN_SIMULATIONS = 12  # at a point
POINTS = tuple(step * 10.0**place for place in range(5) for step in (1, 2, 5))
Quantiles = tuple[float, float, float, float]


def variable(rows: Sequence[Row], power: float) -> Array:
    """n mu / columns ** power."""
    return np.array([row["clarity"] / row["columns"] ** power for row in rows])


def number(row: Row) -> bool:
    """Whether the target is a number, measured by R^2."""
    return bool(row["target"] == "number")


def spread(rows: Sequence[Row], power: float) -> float:
    """How far ``kept`` lies from the median of those with a like value of the variable, on average."""
    x, kept = variable(rows, power), np.array([row["kept"] for row in rows])
    near = np.abs(np.log(x[:, None] / x[None, :])) <= np.log(WINDOW)
    return float(np.mean([abs(mine - np.median(kept[others])) for mine, others in zip(kept, near, strict=True)]))


def quantile_rows(rows: Sequence[Row], power: float) -> list[Quantiles]:
    """(mean value of the variable, quantiles of kept near it), made to rise by pooling neighbours: more records do not hurt."""
    from sklearn.isotonic import isotonic_regression

    x, kept = variable(rows, power), np.array([row["kept"] for row in rows])
    points: list[float] = []
    found, counts = [], []
    for point in POINTS:
        near = np.abs(np.log(x / point)) <= np.log(WINDOW)
        if near.sum() >= MIN_SIMULATIONS:
            middle = float(f"{np.exp(np.log(x[near]).mean()):.3g}")  # at the ends, neighbours are on one side only
            if not points or middle > 1.2 * points[-1]:
                points.append(middle)
                counts.append(float(near.sum()))
                found.append(np.quantile(kept[near], QUANTILES))
    if not points:
        return []
    rising = [isotonic_regression(column, sample_weight=counts) for column in np.array(found).T]
    return [
        (point, *(round(float(value), 3) for value in values)) for point, *values in zip(points, *rising, strict=True)
    ]


def covered(rows: Sequence[Row], power: float, table: Sequence[Quantiles]) -> float:
    """The share of ``rows`` that lie between the low and the high quantile of a table."""
    numbers = np.array(table)
    x = np.log(variable(rows, power))
    low, high = (np.interp(x, np.log(numbers[:, 0]), numbers[:, place]) for place in (1, 3))
    kept = np.array([row["kept"] for row in rows])
    return float(np.mean((low <= kept) & (kept <= high)))


def left_out(rows: Sequence[Row], power: float) -> list[Row]:
    """For each task: how many of its simulations the range of all other tasks holds, and how far it lies from their middle."""
    told = []
    for task in sorted({row["task"] for row in rows}):
        mine, others = ([row for row in rows if (row["task"] == task) is same] for same in (True, False))
        if not others or not (table := quantile_rows(others, power)):
            continue
        numbers = np.array(table)
        middle = np.interp(np.log(variable(mine, power)), np.log(numbers[:, 0]), numbers[:, 2])
        off = float(np.mean([row["kept"] for row in mine] - middle))
        told.append({"task": task, "runs": len(mine), "within": covered(mine, power, table), "above the middle": off})
    return told


def tables_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Simulations by what their score is: ROC AUC of classes, R^2 of a number."""
    kinds = {"classes": [row for row in rows if not number(row)], "number": [row for row in rows if number(row)]}
    return {name: mine for name, mine in kinds.items() if mine}


def spreads(rows: Sequence[Row]) -> list[Row]:
    """The spread by each power, for each kind of target and their mean."""
    found = []
    for power in POWERS:
        each = {name: spread(mine, power) for name, mine in tables_of(rows).items()}
        found.append({"power": power, **each, "mean": float(np.mean(list(each.values())))})
    return found


def chosen_power(rows: Sequence[Row]) -> float:
    """The power by which simulations lie closest to their middle."""
    return float(min(spreads(rows), key=lambda row: row["mean"])["power"])


def plot_kept(rows: Sequence[Row], power: float, path: Path) -> None:
    """Every simulation, and the quantiles."""
    groups = tables_of(rows)
    figure, panes = panels(9.2, 4.6, 1, len(groups), squeeze=False, sharey=True)
    tasks = sorted({row["task"] for row in rows}, key=lambda task: (task not in KINDS, task))
    for axes, (name, mine) in zip(panes[0], groups.items(), strict=True):
        for place, task in enumerate(tasks):
            here = [row for row in mine if row["task"] == task]
            colour, _, mark = STYLES[place % len(STYLES)]
            filled = colour if task in KINDS else "none"
            look = {"marker": mark, "s": 18, "facecolors": filled, "edgecolors": colour, "alpha": 0.6}
            axes.scatter(variable(here, power), [row["kept"] for row in here], label=task, **look)
        if table := quantile_rows(mine, power):
            numbers = np.array(table)
            band(axes, numbers[:, 0], *numbers[:, 1:].T, color=GREY, linewidth=2, alpha=0.25)
        measured = "R^2, target: a number" if name == "number" else "ROC AUC, target: classes"
        label_axes(axes, title=measured, x=f"n mu / columns ** {power:g}", log="x")
        axes.set_ylim(-0.3, 1.2)
    label_axes(panes[0][0], y="share kept")
    legend_below(figure, panes, 5, fontsize=8.5)
    save_figure(figure, path)
