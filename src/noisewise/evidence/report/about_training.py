"""How it was done: the settings, the questions about the records with their noise, and the statement."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from ...asking import Gradient
from ...methods.preparation.choices import cost
from ...statements.statement import text as statement_text
from ...tables.fit.auto import choice_of_run, why
from . import sentences as words
from .charts import Point, Series, finite, line_chart
from .markup import (
    Markup,
    Section,
    SectionPart,
    charts,
    escape,
    figure,
    join,
    joined,
    listed,
    name_of,
    section,
    table,
    tag,
)
from .run_folder import RunFolder
from .sentences import number, percent

OWN_COORDINATES = ("public_subspace", "adaptive_clip")  # noise that is not the same on every parameter
MAX_LEVELS = 3  # different values in a row that a sentence lists
MAX_LISTED_COLUMNS = 128  # of a table
MAX_LISTED_CATEGORIES = 8  # of a column
ELSEWHERE = (  # settings that other lines of the page state
    *("method", "model", "loss", "epsilon", "delta", "adjacency", "classes"),
    *("steps", "max_grad_norm", "chosen_by", "size_is_public"),
)
MIN_BENT_SHARE = 0.12  # of the budget: spending that departs less from an even one is not drawn


def _gradients(folder: RunFolder) -> list[Mapping[str, Any]]:
    return [row for row in folder.trace if row["question"] == Gradient.name]


def noise_and_clip(folder: RunFolder) -> SectionPart | None:
    """Noise, clip and norm of every noised gradient: a sentence where they hardly change, a chart where they do."""
    rows = _gradients(folder)
    sentences: list[str] = []
    cards: list[Markup | None] = []
    for key, title, field, what in (
        ("noise", "Noise on each coordinate", "noise_std", "standard deviation of the noise on the mean gradient"),
        ("clip", "Clip norm", "clip", "norm to which each record's gradient is shortened"),
    ):
        points = finite((i, row[field]) for i, row in enumerate(rows, 1))
        if (text := _levels(points)) is not None:
            sentences.append(f"{title}: {text} ({what}).")
        elif points:
            cards.append(_over_steps(key, title, points, what))
    cards.append(_gradient_norm(folder))
    if not sentences and not any(cards):
        return None
    body = join(*(tag("p", one) for one in sentences), charts(*cards))
    return SectionPart("noise", "Noise, clip and gradients at each step", body, folded=True)


def _levels(points: Sequence[Point]) -> str | None:
    """A curve of a few values, as a sentence; None for another.

    >>> _levels([(1, 0.5), (2, 0.5)]), _levels([(1, 2.0), (2, 1.0), (3, 1.0)]), _levels([(i, float(i)) for i in range(9)])
    ('0.5 at each of 2 steps', '2 at step 1, 1 at steps 2 to 3', None)
    """
    groups = groupby(points, key=lambda point: f"{point[1]:.6g}")
    runs = [(number(float(value)), [step for step, _ in group]) for value, group in groups]
    if len(runs) == 1:
        return f"{runs[0][0]} at each of {len(points):,} steps"
    if not points or len(runs) > MAX_LEVELS:
        return None
    several = "{} at steps {:,.0f} to {:,.0f}".format
    one = "{} at step {:,.0f}".format
    return ", ".join((several if len(at) > 1 else one)(value, at[0], at[-1]) for value, at in runs)


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
    rows = _gradients(folder)
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


def done(folder: RunFolder) -> Section:
    """All of it folded: for readers who want to check or repeat it."""
    command, answer = tag("code", "noisewise verify statement.json"), "yes" if folder.verdict.holds else "no"
    result = f" recomputes its price. When this page was made: {answer}, {folder.verdict.reason}."
    lead = tag("p", "Everyone can check the promise without the data: ", command, result)
    chosen = None
    if (choice := choice_of_run(folder.run, folder.statement, folder.trace)) is not None:
        chosen = SectionPart("chosen", "How the model was chosen", tag("p", why(choice)), folded=True)
    in_words = tag("pre", statement_text(folder.statement))
    as_json = tag("pre", json.dumps(folder.statement, indent=1, ensure_ascii=False))
    return section(
        "how",
        "How it was done",
        lead,
        SectionPart("settings", "Settings that were used", _settings(folder), folded=True),
        chosen,
        _columns(folder),
        _prepared(folder),
        _spent(folder),
        noise_and_clip(folder),
        SectionPart("words", "The statement in words", in_words, folded=True, printed=False),
        SectionPart("json", "The statement as JSON", as_json, folded=True, printed=False),
    )


def _settings(folder: RunFolder) -> Markup:
    """The settings, each once, beside the assumptions of the statement."""
    run, statement, model = folder.run, folder.statement, folder.run["model"]
    kind = words.MODELS.get(model["kind"], model["kind"])
    facts = [
        ("data", joined(run["data"]) if run.get("data") else None),
        ("records", _size(folder)),
        ("target", name_of(run["target"])),
        ("classes", None if run["classes"] is None else joined(run["classes"])),
        ("columns", _features(folder)),
        ("model", f"{kind}, {model['parameters']:,} parameters, {model['loss']} loss"),
        ("method", statement["method"]["name"]),
        ("steps", _steps(folder)),
        ("clip norm", _clip(folder)),
        ("batches", _batches(folder)),
        *_asked(folder),
        ("trained", words.when(run["created"])),
        ("software", ", ".join(f"{name} {version}" for name, version in run["software"].items())),
    ]
    lines = [(name, value) for name, value in facts if value is not None]
    taken = (statement["accounting"] or {}).get("assumptions", [])
    mu = words.gaussian_mu(statement)
    price = [] if mu is None else [f"every answer was priced in Gaussian DP, mu = {number(mu, 3)} in all"]
    granted = listed("Taken for granted by the price", [*taken, *price]) if taken or price else None
    beside = tag("div", granted, listed("Settings were", [statement["hyper_parameters"]]), class_="columns")
    pairs = (tag("div", tag("dt", name), tag("dd", value)) for name, value in lines)
    return join(tag("dl", *pairs, class_="facts"), beside)


def records(folder: RunFolder) -> str | None:
    """The number of records, where it is known."""
    size = folder.run.get("size")
    if not isinstance(size, int | float) or not math.isfinite(size):
        return None
    return f"{'about ' * (folder.statement['size'] == 'bought')}{round(size):,}"


def _size(folder: RunFolder) -> str | None:
    known, how = records(folder), folder.statement["size"]
    return None if known is None else f"{known} ({'a noisy count, bought' if how == 'bought' else how})"


def _features(folder: RunFolder) -> str | None:
    named, fitted = len(folder.run["features"]), folder.fitted
    coordinates = " after encoding" if fitted is None else f", in {fitted.network.features:,} coordinates"
    return f"{named:,}{coordinates}, the intercept included" if named else None


def _steps(folder: RunFolder) -> str | None:
    steps = folder.run.get("steps")
    if not isinstance(steps, int):
        steps = len(_gradients(folder)) or None
    return None if steps is None else f"{steps:,}"


def _clip(folder: RunFolder) -> str | None:
    values = [row["clip"] for row in _gradients(folder) if row["clip"] is not None]
    if not values:
        return None
    low, high = min(values), max(values)
    return number(high) if high - low <= 1e-6 * abs(high) else f"{number(low)} to {number(high)}"


def _batches(folder: RunFolder) -> str | None:
    events = [row["event"] for row in _gradients(folder)]
    if not events:
        return None
    rates = [event.get("rate") for event in events]
    if None in rates:
        return "all records at each step"
    kind = "Poisson" if events[0].get("kind") == "Poisson" else "of a fixed size"
    low, high = percent(min(rates)), percent(max(rates))
    return f"{kind}, {low if low == high else f'{low} to {high}'} of the records"


def _asked(folder: RunFolder) -> list[tuple[str, str]]:
    """Settings that were given and that no other line of the page states."""
    given = {**folder.statement["method"]["settings"], **folder.run["settings"]}
    shown = {name: value for name, value in given.items() if name not in ELSEWHERE and value is not None}
    names = {"random_state": "seed"}
    return [(names.get(name, str(name).replace("_", " ")), _plain(value)) for name, value in shown.items()]


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return number(value) if isinstance(value, int | float | str) else json.dumps(value, ensure_ascii=False)


def _columns(folder: RunFolder) -> SectionPart | None:
    prepared = folder.run["preprocessing"]
    schema = prepared.get("schema")
    if schema is not None:
        lines = [(name_of(column["name"]), column["kind"], _declared(column)) for column in schema["columns"]]
    elif prepared.get("low") is not None:
        names = prepared.get("columns") or [f"x{place}" for place in range(len(prepared["low"]))]
        ends = zip(names, prepared["low"], prepared["high"], strict=True)
        lines = [(name_of(name), "number", f"{number(low)} to {number(high)}") for name, low, high in ends]
    else:
        return None
    more = f"{len(lines) - MAX_LISTED_COLUMNS:,} more are in run.json of the folder."
    rest = tag("p", more, class_="soft") if len(lines) > MAX_LISTED_COLUMNS else None
    body = join(table(("column", "kind", "declared"), lines[:MAX_LISTED_COLUMNS]), rest)
    return SectionPart("declared", "Columns as they were declared", body, folded=True, printed=False)


def _declared(column: Mapping[str, Any]) -> Any:
    parts: list[Markup] = []
    if column.get("low") is not None and column.get("high") is not None:
        parts.append(escape(f"{number(column['low'])} to {number(column['high'])}"))
    categories = column.get("categories") or []
    if categories:
        more = len(categories) - MAX_LISTED_CATEGORIES
        rest = f" and {more:,} more" if more > 0 else None
        parts.append(join(joined(categories[:MAX_LISTED_CATEGORIES]), rest))
    parts += [
        escape(f"{key} {_plain(value)}")
        for key, value in column.items()
        if key not in ("name", "kind", "low", "high", "categories") and value is not None
    ]
    return joined(parts, "; ") or "-"


def _prepared(folder: RunFolder) -> SectionPart | None:
    """The steps that turned declared columns into rows, and the cost of each; older statements do not state them."""
    parts = folder.statement.get("prepared")
    if not parts:
        return None
    before = folder.statement["preparation"]
    lines = [(part["part"], part["words"], _cost(part, before)) for part in parts]
    about = (
        "Before and while training, these made rows of the columns. Each was free, because it follows from what is "
        "declared, public or already released, or was paid for by questions that the promise covers."
    )
    body = join(tag("p", about), table(("part", "what", "cost"), lines, wide=True))
    return SectionPart("prepared", "What was prepared", body, folded=True, printed=False)


def _cost(part: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    if part["part"] == "bounds" and before is not None:
        return f"epsilon {words.budget(before['epsilon'])}, delta {words.budget(before['delta'])}"
    return cost(part)


def _spent(folder: RunFolder) -> SectionPart | None:
    """The questions and their shares of the budget, and a chart of the spending if it was not even."""
    rows = folder.trace
    if not rows:
        return None
    points = [(0.0, 0.0), *((float(i), row["spent"]) for i, row in enumerate(rows, 1))]
    bent = max(abs(share - i / len(rows)) for i, share in points)
    half = next((i for i, share in points if share >= 0.5), None)
    middle = "" if half is None else f", half of it after {int(half):,}"
    first, last = (percent(1.0 if spent > 1 - 1e-6 else spent) for spent in (points[1][1], points[-1][1]))  # rounding
    text = f"{len(rows):,} questions; {first} of the budget was spent after the first{middle}, {last} at the end."
    how = ""
    if (folder.statement["meter"] or {}).get("meter") == "plan":
        how = " The plan was fixed and priced before the first question, and all of it stays charged."
    elif folder.statement["accounting"]:
        how = f" Priced by {folder.statement['accounting']['type']}."
    chart = None
    if bent > MIN_BENT_SHARE:
        chart = line_chart(
            "budget", [Series("spent", points, "area")], title="Budget spent over questions", description=text,
            x_label="questions answered", y_label="share of the budget spent", x_limits=(0.0, float(len(rows))),
            y_limits=(0.0, 1.0), show=percent,
        )  # fmt: skip
    even = "" if chart is not None else " It was spent nearly evenly."
    body = join(
        tag("p", f"Every question about the records was paid for before it was answered. {text}{even}{how}"),
        charts(_questions(rows), figure("Budget spent", chart)),
    )
    return SectionPart("spent", "How the budget was spent", body, folded=True)


def _questions(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    groups: dict[str, list[Any]] = {}
    before = 0.0
    for row in rows:
        group = groups.setdefault(row["question"], [0, 0.0, row["event"]])
        group[0] += 1
        group[1] += row["spent"] - before
        before = row["spent"]
    lines = []
    for name, (count, share, event) in groups.items():
        text = ""
        with suppress(KeyError, TypeError, AttributeError):  # of an event that is not as noisewise writes it
            text = ("" if count == 1 else "first: ") + words.mechanism(event)
        how = tag("div", text, class_="soft small")
        lines.append((join(words.question_text(name), how), f"{count:,}", percent(share)))
    return figure("What was asked", table(("question", "times", "share"), lines, numeric=(1, 2)))
