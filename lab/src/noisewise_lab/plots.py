"""Pictures of benchmark results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noisewise.evidence.figures import legend_below, panels, save_figure, ticks

SHOWN = {  # the methods drawn, with a colour and a marker each
    "descent": ("#0b6e99", "o"), "ppsgd": ("#b5541c", "s"), "dpsgd": ("#4c8c4a", "^"), "agd": ("#8a5fa8", "D"),
    "output_perturbation": ("#777777", "v"),
}  # fmt: skip


def plot_table2(rows: list[dict[str, Any]], path: Path) -> None:
    """Accuracy or error over epsilon with error bars, a panel per data set and loss; dashed: published PPSGD and best."""
    places = list(dict.fromkeys((row["dataset"], row["loss"]) for row in rows))
    across = min(3, max(len(places), 1))
    down = -(-len(places) // across) or 1
    figure, grid = panels(4.2 * across, 3.1 * down, down, across, squeeze=False, grid=False)
    for axes in grid.flat[len(places) :]:
        axes.set_visible(False)
    for axes, (dataset, loss) in zip(grid.flat, places, strict=False):
        here = [row for row in rows if (row["dataset"], row["loss"]) == (dataset, loss)]
        for method, (colour, marker) in SHOWN.items():
            points = sorted((row["epsilon"], row["mean"], row["std"]) for row in here if row["method"] == method)
            if points:
                epsilons, means, stds = zip(*points, strict=True)
                axes.errorbar(epsilons, means, stds, color=colour, marker=marker, capsize=3, label=method)
        best = sorted({(row["epsilon"], row["published_best"]) for row in here if row["published_best"]})
        if best:
            axes.plot(*zip(*best, strict=True), "k--x", label="best published", linewidth=1)
        reference = [row["mean"] for row in here if row["method"] == "nonprivate"]
        if reference:
            axes.axhline(reference[0], color="#999999", linewidth=1, linestyle=":", label="without privacy")
        axes.set_title(f"{dataset}, {loss}", loc="left", fontsize=10)
        axes.set_xticks(sorted({row["epsilon"] for row in here}))
        axes.set_xlabel("epsilon")
        axes.set_ylabel("mean squared error" if dataset in ("cadata", "electrical") else "accuracy")
    if places:
        legend_below(figure, grid.flat[0])
    save_figure(figure, path, dpi=120)


def plot_settings(rows: list[dict[str, Any]], path: Path) -> None:
    """Figure 2: accuracy over each setting of PPSGD, a panel per setting and a line per loss and epsilon."""
    settings = list(dict.fromkeys(row["setting"] for row in rows if row["figure"] == 2))
    figure, grid = panels(3.2 * len(settings), 3.2, 1, len(settings), sharey=True, squeeze=False, grid=False)
    grid = grid[0]
    styles = {"hinge": "-", "squared": "--"}
    for axes, setting in zip(grid, settings, strict=True):
        for loss, style in styles.items():
            for epsilon, colour in ((0.1, "#b5541c"), (0.5, "#0b6e99")):
                line = sorted(
                    (row["value"], row["mean"], row["std"])
                    for row in rows
                    if (row["setting"], row["loss"], row["epsilon"]) == (setting, loss, epsilon)
                )
                values, means, stds = zip(*line, strict=True)
                axes.errorbar(values, means, stds, color=colour, linestyle=style, marker="o", markersize=4, capsize=2,
                              label=f"{loss}, epsilon {epsilon:g}")  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlabel({"reuse": "lambda"}.get(setting, setting))
    grid[0].set_ylabel("accuracy")
    legend_below(figure, grid[0], 4)
    save_figure(figure, path, dpi=120)


def plot_baselines(rows: list[dict[str, Any]], path: Path) -> None:
    """Figure 3: accuracy over epsilon, a panel per loss and a line per method."""
    from matplotlib import colormaps

    figure, grid = panels(9, 3.8, 1, 2, sharey=True, grid=False)
    methods = list(dict.fromkeys(row["method"] for row in rows if row["figure"] == 3))
    for axes, loss in zip(grid, ("hinge", "squared"), strict=True):
        for number, method in enumerate(methods):
            line = sorted(
                (row["epsilon"], row["mean"], row["std"])
                for row in rows
                if row["figure"] == 3 and (row["method"], row["loss"]) == (method, loss)
            )
            if line:
                epsilons, means, stds = zip(*line, strict=True)
                axes.errorbar(epsilons, means, stds, color=colormaps["tab10"](number), marker="osD^v<>P"[number % 8],
                              markersize=5, capsize=2, label=method)  # fmt: skip
        axes.set_xscale("log")
        values = sorted({row["epsilon"] for row in rows if row["figure"] == 3})
        ticks(axes, values)
        axes.set_xlabel("epsilon")
        axes.set_title(f"{loss} loss", loc="left", fontsize=10)
    grid[0].set_ylabel("accuracy")
    legend_below(figure, grid[0], 4)
    save_figure(figure, path, dpi=120)
