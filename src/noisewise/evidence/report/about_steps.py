"""Noise, clip and the noised gradient at each step: a sentence where they hardly change, a chart where they do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from ...asking import Gradient
from .axes import Point, finite
from .charts import Series, line_chart
from .markup import Markup, SectionPart, charts, figure, join, tag
from .run_folder import RunFolder
from .sentences import number

OWN_COORDINATES = ("public_subspace", "adaptive_clip")  # noise that is not the same on every parameter
LEVELS = 3  # values one after another that a sentence can tell


def noise_and_clip(folder: RunFolder) -> SectionPart | None:
    """Noise and clip of every gradient, and the norm of the noised gradient."""
    rows = [row for row in folder.trace if row["question"] == Gradient.name]
    told: list[str] = []
    cards: list[Markup | None] = []
    for key, title, field, what in (
        ("noise", "Noise on each coordinate", "noise_std", "standard deviation of the noise on the mean gradient"),
        ("clip", "Clip norm", "clip", "norm to which each record's gradient is shortened"),
    ):
        points = finite((i, row[field]) for i, row in enumerate(rows, 1))
        if (text := _levels(points)) is not None:
            told.append(f"{title}: {text} ({what}).")
        elif points:
            cards.append(_over_steps(key, title, points, what))
    cards.append(_gradient_norm(folder))
    if not told and not any(cards):
        return None
    body = join(*(tag("p", one) for one in told), charts(*cards))
    return SectionPart("noise", "Noise, clip and gradients at each step", body, folded=True)


def _levels(points: Sequence[Point]) -> str | None:
    """A curve that keeps to a few values, as a sentence; None for another.

    >>> _levels([(1, 0.5), (2, 0.5)]), _levels([(1, 2.0), (2, 1.0), (3, 1.0)]), _levels([(i, float(i)) for i in range(9)])
    ('0.5 at each of 2 steps', '2 at step 1, 1 at steps 2 to 3', None)
    """
    runs = [
        (value, [step for step, _ in group]) for value, group in groupby(points, key=lambda point: f"{point[1]:.6g}")
    ]
    if len(runs) == 1:
        return f"{number(float(runs[0][0]))} at each of {len(points):,} steps"
    if not points or len(runs) > LEVELS:
        return None
    return ", ".join(
        f"{number(float(value))} at step{f' {steps[0]:,.0f}' if len(steps) == 1 else f's {steps[0]:,.0f} to {steps[-1]:,.0f}'}"
        for value, steps in runs
    )


def _over_steps(key: str, title: str, points: Sequence[Point], what: str) -> Markup | None:
    values = [y for _, y in points]
    low, high = min(values), max(values)
    text = (
        f"{what[0].upper()}{what[1:]}: {number(values[0])} at the first of {len(values):,} steps, {number(values[-1])} at the "
        f"last, between {number(low)} and {number(high)}."
    )
    lines, log = [Series(title, points)], low > 0 and high > 30 * low
    chart = line_chart(key, lines, title=title, description=text, x_label="step", y_label=title, log=log)
    return figure(title, chart, text)


def _gradient_norm(folder: RunFolder) -> Markup | None:
    """The norm of each released gradient beside what noise alone would give."""
    rows = [row for row in folder.trace if row["question"] == Gradient.name]
    norm = finite((i, row["norm"]) for i, row in enumerate(rows, 1))
    if not norm:
        return None
    parameters = folder.run["model"]["parameters"]
    known = folder.statement["method"]["name"] not in OWN_COORDINATES
    root = math.sqrt(max(parameters, 1))
    level = finite((i, row["noise_std"] * root) for i, row in enumerate(rows, 1)) if known else []
    text = f"{number(norm[0][1])} at the first of {len(norm):,} steps, {number(norm[-1][1])} at the last."
    levels = dict(level)
    ratios = [y / levels[x] for x, y in norm if levels.get(x)]
    if ratios:
        tail = ratios[-max(1, len(ratios) // 4) :]
        text += (
            f" Against pure noise: {number(ratios[0], 3)} times its level at the first step, "
            f"{number(math.fsum(tail) / len(tail), 3)} times over the last quarter of the steps. Dashed is what noise alone would "
            f"give, its standard deviation times the root of {parameters:,} parameters: where the line keeps to it, there was "
            "little left to learn that the noise did not hide."
        )
    lines = [Series("noised gradient", norm), Series("pure noise", level, "dashed", 2)]
    lengths = [y for _, y in norm]
    log, title = min(lengths) > 0 and max(lengths) > 10 * min(lengths), "Norm of the noised gradient"
    chart = line_chart("norm", lines, title=title, description=text, x_label="step", y_label="norm", log=log)
    return figure(title, chart, text)
