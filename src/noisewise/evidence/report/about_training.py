"""How it was done: the settings that were used, what was asked of the records and at which noise, and the statement."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...asking import Gradient
from ...methods.preparation.parts import cost
from ...statements.statement import text as statement_text
from ...tables.fit.auto import choice_of_run, why
from . import sentences as words
from .about_steps import noise_and_clip
from .charts import Series, line_chart
from .markup import Markup, Part, Section, charts, figure, join, listed, name_of, section, table, tag
from .run_folder import RunFolder
from .sentences import number, percent

COLUMNS = 128  # of a table that are listed
CATEGORIES = 8  # of a column that are listed
ELSEWHERE = (  # settings that the page tells in other words
    *("method", "model", "loss", "epsilon", "delta", "adjacency", "classes"),
    *("steps", "max_grad_norm", "chosen_by", "size_is_public"),
)
STRAIGHT = 0.12  # of the budget: spending that departs less from an even one is not drawn


def done(folder: RunFolder) -> Section:
    """All of it folded: for those who want to check it or do it again."""
    lead = tag(
        "p",
        "Everyone can check the promise without the data: ",
        tag("code", "noisewise verify statement.json"),
        f" recomputes its price. When this page was made: {'yes' if folder.verdict.holds else 'no'}, {folder.verdict.reason}.",
    )
    choice = choice_of_run(folder.run, folder.statement, folder.trace)
    in_words = tag("pre", statement_text(folder.statement))
    as_json = tag("pre", json.dumps(folder.statement, indent=1, ensure_ascii=False))
    return section(
        "how",
        "How it was done",
        lead,
        Part("settings", "Settings that were used", _settings(folder), folded=True),
        None if choice is None else Part("chosen", "How the model was chosen", tag("p", why(choice)), folded=True),
        _columns(folder),
        _prepared(folder),
        _spent(folder),
        noise_and_clip(folder),
        Part("words", "The statement in words", in_words, folded=True, printed=False),
        Part("json", "The statement as JSON", as_json, folded=True, printed=False),
    )


def _settings(folder: RunFolder) -> Markup:
    """What was used, each thing once; what the statement takes for granted beside it."""
    run, statement, model = folder.run, folder.statement, folder.run["model"]
    kind = words.MODELS.get(model["kind"], model["kind"])
    facts = [
        ("data", join(*_together(run["data"])) if run.get("data") else None),
        ("records", _size(folder)),
        ("target", name_of(run["target"])),
        ("classes", None if run["classes"] is None else join(*_together(run["classes"]))),
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
    beside = tag(
        "div",
        listed("Taken for granted by the price", [*taken, *price]) if taken or price else None,
        listed("Settings were", [statement["hyper_parameters"]]),
        class_="columns",
    )
    pairs = (tag("div", tag("dt", name), tag("dd", value)) for name, value in lines)
    return join(tag("dl", *pairs, class_="facts"), beside)


def records(folder: RunFolder) -> str | None:
    """The number of records as far as it is known."""
    size = folder.run.get("size")
    if not isinstance(size, int | float) or not math.isfinite(size):
        return None
    bought = folder.statement["size"] == "bought"
    return f"about {round(size):,}" if bought else f"{round(size):,}"


def _size(folder: RunFolder) -> str | None:
    known, how = records(folder), folder.statement["size"]
    return None if known is None else f"{known} ({'a noisy count, bought' if how == 'bought' else how})"


def _features(folder: RunFolder) -> str | None:
    named = len(folder.run["features"])
    if not named:
        return None
    if folder.fitted is None:
        return f"{named:,} after encoding, the intercept included"
    return f"{named:,}, in {folder.fitted.network.features:,} coordinates, the intercept included"


def _steps(folder: RunFolder) -> str | None:
    steps = folder.run.get("steps")
    if not isinstance(steps, int):
        steps = sum(row["question"] == Gradient.name for row in folder.trace) or None
    return None if steps is None else f"{steps:,}"


def _clip(folder: RunFolder) -> str | None:
    values = [row["clip"] for row in folder.trace if row["question"] == Gradient.name and row["clip"] is not None]
    if not values:
        return None
    low, high = min(values), max(values)
    return number(high) if high - low <= 1e-6 * abs(high) else f"{number(low)} to {number(high)}"


def _batches(folder: RunFolder) -> str | None:
    events = [row["event"] for row in folder.trace if row["question"] == Gradient.name]
    if not events:
        return None
    rates = [event.get("rate") for event in events]
    if None in rates:
        return "all records at each step"
    kind = "Poisson" if events[0].get("kind") == "Poisson" else "of a fixed size"
    low, high = percent(min(rates)), percent(max(rates))
    return f"{kind}, {low if low == high else f'{low} to {high}'} of the records"


def _asked(folder: RunFolder) -> list[tuple[str, str]]:
    """Settings that were given, without those that stand elsewhere; one left open has no line of its own."""
    given = {**folder.statement["method"]["settings"], **folder.run["settings"]}
    names = {"random_state": "seed"}
    return [
        (names.get(name, str(name).replace("_", " ")), _plain(value))
        for name, value in given.items()
        if name not in ELSEWHERE and value is not None
    ]


def _together(values: Sequence[Any]) -> Iterable[Any]:
    for place, value in enumerate(values):
        yield name_of(value) if place == 0 else join(", ", name_of(value))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return number(value) if isinstance(value, int | float | str) else json.dumps(value, ensure_ascii=False)


def _columns(folder: RunFolder) -> Part | None:
    """Columns as they were declared."""
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
    more = f"{len(lines) - COLUMNS:,} more are in run.json of the folder." if len(lines) > COLUMNS else None
    rest = None if more is None else tag("p", more, class_="soft")
    body = join(table(("column", "kind", "declared"), lines[:COLUMNS]), rest)
    return Part("declared", "Columns as they were declared", body, folded=True, printed=False)


def _declared(column: Mapping[str, Any]) -> Any:
    told: list[Any] = []
    if column.get("low") is not None and column.get("high") is not None:
        told.append(f"{number(column['low'])} to {number(column['high'])}")
    categories = column.get("categories") or []
    if categories:
        rest = f" and {len(categories) - CATEGORIES:,} more" if len(categories) > CATEGORIES else None
        told.append(join(*_together(categories[:CATEGORIES]), rest))
    told += [
        f"{key} {_plain(value)}"
        for key, value in column.items()
        if key not in ("name", "kind", "low", "high", "categories") and value is not None
    ]
    return join(*(join("; " if place else "", part) for place, part in enumerate(told))) or "-"


def _prepared(folder: RunFolder) -> Part | None:
    """What turned declared columns into rows, and what each part of it cost; older statements do not say."""
    parts = folder.statement.get("prepared")
    if not parts:
        return None
    before = folder.statement["preparation"]
    lines = [(part["part"], part["words"], _cost(part, before)) for part in parts]
    told = (
        "Before and while training, these made rows of the columns. Each was free, because it follows from what is "
        "declared, public or already released, or was paid for by questions that the promise covers."
    )
    body = join(tag("p", told), table(("part", "what", "cost"), lines, wide=True))
    return Part("prepared", "What was prepared", body, folded=True, printed=False)


def _cost(part: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    if part["part"] == "bounds" and before is not None:
        return f"epsilon {words.budget(before['epsilon'])}, delta {words.budget(before['delta'])}"
    return cost(part)


def _spent(folder: RunFolder) -> Part | None:
    """What was asked for which share of the budget, and its course if that is not even."""
    rows = folder.trace
    if not rows:
        return None
    points = [(0.0, 0.0), *((float(i), row["spent"]) for i, row in enumerate(rows, 1))]
    bent = max(abs(share - i / len(rows)) for i, share in points)
    half = next((i for i, share in points if share >= 0.5), None)
    text = f"{len(rows):,} questions; {_share(points[1][1])} of the budget was spent after the first"
    text += f", half of it after {int(half):,}" if half is not None else ""
    text += f", {_share(points[-1][1])} at the end."
    how = ""
    if (folder.statement["meter"] or {}).get("meter") == "plan":
        how = " The plan was fixed and priced before the first question, and all of it stays charged."
    elif folder.statement["accounting"]:
        how = f" Priced by {folder.statement['accounting']['type']}."
    chart = None
    if bent > STRAIGHT:
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
    return Part("spent", "How the budget was spent", body, folded=True)


def _share(spent: float) -> str:
    """A share of the budget: what rounding left over is nothing."""
    return percent(1.0 if spent > 1 - 1e-6 else spent)


def _questions(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    """What was asked, how often, and for which share of the budget."""
    groups: dict[str, list[Any]] = {}
    before = 0.0
    for row in rows:
        group = groups.setdefault(row["question"], [0, 0.0, row["event"]])
        group[0] += 1
        group[1] += row["spent"] - before
        before = row["spent"]
    lines = []
    for name, (count, share, event) in groups.items():
        how = tag("div", _protected(event, count), class_="soft small")
        lines.append((join(words.question_text(name), how), f"{count:,}", percent(share)))
    return figure("What was asked", table(("question", "times", "share"), lines, numeric=(1, 2)))


def _protected(event: Mapping[str, Any], count: int) -> str:
    try:
        text = words.mechanism(event)
    except (KeyError, TypeError, AttributeError):
        return ""
    return text if count == 1 else f"first: {text}"
