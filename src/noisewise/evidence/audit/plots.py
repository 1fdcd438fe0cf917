"""Pictures of audits and attacks: scores, ROC curves beside what a promise allows, what was recovered beside the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from ...trusted.accountants.gdp import mu_of
from ..figures import BLUE, GREEN, GREY, ORANGE, PALE, PURPLE, label_axes, legend_below, panels, save_figure
from .gan import Redrawing, Redrawn
from .inversion import Inversion
from .leakage import Leakage
from .lower_bound import Audit
from .membership import Membership
from .roc import Allowed, roc

STYLES: dict[str, tuple[str, Any, str]] = {
    "loss": (GREY, (0, (1, 1)), "loss threshold"),
    "shadow": (GREEN, "-.", "shadow models"),
    "lira": (ORANGE, "-", "likelihood ratio (LiRA)"),
    "lira_offline": (PURPLE, "--", "LiRA, offline"),
}
MIN_SHOWN_RATE = 1e-3


def plot_roc(models: Mapping[str, Mapping[str, Membership]], path: Path, *, title: str = "") -> None:
    """One panel for each model: the curve of every attack on logarithmic axes, and the region a promise forbids."""
    figure, row = panels(4.6 * len(models) + 0.4, 4.9, 1, len(models), sharey=True, squeeze=False)
    grid = np.geomspace(MIN_SHOWN_RATE, 1, 200)
    for axes, (model, results) in zip(row[0], models.items(), strict=True):
        axes.plot(grid, grid, color=PALE, linewidth=0.9, label="guessing")
        promise = next(iter(results.values())).allowed
        if promise is not None:
            _forbidden(axes, grid, promise, "the most that is allowed")
        for attack, result in results.items():
            colour, line, label = STYLES[attack]
            fpr = np.maximum(result.curve.fpr, MIN_SHOWN_RATE / 10)
            axes.step(fpr, result.curve.tpr, where="post", color=colour, linestyle=line, linewidth=1.7, label=label)
        label_axes(axes, x="false-positive rate: non-members taken for members", log="xy")
        axes.set_title(model, loc="left", fontsize=10.5)
        axes.set_xlim(MIN_SHOWN_RATE, 1)
        axes.set_ylim(MIN_SHOWN_RATE, 1)
    label_axes(row[0][0], y="true-positive rate: members found")
    legend_below(figure, row, 3, fontsize=9)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    save_figure(figure, path)


def _forbidden(axes: Any, grid: Any, promise: Allowed, label: str) -> None:
    most = promise(grid)
    axes.plot(grid, most, color="black", linewidth=1.6, label=label)
    axes.fill_between(grid, most, 1.0, color="black", alpha=0.07, linewidth=0)


def plot_audit(audit: Audit, path: Path) -> None:
    """Scores in both worlds with the threshold, and their ROC; of the runs that had no part in choosing the threshold."""
    figure, (scores, curve) = panels(10.4, 4.8, 1, 2)
    _histograms(audit, scores)
    _curve(audit, curve)
    head = f"{audit.method}, {audit.adjacency}: epsilon {audit.claimed:g} claimed at delta {audit.delta:g}"
    figure.suptitle(f"{head}\n{fill(audit.verdict, 120)}", x=0.01, ha="left", fontsize=11)
    save_figure(figure, path)


def _histograms(audit: Audit, axes: Any) -> None:
    without, with_it = audit.scores
    both = np.concatenate(audit.scores)
    low, high = np.quantile(both, [0.002, 0.998])
    low, high = min(low, audit.threshold), max(high, audit.threshold)
    if low == high:
        low, high = low - 0.5, high + 0.5
    bins = np.linspace(low, high, 41)
    worlds = ("record not there", "record there") if audit.adjacency == "add_remove" else ("one record", "the other")
    for values, world, colour, line in zip((without, with_it), worlds, (BLUE, ORANGE), ("-", "--"), strict=True):
        shown = np.clip(values, low, high)
        axes.hist(shown, bins, color=colour, alpha=0.3)
        axes.hist(shown, bins, histtype="step", color=colour, linestyle=line, linewidth=1.6, label=world)
    axes.axvline(audit.threshold, color="black", linewidth=1.3, label="threshold, from other runs")
    axes.set_ylim(top=1.22 * axes.get_ylim()[1])
    label_axes(axes, x=f"score: {audit.score} of everything released", y=f"runs, of {audit.trials:,} in each world")
    axes.legend(frameon=True, framealpha=0.95, edgecolor="none", fontsize=9, loc="upper right", ncols=2)


def _curve(audit: Audit, axes: Any) -> None:
    grid = np.linspace(0.0, 1.0, 400)
    mu = mu_of(audit.claimed, audit.delta) if audit.gaussian else None
    kind = "the most that the claim allows" + (" (Gaussian DP)" if audit.gaussian else "")
    _forbidden(axes, grid, Allowed(audit.claimed, audit.delta, mu), kind)
    axes.plot(grid, grid, color=PALE, linewidth=0.9, label="guessing")
    seen = roc(audit.scores[1], audit.scores[0])
    axes.step(seen.fpr, seen.tpr, where="post", color=ORANGE, linewidth=1.7, label="seen in this audit")
    at = audit.false_positives / audit.trials, 1 - audit.false_negatives / audit.trials
    look = {"color": "black", "markerfacecolor": "white", "markersize": 7, "clip_on": False, "zorder": 5}
    axes.plot(*at, "o", label="at the threshold", **look)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    says = "says \u201cthere\u201d when it is"
    label_axes(axes, x=f"false-positive rate: {says} not", y=f"true-positive rate: {says}")
    axes.legend(frameon=False, fontsize=9, loc="lower right")


def _picture(axes: Any, values: Any, shape: tuple[int, int], *, top: float | None = None) -> None:
    """One grey picture, dark on white, from blank to ``top`` (default: its own darkest pixel)."""
    picture = np.asarray(values, dtype=float).reshape(shape)
    axes.imshow(picture, cmap="gray_r", vmin=0, vmax=top or max(float(picture.max()), 1e-9), interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color("#CCCCCC")


def _grid(
    rows: int, columns: int, *, size: float, left: float, top: float, bottom: float, right: float = 0.1
) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # slow to import, and most commands draw nothing

    width, height = left + columns * size + right, top + rows * size + bottom
    figure = Figure(figsize=(width, height))
    ends = {"left": left / width, "right": 1 - right / width, "top": 1 - top / height, "bottom": bottom / height}
    figure.subplots_adjust(**ends, wspace=0.12, hspace=0.12)
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
    save_figure(figure, path)


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
    for row, model in enumerate(["mean of the\nrecords", *models]):
        axes[row, 0].set_ylabel(model, rotation=0, ha="right", va="center", fontsize=9, labelpad=8)
    for column, label in enumerate(labels):
        for one in axes[:, column] if label in people else ():
            one.spines[:].set_color(ORANGE)
    figure.text(0.01, 0.985, title or "What a trained model gives back", ha="left", va="top", fontsize=11)
    save_figure(figure, path)


def plot_gan(
    redrawing: Redrawing, real: Sequence[Any], shape: tuple[int, int], path: Path, *, most: int = 8, title: str = ""
) -> None:
    """First row: real pictures of the victim's class; then a drawing of each repeat, setting by setting.

    The last row is the reference of the first setting: what is drawn where the model never saw the class.
    """
    promise = f",\nepsilon {redrawing.budget.epsilon:g}"
    settings = redrawing.settings
    names = ["real pictures", *(setting.name + promise * setting.noised for setting in settings)]
    drawn = [redrawing.of(setting) for setting in settings]
    texts = ["", *(_in_figures(runs, redrawing.of(runs[0].setting, there=False)) for runs in drawn)]
    never = redrawing.of(settings[0], there=False)
    columns = min(len(never), most, len(real))
    figure, axes = _grid(len(drawn) + 2, columns, size=0.9, left=1.35, top=0.72, bottom=0.1, right=1.75)
    pictures = [real, *([run.picture for run in runs] for runs in (*drawn, never))]
    for row, (name, text) in enumerate(zip([*names, f"class never there,\n{names[1]}"], [*texts, ""], strict=True)):
        for column in range(columns):
            _picture(axes[row, column], pictures[row][column], shape, top=1.0 if row else None)
        axes[row, 0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9, labelpad=8)
        axes[row, -1].yaxis.set_label_position("right")
        axes[row, -1].set_ylabel(text, rotation=0, ha="left", va="center", fontsize=8.5, labelpad=8)
    head = fill(title or "What a client redraws of the class of another", int(12.5 * figure.get_figwidth()))
    head += "\nOne column for each run"
    figure.text(0.01, 0.985, head, ha="left", va="top", fontsize=11)
    save_figure(figure, path)


def _in_figures(runs: Sequence[Redrawn], never: Sequence[Redrawn]) -> str:
    like, right = (float(np.mean([getattr(run, name) for run in runs])) for name in ("likeness", "accuracy"))
    reference = float(np.mean([run.likeness for run in never]))
    return f"likeness {like:.2f}\n({reference:.2f} if never there)\naccuracy {right:.0%}"
