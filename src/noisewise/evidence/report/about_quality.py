"""How good the model is: the figures of its evaluations against one answer for all, and which of them are trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..metrics import SHARES, WORDS
from . import sentences as words
from .about_methods import comparison, measured
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
    """The quality of a model in a few words: ``value`` of ``name``, and what one answer for all has."""

    value: str
    name: str
    against: str | None


def quality(folder: RunFolder) -> Section:
    """Figures of the latest evaluation against one answer for all, earlier ones, and other methods."""
    title = "How good the model is"
    if not folder.evaluations:
        return section("quality", title, tag("p", *UNKNOWN), comparison(folder))
    row = latest(folder)
    place = next(place for place, one in enumerate(folder.evaluations) if one is row)
    lead = join(
        _lead(row),
        tag("p", tag("strong", row["verdict"]), class_="note") if row.get("verdict") else None,
        _figures(place, row, keyed=True),
        _paid(folder),
    )
    return section("quality", title, lead, _evaluations(folder, row), comparison(folder), cards=CARDS)


def latest(folder: RunFolder) -> Mapping[str, Any]:
    """The evaluation that the title speaks of: the latest, one with all figures if there is any."""
    rows = [row for row in folder.evaluations if row.get("metrics") is not None] or folder.evaluations
    return rows[-1]


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
    """What the best single answer for all rows scores, from released figures; None where that is not known.

    Of the log loss it is the entropy of the labels' shares, of the root mean squared error that of the mean, which is
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
    """How many rows have each label."""
    confusion = row.get("confusion")
    return [] if confusion is None else [math.fsum(counts) for counts in confusion["counts"]]


def _lead(row: Mapping[str, Any]) -> Markup:
    """The answer in a sentence or two."""
    where = join("On ", name_of(row["file"]), f" ({row['rows']} rows) ")
    for name, sentence in (("accuracy", _right), ("rmse", _off)):
        if _value(row, name) is not None:
            return tag("p", where, *sentence(row), class_="lead")
    value = measured(row["metric"], row["value"])
    return tag("p", where, f"its {row['metric']} is {value}{_range(row['metric'], row['interval'])}.", class_="lead")


def _right(row: Mapping[str, Any]) -> list[Any]:
    accuracy, base = row["metrics"]["accuracy"], baseline(row, "accuracy")
    told: list[Any] = ["the model is right for ", tag("strong", _shown("accuracy", accuracy["value"])), " of the rows"]
    told.append(f"{_range('accuracy', accuracy['interval'])}. ")
    if base is not None:
        sums = _labels(row)
        which = [" (", name_of(row["confusion"]["classes"][sums.index(max(sums))]), ")"] if sums else []
        told += ["Always giving the most frequent answer", *which, f" is right for {_shown('accuracy', base)}."]
    return told


def _off(row: Mapping[str, Any]) -> list[Any]:
    error, base, explained = row["metrics"]["rmse"], baseline(row, "rmse"), _value(row, "r2")
    told: list[Any] = ["its predictions are off by ", tag("strong", number(error["value"], 3)), " (root mean square"]
    told.append(f"{_range('rmse', error['interval']).replace(' (', '; ')}. " if error["interval"] else "). ")
    if base is not None and explained is not None:
        told.append(f"The mean for all is off by {number(base, 3)}, ")
        told.append(f"so the model explains {percent(max(explained, 0.0))} of the variance.")
    return told


def _range(name: str, interval: Sequence[float] | None) -> str:
    if interval is None:
        return ""
    return f" (95\u00a0%: {_between(name, interval)})"


def _between(name: str, interval: Sequence[float]) -> str:
    low, high = (_shown(name, end) if name in WORDS else measured(name, end) for end in interval)
    unit = "\u00a0%"
    return f"{low.removesuffix(unit) if high.endswith(unit) else low} to {high}"


def _figures(place: int, row: Mapping[str, Any], *, keyed: bool = False) -> Markup | None:
    """Cards: all figures, how far off a regression is, calibration, labels against predictions; links go to keyed ones."""
    if row.get("metrics") is None:
        return None
    many = len((row.get("confusion") or {"classes": ()})["classes"]) > MAX_CARD_CLASSES
    made = (
        ("figures", _table(row)),
        ("errors", _errors(place, row)),
        ("calibration", _calibration(place, row.get("calibration"), row.get("confusion"))),
        ("labels", _confusion(row.get("confusion"))),
    )
    cards = [None if card is None else figure(*card, key=key if keyed else None) for key, card in made]
    return charts(*cards, kind="figures many" if many else "figures")


Card = tuple[Any, Markup | None, Any]  # heading, chart or table, words below it


def _table(row: Mapping[str, Any]) -> Card:
    names = _asked(row)
    lines = [
        (
            join(WORDS[name], tag("div", EXPLAINED[name], class_="soft small") if name in EXPLAINED else None),
            join(_shown(name, _value(row, name)), _small(name, row["metrics"][name]["interval"])),
            _shown(name, baseline(row, name)),
        )
        for name in names
        if _value(row, name) is not None
    ]
    missing = [WORDS[name] for name in names if _value(row, name) is None]
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


def _small(name: str, interval: Sequence[float] | None) -> Markup | None:
    return None if interval is None else tag("div", _between(name, interval), class_="soft small")


def _asked(row: Mapping[str, Any]) -> list[str]:
    """The figures that such a model can have."""
    regression = any(_value(row, name) is not None for name in NUMBERS)
    known = [name for name in WORDS if name in row["metrics"] and name != "baseline_accuracy"]
    return [name for name in known if (name in NUMBERS) == regression]


def _value(row: Mapping[str, Any], name: str) -> float | None:
    value: float | None = (row.get("metrics") or {}).get(name, {}).get("value")
    return None if value is None or math.isnan(value) else value


def _shown(name: str, value: float | None) -> str:
    """Shares as percentages, what is about 1 with as many decimals as its range has, all else as numbers."""
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
    told = " turned out so. A curve of private rows has noise on every point."
    return "Calibration", chart, join("Of rows with such a probability of ", which, ", this share", told)


def _confusion(confusion: Mapping[str, Any] | None) -> Card | None:
    if confusion is None or len(confusion["classes"]) > MAX_TABLE_CLASSES:
        return None
    classes, counts = confusion["classes"], confusion["counts"]
    corner = tag("th", tag("span", "label", class_="small"), scope="col")
    head = tag(
        "tr", corner, *(tag("th", name_of(words.shorten(name, 24)), scope="col", class_="number") for name in classes)
    )
    rows = [
        tag("tr", tag("th", name_of(words.shorten(name, 24)), scope="row"), *_shaded(row))
        for name, row in zip(classes, counts, strict=True)
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
        said = tag("summary", "Figures of ", name_of(row["file"]), f", {row['rows']} rows, evaluation {place + 1}")
        older.append(tag("details", said, _figures(place, row), class_="unprinted"))
    heads = ("rows", "value", "95 % range", "price", "when")
    return SectionPart(
        "evaluations", "All evaluations", join(latest_first(heads, lines, (1, 2), "evaluations"), *older)
    )


def _cost(row: Mapping[str, Any]) -> str:
    delta = f", delta {words.budget(row['delta'])}" if row["delta"] else ""
    unit = f"; the unit is {row['unit']}" if row.get("unit") else ""
    return f"private, for epsilon {words.budget(row['epsilon'])}{delta}{unit}"


def _paid(folder: RunFolder) -> Markup | None:
    """What was measured on public rows alone was free; a price is part of the promise."""
    if any(row["rows"] == "private" for row in folder.evaluations):
        return None
    return tag("p", "Measured on public rows: no budget was spent on it.", class_="soft")
