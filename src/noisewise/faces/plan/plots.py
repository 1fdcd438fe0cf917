"""The picture of a plan: noise against steps, and what tuning costs against the number of settings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from ...evidence.figures import BLUE, GREEN, GREY, ORANGE, STYLES, label_axes, note, panels, save_figure
from ...trusted.accountants.plan import PlanRow, sampling_name
from .expected import Expected
from .plans import EXPONENTIAL, NONE, PUBLIC, SELECTION, Tuning

LOOKS = {SELECTION: (BLUE, "-", "o"), EXPONENTIAL: (ORANGE, "--", "s"), PUBLIC: (GREEN, "-.", "^")}


def plot_plan(
    rows: Sequence[PlanRow], path: Path, *, title: str, tuning: Sequence[Tuning] = (), expected: Expected | None = None
) -> None:
    """Noise over clip norm (above): of one step and of a run's average; with tuning, its noise and what is kept (below)."""
    counts = sorted({way.candidates for way in tuning})
    lower = len(counts) > 1
    figure, axes = panels(9.2, 7.4 if lower else 4.4, 2 if lower else 1, 2, squeeze=False)
    for place, (value, what) in enumerate((("step_ratio", "one step"), ("run_ratio", "average of all steps"))):
        _noise(axes[0][place], rows, value, f"noise of {what}")
    label_axes(axes[0][0], y="norm of the noise / clip norm")
    axes[0][0].legend(frameon=False, fontsize=8.5)
    if lower:
        _factors(axes[1][0], tuning, counts)
        _kept(axes[1][1], tuning, counts, expected)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    save_figure(figure, path)


def _noise(axes: Any, rows: Sequence[PlanRow], value: str, title: str) -> None:
    for sampling, (colour, line, mark) in zip(dict.fromkeys(row.sampling for row in rows), cycle(STYLES), strict=False):
        mine = [row for row in rows if row.sampling == sampling]
        look = {"color": colour, "linestyle": line, "marker": mark, "markersize": 5.5, "linewidth": 1.7}
        above, name = 3 - len(axes.lines) / 20, sampling_name(sampling)
        axes.plot([row.steps for row in mine], [getattr(row, value) for row in mine], zorder=above, label=name, **look)
    label_axes(axes, title=title, x="number of steps", log="xy")
    low, high = axes.get_ylim()
    widen = max(1.3, (8 * low / high) ** 0.5)  # at least two labelled ticks, and no drama where lines are level
    axes.set_ylim(low / widen, high * widen)
    if low / widen < 1 < high * widen:
        axes.axhline(1, color=GREY, linewidth=0.9)
        where = {"xycoords": ("axes fraction", "data"), "ha": "right", "fontsize": 8.5, "color": GREY}
        note(axes, "as long as the clip norm", (1, 1), (-2, 3), **where)
    _x_ticks(axes, sorted({row.steps for row in rows}))
    axes.yaxis.set_major_formatter(lambda ratio, _: f"{ratio:g}")
    axes.yaxis.set_minor_formatter(lambda ratio, _: f"{ratio:g}" if f"{ratio:e}"[0] in "25" else "")


def _x_ticks(axes: Any, values: Sequence[int]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    axes.tick_params(axis="both", which="both", labelsize=9)


def _ways(tuning: Sequence[Tuning]) -> dict[str, list[Tuning]]:
    """The points of each line; all start at no tuning, if that is there."""
    return {how: [way for way in tuning if way.how in (NONE, how)] for how in LOOKS}


def _factors(axes: Any, tuning: Sequence[Tuning], counts: Sequence[int]) -> None:
    for how, ways in _ways(tuning).items():
        colour, line, mark = LOOKS[how]
        look = {"color": colour, "linestyle": line, "marker": mark, "markersize": 5.5, "linewidth": 1.7}
        axes.plot([way.candidates for way in ways], [way.factor for way in ways], label=how, **look)
    label_axes(axes, title="noise of one setting when k are tuned", x="settings k", y="times that of one run", log="xy")
    highest = max(way.factor for way in tuning)
    marks = [mark for mark in (1, 2, 3, 5, 10, 20, 50, 100) if mark <= 1.05 * highest]
    axes.set_yticks(marks, [f"{mark:g}" for mark in marks])
    axes.yaxis.minorticks_off()
    _x_ticks(axes, counts)
    axes.legend(frameon=False, fontsize=8.5)


def _kept(axes: Any, tuning: Sequence[Tuning], counts: Sequence[int], expected: Expected | None) -> None:
    label_axes(axes, title="share kept, to expect", x="settings k", log="x")
    if expected is None:
        axes.text(0.5, 0.5, "no simulations for such a table", transform=axes.transAxes, ha="center", color=GREY)
        axes.set_axis_off()
        return
    for how, ways in _ways(tuning).items():
        colour, line, mark = LOOKS[how]
        known = [(way.candidates, way.kept) for way in ways if way.kept is not None]
        x = [count for count, _ in known]
        look = {"color": colour, "linestyle": line, "marker": mark, "markersize": 5.5, "linewidth": 1.7}
        axes.plot(x, [kept.mid for _, kept in known], label=how, **look)
        if how == SELECTION:
            low, high = [kept.low for _, kept in known], [kept.high for _, kept in known]
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
            note(axes, "8 of 10 simulations", (x[0], low[0]), (4, 4), fontsize=8.5, color=colour)
    low, high = axes.get_ylim()
    axes.set_ylim(max(min(low, 0.9 * expected.mid), -0.1), max(high, 1.0))
    _x_ticks(axes, counts)
