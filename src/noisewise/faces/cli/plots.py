"""The picture of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...evidence.figures import BLUE, GREY, ORANGE, panels, save_figure

if TYPE_CHECKING:
    from ..compare.outcome import Row


def plot_comparison(
    rows: Sequence[Row], path: Path, *, metric: str, title: str, constant: float | None = None, chosen: str = ""
) -> None:
    """A dot with its standard error for each method, best on top; the ``chosen`` one, which auto takes, is marked.

    Repeats that are too few for an error are shown one by one.
    """
    from textwrap import fill

    from ..compare.outcome import unit_of

    shown = [row for row in rows if row.mean is not None]
    refused = [row.method for row in rows if row.mean is None]
    figure, axes = panels(7.6, 1.9 + 0.28 * max(len(shown), 1))
    unit, measure = unit_of(rows, metric)
    for place, row in enumerate(reversed(shown)):
        assert row.mean is not None
        best = row.method == chosen
        colour = GREY if not row.private else ORANGE if best else BLUE
        mark = "s" if not row.private else "D" if best else "o"
        error = None if row.standard_error is None else row.standard_error / unit
        look = {"color": colour, "markersize": 7.5 if best else 6, "markerfacecolor": "white" if row.public else colour}
        axes.errorbar(row.mean / unit, place, xerr=error, fmt=mark, capsize=2.5, linewidth=1.3, **look)
        if error is None and len(row.scores) > 1:
            alone = [score / unit for score in row.scores]
            axes.plot(alone, [place] * len(alone), "|", color=colour, markersize=9, zorder=1)
    axes.set_yticks(range(len(shown)), [row.method for row in reversed(shown)], fontsize=9)
    for label, row in zip(axes.get_yticklabels(), reversed(shown), strict=True):
        if row.method == chosen:
            label.set(color=ORANGE, fontweight="bold")
    for row in shown:
        if not row.private and row.mean is not None:
            axes.axvline(row.mean / unit, color=GREY, linewidth=0.9, linestyle="--", zorder=0)
    far = constant is not None and not _near(constant, [row.mean for row in shown if row.mean is not None])
    if constant is not None and not far:  # else it would squeeze them all into a corner
        axes.axvline(constant / unit, color=GREY, linewidth=1.1, linestyle=":", zorder=0)
    there: dict[tuple[Any, ...], bool] = {
        ("without privacy", GREY, "s", "--"): any(not row.private for row in shown),
        ("recommended", ORANGE, "D", "none"): any(row.method == chosen for row in shown),
        ("needs public rows", BLUE, "o", "none"): any(row.public for row in shown),
        ("one answer for all", GREY, None, ":"): constant is not None and not far,
    }
    marks = [_mark(*look) for look, used in there.items() if used]
    figure.legend(handles=marks, loc="outside lower center", ncols=max(len(marks), 1), frameon=False, fontsize=8.5)
    repeats = max((len(row.scores) for row in shown), default=0)
    bars = _bars(repeats, known=any(row.standard_error is not None for row in shown))
    better = "more" if metric == "accuracy" else "less"
    note = f"; one answer for all: {constant / unit:.4g}" if constant is not None and far else ""
    note += f"\nrefused: {fill(', '.join(refused), 90)}" if refused else ""
    axes.set_xlabel(f"{measure} ({better} is better), on held-out public rows\nsimulated: {bars}{note}", fontsize=9)
    axes.set_title(title, loc="left", fontsize=10, x=0.0)
    axes.margins(y=0.03 + 0.3 / max(len(shown), 1))
    save_figure(figure, path)


def _bars(repeats: int, *, known: bool) -> str:
    if repeats < 2:
        return "one training each, spread unknown"
    return f"mean of {repeats} repeats, " + ("bars: one standard error" if known else "strokes: each of them")


def _near(value: float, others: Sequence[float]) -> bool:
    reach = max(others, default=0.0) - min(others, default=0.0)
    return bool(others) and min(others) - reach <= value <= max(others) + reach


def _mark(label: str, colour: str, mark: str | None, line: Any) -> Any:
    """An entry of the legend."""
    from matplotlib.lines import Line2D

    filled = "white" if mark == "o" else colour
    return Line2D([], [], color=colour, marker=mark, linestyle=line, linewidth=0.9, markerfacecolor=filled, label=label)
