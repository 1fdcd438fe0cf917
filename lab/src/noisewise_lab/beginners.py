"""Pictures for docs/privacy-for-beginners.md (what noise hides, what epsilon means, how budgets add up, clip and noise) and
docs/which-method.md.

Every number in them is a price of noisewise or follows from one; no record has a part in any.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.evidence.figures import BLUE, GREEN, GREY, ORANGE, PALE, STYLES, label_axes, panels, save_figure
from noisewise.trusted.accountants.calibrate import calibrate, epsilon
from noisewise.trusted.accountants.terms import Budget
from noisewise.trusted.events import Gaussian, Repeated

DELTA = 1e-6
WORLDS = (2.0, 0.5)  # epsilons under which a count is shown with and without one person
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
PRIORS = (0.01, 0.1, 0.5)
EACH, CAP, RELEASES = 0.3, 1.0, 12  # epsilon of one release, what may be spent in all, releases
CROWDS = (100, 1000, 10_000, 100_000)


def noise_for(budget: float) -> float:
    """Standard deviation of the noise on one count, which a person moves by 1."""
    return calibrate(Budget(budget, DELTA), steps=1)


def belief(prior: float, budget: float) -> float:
    """The most that somebody who thought something about a person with probability ``prior`` may think afterwards.

    >>> round(belief(0.5, 1.0), 3), belief(0.5, 0.0)
    (0.731, 0.5)
    """
    odds = prior / (1 - prior) * math.exp(budget)
    return odds / (1 + odds)


def spent(releases: int) -> float:
    """Epsilon of so many releases together, each of which alone is worth ``EACH``."""
    return epsilon(Repeated(Gaussian(noise_for(EACH)), releases), delta=DELTA, adjacency="add_remove")


def numbers() -> list[dict[str, Any]]:
    """What the pictures show, to quote."""
    found: list[tuple[str, float]] = [(f"noise on a count at epsilon {one:g}", noise_for(one)) for one in WORLDS]
    found += [(f"belief from {100 * p:g} % at epsilon {e:g}", belief(p, e)) for p in PRIORS for e in EPSILONS]
    found += [(f"{n} releases of epsilon {EACH:g} together", spent(n)) for n in range(1, RELEASES + 1)]
    found += [
        (f"noise on a share of {n:,} at epsilon {e:g}, points", noise_in_points(n, e))
        for e in (0.1, 1.0)
        for n in CROWDS
    ]
    return [{"what": what, "value": value} for what, value in found]


def noise_in_points(records: int, budget: float) -> float:
    """Noise on a share, in percentage points, when a count of so many records is divided by their number."""
    return 100 * noise_for(budget) / records


def draw(folder: Path) -> list[Path]:
    """All pictures, as PNG files in a folder."""
    made = {
        "beginners-two-worlds": two_worlds,
        "beginners-odds": odds,
        "beginners-adding-up": adding_up,
        "beginners-crowd": crowd,
        "beginners-clip-and-noise": clip_and_noise,
        "beginners-not-protected": not_protected,
        "which-method": which_method,
    }
    paths = [folder / f"{name}.png" for name in made]
    for path, picture in zip(paths, made.values(), strict=True):
        save_figure(picture(), path)
    return paths


def two_worlds() -> Any:
    """A released count with and without one person: without noise, with a little, with more."""
    figure, axes = panels(8.6, 2.9, 1, 3, grid=False)
    for number, colour, style, label in ((41, BLUE, "-", "without her"), (42, ORANGE, "--", "with her")):
        axes[0].plot([number, number], [0, 1], color=colour, linestyle=style, linewidth=4, label=label)
    label_axes(axes[0], title="no noise: she is given away", x="released count")
    axes[0].set_xlim(35, 48)
    axes[0].set_xticks([36, 39, 42, 45, 48])
    for one, budget in zip(axes[1:], WORLDS, strict=True):
        noise = noise_for(budget)
        x = np.linspace(41.5 - 3.4 * noise, 41.5 + 3.4 * noise, 400)
        for number, colour, style in ((41, BLUE, "-"), (42, ORANGE, "--")):
            y = np.exp(-0.5 * ((x - number) / noise) ** 2)
            one.plot(x, y, color=colour, linestyle=style, linewidth=2)
            one.fill_between(x, y, color=colour, alpha=0.12, linewidth=0)
        label_axes(one, title=f"epsilon {budget:g}: noise of about ±{noise:.1f}", x="released count")
    for one in axes:
        one.set_yticks([])
        one.spines["left"].set_visible(False)
        one.set_ylim(0, 1.15)
    axes[0].legend(frameon=False, loc="upper left")
    axes[0].set_ylabel("how likely")
    return figure


def odds() -> Any:
    """Beliefs before and after, at the most, over epsilon."""
    figure, axes = panels(7.5, 4)
    x = np.linspace(0, 8, 200)
    for prior, (colour, line, _) in zip(reversed(PRIORS), STYLES, strict=False):
        axes.plot(x, [100 * belief(prior, one) for one in x], color=colour, linestyle=line, linewidth=2.2)
        axes.plot([0], [100 * prior], "o", color=colour)
        at = {0.5: 1.25, 0.1: 2.9, 0.01: 5.3}[prior]
        axes.annotate(f"thought {100 * prior:g} % before", (at, 100 * belief(prior, at)), (8, -12), textcoords="offset points",
                      color=colour)  # fmt: skip
    axes.axvspan(0, 1, color=GREEN, alpha=0.1, linewidth=0)
    axes.text(0.5, 104, "strict", ha="center", color=GREEN)
    axes.text(6.5, 104, "hardly a limit", ha="center", color=GREY)
    axes.set_ylim(0, 110)
    axes.set_xlim(-0.1, 8)
    axes.set_yticks([0, 25, 50, 75, 100])
    label_axes(axes, x="epsilon", y="thinks afterwards, at most, %")
    return figure


def adding_up() -> Any:
    """Releases on the same records: the sum of their epsilons, what they really cost, and where a budget of 1 ends."""
    figure, axes = panels(7.5, 4)
    counts = np.arange(1, RELEASES + 1)
    together = [spent(int(count)) for count in counts]
    fits = [cost <= CAP for cost in together]
    axes.bar(counts, together, color=[BLUE if fit else PALE for fit in fits], width=0.7)
    axes.plot(counts, EACH * counts, color=ORANGE, linestyle="--", marker="s", markersize=4)
    axes.axhline(CAP, color="black", linewidth=1.2)
    axes.text(0.45, CAP + 0.06, f"budget: epsilon {CAP:g}")
    axes.text(6.7, EACH * 7.6, "simple sum", color=ORANGE, ha="right")
    refused = int(counts[fits.index(False)])
    axes.annotate("refused:\nnothing is released", (refused, CAP + 0.05), (refused + 1, 1.55), ha="center",
                  arrowprops={"arrowstyle": "-|>", "color": "black"})  # fmt: skip
    axes.set_xticks(counts)
    label_axes(axes, x=f"releases so far, each worth epsilon {EACH:g} by itself", y="epsilon of all together")
    return figure


def crowd() -> Any:
    """The noise of a share over the number of records, for two budgets."""
    figure, axes = panels(7.5, 3.6)
    for budget, (colour, line, mark) in zip((0.1, 1.0), STYLES, strict=False):
        values = [noise_in_points(count, budget) for count in CROWDS]
        axes.plot(CROWDS, values, color=colour, linestyle=line, marker=mark, linewidth=2, label=f"epsilon {budget:g}")
        for count, value in zip(CROWDS, values, strict=True):
            axes.annotate(f"{value:.2g}", (count, value), (6, 5), textcoords="offset points", color=colour, fontsize=9)
    label_axes(axes, x="people in the data", y="noise on a share, points", log="xy")
    axes.set_xlim(80, 250_000)
    axes.set_xticks(CROWDS, [f"{count:,}" for count in CROWDS])
    axes.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    axes.minorticks_off()
    axes.legend(frameon=False)
    return figure


def clip_and_noise() -> Any:
    """Arrows of records, one of them long; the same clipped; the sum with its noise."""
    arrows = np.random.default_rng(3).normal((0.55, 0.35), 0.35, (30, 2))
    arrows[0] = (-2.6, 2.3)
    clipped = arrows / np.maximum(1, np.linalg.norm(arrows, axis=1, keepdims=True))
    figure, axes = panels(8.8, 3.3, 1, 3, grid=False)
    for one, shown, title in zip(
        axes, (arrows, clipped), ("1. What each record asks", "2. Clipped to length C"), strict=False
    ):
        for number, (x, y) in enumerate(shown):
            one.annotate(
                "", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": BLUE if number else ORANGE, "lw": 1.4}
            )
        _circle(one, (0, 0), 1, GREY)
        _square(one, (-0.6, 0.6), 2.2, title)
    axes[0].text(-2.6, 2.45, "one unusual record", color=ORANGE)
    axes[1].text(0.75, -0.95, "C", color=GREY)
    total = clipped.sum(0)
    rng = np.random.default_rng(4)
    for (x, y), colour in ((total - clipped[0], BLUE), (total, ORANGE)):
        axes[2].scatter(
            *((x, y) + noise_for(1.0) * rng.normal(size=(250, 2))).T, color=colour, s=7, alpha=0.45, linewidths=0
        )
        axes[2].annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.6})
    _square(axes[2], (11, 7), 16, "3. The sum, in a cloud of noise")
    axes[2].text(-4.5, -8.6, "with and without that record: epsilon 1", color=GREY, fontsize=9)
    return figure


def _circle(axes: Any, centre: Any, radius: float, colour: str) -> None:
    angles = np.linspace(0, 2 * np.pi, 200)
    axes.plot(
        centre[0] + radius * np.cos(angles),
        centre[1] + radius * np.sin(angles),
        color=colour,
        linestyle="--",
        linewidth=1.2,
    )


def _square(axes: Any, centre: tuple[float, float], half: float, title: str) -> None:
    axes.set_xlim(centre[0] - half, centre[0] + half)
    axes.set_ylim(centre[1] - half, centre[1] + half)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title(title, loc="left", fontsize=11)


def not_protected() -> Any:
    """The same finding with and without a person, and what others conclude from it about that person."""
    figure, axes = panels(9, 3.3, grid=False)
    axes.axis("off")
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 4)
    for y, words, colour in ((3.1, "study\nwith Ada", ORANGE), (0.9, "study\nwithout Ada", BLUE)):
        _box(axes, 0.2, y, 1.7, words, colour)
        _arrow(axes, (1.95, y), (3.0, 2 + 0.35 * np.sign(y - 2)))
    _box(axes, 3.1, 2, 2.5, "almost the same finding:\nsmoking harms", GREY)
    _arrow(axes, (5.7, 2), (6.6, 2))
    _box(axes, 6.7, 2, 3.1, "anybody who knows that\nAda smokes may conclude\nsomething about her", "black")
    _box(
        axes, 6.7, 0.55, 3.1, "differential privacy does not stop\nthat: her record was not needed", GREEN, frame=False
    )
    return figure


def _box(
    axes: Any, x: float, y: float, width: float, words: str, colour: str, *, height: float = 1.1, frame: bool = True
) -> None:
    from matplotlib.patches import FancyBboxPatch

    if frame:
        corner = (x, y - height / 2)
        look: dict[str, Any] = {
            "boxstyle": "round,pad=0.08",
            "facecolor": "white",
            "edgecolor": colour,
            "linewidth": 1.8,
        }
        axes.add_patch(FancyBboxPatch(corner, width, height, **look))
    axes.text(x + width / 2, y, words, ha="center", va="center", color=colour, fontsize=11)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "black", "lw": 1.4})


QUESTIONS = (  # of docs/which-method.md, in their order, each with what to take if the answer is yes
    ("a PyTorch module?", 'nw.fit, method "dpsgd"'),
    ("pictures?", 'OrientedGradients, then "descent"'),
    ("a table of up to 128 columns\nwith bounds or a schema?", 'leave it alone: "additive"'),
    ("two classes, epsilon of 0.1 or less?", '"l2p"'),
    ("settings that may be far off?", '"online"'),
)


def which_method() -> Any:
    """Questions one below the other; the first yes decides."""
    figure, axes = panels(9, 5.4, grid=False)
    axes.axis("off")
    axes.set_xlim(0, 10)
    axes.set_ylim(-1.1, len(QUESTIONS) * 1.5 + 0.2)
    for number, (question, answer) in enumerate(QUESTIONS):
        y = (len(QUESTIONS) - number) * 1.5 - 0.6
        _box(axes, 0.3, y, 3.9, question, BLUE, height=0.8)
        _box(axes, 5.6, y, 4.1, answer, ORANGE, height=0.8)
        _arrow(axes, (4.3, y), (5.5, y))
        _arrow(axes, (2.25, y - 0.5), (2.25, y - 1.0))
        axes.text(4.9, y + 0.1, "yes", ha="center", fontsize=10)
        axes.text(2.4, y - 0.8, "no", fontsize=10)
    _box(axes, 0.3, -0.6, 3.9, '"descent"', ORANGE, height=0.8)
    return figure
