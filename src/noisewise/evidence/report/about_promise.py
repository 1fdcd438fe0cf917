"""What is promised: one limit on what anyone can find out about a record, what it covers, and attacks on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...statements.statement import account_text
from ...trusted.arithmetic import sentence
from . import sentences as words
from .charts import SHARES_ALONG, Interval, Series, interval_chart, line_chart
from .markup import Markup, Section, SectionPart, charts, figure, join, latest_first, listed, section, tag
from .run_folder import RunFolder
from .sentences import number, percent

LOW_CHART_PIXELS = 116  # height beside a few rows


def promised(folder: RunFolder) -> Section:
    """The promise in plain words, and what it means for a person."""
    title = "What is promised"
    if folder.promise is None:
        nothing = "Nothing. The records were used without protection: the model may reveal any of them."
        return section("promise", title, tag("p", nothing), _audits(folder))
    return section("promise", title, _limit(folder, folder.promise), _covered(folder, folder.promise), _audits(folder))


def counting(folder: RunFolder) -> tuple[float, float] | None:
    """The (epsilon, delta) that counts: of the model and all private evaluations, by basic composition."""
    if folder.promise is None:
        return None
    paid = [row for row in folder.evaluations if row["rows"] == "private"]
    epsilon, delta = (
        math.fsum([folder.promise[name], *(row[name] or 0.0 for row in paid)]) for name in ("epsilon", "delta")
    )
    return epsilon, delta


def sums(folder: RunFolder) -> str | None:
    """What the limit is the sum of, where private evaluations were bought."""
    paid = [row for row in folder.evaluations if row["rows"] == "private"]
    if not paid or folder.promise is None:
        return None
    spent = math.fsum(row["epsilon"] for row in paid)
    what = "one private evaluation" if len(paid) == 1 else f"{len(paid):,} private evaluations"
    return f"{words.budget(folder.promise['epsilon'])} for training and {words.budget(spent)} for {what}"


def _limit(folder: RunFolder, promise: Mapping[str, Any]) -> Markup:
    """The one limit, in words, as beliefs and as suspicions."""
    epsilon, delta = counting(folder) or (math.inf, 1.0)
    adding = promise["adjacency"] == "add_remove"
    who = promise["unit"].split(",")[0].removeprefix("one ")  # record or person
    secret = f"whether the {who} is in the data at all" if adding else f"which of two values the {who} has"
    simulated = tag("p", "A private run would promise this; this one was a simulation and promises nothing.")
    attack = (
        f"Think of any one {who}, and of an attacker who sees everything that was released, knows all other {who}s and has "
        f"unlimited computing power. Guessing {secret} on a coin flip, they are right "
    )
    right = tag("strong", words.limited(words.guess(epsilon, delta)))
    change = "being there or not" if adding else "having another value"
    limit = (
        f"This is the limit that counts: that of epsilon = {words.budget(epsilon)} and delta = {words.budget(delta)}, "
        f"{_counted(folder)} Odds change by a factor of at most e^epsilon = {words.factor(epsilon)}, up or down; delta "
        f"({words.chance(delta)}) is the allowance on top, the share by which this may be missed. The unit is {promise['unit']}; "
        f"neighbouring data sets differ in one {who} {change} ({promise['adjacency']})."
    )
    return join(
        simulated if folder.simulation else None,
        tag("p", attack, right, " of the time; blind guessing is right half of the time.", class_="lead"),
        tag("p", limit),
        charts(_beliefs(epsilon), _trade_off(epsilon, delta)),
    )


def _counted(folder: RunFolder) -> str:
    """Which numbers were added up, if there are several."""
    added = sums(folder)
    if added is None:
        return "which the statement of this run promises and anyone can recompute."
    return f"{added}, for a person whose record was used in all of them (evaluations are releases too)."


def _beliefs(epsilon: float) -> Markup | None:
    """What an attacker believed, and the most that it can become."""
    after = {prior: words.belief(prior, epsilon) for prior in (0.01, 0.1, 0.25, 0.5, 0.75, 0.9)}
    rows = [
        Interval(f"{percent(prior)} before", most, (prior, most), text=words.limited(most))
        for prior, most in after.items()
    ]
    title = "What an attacker may come to believe"
    chart = interval_chart("beliefs", rows, title=title, x_label="belief", limits=(0.0, 1.0), show=percent)
    return figure(title, chart, "About one record, whatever else they know.")


def _trade_off(epsilon: float, delta: float) -> Markup | None:
    """True against false positives that any attacker can reach."""
    corner = 1 / (1 + math.exp(min(epsilon, 700.0)))
    grid = sorted({*(i / 100 for i in range(101)), *(i / 2000 for i in range(20)), corner})
    lines = [
        Series("blind guessing", [(0.0, 0.0), (1.0, 1.0)], "dashed", 3),
        Series("limit", [(x, words.hits(x, epsilon, delta)) for x in grid], "line", 1),
    ]
    text = f"With 10 % of wrong suspicions, {words.limited(words.hits(0.1, epsilon, delta))} of the right ones."
    chart = line_chart(
        "trade-off", lines, title="The same limit for suspicions", description=text, x_label="wrongly suspected",
        y_label="rightly suspected, at most", height=LOW_CHART_PIXELS, **SHARES_ALONG,
    )  # fmt: skip
    return figure("The same limit for suspicions", chart, text)


def _covered(folder: RunFolder, promise: Mapping[str, Any]) -> SectionPart:
    statement, before = folder.statement, folder.statement["preparation"]
    bought = None
    if before is not None:
        bought = tag(
            "p",
            f"Of epsilon {words.budget(promise['epsilon'])}, {words.budget(before['epsilon'])} (and delta "
            f"{words.budget(before['delta'])}) were spent before training, on {before['what']}. The promise is the total.",
        )
    body = join(
        tag(
            "div",
            listed("Covered", statement["covers"]),
            listed("Not covered", statement["does_not_cover"]),
            listed("Assumed to be public", statement["assumed"]),
            class_="columns",
        ),
        bought,
        tag("p", f"This is a {account_text(statement['account'])}.") if "account" in statement else None,
        tag("p", f"Arithmetic: {sentence(statement['arithmetic'])}.") if "arithmetic" in statement else None,
    )
    return SectionPart("covered", "What it covers", body)


def refutes(audit: Mapping[str, Any]) -> bool:
    """Whether an audit found more than was promised; a bound above the claim that fresh runs did not confirm is none."""
    bound, claimed = audit["lower_bound"], audit["claimed"]
    above = bound is not None and claimed is not None and bound > claimed
    unconfirmed = audit.get("outcome") == "alarm not confirmed"
    return (above and not unconfirmed) or audit.get("violation") is True or audit.get("violates") is True


def _audits(folder: RunFolder) -> SectionPart | None:
    """Attacks that tried to find out more than was promised."""
    if not folder.audits:
        return None
    lines = []
    for row in folder.audits:
        small = [tag("div", text, class_="soft small") for text in (words.when(row["when"]), row.get("unit")) if text]
        bound, claimed, runs = (number(row[name]) for name in ("lower_bound", "claimed", "runs"))
        sure = "-" if row["confidence"] is None else percent(row["confidence"])
        lines.append((join(row["kind"].replace("_", " "), *small), bound, claimed, sure, runs, row["verdict"]))
    told = (
        "An audit attacks the training itself and measures how much leaks. It can refute a promise, never prove one: "
        "a lower bound above the claim is a broken promise once fresh runs confirm it, one below is consistent with it."
    )
    heads = ("audit", "at least", "claimed", "confidence", "runs", "verdict")
    return SectionPart("audits", "Audits", join(tag("p", told), latest_first(heads, lines, (1, 2, 3, 4), "audits")))
