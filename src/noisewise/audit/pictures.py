"""Pictures of attacks: what was recovered, beside the truth; ROC curves beside what a promise allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .inversion import Inversion
from .leakage import Leakage
from .membership import Membership

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#9B4F96", "#666666"
STYLES: dict[str, tuple[str, Any, str]] = {
    "loss": (GREY, (0, (1, 1)), "loss threshold"),
    "shadow": (GREEN, "-.", "shadow models"),
    "lira": (ORANGE, "-", "likelihood ratio (LiRA)"),
    "lira_offline": (PURPLE, "--", "LiRA, offline"),
}
LEAST = 1e-3


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)


def plot_roc(models: Mapping[str, Mapping[str, Membership]], path: Path, *, title: str = "") -> None:
    """One panel for each model: the curve of every attack on logarithmic axes, and the region a promise forbids."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(models) + 0.4, 4.9), layout="constrained")
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    grid = np.geomspace(LEAST, 1, 200)
    for axes, (name, results) in zip(panels, models.items(), strict=True):
        promise = next(iter(results.values())).allowed
        axes.plot(grid, grid, color="#AAAAAA", linewidth=0.9, label="guessing")
        if promise is not None:
            axes.plot(grid, promise(grid), color="black", linewidth=1.6, label="the most that is allowed")
            axes.fill_between(grid, promise(grid), 1.0, color="black", alpha=0.07, linewidth=0)
        for attack, result in results.items():
            colour, line, label = STYLES[attack]
            axes.step(
                np.maximum(result.curve.fpr, LEAST / 10), result.curve.tpr, where="post", color=colour,
                linestyle=line, linewidth=1.7, label=label,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(LEAST, 1)
        axes.set_ylim(LEAST, 1)
        axes.set_title(name, loc="left", fontsize=10.5)
        axes.set_xlabel("false-positive rate: non-members taken for members")
        axes.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("true-positive rate: members found")
    shown: dict[str, Any] = {}
    for axes in panels:
        shown |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    _save(figure, path)


def _picture(axes: Any, values: Any, shape: tuple[int, int], *, top: float | None = None) -> None:
    """One grey picture, dark on white, from blank to ``top`` (default: its own darkest pixel)."""
    picture = np.asarray(values, dtype=float).reshape(shape)
    axes.imshow(picture, cmap="gray_r", vmin=0, vmax=top or max(float(picture.max()), 1e-9), interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#CCCCCC")


def _grid(rows: int, columns: int, *, size: float, left: float, top: float, bottom: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    width, height = left + columns * size + 0.1, top + rows * size + bottom
    figure = Figure(figsize=(width, height))
    figure.subplots_adjust(
        left=left / width, right=1 - 0.1 / width, top=1 - top / height, bottom=bottom / height, wspace=0.12, hspace=0.12
    )
    return figure, figure.subplots(rows, columns, squeeze=False)


def plot_leakage(result: Leakage, shape: tuple[int, int], path: Path, *, title: str = "") -> None:
    """One row for each record: the truth, then what was recovered at each noise level, then the blind guess."""
    levels = list(dict.fromkeys(one.noise_multiplier for one in result.recovered))
    records = result.at(levels[0])
    figure, axes = _grid(len(records), len(levels) + 2, size=1.05, left=0.15, top=0.8, bottom=0.5)
    summary = result.rows()
    heads = ["the record", *(f"noise {level:g}" if level else "no noise" for level in levels), "no gradient\n(average)"]
    for row, record in enumerate(records):
        shown = [record.truth, *(result.at(level)[row].guess for level in levels), tuple(result.blind)]
        for column, values in enumerate(shown):
            _picture(axes[row, column], values, shape, top=1.0)
            if row == 0:
                axes[row, column].set_title(heads[column], fontsize=9)
    for column, line in enumerate(summary, start=1):
        label = f"{line['psnr']:.0f} dB\nsimilarity {line['similarity']:.2f}"
        axes[-1, column].set_xlabel(label, fontsize=7.5)
    figure.text(0.01, 0.985, title or "What a released gradient gives away", ha="left", va="top", fontsize=11)
    _save(figure, path)


def plot_inversion(
    models: Mapping[str, Inversion],
    truth: Mapping[Any, Any],
    shape: tuple[int, int],
    path: Path,
    *,
    people: Sequence[Any] = (),
    title: str = "",
) -> None:
    """First row: the mean picture of each class (a person's own picture); then what each model gives back.

    Every picture is stretched to its own darkest pixel, as an attacker would.
    """
    labels = list(truth)
    figure, axes = _grid(len(models) + 1, len(labels), size=0.82, left=1.15, top=0.62, bottom=0.1)
    for column, label in enumerate(labels):
        _picture(axes[0, column], truth[label], shape)
        head = f"person {chr(ord('A') + list(people).index(label))}" if label in people else f"{label}"
        axes[0, column].set_title(head, fontsize=9, color=ORANGE if label in people else "black")
        for row, inverted in enumerate(models.values(), start=1):
            _picture(axes[row, column], inverted.of(label).row, shape)
    for row, name in enumerate(["mean of the\nrecords", *models]):
        axes[row, 0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9, labelpad=8)
    for row in range(len(models) + 1):
        for column, label in enumerate(labels):
            if label in people:
                for spine in axes[row, column].spines.values():
                    spine.set_color(ORANGE)
    figure.text(0.01, 0.985, title or "What a trained model gives back", ha="left", va="top", fontsize=11)
    _save(figure, path)
