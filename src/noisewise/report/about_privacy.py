"""What the report says about privacy: the promise, how the budget was spent, noise, clip and noised gradients.

Each section is made of a run folder; one without material is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..arithmetic import sentence
from ..prepare.parts import cost
from ..statement import account_text
from . import words
from .charts import Series, finite, line_chart
from .markup import Markup, aside, charts, figure, join, section, table, tag
from .run_folder import RunFolder
from .words import at_most, number, percent

OWN_COORDINATES = ("public_subspace", "adaptive_clip")  # noise that is not the same on every parameter


def promised(folder: RunFolder) -> Markup:
    """The promise in plain words, and what it means for a person."""
    promise = folder.promise
    if promise is None:
        return section(
            "What was promised",
            tag("p", "Nothing. The records were used without protection: the model may reveal any of them."),
        )
    epsilon, delta = promise["epsilon"], promise["delta"]
    adding = promise["adjacency"] == "add_remove"
    who = promise["unit"].split(",")[0].removeprefix("one ")  # record or person
    secret = f"whether the {who} is in the data at all" if adding else f"which of two values the {who} has"
    covers, gaps = folder.statement["covers"], folder.statement["does_not_cover"]
    before = folder.statement["preparation"]
    return section(
        "What was promised",
        tag("p", "A private run would promise this; this one was a simulation and promises nothing.")
        if folder.simulation
        else None,
        tag(
            "p",
            f"Think of any one {who}, and of an attacker who sees everything that was released, knows all other {who}s "
            f"and has unlimited computing power. What they can find out about {secret} is limited: their odds change by "
            f"a factor of at most e^epsilon = {words.factor(epsilon)}, up or down.",
        ),
        charts(_belief_table(epsilon, delta), _trade_off(folder, epsilon, delta)),
        tag(
            "p",
            f"Delta = {words.budget(delta)} ({words.chance(delta)}) is the allowance on top: the share by which these limits may "
            f"be missed. The unit is {promise['unit']}; neighbouring data sets differ in one {who} "
            + ("being there or not" if adding else "having another value")
            + f" ({promise['adjacency']}).",
        ),
        None
        if before is None
        else tag(
            "p",
            f"Of this, epsilon {words.budget(before['epsilon'])} and delta {words.budget(before['delta'])} were spent before "
            f"training, on {before['what']}. The promise is the total.",
        ),
        tag("p", f"This is a {account_text(folder.statement['account'])}.") if "account" in folder.statement else None,
        tag("p", f"Arithmetic: {sentence(folder.statement['arithmetic'])}.")
        if "arithmetic" in folder.statement
        else None,
        tag(
            "div",
            _listed("Covered", covers),
            _listed("Not covered", gaps),
            _listed("Assumed to be public", folder.statement["assumed"]),
            _listed("Taken for granted by the price", (folder.statement["accounting"] or {}).get("assumptions", [])),
            _listed("Settings were", [folder.statement["hyper_parameters"]]),
            class_="columns",
        ),
    )


def _listed(title: str, items: Sequence[str]) -> Markup:
    return tag("div", tag("h3", title), tag("ul", *(tag("li", item) for item in items)))


def _belief_table(epsilon: float, delta: float) -> Markup:
    rows = [(percent(prior), at_most(words.belief(prior, epsilon))) for prior in (0.01, 0.1, 0.5, 0.9)]
    return tag(
        "figure",
        tag("h3", "What an attacker may come to believe"),
        table(("believed before", "at most after"), rows, numeric=(0, 1)),
        tag(
            "figcaption",
            f"Guessing a fair coin flip about one record, any attacker is right at most "
            f"{at_most(words.guess(epsilon, delta))} of the time: (e^epsilon + delta) / (1 + e^epsilon). "
            "Blind guessing is right half of the time.",
        ),
    )


def _trade_off(folder: RunFolder, epsilon: float, delta: float) -> Markup | None:
    """True against false positives that any attacker can reach, and the tighter curve of Gaussian DP if it applies."""
    mu = words.gaussian_mu(folder.statement)
    corners = [1 / (1 + math.exp(min(epsilon, 700.0)))]
    grid = sorted({*(i / 100 for i in range(101)), *(i / 2000 for i in range(20)), *corners})
    bound = Series("limit of (epsilon, delta)", [(x, words.hits(x, epsilon, delta)) for x in grid], "line", 2)
    lines = [Series("blind guessing", [(0.0, 0.0), (1.0, 1.0)], "dashed", 3), bound]
    text = f"With 10 % of wrong suspicions, at most {at_most(words.hits(0.1, epsilon, delta))} of the right ones."
    caption = (
        "The most that anyone can suspect rightly (true positives) at each rate of wrong suspicions (false positives)."
    )
    if mu is not None:
        lines.append(Series("limit of this run's noise", [(x, words.gaussian_hits(x, mu)) for x in grid], "line", 1))
        text += f" The noise of this run allows at most {at_most(words.gaussian_hits(0.1, mu))}."
        caption += (
            f" Every answer was priced in Gaussian DP (mu = {number(mu, 3)}), which proves more than epsilon and delta "
            f"say: a coin flip is guessed right at most {at_most(words.gaussian_guess(mu))} of the time."
        )
    chart = line_chart(
        "trade-off", lines, title="Limits for any attacker", description=text, x_label="wrongly suspected",
        y_label="rightly suspected, at most",
        x_limits=(0.0, 1.0), y_limits=(0.0, 1.0), show=percent, show_x=percent,
    )  # fmt: skip
    return figure("Limits for any attacker", chart, caption)


def prepared(folder: RunFolder) -> Markup | None:
    """What turned declared columns into rows, and what each part of it cost; older statements do not say."""
    parts = folder.statement.get("prepared")
    if not parts:
        return None
    before = folder.statement["preparation"]
    lines = [(part["part"], part["words"], _cost(part, before)) for part in parts]
    return section(
        "What was prepared",
        tag(
            "p",
            "Before and while training, these made rows of the columns. Each was free, because it follows from what is "
            "declared, public or already released, or was paid for by questions that the promise covers.",
        ),
        table(("part", "what", "cost"), lines),
    )


def _cost(part: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    if part["part"] == "bounds" and before is not None:
        return f"epsilon {words.budget(before['epsilon'])}, delta {words.budget(before['delta'])}"
    return cost(part)


def spent(folder: RunFolder) -> Markup | None:
    """The share of the budget over the questions, and what was asked."""
    rows = folder.trace
    if not rows:
        return None
    plan = (folder.statement["meter"] or {}).get("meter") == "plan"
    points = [(0.0, 0.0), *((float(i), row["spent"]) for i, row in enumerate(rows, 1))]
    half = next((i for i, share in points if share >= 0.5), None)
    text = f"{len(rows):,} questions; {_share(points[1][1])} of the budget was spent after the first"
    text += f", half of it after {int(half):,}" if half is not None else ""
    text += f", {_share(points[-1][1])} at the end."
    chart = line_chart(
        "budget", [Series("spent", points, "area")], title="Budget spent over questions", description=text,
        x_label="questions answered", y_label="share of the budget spent", x_limits=(0.0, float(len(rows))),
        y_limits=(0.0, 1.0), show=percent,
    )  # fmt: skip
    how = (
        "The plan was fixed and priced before the first question; the line counts its questions. All of it stays charged."
        if plan
        else f"Priced by {folder.statement['accounting']['type']}."
        if folder.statement["accounting"]
        else ""
    )
    return section(
        "How the budget was spent",
        tag(
            "p",
            "Every question about the records was paid for before it was answered. The promise is the whole budget.",
        ),
        charts(figure("Budget spent", chart, f"{text} {how}"), _asked(rows)),
    )


def _share(spent: float) -> str:
    """A share of the budget: what rounding left over is nothing."""
    return percent(1.0 if spent > 1 - 1e-6 else spent)


def _asked(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """What was asked, how often, and for which share of the budget."""
    groups: dict[str, list[Any]] = {}
    before = 0.0
    for row in rows:
        group = groups.setdefault(row["question"], [0, 0.0, row["event"]])
        group[0] += 1
        group[1] += row["spent"] - before
        before = row["spent"]
    lines = [
        (
            join(words.question_text(name), tag("div", _protected(event, count), class_="soft small")),
            f"{count:,}",
            percent(share),
        )
        for name, (count, share, event) in groups.items()
    ]
    return tag("figure", tag("h3", "What was asked"), table(("question", "times", "share"), lines, numeric=(1, 2)))


def _protected(event: Mapping[str, Any], count: int) -> str:
    try:
        text = words.mechanism(event)
    except (KeyError, TypeError, AttributeError):
        return ""
    return text if count == 1 else f"first: {text}"


def noise_and_clip(folder: RunFolder) -> Markup | None:
    """Noise and clip of every gradient, and the norm of the noised gradient."""
    rows = [row for row in folder.trace if row["question"] == "gradient"]
    noise = finite((i, row["noise_std"]) for i, row in enumerate(rows, 1))
    clip = finite((i, row["clip"]) for i, row in enumerate(rows, 1))
    figures = charts(
        _over_steps(
            "noise", "Noise on each coordinate", noise, "standard deviation", "of the noise on the mean gradient"
        ),
        _over_steps("clip", "Clip norm", clip, "clip norm", "to which each record's gradient is shortened"),
    )
    return None if figures is None else section("Noise and clip per step", figures)


def _over_steps(key: str, title: str, points: list[Any], y_label: str, what: str) -> Markup | None:
    if not points:
        return None
    values = [y for _, y in points]
    low, high, first, last = min(values), max(values), values[0], values[-1]
    if high - low <= 1e-6 * abs(high):
        text = f"{number(first)} at each of {len(values):,} steps: {y_label} {what}."
    else:
        text = (
            f"{y_label} {what}: {number(first)} at the first of {len(values):,} steps, {number(last)} at the last, "
            f"between {number(low)} and {number(high)}."
        )
    lines, log = [Series(y_label, points)], low > 0 and high > 30 * low
    chart = line_chart(key, lines, title=title, description=text, x_label="step", y_label=y_label, log=log)
    return figure(title, chart, text[0].upper() + text[1:])


def gradient_norm(folder: RunFolder) -> Markup | None:
    """The norm of each released gradient beside what noise alone would give."""
    rows = [row for row in folder.trace if row["question"] == "gradient"]
    norm = finite((i, row["norm"]) for i, row in enumerate(rows, 1))
    if not norm:
        return None
    root = math.sqrt(max(folder.run["model"]["parameters"], 1))
    known = folder.statement["method"]["name"] not in OWN_COORDINATES
    level = finite((i, row["noise_std"] * root) for i, row in enumerate(rows, 1)) if known else []
    text = f"{number(norm[0][1])} at the first of {len(norm):,} steps, {number(norm[-1][1])} at the last."
    advice = "The gradients that were released are noised; this is how long they were."
    levels = dict(level)
    ratios = [y / levels[x] for x, y in norm if levels.get(x)]
    if ratios:
        tail = ratios[-max(1, len(ratios) // 4) :]
        text += (
            f" Against pure noise: {number(ratios[0], 3)} times its level at the first step, "
            f"{number(math.fsum(tail) / len(tail), 3)} times over the last quarter of the steps."
        )
        advice += (
            f" Dashed is what noise alone would give, its standard deviation times the root of {folder.run['model']['parameters']:,}"
            " parameters. Where the line keeps to it, there was little left to learn that the noise did not hide."
        )
    lines = [Series("noised gradient", norm), Series("pure noise", level, "dashed", 2)]
    lengths = [y for _, y in norm]
    log, title = min(lengths) > 0 and max(lengths) > 10 * min(lengths), "Norm of the noised gradient"
    chart = line_chart("norm", lines, title=title, description=text, x_label="step", y_label="norm", log=log)
    return section("The noised gradient", charts(figure(title, chart, text), aside(advice)))
