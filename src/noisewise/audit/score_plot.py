"""A picture of an audit: the scores in both worlds with the threshold, and the ROC beside what the claim allows."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from ..accounting.gdp import mu_of
from .lower_bound import Audit
from .roc import Allowed, roc

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"


def plot_audit(audit: Audit, path: Path) -> None:
    """Write the picture; the measured half of the runs is shown, which had no part in choosing the threshold."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.4, 4.8), layout="constrained")
    scores, curve = figure.subplots(1, 2)
    for axes in (scores, curve):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
    _histograms(audit, scores)
    _curve(audit, curve)
    head = f"{audit.method}, {audit.adjacency}: epsilon {audit.claimed:g} claimed at delta {audit.delta:g}"
    figure.suptitle(f"{head}\n{fill(audit.verdict, 120)}", x=0.01, ha="left", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)


def _histograms(audit: Audit, axes: Any) -> None:
    without, with_it = audit.scores
    both = np.concatenate(audit.scores)
    low, high = np.quantile(both, [0.002, 0.998])
    low, high = min(low, audit.threshold), max(high, audit.threshold)
    if low == high:
        low, high = low - 0.5, high + 0.5
    bins = np.linspace(low, high, 41)
    names = ("record not there", "record there") if audit.adjacency == "add_remove" else ("one record", "the other")
    for values, name, colour, line in zip((without, with_it), names, (BLUE, ORANGE), ("-", "--"), strict=True):
        shown = np.clip(values, low, high)
        axes.hist(shown, bins, color=colour, alpha=0.3)
        axes.hist(shown, bins, histtype="step", color=colour, linestyle=line, linewidth=1.6, label=name)
    axes.axvline(audit.threshold, color="black", linewidth=1.3, label="threshold, from other runs")
    axes.set_ylim(top=1.22 * axes.get_ylim()[1])
    axes.set_xlabel(f"score: {audit.score} of everything released")
    axes.set_ylabel(f"runs, of {audit.trials:,} in each world")
    axes.legend(frameon=True, framealpha=0.95, edgecolor="none", fontsize=9, loc="upper right", ncols=2)


def _curve(audit: Audit, axes: Any) -> None:
    grid = np.linspace(0.0, 1.0, 400)
    mu = mu_of(audit.claimed, audit.delta) if audit.gaussian else None
    most = Allowed(audit.claimed, audit.delta, mu)(grid)
    kind = "the most that the claim allows" + (" (Gaussian DP)" if audit.gaussian else "")
    axes.plot(grid, most, color="black", linewidth=1.6, label=kind)
    axes.fill_between(grid, most, 1.0, color="black", alpha=0.07, linewidth=0)
    axes.plot(grid, grid, color="#AAAAAA", linewidth=0.9, label="guessing")
    seen = roc(audit.scores[1], audit.scores[0])
    axes.step(seen.fpr, seen.tpr, where="post", color=ORANGE, linewidth=1.7, label="seen in this audit")
    axes.plot(
        audit.false_positives / audit.trials, 1 - audit.false_negatives / audit.trials, "o", color="black",
        markerfacecolor="white", markersize=7, label="at the threshold", clip_on=False, zorder=5,
    )  # fmt: skip
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("false-positive rate: says \u201cthere\u201d when it is not")
    axes.set_ylabel("true-positive rate: says \u201cthere\u201d when it is")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
