"""Pictures of the theory's rows, for print: colours that differ in grey, lines that differ without colour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .accountants import NAMES

Rows = list[dict[str, Any]]

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#9B4F96", "#666666"
CYCLE = [(BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (PURPLE, ":"), ("#000000", (0, (5, 1, 1, 1, 1, 1)))]


def _figure(width: float = 7.2, height: float = 4.2, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, **options)
    for one in [axes] if columns == 1 else axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
        one.set_axisbelow(True)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)


def _series(rows: Rows, key: str, value: str) -> tuple[list[Any], list[Any]]:
    known = [row for row in rows if row[value] is not None]
    return [row[key] for row in known], [row[value] for row in known]


def plot_bounds(rows: Rows, path: Path, *, title: str) -> None:
    """Bounds over the number of steps, the best T marked, simulated runs as points."""
    figure, axes = _figure(8.2)
    top = 10 * max(row["uniform_bound"] for row in rows)
    styles = {"uniform": (BLUE, "--", "o"), "dynamic": (ORANGE, "-", "s"), "momentum": (GREEN, "-.", "^")}
    for name, (colour, line, mark) in styles.items():
        steps, values = _series(rows, "steps", f"{name}_bound")
        axes.plot(steps, values, color=colour, linestyle=line, linewidth=1.8, label=f"{name}: bound")
        if name != "momentum":
            least = min(range(len(values)), key=values.__getitem__)
            axes.plot(steps[least], values[least], marker="*", markersize=13, color=colour, markeredgecolor="white",
                      linestyle="none", zorder=5)  # fmt: skip
        for clipped, face in ((False, "white"), (True, colour)):
            seen = [row for row in rows if row[f"{name}_simulated"] is not None and row[f"{name}_clipped"] is clipped]
            axes.plot([row["steps"] for row in seen], [min(row[f"{name}_simulated"], top / 1.4) for row in seen], mark,
                      color=colour, markersize=4.5, markerfacecolor=face,
                      label=None if clipped else f"{name}: simulated")  # fmt: skip
    axes.plot([], [], "*", color=GREY, markersize=11, markeredgecolor="white", label="best T of the bound")
    axes.plot(
        [], [], "o", color=GREY, markersize=4.5, label="filled: gradients clipped, no\nbound applies (top: off scale)"
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(top=top)
    axes.set_xlabel("number of steps T")
    axes.set_ylabel("expected excess risk")
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _save(figure, path)


def plot_advantage(rows: Rows, path: Path, *, title: str) -> None:
    """Uniform over dynamic bound against the condition number, one line for each number of records."""
    figure, axes = _figure()
    for (colour, line), records in zip(CYCLE, sorted({row["records"] for row in rows}), strict=False):
        kappas, ratios = _series([row for row in rows if row["records"] == records], "kappa", "ratio")
        axes.plot(kappas, ratios, color=colour, linestyle=line, linewidth=1.8, label=f"{records:,} records")
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0.9)
    axes.set_xlabel("condition number M / mu")
    axes.set_ylabel("uniform bound / dynamic bound, each at its best T")
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    _save(figure, path)


def plot_momentum(rows: Rows, path: Path, *, title: str) -> None:
    """q_t of momentum over that of descent, exact (lines) and as printed (thin)."""
    figure, panels = _figure(9.4, 3.9, 2)
    betas = sorted({row["beta"] for row in rows})
    first = [row for row in rows if row["beta"] == betas[0]]
    panels[0].plot(*_series(first, "step", "descent"), color=GREY, linewidth=1.6, label="descent")
    for (colour, line), beta in zip(CYCLE, betas, strict=False):
        chosen = [row for row in rows if row["beta"] == beta]
        panels[0].plot(*_series(chosen, "step", "momentum"), color=colour, linestyle=line, linewidth=1.8,
                       label=f"momentum {beta:g}")  # fmt: skip
        panels[0].plot(*_series(chosen, "step", "printed"), color=colour, linestyle=line, linewidth=0.7, alpha=0.7)
    panels[0].plot([], [], color=GREY, linewidth=0.7, linestyle="--", label="thin: as printed")
    panels[0].set_yscale("log")
    panels[0].set_xlabel("step t")
    panels[0].set_ylabel("influence q_t on the final loss")
    panels[0].set_ylim(top=panels[0].get_ylim()[1] * 8)
    panels[0].legend(frameon=False, fontsize=8.5, loc="upper left", ncols=2)
    panels[0].set_title(title, loc="left", fontsize=10)
    places = range(len(betas))
    for shift, (name, colour, hatch) in zip(
        (-0.2, 0.2), (("uniform", BLUE, ""), ("dynamic", ORANGE, "//")), strict=True
    ):
        heights = [next(row[name] for row in rows if row["beta"] == beta) for beta in betas]
        bars = panels[1].bar([place + shift for place in places], heights, 0.38, color=colour, hatch=hatch,
                             edgecolor="white", label=f"{name} noise")  # fmt: skip
        panels[1].bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
    panels[1].axhline(1, color=GREY, linewidth=1)
    panels[1].set_xticks(list(places), [f"{beta:g}" for beta in betas])
    panels[1].set_xlabel("momentum beta")
    panels[1].set_ylabel("sum of weights / that of descent")
    panels[1].grid(False, axis="x")
    panels[1].set_ylim(top=panels[1].get_ylim()[1] * 1.15)
    panels[1].legend(frameon=False, fontsize=8.5)
    panels[1].set_title("all steps together: sum of q_t, same gamma", loc="left", fontsize=10)
    _save(figure, path)


def plot_influence(rows: Rows, path: Path, *, title: str) -> None:
    """Measured influence of each step's noise against the bound's q_t."""
    figure, axes = _figure()
    steps, bound = _series(rows, "step", "influence")
    axes.plot(steps, bound, color=ORANGE, linewidth=1.8, label="q_t: the bound")
    if rows[0]["exact"] is not None:
        axes.plot(
            *_series(rows, "step", "exact"), color=GREEN, linestyle="--", linewidth=1.6, label="exact on a quadratic"
        )
    clear = [row for row in rows if row["measured"] > 2 * row["standard_error"]]
    axes.errorbar([row["step"] for row in clear], [row["measured"] for row in clear],
                  yerr=[2 * row["standard_error"] for row in clear], fmt="o", color=BLUE, markersize=4.5, capsize=2.5,
                  linewidth=1, label="measured, 2 standard errors")  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlabel("the one noisy step t")
    axes.set_ylabel("what its noise adds to the final loss (scaled)")
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    _save(figure, path)


def plot_tails(rows: Rows, path: Path, *, title: str, omega: float) -> None:
    """P(Z > t) under every kind of guarantee, on one log axis."""
    figure, axes = _figure()
    labels = {
        "pure": ("pure DP", GREY, "-", 1.4),
        "approximate": ("(epsilon, delta)-DP", PURPLE, "-.", 1.8),
        "tcdp": (f"tCDP, omega {omega:g}", GREEN, ":", 2.2),
        "zcdp": ("zCDP", BLUE, "--", 1.8),
        "gaussian": ("Gaussian mechanism, exact", ORANGE, "-", 2.0),
    }
    least = 1e-12
    for name, (label, colour, line, width) in labels.items():
        t, values = _series(rows, "t", name)
        shown = [max(value, least / 100) for value in values]
        axes.plot(t, shown, color=colour, linestyle=line, linewidth=width, label=label, drawstyle="steps-post" if name == "pure" else "default")  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(least, 3)
    axes.set_xlim(0, rows[-1]["t"])
    axes.set_xlabel("privacy loss t")
    axes.set_ylabel("P(Z > t) at most")
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    _save(figure, path)


def plot_erm(rows: Rows, path: Path, *, title: str, best: int) -> None:
    """Risk bounds of projected descent over T, without privacy and with."""
    figure, axes = _figure()
    curves = {
        "plain": ("no privacy", GREY, "-"),
        "private": ("private, full batch", ORANGE, "-"),
        "lecture": ("private, one record a step,\nsubsampling lemma and\nadvanced composition", BLUE, "--"),
    }
    for name, (label, colour, line) in curves.items():
        axes.plot(*_series(rows, "steps", name), color=colour, linestyle=line, linewidth=1.8, label=label)
    axes.axvline(best, color=ORANGE, linewidth=0.9, linestyle=":")
    axes.annotate(f"best T {best:,}", (best, 0.97), (-4, 0), xycoords=("data", "axes fraction"), textcoords="offset points",
                  color=ORANGE, ha="right", va="top", fontsize=9)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("number of steps T")
    axes.set_ylabel("bound on the excess risk")
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _save(figure, path)


MARKS = dict(zip(NAMES, "osD^vP*X", strict=True))
COLOURS = dict(
    zip(NAMES, (ORANGE, BLUE, GREEN, GREEN, GREEN, PURPLE, "#B8860B", "#56B4E9"), strict=True),
)


def plot_accountants(rows: Rows, path: Path) -> None:
    """Epsilon (top) and seconds (bottom) over the steps, a column for each kind of sampling."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    kinds = list(dict.fromkeys(row["sampling"] for row in rows))
    figure = Figure(figsize=(4.6 * len(kinds) + 1.4, 6.4), layout="constrained")
    panels = figure.subplots(2, len(kinds), squeeze=False, sharex=True)
    for column, kind in enumerate(kinds):
        chosen = [row for row in rows if row["sampling"] == kind]
        for axes, value in zip(panels[:, column], ("epsilon", "seconds"), strict=True):
            for name in _priced(chosen):
                mine = [row for row in chosen if row["accountant"] == name and row["epsilon"] is not None]
                axes.plot([row["steps"] for row in mine], [row[value] for row in mine], marker=MARKS[name], markersize=5,
                          color=COLOURS[name], linewidth=1.4)  # fmt: skip
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
        title = "full batch" if kind == "full" else f"Poisson batches, rate {kind.split()[-1]}"
        panels[0][column].set_title(
            f"{title}, noise multiplier {chosen[0]['noise_multiplier']:g}", loc="left", fontsize=10
        )
        same = "\n".join(" = ".join(names) for names in _together(chosen) if len(names) > 1)
        panels[0][column].text(0.97, 0.04, same, transform=panels[0][column].transAxes, ha="right", va="bottom",
                               fontsize=8.5, color=GREY)  # fmt: skip
        refused = [name for name in dict.fromkeys(row["accountant"] for row in chosen) if name not in _priced(chosen)]
        note = f"refused: {', '.join(refused)}" if refused else "all give a price"
        panels[1][column].set_xlabel(f"number of steps\n{note}")
    panels[0][0].set_ylabel("epsilon")
    panels[1][0].set_ylabel("seconds to compute")
    shown = [name for name in NAMES if name in _priced(rows)]
    handles = [Line2D([], [], color=COLOURS[name], marker=MARKS[name], markersize=5, label=name) for name in shown]
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=9)
    _save(figure, path)


def _priced(rows: Rows) -> list[str]:
    """The accountants that had a price at least once, in order."""
    return list(dict.fromkeys(row["accountant"] for row in rows if row["epsilon"] is not None))


def _together(rows: Rows) -> list[tuple[str, ...]]:
    """Accountants grouped when all their prices agree to a relative 1e-6: one line for the lot."""
    prices: dict[str, tuple[tuple[int, str], ...]] = {
        name: tuple((row["steps"], f"{row['epsilon']:.6g}") for row in rows if row["accountant"] == name and row["epsilon"] is not None)
        for name in _priced(rows)
    }  # fmt: skip
    groups: dict[Any, list[str]] = {}
    for name, price in prices.items():
        groups.setdefault(price, []).append(name)
    return [tuple(names) for names in groups.values()]
