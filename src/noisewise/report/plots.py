"""Pictures of a plan and of a comparison: colours that differ in grey, marks that differ without colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..atomic import write_atomically

if TYPE_CHECKING:
    from ..accounting.plan import PlanRow
    from ..comparison import Row

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#9B4F96", "#666666"
STYLES = [
    (BLUE, "-", "o"), (ORANGE, "--", "s"), (GREEN, "-.", "^"), (PURPLE, ":", "D"), ("#8C6D00", (0, (5, 1, 1, 1)), "v"),
]  # fmt: skip


def save(figure: Any, path: Path) -> None:
    """The figure in the format that the file name asks for."""
    from io import BytesIO

    kind = path.suffix[1:].lower()
    known = figure.canvas.get_supported_filetypes()
    if kind not in known:
        raise ValueError(f"{path} has no picture format that is known; name it FILE.png, .pdf or .svg")
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, dpi=140)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())


def plot_plan(rows: Sequence[PlanRow], path: Path, *, title: str) -> None:
    """Noise over clip norm against the number of steps: of one step (left) and of a run's average (right)."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    from ..accounting.plan import sampling_name

    figure = Figure(figsize=(9.2, 4.4), layout="constrained")
    panels = figure.subplots(1, 2)
    kinds = list(dict.fromkeys(row.sampling for row in rows))
    steps = sorted({row.steps for row in rows})
    parts = (("step_ratio", "one step"), ("run_ratio", "average of all steps"))
    for axes, (value, name) in zip(panels, parts, strict=True):
        for sampling, (colour, line, mark) in zip(kinds, _repeated(len(kinds)), strict=True):
            mine = [row for row in rows if row.sampling == sampling]
            axes.plot([row.steps for row in mine], [getattr(row, value) for row in mine], color=colour, linestyle=line,
                      marker=mark, markersize=5.5, linewidth=1.7, zorder=3 - len(axes.lines) / 20, label=sampling_name(sampling))  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        widen = max(1.3, (8 * low / high) ** 0.5)  # at least two labelled ticks, and no drama where lines are level
        axes.set_ylim(low / widen, high * widen)
        if low / widen < 1 < high * widen:
            axes.axhline(1, color=GREY, linewidth=0.9)
            axes.annotate("as long as the clip norm", (1, 1), (-2, 3), xycoords=("axes fraction", "data"),
                          textcoords="offset points", ha="right", fontsize=8.5, color=GREY)  # fmt: skip
        axes.xaxis.set_major_locator(FixedLocator(steps))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
        axes.yaxis.set_major_formatter(lambda ratio, _: f"{ratio:g}")
        axes.yaxis.set_minor_formatter(lambda ratio, _: f"{ratio:g}" if f"{ratio:e}"[0] in "25" else "")
        axes.tick_params(axis="both", which="both", labelsize=9)
        axes.set_xlabel("number of steps")
        axes.set_title(name, loc="left", fontsize=10)
        _plain(axes)
    panels[0].set_ylabel("norm of the noise / clip norm")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(kinds), frameon=False, fontsize=9)
    save(figure, path)


def plot_comparison(rows: Sequence[Row], path: Path, *, metric: str, title: str, constant: float | None = None) -> None:
    """A dot with its standard error for each method, best on top; the recommended one is marked."""
    from textwrap import fill

    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from ..comparison import unit_of
    from ..methods import RECOMMENDED

    shown = [row for row in rows if row.mean is not None]
    refused = [row.method for row in rows if row.mean is None]
    figure = Figure(figsize=(7.6, 1.9 + 0.28 * max(len(shown), 1)), layout="constrained")
    axes = figure.subplots()
    unit, name = unit_of(rows, metric)
    for place, row in enumerate(reversed(shown)):
        assert row.mean is not None
        best = row.method == RECOMMENDED
        colour = GREY if not row.private else ORANGE if best else BLUE
        mark = "s" if not row.private else "D" if best else "o"
        axes.errorbar(row.mean / unit, place, xerr=None if row.standard_error is None else row.standard_error / unit,
                      fmt=mark, color=colour, markersize=7.5 if best else 6, capsize=2.5, linewidth=1.3,
                      markerfacecolor="white" if row.public else colour)  # fmt: skip
    axes.set_yticks(range(len(shown)), [row.method for row in reversed(shown)], fontsize=9)
    for label, row in zip(axes.get_yticklabels(), reversed(shown), strict=True):
        if row.method == RECOMMENDED:
            label.set(color=ORANGE, fontweight="bold")
    for row in shown:
        if not row.private and row.mean is not None:
            axes.axvline(row.mean / unit, color=GREY, linewidth=0.9, linestyle="--", zorder=0)
    if constant is not None and not _near(constant, [row.mean for row in shown if row.mean is not None]):
        constant = None  # far from all of them, it would squeeze them into a corner
    if constant is not None:
        axes.axvline(constant / unit, color=GREY, linewidth=1.1, linestyle=":", zorder=0)
    there = {
        Line2D([], [], color=GREY, marker="s", linestyle="--", linewidth=0.9, label="without privacy"): any(
            not row.private for row in shown
        ),
        Line2D([], [], color=ORANGE, marker="D", linestyle="none", label="recommended"): any(
            row.method == RECOMMENDED for row in shown
        ),
        Line2D(
            [], [], color=BLUE, marker="o", markerfacecolor="white", linestyle="none", label="needs public rows"
        ): any(row.public for row in shown),
        Line2D([], [], color=GREY, linestyle=":", label="one answer for all"): constant is not None,
    }
    marks = [mark for mark, used in there.items() if used]
    figure.legend(handles=marks, loc="outside lower center", ncols=max(len(marks), 1), frameon=False, fontsize=8.5)
    repeats = max((len(row.scores) for row in shown), default=0)
    bars = f"mean of {repeats} repeats, bars: one standard error" if repeats > 1 else "one training each"
    better = "more" if metric == "accuracy" else "less"
    note = f"\nrefused: {fill(', '.join(refused), 90)}" if refused else ""
    axes.set_xlabel(f"{name} ({better} is better), on held-out public rows\n"
                    f"simulated: {bars}{note}", fontsize=9)  # fmt: skip
    axes.set_title(title, loc="left", fontsize=10, x=0.0)
    axes.margins(y=0.03 + 0.3 / max(len(shown), 1))
    _plain(axes)
    save(figure, path)


def _near(value: float, others: Sequence[float]) -> bool:
    reach = max(others, default=0.0) - min(others, default=0.0)
    return bool(others) and min(others) - reach <= value <= max(others) + reach


def _repeated(count: int) -> list[Any]:
    return [STYLES[index % len(STYLES)] for index in range(count)]


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
