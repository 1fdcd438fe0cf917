"""What the model found: how strong each column is, a picture of each with its noise, and the strongest pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...tables.fit.effects import Effect, Effects, Pair
from ...tables.fit.fitted import Fitted
from . import sentences as words
from .about_coefficients import coefficients
from .charts import Interval, Series, interval_chart, line_chart
from .markup import Markup, Section, SectionPart, charts, figure, join, name_of, section, table, tag
from .run_folder import RunFolder
from .sentences import number

MAX_OPEN_PICTURES = 12  # the others are folded
MAX_SHOWN_CATEGORIES = 6  # of a column that has many: the clearest
MAX_SHOWN_PAIRS = 6
Z = 1.96  # 95 % of a normal distribution
MIN_DRAWN_MISSING_SHARE = 0.02  # of the records; a column with fewer missing values is drawn without them
MAX_BAND_FACTOR = 2.5  # times the usual one; wider ones are cut
MAX_LABEL_LETTERS = 40  # of a label above a chart
CARDS = {"strong": "How strong each column is", "pairs": "Strongest pairs"}
MAX_FLAT_EFFECT = 1e-9


def found(folder: RunFolder) -> Section:
    """What the model found: effects of columns, or of coefficients; some models show nothing of it."""
    if folder.fitted is not None and folder.effects is not None:
        return _effects(folder.fitted, folder.effects)
    return coefficients(folder) or section("found", "What it found", tag("p", _hidden(folder)))


def _hidden(folder: RunFolder) -> str:
    """Why there is nothing to draw."""
    kind = folder.run["model"]["kind"]
    if kind == "Linear":
        return "The coefficients of this model are not in its folder."
    what = "a perceptron" if kind == "MLP" else f"a model of this kind ({kind})"
    return (
        f"The parameters of {what} do not say by themselves what each column does. The model that a table gets by default "
        "does: train without naming a model to see effects."
    )


def _effects(fitted: Fitted, found: Effects) -> Section:
    """How strong each column is, pictures of the strongest, the others folded, and pairs."""
    ranked = sorted(found.columns, key=lambda column: -column.strength)
    moving = [column for column in ranked if float(np.abs(column.effect).max(initial=0.0)) > MAX_FLAT_EFFECT]
    still = [column.feature for column in ranked if column not in moving]
    pictures = [_picture(key, column, found, fitted) for key, column in enumerate(moving)]
    drawn = [picture for picture in pictures if picture is not None]
    more = drawn[MAX_OPEN_PICTURES:]
    lead = join(
        *_words(fitted),
        tag("p", "The model makes no difference by ", *_names(still), ".") if still else None,
        charts(_overview(moving), _pairs(found.pairs, fitted)),
    )
    each = rest = None
    if drawn:
        each = SectionPart(
            "columns", "Each column, the strongest first", join(charts(*drawn[:MAX_OPEN_PICTURES], kind="pictures"))
        )
    if more:
        shown = join(charts(*more, kind="pictures"))
        rest = SectionPart("weaker", f"{len(more):,} weaker columns", shown, folded=True, printed=False)
    return section("found", "What it found", lead, each, rest, cards=CARDS)


def _names(names: Sequence[str]) -> list[Any]:
    listed = [
        join(", " if place else "", name_of(words.shorten(name, MAX_LABEL_LETTERS)))
        for place, name in enumerate(names[:MAX_OPEN_PICTURES])
    ]
    return [*listed, f" and {len(names) - MAX_OPEN_PICTURES:,} more" if len(names) > MAX_OPEN_PICTURES else None]


def _overview(ranked: Sequence[Effect]) -> Markup | None:
    """How strong each column is, in one picture."""
    first = ranked[:MAX_OPEN_PICTURES]
    rows = [Interval(one.feature, one.strength, text=number(one.strength, 2), solid=True) for one in first]
    chart = interval_chart("strength", rows, title=CARDS["strong"], x_label="typical effect", zero=True)
    some = f"The {MAX_OPEN_PICTURES} strongest of {len(ranked):,}. " if len(ranked) > MAX_OPEN_PICTURES else ""
    told = f"{some}Typical effect: its standard deviation over the records."
    return figure(CARDS["strong"], chart, told, key="strong")


def _words(fitted: Fitted) -> list[Markup]:
    """What is drawn, and how it is to be read."""
    what = "the prediction" if fitted.classes is None else "the score"
    averages = "the released frequencies" if fitted.shares is not None else "its knots"
    how = f"How {what} changes with one column while the others stay as they are; 0 is the mean over {averages}. "
    bands = (
        "Bands, and bars of categories, are 95 % of the privacy noise; where they reach zero (hollow) there need not be an "
        "effect. The chance in who happened to be in the data is not part of them. Lines are averages over neighbouring "
        "values: "
    )
    every = tag("code", "noisewise effects RUN --out effects.csv")
    return [tag("p", how, _unit(fitted)), tag("p", bands, every, " writes every one.")]


def _unit(fitted: Fitted) -> Markup:
    if fitted.outputs is None:
        return join("Numbers are in the unit of ", name_of(fitted.target), ".")
    if len(fitted.outputs) > 1:
        return join("A class has a score of its own; each picture is of the class whose score the column moves most.")
    of = join("A higher score speaks for ", name_of(f"{fitted.target} = {fitted.outputs[0]}"))
    if not fitted.likely:
        return join(of, ".")
    rest = " once corrected for clipped gradients" if fitted.cap < 1 else ""
    return join(of, f"; scores are log-odds{rest}, so 1 more makes its odds up to {words.factor(1.0)} times as high.")


def _picture(key: int, column: Effect, found: Effects, fitted: Fitted) -> Markup | None:
    """A line with its band, or categories with their bars, of the output that the column moves most."""
    k = int(np.argmax(column.effect.std(axis=1)))
    of = None if found.outputs is None else found.outputs[k]
    heading = name_of(words.shorten(column.feature, MAX_LABEL_LETTERS))
    draw = _line if column.number else _bars
    chart, caption = draw(f"effect-{key}", column, k, _label(fitted, of))
    text = " ".join((*caption, *_missing(column, k)))
    return figure(heading, chart, text or None)


def _label(fitted: Fitted, of: str | None) -> str:
    if fitted.outputs is None:
        return words.shorten(f"change of {fitted.target}", MAX_LABEL_LETTERS)
    return words.shorten(f"change of the score for {of or fitted.outputs[0]}", MAX_LABEL_LETTERS)


def _line(key: str, column: Effect, k: int, label: str) -> tuple[Markup | None, list[str]]:
    """A number: the course of its effect, as far as there are records."""
    course = column.course
    assert course is not None
    values, effect, caption = course.values, course.effect[k], []
    declared = float(column.values[0]), float(column.values[-2])
    if course.ends[1] - course.ends[0] < 0.9 * (declared[1] - declared[0]):
        scale = " to ".join(number(int(end) if end.is_integer() else end) for end in declared)
        caption.append(f"Drawn where nearly all records are; its scale goes from {scale}.")
    reach = np.zeros(len(values)) if course.std is None else Z * course.std[k]
    room = np.minimum(reach, MAX_BAND_FACTOR * float(np.median(reach)))
    ends = float((effect - room).min()), float((effect + room).max())
    line = Series(
        column.feature,
        list(zip(values.tolist(), effect.tolist(), strict=True)),
        band=list(zip((effect - reach).tolist(), (effect + reach).tolist(), strict=True)),
    )
    places = np.linspace(0, len(values) - 1, min(len(values), 9)).round().astype(int)
    told = (f"{number(float(values[i]), 3)}: {_plus_minus(effect[i], reach[i])}" for i in places)
    chart = line_chart(
        key,
        [line],
        title=f"Effect of {column.feature}",
        description="; ".join(told),
        x_label="",
        y_label=label,
        x_limits=course.ends if course.ends[1] - course.ends[0] > 1e-9 * max(map(abs, course.ends)) else None,
        y_limits=ends if ends[1] > ends[0] else None,
    )
    return chart, caption


def _bars(key: str, column: Effect, k: int, label: str) -> tuple[Markup | None, list[str]]:
    """Categories, the highest first; of many the clearest."""
    several = len(column.values) - 1
    reach = None if column.std is None else Z * column.std[k]
    clear = np.abs(column.effect[k, :-1]) / (1.0 if reach is None else np.maximum(reach[:-1], 1e-300))
    best = np.argsort(-clear, kind="stable")[:MAX_SHOWN_CATEGORIES]
    rows = []
    for i in sorted(best.tolist(), key=lambda i: -column.effect[k, i]):
        value, half = float(column.effect[k, i]), 0.0 if reach is None else float(reach[i])
        ends = None if reach is None else (value - half, value + half)
        faint = half >= abs(value)
        rows.append(Interval(str(column.values[i]), value, ends, text=_plus_minus(value, half), faint=faint))
    told = "; ".join(f"{row.name}: {row.text}{' (reaches zero)' if row.faint else ''}" for row in rows)
    chart = interval_chart(key, rows, title=f"Effect of {column.feature}", description=told, x_label=label, zero=True)
    return chart, [f"The {len(rows)} clearest of {several:,} categories."] if several > len(rows) else []


def _missing(column: Effect, k: int) -> list[str]:
    """What a missing value does, where there are some."""
    if column.missing < MIN_DRAWN_MISSING_SHARE:
        return []
    reach = 0.0 if column.std is None else Z * float(column.std[k, -1])
    return [f"Missing ({words.percent(column.missing)}): {_plus_minus(float(column.effect[k, -1]), reach)}."]


def _plus_minus(value: float, half: float) -> str:
    return words.plus_minus(float(value), float(half)) if 0 < half < math.inf else number(float(value), 3)


def _pairs(pairs: tuple[Pair, ...], fitted: Fitted) -> Markup | None:
    if not pairs:
        return None
    lines = [
        (join(name_of(pair.first), " and ", name_of(pair.second)), number(pair.strength, 3), number(pair.noise, 3))
        for pair in pairs[:MAX_SHOWN_PAIRS]
    ]
    what = "the prediction" if fitted.classes is None else "the score"
    caption = (
        f"What two columns do together, beyond the pictures below: by how much {what} typically moves. A pair that is hardly "
        f"stronger than noise alone would be may be noise. {min(len(pairs), MAX_SHOWN_PAIRS)} of {len(pairs):,} are listed."
    )
    shown = table(("columns", "strength", "noise alone"), lines, numeric=(1, 2))
    return figure(CARDS["pairs"], shown, caption, key="pairs")
