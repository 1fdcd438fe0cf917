"""Pictures of the theory's rows, for print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..figures import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLES, label_axes, note, panels, save_figure
from .accountants import NAMES

TableRows = list[dict[str, Any]]
BESIDE: dict[str, Any] = {"frameon": False, "fontsize": 8.5, "loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
MARKS = dict(zip(NAMES, "osD^vP*X", strict=True))
COLOURS = dict(zip(NAMES, (ORANGE, BLUE, GREEN, GREEN, GREEN, PURPLE, "#B8860B", "#56B4E9"), strict=True))


def _series(rows: TableRows, key: str, value: str) -> tuple[list[Any], list[Any]]:
    known = [row for row in rows if row[value] is not None]
    return [row[key] for row in known], [row[value] for row in known]


def plot_bounds(rows: TableRows, path: Path, *, title: str) -> None:
    """Bounds over the number of steps, the best T marked, simulated runs as points."""
    figure, axes = panels(8.2, 4.2)
    top = 10 * max(row["uniform_bound"] for row in rows)
    styles = {"uniform": (BLUE, "--", "o"), "dynamic": (ORANGE, "-", "s"), "momentum": (GREEN, "-.", "^")}
    for schedule, (colour, line, mark) in styles.items():
        steps, values = _series(rows, "steps", f"{schedule}_bound")
        axes.plot(steps, values, color=colour, linestyle=line, linewidth=1.8, label=f"{schedule}: bound")
        if schedule != "momentum":
            least = min(range(len(values)), key=values.__getitem__)
            star: dict[str, Any] = {"marker": "*", "markersize": 13, "markeredgecolor": "white", "zorder": 5}
            axes.plot(steps[least], values[least], color=colour, linestyle="none", **star)
        for clipped, face in ((False, "white"), (True, colour)):
            seen = [row for row in rows if row[f"{schedule}_clipped"] is clipped]
            heights = [min(row[f"{schedule}_simulated"], top / 1.4) for row in seen]
            label = None if clipped else f"{schedule}: simulated"
            look = {"color": colour, "markersize": 4.5, "markerfacecolor": face, "label": label}
            axes.plot([row["steps"] for row in seen], heights, mark, **look)
    axes.plot([], [], "*", color=GREY, markersize=11, markeredgecolor="white", label="best T of the bound")
    filled = "filled: gradients clipped, no\nbound applies (top: off scale)"
    axes.plot([], [], "o", color=GREY, markersize=4.5, label=filled)
    label_axes(axes, title=title, x="number of steps T", y="expected excess risk", log="xy")
    axes.set_ylim(top=top)
    axes.legend(**BESIDE)
    save_figure(figure, path)


def plot_advantage(rows: TableRows, path: Path, *, title: str) -> None:
    """Uniform over dynamic bound against the condition number, one line for each number of records."""
    figure, axes = panels(7.2, 4.2)
    for (colour, line, _), records in zip(STYLES, sorted({row["records"] for row in rows}), strict=False):
        kappas, ratios = _series([row for row in rows if row["records"] == records], "kappa", "ratio")
        axes.plot(kappas, ratios, color=colour, linestyle=line, linewidth=1.8, label=f"{records:,} records")
    axes.axhline(1, color=GREY, linewidth=0.8)
    y = "uniform bound / dynamic bound, each at its best T"
    label_axes(axes, title=title, x="condition number M / mu", y=y, log="x")
    axes.set_ylim(bottom=0.9)
    axes.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def plot_momentum(rows: TableRows, path: Path, *, title: str) -> None:
    """q_t of momentum over that of descent, exact (lines) and as printed (thin)."""
    figure, (each, together) = panels(9.4, 3.9, 1, 2)
    betas = sorted({row["beta"] for row in rows})
    first = [row for row in rows if row["beta"] == betas[0]]
    each.plot(*_series(first, "step", "descent"), color=GREY, linewidth=1.6, label="descent")
    for (colour, line, _), beta in zip(STYLES, betas, strict=False):
        chosen = [row for row in rows if row["beta"] == beta]
        style = {"color": colour, "linestyle": line}
        each.plot(*_series(chosen, "step", "momentum"), linewidth=1.8, label=f"momentum {beta:g}", **style)
        each.plot(*_series(chosen, "step", "printed"), linewidth=0.7, alpha=0.7, **style)
    each.plot([], [], color=GREY, linewidth=0.7, linestyle="--", label="thin: as printed")
    label_axes(each, title=title, x="step t", y="influence q_t on the final loss", log="y")
    each.set_ylim(top=each.get_ylim()[1] * 8)
    each.legend(frameon=False, fontsize=8.5, loc="upper left", ncols=2)
    places = range(len(betas))
    for shift, noise, colour, hatch in ((-0.2, "uniform", BLUE, ""), (0.2, "dynamic", ORANGE, "//")):
        heights = [next(row[noise] for row in rows if row["beta"] == beta) for beta in betas]
        at = [place + shift for place in places]
        bars = together.bar(at, heights, 0.38, color=colour, hatch=hatch, edgecolor="white", label=f"{noise} noise")
        together.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
    together.axhline(1, color=GREY, linewidth=1)
    together.set_xticks(list(places), [f"{beta:g}" for beta in betas])
    y = "sum of weights / that of descent"
    label_axes(together, title="all steps together: sum of q_t, same gamma", x="momentum beta", y=y)
    together.grid(False, axis="x")
    together.set_ylim(top=together.get_ylim()[1] * 1.15)
    together.legend(frameon=False, fontsize=8.5)
    save_figure(figure, path)


def plot_influence(rows: TableRows, path: Path, *, title: str) -> None:
    """Measured influence of each step's noise against the bound's q_t."""
    figure, axes = panels(7.2, 4.2)
    axes.plot(*_series(rows, "step", "influence"), color=ORANGE, linewidth=1.8, label="q_t: the bound")
    if rows[0]["exact"] is not None:
        exact = _series(rows, "step", "exact")
        axes.plot(*exact, color=GREEN, linestyle="--", linewidth=1.6, label="exact on a quadratic")
    clear = [row for row in rows if row["measured"] > 2 * row["standard_error"]]
    bars = [2 * row["standard_error"] for row in clear]
    look = {"color": BLUE, "markersize": 4.5, "capsize": 2.5, "linewidth": 1, "label": "measured, 2 standard errors"}
    axes.errorbar(*_series(clear, "step", "measured"), yerr=bars, fmt="o", **look)
    y = "what its noise adds to the final loss (scaled)"
    label_axes(axes, title=title, x="the one noisy step t", y=y, log="y")
    axes.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def plot_tails(rows: TableRows, path: Path, *, title: str, omega: float) -> None:
    """P(Z > t) under every kind of guarantee, on one log axis."""
    figure, axes = panels(7.2, 4.2)
    labels = {
        "pure": ("pure DP", GREY, "-", 1.4),
        "approximate": ("(epsilon, delta)-DP", PURPLE, "-.", 1.8),
        "tcdp": (f"tCDP, omega {omega:g}", GREEN, ":", 2.2),
        "zcdp": ("zCDP", BLUE, "--", 1.8),
        "gaussian": ("Gaussian mechanism, exact", ORANGE, "-", 2.0),
    }
    least = 1e-12
    for kind, (label, colour, line, width) in labels.items():
        t, values = _series(rows, "t", kind)
        shown = [max(value, least / 100) for value in values]
        drawn = "steps-post" if kind == "pure" else "default"
        axes.plot(t, shown, color=colour, linestyle=line, linewidth=width, label=label, drawstyle=drawn)
    label_axes(axes, title=title, x="privacy loss t", y="P(Z > t) at most", log="y")
    axes.set_ylim(least, 3)
    axes.set_xlim(0, rows[-1]["t"])
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    save_figure(figure, path)


def plot_erm(rows: TableRows, path: Path, *, title: str, best: int) -> None:
    """Risk bounds of projected descent over T, without privacy and with."""
    figure, axes = panels(7.2, 4.2)
    curves = {
        "plain": ("no privacy", GREY, "-"),
        "private": ("private, full batch", ORANGE, "-"),
        "lecture": ("private, one record a step,\nsubsampling lemma and\nadvanced composition", BLUE, "--"),
    }
    for kind, (label, colour, line) in curves.items():
        axes.plot(*_series(rows, "steps", kind), color=colour, linestyle=line, linewidth=1.8, label=label)
    axes.axvline(best, color=ORANGE, linewidth=0.9, linestyle=":")
    where = {"xycoords": ("data", "axes fraction"), "color": ORANGE, "ha": "right", "va": "top", "fontsize": 9}
    note(axes, f"best T {best:,}", (best, 0.97), (-4, 0), **where)
    label_axes(axes, title=title, x="number of steps T", y="bound on the excess risk", log="xy")
    axes.legend(**BESIDE)
    save_figure(figure, path)


def plot_accountants(rows: TableRows, path: Path) -> None:
    """Epsilon (top) and seconds (bottom) over the steps, a column for each kind of sampling."""
    from matplotlib.lines import Line2D  # slow to import

    kinds = list(dict.fromkeys(row["sampling"] for row in rows))
    figure, grid = panels(4.6 * len(kinds) + 1.4, 6.4, 2, len(kinds), squeeze=False, sharex=True)
    for kind, (price, seconds) in zip(kinds, grid.T, strict=True):
        chosen = [row for row in rows if row["sampling"] == kind]
        priced = _priced(chosen)
        for axes, value in ((price, "epsilon"), (seconds, "seconds")):
            for accountant in priced:
                mine = [row for row in chosen if row["accountant"] == accountant and row["epsilon"] is not None]
                style = {"marker": MARKS[accountant], "color": COLOURS[accountant]}
                axes.plot(*_series(mine, "steps", value), markersize=5, linewidth=1.4, **style)
        sampling = "full batch" if kind == "full" else f"Poisson batches, rate {kind.split()[-1]}"
        label_axes(price, title=f"{sampling}, noise multiplier {chosen[0]['noise_multiplier']:g}", log="xy")
        same = "\n".join(" = ".join(names) for names in _together(chosen) if len(names) > 1)
        price.text(0.97, 0.04, same, transform=price.transAxes, ha="right", va="bottom", fontsize=8.5, color=GREY)
        refused = [one for one in dict.fromkeys(row["accountant"] for row in chosen) if one not in priced]
        note = f"refused: {', '.join(refused)}" if refused else "all give a price"
        label_axes(seconds, x=f"number of steps\n{note}", log="xy")
    label_axes(grid[0][0], y="epsilon")
    label_axes(grid[1][0], y="seconds to compute")
    shown = [one for one in NAMES if one in _priced(rows)]
    handles = [Line2D([], [], color=COLOURS[one], marker=MARKS[one], markersize=5, label=one) for one in shown]
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=9)
    save_figure(figure, path)


def _priced(rows: TableRows) -> list[str]:
    """The accountants that had a price at least once, in order."""
    return list(dict.fromkeys(row["accountant"] for row in rows if row["epsilon"] is not None))


def _together(rows: TableRows) -> list[tuple[str, ...]]:
    """Accountants grouped when all their prices agree to a relative 1e-6: one line for the lot."""
    groups: dict[Any, list[str]] = {}
    for one in _priced(rows):
        steps, prices = _series([row for row in rows if row["accountant"] == one], "steps", "epsilon")
        groups.setdefault((*steps, *(f"{price:.6g}" for price in prices)), []).append(one)
    return [tuple(names) for names in groups.values()]
