"""Figures of the transfer and ablation studies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.evidence.figures import band, legend_below, panels, save_figure, ticks

from .store import Row
from .transfer import NARROW

COLOURS = {
    "tables": "#0b6e99", "digits": "#b5541c", "generated": "#3a7d44", "quadratics": "#7b4fa3", "svm": "#c29b0c",
    "narrow": "#3a7d44", "zero": "#777777", "momentum": "#111111", "full": "#0b6e99",
}  # fmt: skip
MARKERS = "osD^vPX"
BUDGET_COLOURS = ("#c6dbef", "#6baed6", "#08519c", "#08306b")


def _unique(rows: Iterable[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def plot_matrix(rows: list[Row], path: Path) -> None:
    """A heat map per epsilon: protectors down, tasks across; numbers are scores, colours gains over zero weights."""
    here = [row for row in rows if row["study"] in ("matrix", "dimension")]
    epsilons, names, targets = sorted(_unique(here, "epsilon")), _unique(here, "protector"), _unique(here, "target")
    by = {(row["epsilon"], row["protector"], row["target"]): row for row in here}
    figure, grid = panels(10, 1.1 + 2.5 * len(epsilons), len(epsilons), 1, squeeze=False, sharex=True, grid=False)
    grid = grid[:, 0]
    largest = max(1.0, float(np.percentile([abs(row["over_zero"]) for row in here], 90)))
    image = None
    for axes, epsilon in zip(grid, epsilons, strict=True):
        gains = np.array([[by[epsilon, name, target]["over_zero"] for target in targets] for name in names])
        image = axes.imshow(gains, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
        for i, name in enumerate(names):
            for j, target in enumerate(targets):
                row = by[epsilon, name, target]
                error = f" ± {row['over_zero_error']:.1f}" if row["repeats"] > 1 and name != "zero" else ""
                dark = abs(row["over_zero"]) > 0.6 * largest
                axes.text(j, i, f"{row['score']:.1f}{error}", ha="center", va="center", fontsize=8,
                          color="white" if dark else "black")  # fmt: skip
        axes.set_yticks(range(len(names)), names)
        axes.set_xticks(range(len(targets)), [target.replace(" ", "\n", 1) for target in targets])
        axes.tick_params(length=0)
        axes.set_title(f"epsilon {epsilon:g}", loc="left", fontsize=10)
        axes.set_ylabel("trained on")
    bar = figure.colorbar(image, ax=list(grid), shrink=0.8, extend="both")
    bar.set_label("points above the zero-weight protector")
    figure.suptitle(
        "Test accuracy in % (quadratic: % of the starting loss removed), ± standard error of the gain over zero",
        fontsize=11,
    )
    save_figure(figure, path, dpi=120)


def plot_lines(rows: list[Row], study: str, path: Path) -> None:
    """Gains over the zero-weight protector over ``horizon`` or ``epsilon``, a panel per task and a line per protector."""
    here = [row for row in rows if row["study"] == study]
    over = "horizon" if study == "horizon" else "epsilon"
    targets, names = _unique(here, "target"), _unique(here, "protector")
    figure, grid = panels(9.5, 4.2, 1, len(targets), squeeze=False, grid=False)
    for axes, target in zip(grid[0], targets, strict=True):
        for number, name in enumerate(names):
            line = sorted(
                (row[over], row["over_zero"], row["over_zero_error"])
                for row in here
                if (row["target"], row["protector"]) == (target, name) and name != "zero"
            )
            if line:
                x, means, errors = zip(*line, strict=True)
                axes.errorbar(x, means, errors, color=COLOURS[name], marker=MARKERS[number % len(MARKERS)],
                              markersize=5, capsize=2, label=name)  # fmt: skip
        axes.axhline(0, color=COLOURS["zero"], linewidth=1, linestyle="--")
        low, high = NARROW if study == "budget" else (20, 80)
        axes.axvspan(
            low, high, color="#eeeeee", zorder=0, label=f"seen in training{' by narrow' * (over == 'epsilon')}"
        )
        axes.set_xscale("log")
        values = sorted({row[over] for row in here})
        ticks(axes, values)
        axes.set_xlabel("number of steps T" if over == "horizon" else "epsilon")
        axes.set_title(target, loc="left", fontsize=10)
    first = figure.axes[0]
    first.set_ylabel("points above the zero-weight protector")
    legend_below(figure, first, 4)
    save_figure(figure, path, dpi=120)


def plot_variants(rows: list[Row], path: Path) -> None:
    """What each change does to accuracy and loss, paired with the full protector, and what the schedules ask for."""
    names, epsilons = _unique(rows, "variant"), sorted(_unique(rows, "epsilon"))
    figure, (accuracy, loss, asked) = panels(12, 1.4 + 0.36 * len(names), 1, 3, sharey=True, grid=False)
    for number, epsilon in enumerate(epsilons):
        here = {row["variant"]: row for row in rows if row["epsilon"] == epsilon}
        at = np.arange(len(names)) + 0.22 * (number - (len(epsilons) - 1) / 2)
        style: dict[str, Any] = {
            "color": BUDGET_COLOURS[1:][number % 3], "linestyle": "", "marker": MARKERS[number], "markersize": 4,
            "label": f"epsilon {epsilon:g}",
        }  # fmt: skip
        for axes, what in ((accuracy, "accuracy_change"), (loss, "loss_change"), (asked, "asked")):
            factor = 1 if axes is accuracy else 100
            values = [factor * here[name][what] for name in names]
            axes.errorbar(values, at, xerr=[factor * here[name][f"{what}_error"] for name in names], capsize=2, **style)
    for axes, title in (
        (accuracy, "accuracy, points from full"),
        (loss, "loss, % of the start from full (left is better)"),
        (asked, "budget asked for, %"),
    ):
        axes.set_xlabel(title)
        axes.axvline(100 if axes is asked else 0, color="#999999", linewidth=1)
        axes.grid(axis="y", color="#eeeeee")
        axes.set_axisbelow(True)
    asked.axvspan(95, 105, color="#e4f0e4", zorder=0)
    accuracy.set_yticks(range(len(names)), names)
    accuracy.invert_yaxis()
    legend_below(figure, accuracy, 4)
    save_figure(figure, path, dpi=120)


def plot_denoising(rows: list[Row], path: Path) -> None:
    """How near the released gradient, its running average and the steps are to the noise-free gradient, per step."""
    epsilons = sorted(_unique(rows, "epsilon"))
    figure, grid = panels(
        max(7.5, 3.6 * len(epsilons) + 0.6), 5.6, 2, len(epsilons), squeeze=False, sharex=True, sharey="row", grid=False
    )
    lines = (
        ("full", "released", "#b5541c", "-", "released gradient"),
        ("full", "average", "#3a7d44", "-", "its running average"),
        ("full", "step", COLOURS["full"], "-", "step of the learned projector"),
        ("zero", "step", COLOURS["zero"], "--", "step with zero weights"),
    )
    for column, epsilon in enumerate(epsilons):
        for row_of_panels, what in zip(grid, ("cosine", "error"), strict=True):
            for name, stand_in, colour, style, label in lines:
                _band(row_of_panels[column], rows, name, epsilon, f"{stand_in}_{what}", colour, style, label)
        grid[0][column].set_title(f"epsilon {epsilon:g}", loc="left", fontsize=10)
        grid[1][column].set_xlabel("step")
        grid[1][column].axhline(1, color="#cccccc", linewidth=1, zorder=0)
    grid[0][0].set_ylabel("cosine with the\nnoise-free gradient")
    grid[1][0].set_ylabel("relative error,\nscaled best for the run")
    many = 4 if len(epsilons) > 2 else 2
    legend_below(figure, grid[0][0], many)
    save_figure(figure, path, dpi=120)


def plot_influence(rows: list[Row], path: Path) -> None:
    """d f_T / d log sigma_t of each step, above what the schedules spend there."""
    epsilons = sorted(_unique(rows, "epsilon"))
    figure, grid = panels(
        max(7.5, 3.6 * len(epsilons) + 0.6), 5.6, 2, len(epsilons), squeeze=False, sharex=True, grid=False
    )
    for column, epsilon in enumerate(epsilons):
        for name, style, label in (("full", "-", "learned"), ("zero", "--", "zero weights (equal noise)")):
            _band(grid[0][column], rows, name, epsilon, "influence", COLOURS[name], style, label, 100)
            _band(grid[1][column], rows, name, epsilon, "spend", COLOURS[name], style, label, 100)
        grid[0][column].axhline(0, color="#cccccc", linewidth=1, zorder=0)
        grid[0][column].set_title(f"epsilon {epsilon:g}", loc="left", fontsize=10)
        grid[1][column].set_xlabel("step")
        grid[1][column].set_ylim(bottom=0)
    grid[0][0].set_ylabel("influence of the noise\n$\\partial f_T / \\partial \\log \\sigma_t$, % of the start")
    grid[1][0].set_ylabel("spent at the step,\n% of the budget")
    legend_below(figure, grid[0][0], 2)
    save_figure(figure, path, dpi=120)


def _band(
    axes: Any, rows: list[Row], name: str, epsilon: float, what: str, colour: str, style: str, label: str,
    factor: float = 1.0,
) -> None:  # fmt: skip
    here = sorted(
        (row for row in rows if (row["protector"], row["epsilon"]) == (name, epsilon)), key=lambda r: r["step"]
    )
    steps = [row["step"] for row in here]
    means = factor * np.array([row[what] for row in here])
    errors = factor * np.array([row[f"{what}_standard_error"] for row in here])
    band(axes, steps, means - errors, means, means + errors, color=colour, linestyle=style, label=label)


def plot_memory(rows: list[Row], path: Path) -> None:
    """Peak memory of one meta-update over the unroll length."""
    figure, axes = panels(6, 4, grid=False)
    looks = {"lagrangian": ("#b5541c", "o", "full unroll"), "batch_lagrangian": ("#0b6e99", "s", "batches of 20 steps")}
    for form, (colour, marker, label) in looks.items():
        line = sorted((row["steps"], row["megabytes"]) for row in rows if row["form"] == form)
        axes.plot(*zip(*line, strict=True), color=colour, marker=marker, label=label)
    full = sorted((row["steps"], row["megabytes"] / 2) for row in rows if row["form"] == "lagrangian")
    axes.plot(*zip(*full, strict=True), color="#b5541c", linestyle=":", linewidth=1, label="half of the full unroll")
    axes.set_xlabel("unroll length T")
    axes.set_ylabel("memory that one meta-update adds, MB")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    save_figure(figure, path, dpi=120)
