"""What the report says about the model: coefficients, quality, alternatives, audits, and the small print.

Each section is made of a run folder; one without material is None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..fitting.why import choice_of_run, why
from ..statement import text as statement_text
from . import words
from .about_quality import compared, figures
from .charts import Interval, interval_chart
from .markup import Markup, aside, charts, figure, join, name_of, section, table, tag
from .run_folder import RunFolder
from .words import at_most, number, percent

SHOWN = 20  # coefficients in the chart
Z = 1.96  # 95 % of a normal distribution


def chosen(folder: RunFolder) -> Markup | None:
    """What "auto" chose, and from which facts."""
    choice = choice_of_run(folder.run, folder.statement, folder.trace)
    return None if choice is None else section("How the model was chosen", tag("p", why(choice)))


def coefficients(folder: RunFolder) -> Markup | None:
    """The largest coefficients with the error that the noise put on them, and a table of all; effects say more."""
    if folder.fitted is not None:
        return None
    rows = [row for row in folder.run["coefficients"] or [] if math.isfinite(row["value"])]
    if not rows:
        return None
    known = all(_error(row) for row in rows)
    rows.sort(key=lambda row: -abs(row["value"]) / (_error(row) if known else 1.0))
    best = rows[:SHOWN]
    shown = [
        Interval(_coefficient(row), row["value"], _range(row), text=_plus_minus(row), faint=_spans_zero(row))
        for row in best
    ]
    unclear = sum(_spans_zero(row) for row in rows)
    description = "; ".join(f"{one.name}: {one.text}{' (spans zero)' if one.faint else ''}" for one in shown)
    what = "the clearest first" if known else "the largest first"
    title, label = f"Coefficients, {what}", "coefficient of the scaled feature"
    chart = interval_chart("coefficients", shown, title=title, description=description, x_label=label, zero=True)
    if any(_error(row) for row in rows):
        advice = (
            "Bars are 95 % ranges of the privacy noise alone: had it been drawn anew, the coefficient would usually fall "
            "within. They are estimates, sometimes wrong by a factor of two, and do not contain the chance in who happened to "
            "be in the data. "
            f"{unclear:,} of {len(rows):,} coefficients have a bar that spans zero (hollow): do not read those as effects."
        )
    else:
        advice = (
            "How much noise is on each coefficient is not known for this method: do not read small ones as effects."
        )
    lines = [
        (
            name_of(_coefficient(row)),
            number(row["value"]),
            number(_error(row)),
            " to ".join(number(end, 3) for end in _range(row) or ()) or "-",
            "yes" if _spans_zero(row) else "no" if _error(row) else "not known",
        )
        for row in rows
    ]
    heads = ("coefficient", "value", "standard error", "95 % range", "spans zero")
    return section(
        "Coefficients and their noise",
        charts(
            figure(
                f"{len(best)} of {len(rows):,} coefficients, {what}",
                chart,
                "Features are scaled by their declared bounds.",
            ),
            aside(advice),
        ),
        tag(
            "details",
            tag("summary", f"All {len(rows):,} coefficients"),
            table(heads, lines, numeric=(1, 2, 3), wide=True),
        ),
    )


def _coefficient(row: Mapping[str, Any]) -> str:
    return row["feature"] if row["output"] is None else f"{row['output']}: {row['feature']}"


def _error(row: Mapping[str, Any]) -> float | None:
    error = row["standard_error"]
    return float(error) if error is not None and 0 < error < math.inf else None


def _range(row: Mapping[str, Any]) -> tuple[float, float] | None:
    error = _error(row)
    return None if error is None else (row["value"] - Z * error, row["value"] + Z * error)


def _spans_zero(row: Mapping[str, Any]) -> bool:
    ends = _range(row)
    return ends is not None and ends[0] <= 0 <= ends[1]


def _plus_minus(row: Mapping[str, Any]) -> str:
    error = _error(row)
    return number(row["value"], 3) if error is None else words.plus_minus(row["value"], Z * error)


def quality(folder: RunFolder) -> Markup | None:
    """How good the model is, where that was public or paid for."""
    rows = folder.evaluations
    if not rows:
        return None
    lines = [
        (
            join(row["metric"], tag("div", name_of(row["file"]), class_="soft small")),
            measure(row["metric"], row["value"]),
            "-" if row["interval"] is None else " to ".join(measure(row["metric"], end) for end in row["interval"]),
            "public, free" if row["rows"] == "public" else _cost(row),
            words.when(row["when"]),
        )
        for row in rows
    ]
    return section(
        "How good the model is",
        table(("measure", "value", "95 % range", "rows", "when"), lines, numeric=(1, 2), wide=True),
        figures(rows),
        _total_text(folder),
    )


def _cost(row: Mapping[str, Any]) -> str:
    delta = f", delta {words.budget(row['delta'])}" if row["delta"] else ""
    unit = f"; the unit is {row['unit']}" if row.get("unit") else ""
    return f"private, for epsilon {words.budget(row['epsilon'])}{delta}{unit}"


def measure(metric: str, value: float) -> str:
    """Rates as percentages, all else as numbers."""
    rate = any(word in metric.lower() for word in ("accuracy", "precision", "recall")) and 0 <= value <= 1
    return percent(value) if rate else number(value)


def total(folder: RunFolder) -> tuple[float, float] | None:
    """(epsilon, delta) of the model and all private evaluations by basic composition; None when nothing was added."""
    paid = [row for row in folder.evaluations if row["rows"] == "private"]
    if not paid or folder.promise is None:
        return None
    return tuple(  # type: ignore[return-value]
        math.fsum([folder.promise[name], *(row[name] or 0.0 for row in paid)]) for name in ("epsilon", "delta")
    )


def _total_text(folder: RunFolder) -> Markup:
    sums, promise = total(folder), folder.promise
    if sums is None or promise is None:
        return tag("p", "Measured on public rows: no budget was spent on it.", class_="soft")
    epsilon, delta = sums
    return tag(
        "p",
        f"Evaluations on private rows are releases too and come on top of training. For a person whose record was used "
        f"in all of them the total, by basic composition, is epsilon {words.budget(epsilon)} and delta {words.budget(delta)}: a coin "
        f"flip is guessed right at most {at_most(words.guess(epsilon, delta))} of the time, instead of "
        f"{at_most(words.guess(promise['epsilon'], promise['delta']))}.",
    )


def comparison(folder: RunFolder) -> Markup | None:
    """Other methods at the same budget, simulated on public data."""
    document = folder.comparison
    if document is None:
        return None
    metric, lower = document["metric"], any(word in document["metric"].lower() for word in ("error", "loss"))
    done = [row for row in document["rows"] if row["mean"] is not None and math.isfinite(row["mean"])]
    done.sort(key=lambda row: row["mean"] if lower else -row["mean"])
    own = folder.statement["method"]["name"]
    shown = [
        Interval(
            row["method"]
            + (", this run's method" if row["method"] == own else "")
            + (", with public rows" if row["public"] else ""),
            row["mean"],
            _range({"value": row["mean"], "standard_error": row["standard_error"]}),
            text=measure(metric, row["mean"]),
            faint=row.get("private", row["method"] != "nonprivate") is False,
        )
        for row in done
    ]
    description = "; ".join(f"{one.name}: {one.text}" for one in shown)
    title, label = f"{metric} of each method", f"{metric} ({'lower' if lower else 'higher'} is better)"
    show = partial(measure, metric)
    chart = interval_chart("comparison", shown, title=title, description=description, x_label=label, show=show)
    size = "" if document["size"] is None else f", {number(document['size'])} private records"
    refused = [row for row in document["rows"] if row["refused"]]
    return section(
        "Compared with other methods",
        charts(
            figure(
                f"{metric[:1].upper()}{metric[1:]}, best first", chart, "Bars are 95 % ranges of the mean over runs."
            ),
            aside(
                f"Simulated on public data, {number(document['repeats'])} runs of each method at epsilon "
                f"{number(document['epsilon'])}, delta {number(document['delta'])}, {document['adjacency']}{size}.",
                document["note"] if isinstance(document.get("note"), str) else "No private record was used for it.",
                table(("did not run", "because"), [(name_of(row["method"]), row["refused"]) for row in refused])
                if refused
                else None,
            ),
        ),
        compared(done, metric),
    )


def refutes(audit: Mapping[str, Any]) -> bool:
    """Whether an audit found more than was promised; a bound above the claim that fresh runs did not confirm is none."""
    bound, claimed = audit["lower_bound"], audit["claimed"]
    above = bound is not None and claimed is not None and bound > claimed
    unconfirmed = audit.get("outcome") == "alarm not confirmed"
    return (above and not unconfirmed) or audit.get("violation") is True or audit.get("violates") is True


def audits(folder: RunFolder) -> Markup | None:
    """Attacks that tried to find out more than was promised."""
    if not folder.audits:
        return None
    lines = [
        (
            join(
                row["kind"].replace("_", " "),
                tag("div", words.when(row["when"]), class_="soft small"),
                tag("div", row["unit"], class_="soft small") if row.get("unit") else None,
            ),
            number(row["lower_bound"]),
            number(row["claimed"]),
            "-" if row["confidence"] is None else percent(row["confidence"]),
            number(row["runs"]),
            row["verdict"],
        )
        for row in folder.audits
    ]
    return section(
        "Audits",
        tag(
            "p",
            "An audit attacks the training itself and measures how much leaks. It can refute a promise, never prove one: "
            "a lower bound above the claim is a broken promise once fresh runs confirm it, one below is consistent with it.",
        ),
        table(
            ("audit", "at least", "claimed", "confidence", "runs", "verdict"), lines, numeric=(1, 2, 3, 4), wide=True
        ),
    )


def small_print(folder: RunFolder) -> Markup:
    """Settings, versions and how the data was prepared."""
    run, method = folder.run, folder.statement["method"]
    facts = [
        ("target", name_of(run["target"])),
        ("classes", None if run["classes"] is None else join(*_listed(run["classes"]))),
        ("features", _features(folder)),
        ("model", f"{run['model']['kind']}, {run['model']['parameters']:,} parameters, {run['model']['loss']} loss"),
        ("method", method["name"]),
        *(
            (f"{method['name']}: {name}", _plain(value, "left to the method"))
            for name, value in method["settings"].items()
        ),
        ("estimator", run["estimator"]),
        *((name, _plain(value, "not given")) for name, value in run["settings"].items() if name != "method"),
        ("trained", words.when(run["created"])),
    ]
    return section(
        "Settings and versions",
        table(("setting", "value"), [fact for fact in facts if fact[1] is not None]),
        table(("software", "version"), [(name, version) for name, version in run["software"].items()]),
        tag(
            "details",
            tag("summary", "How rows were prepared"),
            tag("p", "Knots, pairs and their scales are in run.json of the folder.")
            if folder.fitted is not None
            else None,
            tag("pre", json.dumps(_preparation(run["preprocessing"]), indent=1, ensure_ascii=False)),
        ),
    )


def _features(folder: RunFolder) -> str:
    named = len(folder.run["features"])
    if folder.fitted is None:
        return f"{named:,} after encoding, the intercept included"
    return f"{named:,} columns, in {folder.fitted.network.features:,} coordinates, the intercept included"


def _preparation(preprocessing: Mapping[str, Any]) -> dict[str, Any]:
    """What people declared; what a method made of it would be long."""
    return {name: value for name, value in preprocessing.items() if name not in ("features", "shares")}


def _listed(values: Sequence[Any]) -> Iterable[Any]:
    for place, value in enumerate(values):
        yield name_of(value) if place == 0 else join(", ", name_of(value))


def _plain(value: Any, nothing: str) -> str:
    if value is None:
        return nothing
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float | str) else json.dumps(value, ensure_ascii=False)


def the_statement(folder: RunFolder) -> Markup:
    """The statement itself, as text and as JSON."""
    return section(
        "The statement",
        tag(
            "p",
            "Everyone can check it without the data: ",
            tag("code", "noisewise verify statement.json"),
            f" recomputes the price. Now: {'yes' if folder.verdict.holds else 'no'}, {folder.verdict.reason}.",
        ),
        tag("details", tag("summary", "In words"), tag("pre", statement_text(folder.statement))),
        tag(
            "details",
            tag("summary", "As JSON"),
            tag("pre", json.dumps(folder.statement, indent=1, ensure_ascii=False)),
        ),
    )
