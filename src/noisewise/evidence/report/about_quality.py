"""How good the model is: figures of its evaluations, one answer for all, and other methods at the same budget.

The other methods were simulated on public data, by ``noisewise compare``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..metrics import ABOUT_95, SHARES, WORDS
from . import sentences as words
from .charts import SHARES_ALONG, Interval, Series, interval_chart, line_chart
from .markup import Markup, Section, SectionPart, charts, figure, join, latest_first, name_of, section, table, tag
from .run_folder import RunFolder
from .sentences import number, percent

MAX_EARLIER_EVALUATIONS = 4  # before the latest, whose figures are shown
MAX_TABLE_CLASSES = 12  # of labels and predictions
SQUARE_CHART_PIXELS = 220  # of a chart whose axes are alike
MAX_CARD_CLASSES = 2  # of a table that is a card among others
EXPLAINED = {
    "balanced_accuracy": "mean over the classes",
    "roc_auc": "how well scores rank",
    "log_loss": "lower is better",
    "calibration_error": "lower is better",
    "rmse": "lower is better",
    "mae": "lower is better",
    "r2": "share of the variance explained",
}
CARDS = {
    "figures": "Against one answer for all",
    "errors": "How far off it is",
    "calibration": "Calibration",
    "labels": "Labels and predictions",
}
NUMBERS = ("rmse", "mae", "r2")  # figures of a regression
UNKNOWN = (
    "How good this model is has not been measured yet: ",
    tag("code", "noisewise evaluate RUN TEST.csv ", tag("span", "--public-test", class_="whole")),
    " finds out for free on public rows with the target, and ",
    tag("code", "--epsilon 0.1", class_="whole"),
    " instead of the flag buys it on private ones.",
)


@dataclass(frozen=True)
class Headline:
    """The quality of a model in short: ``value`` of ``name``, and the same figure of one answer for all."""

    value: str
    name: str
    against: str | None


def quality(folder: RunFolder) -> Section:
    """Figures of the latest evaluation against one answer for all, earlier ones, and other methods."""
    title = "How good the model is"
    if not folder.evaluations:
        return section("quality", title, tag("p", *UNKNOWN), comparison(folder))
    row = latest(folder)
    free = all(one["rows"] == "public" for one in folder.evaluations)
    lead = join(
        _lead(row),
        tag("p", tag("strong", row["verdict"]), class_="note") if row.get("verdict") else None,
        _figures(folder, row, keyed=True),
        tag("p", "Measured on public rows: no budget was spent on it.", class_="soft") if free else None,
    )
    return section("quality", title, lead, _evaluations(folder, row), comparison(folder), cards=CARDS)


def latest(folder: RunFolder) -> Mapping[str, Any]:
    """The evaluation that the title shows: the latest with all figures, or else the latest."""
    return ([row for row in folder.evaluations if row.get("metrics") is not None] or folder.evaluations)[-1]


def headline(folder: RunFolder) -> Headline | None:
    if not folder.evaluations:
        return None
    row = latest(folder)
    for name in ("accuracy", "rmse"):
        value = _value(row, name)
        if value is not None:
            base = baseline(row, name)
            against = None if base is None else f"{_shown(name, base)} with one answer for all"
            return Headline(_shown(name, value), WORDS[name], against)
    return Headline(measured(row["metric"], row["value"]), row["metric"], None)


def baseline(row: Mapping[str, Any], name: str) -> float | None:
    """The score of the best single answer for all rows, from released figures; None where that is not known.

    For the log loss it is the entropy of the labels' shares, for the root mean squared error that of the mean, which is
    RMSE / sqrt(1 - R^2).
    """
    sums = _labels(row)
    if name == "accuracy":
        return _value(row, "baseline_accuracy")
    if name == "balanced_accuracy":
        return 1 / len(sums) if sums else None
    if name == "roc_auc":
        return 0.5
    if name == "log_loss" and sums and min(sums) > 0:
        return -math.fsum(count / sum(sums) * math.log(count / sum(sums)) for count in sums)
    explained, error = _value(row, "r2"), _value(row, "rmse")
    if name == "rmse" and explained is not None and error is not None and explained < 1:
        return error / math.sqrt(1 - explained)
    return 0.0 if name == "r2" else None


def _labels(row: Mapping[str, Any]) -> list[float]:
    confusion = row.get("confusion")
    return [] if confusion is None else [math.fsum(counts) for counts in confusion["counts"]]


def _lead(row: Mapping[str, Any]) -> Markup:
    where = join("On ", name_of(row["file"]), f" ({row['rows']} rows) ")
    for name, sentence in (("accuracy", _right), ("rmse", _off)):
        if _value(row, name) is not None:
            return tag("p", where, *sentence(row), class_="lead")
    value = measured(row["metric"], row["value"])
    return tag("p", where, f"its {row['metric']} is {value}{_range(row['metric'], row['interval'])}.", class_="lead")


def _right(row: Mapping[str, Any]) -> list[Any]:
    accuracy, base = row["metrics"]["accuracy"], baseline(row, "accuracy")
    share, interval = _shown("accuracy", accuracy["value"]), _range("accuracy", accuracy["interval"])
    parts = ["the model is right for ", tag("strong", share), f" of the rows{interval}. "]
    if base is not None:
        sums = _labels(row)
        which = [" (", name_of(row["confusion"]["classes"][sums.index(max(sums))]), ")"] if sums else []
        parts += ["Always giving the most frequent answer", *which, f" is right for {_shown('accuracy', base)}."]
    return parts


def _off(row: Mapping[str, Any]) -> list[Any]:
    error, base, explained = row["metrics"]["rmse"], baseline(row, "rmse"), _value(row, "r2")
    interval = _range("rmse", error["interval"]).replace(" (", "; ") if error["interval"] else ")"
    off = tag("strong", number(error["value"], 3))
    parts = ["its predictions are off by ", off, f" (root mean square{interval}. "]
    if base is not None and explained is not None:
        share = percent(max(explained, 0.0))
        parts.append(f"The mean for all is off by {number(base, 3)}, so the model explains {share} of the variance.")
    return parts


def _range(name: str, interval: Sequence[float] | None) -> str:
    return "" if interval is None else f" (95\u00a0%: {_between(name, interval)})"


def _between(name: str, interval: Sequence[float]) -> str:
    low, high = (_shown(name, end) if name in WORDS else measured(name, end) for end in interval)
    unit = "\u00a0%"
    return f"{low.removesuffix(unit) if high.endswith(unit) else low} to {high}"


def _figures(folder: RunFolder, row: Mapping[str, Any], *, keyed: bool = False) -> Markup | None:
    """Cards: all figures, how far off a regression is, calibration, labels against predictions; links go to keyed ones."""
    if row.get("metrics") is None:
        return None
    place = next(place for place, one in enumerate(folder.evaluations) if one is row)
    many = len((row.get("confusion") or {"classes": ()})["classes"]) > MAX_CARD_CLASSES
    made = (
        ("figures", _table(row)),
        ("errors", _errors(place, row)),
        ("calibration", _calibration(place, row.get("calibration"), row.get("confusion"))),
        ("labels", _confusion(row.get("confusion"))),
    )
    cards = [None if card is None else figure(*card, key=key if keyed else None) for key, card in made]
    return charts(*cards, kind="figures many" if many else "figures")


Card = tuple[Any, Markup | None, Any]  # heading, chart or table, caption


def _table(row: Mapping[str, Any]) -> Card:
    regression = any(_value(row, name) is not None for name in NUMBERS)
    names = [name for name in WORDS if name in row["metrics"] and name != "baseline_accuracy"]
    lines, missing = [], []
    for name in names:
        value = _value(row, name)
        if (name in NUMBERS) == regression and value is not None:
            about = tag("div", EXPLAINED[name], class_="soft small") if name in EXPLAINED else None
            interval = row["metrics"][name]["interval"]
            between = None if interval is None else tag("div", _between(name, interval), class_="soft small")
            this, constant = join(_shown(name, value), between), _shown(name, baseline(row, name))
            lines.append((join(WORDS[name], about), this, constant))
        elif (name in NUMBERS) == regression:
            missing.append(WORDS[name])
    heads = ("figure", "this model", "one answer")
    caption = "Small: 95\u00a0% range for endlessly many such rows."
    if missing:
        caption += f" Not to be had from these rows or this budget: {', '.join(missing)}."
    return "Against one answer for all", table(heads, lines, numeric=(1, 2)), caption


def _errors(place: int, row: Mapping[str, Any]) -> Card | None:
    """How far off a regression is, beside the mean for all."""
    error, base = _value(row, "rmse"), baseline(row, "rmse")
    if error is None or base is None:
        return None
    rows = [
        Interval("this model", error, text=_shown("rmse", error), solid=True),
        Interval("the mean for all", base, text=_shown("rmse", base), solid=True, faint=True),
    ]
    label = "root mean squared error, in the unit of the target"
    chart = interval_chart(f"errors-{place}", rows, title="Root mean squared error", x_label=label, zero=True)
    return "How far off it is", chart, "Lower is better; the mean is the best single answer for all."


def _value(row: Mapping[str, Any], name: str) -> float | None:
    value: float | None = (row.get("metrics") or {}).get(name, {}).get("value")
    return None if value is None or math.isnan(value) else value


def _shown(name: str, value: float | None) -> str:
    """A share as a percentage, a figure of the order of 1 with three decimals, an error as a number."""
    if value is None:
        return "-"
    if name in SHARES and 0 <= value <= 1:
        return percent(value)
    return f"{value:.3f}" if name not in ("rmse", "mae") and abs(value) < 100 else number(value, 3)


def _calibration(
    place: int, points: Sequence[Mapping[str, float]] | None, confusion: Mapping[str, Any] | None
) -> Card | None:
    if not points:
        return None
    curve = [(point["predicted"], point["observed"]) for point in points]
    ideal = Series("as it should be", [(0.0, 0.0), (1.0, 1.0)], "dashed", 3)
    chart = line_chart(
        f"calibration-{place}",
        [ideal, Series("this model", curve, "line", 1)],
        title="Predicted and observed shares",
        description="; ".join(f"predicted {percent(x)}, observed {percent(y)}" for x, y in curve),
        x_label="predicted probability",
        y_label="observed share",
        height=SQUARE_CHART_PIXELS,
        **SHARES_ALONG,
    )
    classes = [] if confusion is None else confusion["classes"]
    which = name_of(classes[1]) if len(classes) == 2 else "the most likely class"
    rest = ", this share turned out so. A curve of private rows has noise on every point."
    return "Calibration", chart, join("Of rows with such a probability of ", which, rest)


def _confusion(confusion: Mapping[str, Any] | None) -> Card | None:
    if confusion is None or len(confusion["classes"]) > MAX_TABLE_CLASSES:
        return None
    names = [name_of(words.shorten(name, 24)) for name in confusion["classes"]]
    corner = tag("th", tag("span", "label", class_="small"), scope="col")
    head = tag("tr", corner, *(tag("th", name, scope="col", class_="number") for name in names))
    rows = [
        tag("tr", tag("th", name, scope="row"), *_shaded(row))
        for name, row in zip(names, confusion["counts"], strict=True)
    ]
    shown = tag("div", tag("table", tag("thead", head), tag("tbody", *rows), class_="heat"), class_="scroll")
    caption = "A row for each label, a column for each prediction; the darker, the more of the rows with that label."
    return "Labels and predictions", shown, caption


def _shaded(counts: Sequence[float]) -> list[Markup]:
    whole = math.fsum(max(count, 0.0) for count in counts) or 1.0
    levels = [min(4, int(5 * max(count, 0.0) / whole)) for count in counts]
    return [tag("td", number(count), class_=f"number heat{level}") for count, level in zip(counts, levels, strict=True)]


def _evaluations(folder: RunFolder, shown: Mapping[str, Any]) -> SectionPart | None:
    """All evaluations when there are several, with the figures of a few earlier ones."""
    rows = folder.evaluations
    if len(rows) < 2:
        return None
    lines = []
    for row in rows:
        value = join(measured(row["metric"], row["value"]), tag("div", row["metric"], class_="soft small"))
        span = "-" if row["interval"] is None else _between(row["metric"], row["interval"])
        price = "public, free" if row["rows"] == "public" else _cost(row)
        lines.append((name_of(row["file"]), value, span, price, words.when(row["when"])))
    earlier = [(i, row) for i, row in enumerate(rows) if row.get("metrics") is not None and row is not shown]
    older = []
    for place, row in earlier[: -MAX_EARLIER_EVALUATIONS - 1 : -1]:
        summary = tag("summary", "Figures of ", name_of(row["file"]), f", {row['rows']} rows, evaluation {place + 1}")
        older.append(tag("details", summary, _figures(folder, row), class_="unprinted"))
    heads = ("rows", "value", "95 % range", "price", "when")
    every = latest_first(heads, lines, (1, 2), "evaluations")
    return SectionPart("evaluations", "All evaluations", join(every, *older))


def _cost(row: Mapping[str, Any]) -> str:
    delta = f", delta {words.budget(row['delta'])}" if row["delta"] else ""
    unit = f"; the unit is {row['unit']}" if row.get("unit") else ""
    return f"private, for epsilon {words.budget(row['epsilon'])}{delta}{unit}"


def comparison(folder: RunFolder) -> SectionPart | None:
    """A row for each method, the best first, and one for a single answer for all."""
    document = folder.comparison
    if document is None:
        return None
    metric, lower = document["metric"], any(word in document["metric"].lower() for word in ("error", "loss"))
    done = [row for row in document["rows"] if row["mean"] is not None and math.isfinite(row["mean"])]
    done.sort(key=lambda row: row["mean"] if lower else -row["mean"])
    own = folder.statement["method"]["name"]
    shown = [_row(row, own, metric) for row in done]
    constant = document.get("constant")
    if isinstance(constant, int | float) and not isinstance(constant, bool) and math.isfinite(constant):
        text = measured(metric, constant)
        shown.append(Interval("one answer for all", float(constant), None, text=text, faint=True))
    label, title = f"{metric} ({'lower' if lower else 'higher'} is better)", f"{metric} of each method"
    chart = interval_chart("comparison", shown, title=title, x_label=label, show=partial(measured, metric))
    size = "" if document["size"] is None else f", {number(document['size'])} private records"
    refused = [(name_of(row["method"]), row["refused"]) for row in document["rows"] if row["refused"]]
    note = document["note"] if isinstance(document.get("note"), str) else "No private record was used for it."
    text = (
        f"Simulated on public data, {number(document['repeats'])} runs of each method at epsilon "
        f"{number(document['epsilon'])}, delta {number(document['delta'])}, {document['adjacency']}{size}. {note}"
    )
    title = f"{metric[:1].upper()}{metric[1:]} of each method, best first"
    caption = "Bars are 95 % ranges of the mean over runs; hollow ones have no privacy or no model."
    without = table(("did not run", "because"), refused) if refused else None
    body = join(tag("p", text), charts(figure(title, chart, caption)), without, _others(done, metric))
    return SectionPart("methods", "Compared with other methods", body)


def _row(row: Mapping[str, Any], own: str, metric: str) -> Interval:
    error = row["standard_error"]
    known = error is not None and 0 < error < math.inf
    about = (
        ", this run's method" if row["method"] == own else "",
        ", with public rows" if row["public"] else "",
        ", no privacy" if row.get("private", row["method"] != "nonprivate") is False else "",
    )
    mean = row["mean"]
    ends = (mean - ABOUT_95 * error, mean + ABOUT_95 * error) if known else None
    return Interval(row["method"] + "".join(about), mean, ends, text=measured(metric, mean), faint=bool(about[2]))


def measured(metric: str, value: float) -> str:
    """A rate as a percentage, any other value as a number."""
    rate = any(word in metric.lower() for word in ("accuracy", "precision", "recall")) and 0 <= value <= 1
    return percent(value) if rate else number(value)


def _others(rows: Sequence[Mapping[str, Any]], metric: str) -> Markup | None:
    having = [row for row in rows if row.get("metrics")]
    names = [name for name in WORDS if name != metric and any(name in row["metrics"] for row in having)]
    if not names:
        return None
    lines = [(name_of(row["method"]), *(_other(row, name) for name in names)) for row in having]
    inside = table(("method", *(WORDS[name] for name in names)), lines, numeric=range(1, len(names) + 1), wide=True)
    return tag("details", tag("summary", "Other figures of each method, means"), inside, class_="unprinted")


def _other(row: Mapping[str, Any], name: str) -> str:
    value = row["metrics"].get(name, {}).get("value")
    if value is None or math.isnan(value):
        return "-"
    return percent(value) if name in SHARES and 0 <= value <= 1 else number(value, 3)
