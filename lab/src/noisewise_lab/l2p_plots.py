"""Pictures of the Learning-to-Protect studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noisewise.evidence.figures import band, legend_below, panels, save_figure, ticks

from .store import Row

STYLES = {  # colour and marker of each method
    "l2p": ("#c1272d", "o"), "zero_weight": ("#e79a9c", "o"), "hand_tuned": ("#0b6e99", "s"),
    "descent": ("#4c8c4a", "^"), "dynamic": ("#8a5fa8", "D"), "agd": ("#b5541c", "v"),
    "objective_perturbation": ("#6b6b00", "P"), "output_perturbation": ("#777777", "X"), "sgd_adv": ("#b8860b", "<"),
    "sgd_ma": ("#20908c", ">"),
}  # fmt: skip
STRONG = ("l2p", "zero_weight", "hand_tuned", "descent", "dynamic", "agd")
TITLES = {
    "ipums-br": "IPUMS-BR, logistic", "mnist35": "MNIST 3 vs 5, logistic",
    "mnist35-features": "MNIST 3 vs 5, public features", "mnist35-gradients": "MNIST 3 vs 5, oriented gradients",
    "ipums-br-mlp": "IPUMS-BR, perceptron",
    "mnist35-mlp": "MNIST 3 vs 5, perceptron",
}  # fmt: skip


def plot_figure2(rows: Sequence[Row], path: Path, *, title: str) -> None:
    """Loss, spent budget and budget of each iteration, with bands of one standard deviation."""
    figure, grid = panels(11, 3.7, 1, 3, grid=False)
    names = (("loss", "training loss (simulation only)"), ("spent", "spent share of the budget"),
             ("step_spent", "share spent by the iteration"))  # fmt: skip
    for axes, (name, label) in zip(grid, names, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            own = [row for row in rows if row["method"] == method and (name != "step_spent" or row["iteration"] > 0)]
            x, y, s = ([row[key] for row in own] for key in ("iteration", name, f"{name}_std"))
            colour = STYLES[method][0]
            low, high = zip(*((max(m - d, 0.0), m + d) for m, d in zip(y, s, strict=True)), strict=True)
            band(axes, x, low, y, high, color=colour, label=method, linewidth=1.6)
        axes.set_xlabel("iteration (gradients paid for)")
        axes.set_title(label, loc="left", fontsize=10)
        axes.set_ylim(bottom=0 if name != "loss" else None)
    figure.suptitle(title, fontsize=11)
    legend_below(figure, grid[0], 2)
    save_figure(figure, path, dpi=120)


def plot_figure3(rows: Sequence[Row], path: Path) -> None:
    """Accuracy above, training loss below, a column per task; bars are standard deviations, dashes public starts."""
    places = list(dict.fromkeys(row["place"] for row in rows))
    figure, grid = panels(
        max(4.0 * len(places), 8.0), 7.4, 2, max(len(places), 1), sharex="col", squeeze=False, grid=False
    )
    for column, place in enumerate(places):
        here = [row for row in rows if row["place"] == place]
        for axes, name in zip(grid[:, column], ("accuracy", "loss"), strict=True):
            for number, (method, style) in enumerate(STYLES.items()):
                offset = 1.012 ** (number - len(STYLES) / 2)  # so that bars do not hide each other
                for start in ("zero", "public"):
                    _line(axes, [r for r in here if (r["method"], r["start"]) == (method, start)], name, style, offset)
            reference = [row[name] for row in here if row["method"] == "nonprivate"]
            if reference and reference[0] is not None:
                axes.axhline(reference[0], color="black", linewidth=1, linestyle=":", label="nonprivate")
            axes.set_xscale("log")
            axes.grid(axis="y", alpha=0.25)
            _frame(axes, here, name)
        values = sorted({row["epsilon"] for row in here if row["epsilon"] is not None})
        ticks(grid[1, column], values, fontsize=8)
        grid[1, column].set_xlabel("epsilon")
        grid[0, column].set_title(TITLES.get(place, place), loc="left", fontsize=10)
    figure.suptitle("bars: one standard deviation over repeats; methods that learned less than the frame shows are cut off",
                    fontsize=9)  # fmt: skip
    grid[0, 0].set_ylabel("test accuracy")
    grid[1, 0].set_ylabel("final training loss")
    legend_below(figure, grid, 5, fontsize=8)
    save_figure(figure, path, dpi=120)


def _line(axes: Any, rows: list[Row], name: str, style: tuple[str, str], offset: float) -> None:
    points = sorted((row["epsilon"] * offset, row[name], row[f"{name}_std"] or 0.0) for row in rows if row["repeats"])
    if not points:
        return
    public, colour = rows[0]["start"] == "public", style[0]
    x, y, bars = zip(*points, strict=True)
    axes.errorbar(
        x, y, bars, color=colour, marker=style[1], markersize=4.5, capsize=2, linestyle="--" if public else "-",
        linewidth=2.0 if rows[0]["method"] == "l2p" else 1.1, markerfacecolor="white" if public else colour,
        label=rows[0]["method"] + (", public start" if public else ""), zorder=5 if rows[0]["method"] == "l2p" else 2,
    )  # fmt: skip


def _frame(axes: Any, rows: list[Row], name: str) -> None:
    """Show what the strong methods do; runs that learned little would flatten them, and leave the frame."""
    values = [row[name] for row in rows if row[name] is not None]
    strong = [row[name] for row in rows if row["method"] in STRONG and row[name] is not None] or values
    if name == "loss":
        axes.set_ylim(0.85 * min(values), 1.1 * max(strong))
    else:
        axes.set_ylim(max(min(strong) - 0.02, 0.0), max(values) + 0.01)


def plot_figure4(rows: Sequence[Row], path: Path, *, title: str) -> None:
    """Accuracy on the private pair over the public pair of training, as the lower triangle of a 10 x 10 map."""
    import numpy as np

    grid = np.full((10, 10), np.nan)
    for row in rows:
        digits = row["trained_on"].split(" vs ")
        if len(digits) == 2:
            low, high = sorted(int(digit) for digit in digits)
            grid[high, low] = 100 * row["accuracy"]
    figure, axes = panels(7.6, 6.4, grid=False)
    middle = float(np.nanmin(grid) + np.nanmax(grid)) / 2
    reach = max(float(np.nanmax(grid)) - middle, 0.5)  # colours should not shout about tenths of a point
    untried = np.tril(~np.isfinite(grid), -1)
    axes.imshow(np.where(untried, 0.12, np.nan), cmap="Greys", vmin=0, vmax=1)
    image = axes.imshow(grid, cmap="viridis", vmin=middle - reach, vmax=middle + reach)
    for high, low in zip(*np.nonzero(np.isfinite(grid)), strict=True):
        value = grid[high, low]
        axes.text(low, high, f"{value:.1f}", ha="center", va="center", fontsize=9,
                  color="white" if value < middle else "black")  # fmt: skip
    axes.set_xticks(range(10))
    axes.set_yticks(range(10))
    axes.set_xlabel("first digit of the public pair (grey: private or not tried)")
    axes.set_ylabel("second digit of the public pair")
    axes.set_title(title, loc="left", fontsize=10)
    references = [f"{row['trained_on'].replace('_', ' ')}: {100 * row['accuracy']:.1f} %" for row in rows
                  if " vs " not in row["trained_on"]]  # fmt: skip
    axes.text(0.98, 0.97, "\n".join(["without training here", *references]), transform=axes.transAxes, ha="right",
              va="top", fontsize=9)  # fmt: skip
    figure.colorbar(image, ax=axes, label="test accuracy, %", shrink=0.85)
    save_figure(figure, path, dpi=120)
