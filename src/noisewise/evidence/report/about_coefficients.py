"""What a linear model found: how the score changes from the lower to the upper bound of each column, with its noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import sentences as words
from .charts import Interval, interval_chart
from .markup import Markup, Section, SectionPart, charts, figure, join, name_of, section, table, tag
from .run_folder import RunFolder
from .sentences import number

MAX_SHOWN_ROWS = 20  # of one chart
EACH, CLASSES = 5, 12  # rows for each of so many classes
Z = 1.96  # 95 % of a normal distribution
MUCH = 1.5  # times the width that clear effects need
INTERCEPT = "(intercept)"


@dataclass(frozen=True)
class ScoreEffect:
    """What a column does to the score of ``output``, over its declared bounds where these are known."""

    name: str
    output: str | None
    value: float
    reach: float | None  # of 95 % of the noise

    @property
    def unclear(self) -> bool:
        return self.reach is not None and self.reach >= abs(self.value)

    def row(self) -> Interval:
        ends = None if self.reach is None else (self.value - self.reach, self.value + self.reach)
        text = number(self.value, 3) if self.reach is None else words.plus_minus(self.value, self.reach)
        return Interval(self.name, self.value, ends, text=text, faint=self.unclear)


def coefficients(folder: RunFolder) -> Section | None:
    """The strongest columns of each class, and a table of all coefficients."""
    rows = [row for row in folder.run["coefficients"] or [] if math.isfinite(row["value"])]
    if not rows:
        return None
    natural = _spans(folder.run)
    found = _found(rows, natural)
    outputs = list(dict.fromkeys(row["output"] for row in rows))
    lead = join(
        tag("p", _what(folder, outputs, natural is not None)),
        tag("p", _advice(found)),
        *_pictures(found, outputs, natural),
    )
    return section("found", "What it found", lead, _all(rows, outputs), cards={"each": "Each column"})


def _found(rows: Sequence[Mapping[str, Any]], natural: Mapping[str, tuple[str, float]] | None) -> list[ScoreEffect]:
    """Clear effects, the largest first, then those that may be noise."""
    found = [_effect(row, natural) for row in rows if natural is None or row["feature"] != INTERCEPT]
    return sorted(found, key=lambda one: (one.unclear, -abs(one.value)))


def clearest(run: Mapping[str, Any]) -> list[str]:
    """Columns with a clear effect, the largest first; none where noise is not known or classes are several."""
    rows = [row for row in run["coefficients"] or [] if math.isfinite(row["value"])]
    natural = _spans(run) if rows else None
    if natural is None or len({row["output"] for row in rows}) > 1:
        return []
    names = {words: name for name, (words, _) in natural.items()}
    return [names[one.name] for one in _found(rows, natural) if one.reach is not None and not one.unclear]


def _spans(run: Mapping[str, Any]) -> dict[str, tuple[str, float]] | None:
    """Each column with its bounds in words, and what its coefficient is multiplied by from one to the other.

    None where a coefficient is of something else than a column with bounds.
    """
    saved = run["preprocessing"]
    low, high, target = saved.get("low"), saved.get("high"), saved.get("target_bounds")
    names = [name for name in run["features"] if name != INTERCEPT]
    ends = [low, high, *([target] if target is not None else [])]
    if not all(isinstance(end, list) and all(isinstance(value, int | float) for value in end) for end in ends):
        return None
    if not len(names) == len(low) == len(high) or {row["feature"] for row in run["coefficients"]} - {*names, INTERCEPT}:
        return None
    unit = 1.0 if saved.get("unit_rows") else 1 / math.sqrt(len(names) + 1)
    unit *= 1.0 if target is None else (target[1] - target[0]) / 2
    return {
        name: (_bounded(name, a, b), unit * (1.0 if a == 0 else 2.0))
        for name, a, b in zip(names, low, high, strict=True)
    }


def _bounded(name: str, low: float, high: float) -> str:
    """A column with its bounds; one from 0 to 1 speaks for itself."""
    if (low, high) == (0, 1):
        return name
    return f"{name}, {' to '.join(number(int(end) if end == int(end) else end) for end in (low, high))}"


def _effect(row: Mapping[str, Any], natural: Mapping[str, tuple[str, float]] | None) -> ScoreEffect:
    name, span = (row["feature"], 1.0) if natural is None else natural[row["feature"]]
    error = _error(row)
    return ScoreEffect(name, row["output"], span * row["value"], None if error is None else Z * span * error)


def _what(folder: RunFolder, outputs: Sequence[str | None], natural: bool) -> Markup:
    target = folder.run["target"]
    if not natural:
        return join("Coefficients of the features, which are scaled by their declared bounds.")
    if folder.run["classes"] is None:
        return join("By how much the prediction of ", name_of(target), " changes, in its unit, when one column goes from the "
                    "lower to the upper bound that was declared and the others stay as they are.")  # fmt: skip
    of = join("the score of each class of ", name_of(target))
    if len(outputs) == 1:
        of = join("the score for ", name_of(f"{target} = {outputs[0]}"))
    rest = ""
    if folder.run["preprocessing"].get("unit_rows"):
        rest = " Rows are scaled to length one, so these compare columns with each other; they are no log-odds."
    return join("By how much ", of, " changes when one column goes from the lower to the upper bound that was declared and "
                f"the others stay as they are.{rest}")  # fmt: skip


def _advice(found: Sequence[ScoreEffect]) -> str:
    if all(one.reach is None for one in found):
        return "How much noise is on each coefficient is not known for this method: do not read small ones as effects."
    unclear = sum(one.unclear for one in found)
    return (
        "Bars are 95 % ranges of the privacy noise alone: had it been drawn anew, the value would usually fall within. They are "
        "estimates, sometimes wrong by a factor of two, and do not contain the chance in who happened to be in the data. "
        f"{unclear:,} of {len(found):,} have a bar that spans zero (hollow): do not read those as effects."
    )


def _pictures(
    found: Sequence[ScoreEffect], outputs: Sequence[str | None], natural: Mapping[str, Any] | None
) -> list[Markup | None]:
    """One chart, or one for each class."""
    label = "coefficient of the scaled feature" if natural is None else "change from the lower to the upper bound"
    if len(outputs) == 1:
        shown = f"{MAX_SHOWN_ROWS} of {len(found):,}" if len(found) > MAX_SHOWN_ROWS else "Each column"
        title = f"{shown}, the clear ones first"
        return [charts(_picture("coefficients", title, found[:MAX_SHOWN_ROWS], label, "each"))]
    cards = [
        _picture(f"coefficients-{k}", join("For ", name_of(words.shorten(output, 40))), own[:EACH], label)
        for k, output in enumerate(outputs[:CLASSES])
        if (own := [one for one in found if one.output == output])
    ]
    first = f", of the first {CLASSES}" if len(outputs) > CLASSES else ""
    told = tag("p", f"The {EACH} strongest columns of each class{first}.")
    return [told, charts(*cards, kind="pictures")]


def _picture(key: str, title: Any, found: Sequence[ScoreEffect], label: str, card: str | None = None) -> Markup | None:
    rows = [one.row() for one in found]
    told = "; ".join(f"{row.name}: {row.text}{' (spans zero)' if row.faint else ''}" for row in rows)
    limits = _limits(found)
    chart = interval_chart(
        key, rows, title="What each column does", description=told, x_label=label, zero=True, limits=limits
    )
    caption = None if limits is None else "Bars that may be noise are cut where they leave the picture."
    return figure(title, chart, caption, key=card)


def _limits(found: Sequence[ScoreEffect]) -> tuple[float, float] | None:
    """What the clear ones need, where the others would take much more."""
    ends = [
        [end for one in group for end in (one.value - (one.reach or 0.0), one.value + (one.reach or 0.0), 0.0)]
        for group in ([one for one in found if not one.unclear], found)
    ]
    if not ends[0]:
        return None
    (low, high), (least, most) = ((min(some), max(some)) for some in ends)
    room = 0.15 * (high - low)
    return (low - room, high + room) if most - least > MUCH * (high - low) else None


def _all(rows: Sequence[Mapping[str, Any]], outputs: Sequence[str | None]) -> SectionPart:
    several = len(outputs) > 1
    lines = []
    for row in rows:
        ends = _ends(row)
        between = " to ".join(number(end, 3) for end in ends) or "-"
        spans = "not known" if not ends else "yes" if ends[0] <= 0 <= ends[1] else "no"
        cells = [name_of(row["feature"]), number(row["value"]), number(_error(row)), between, spans]
        lines.append([name_of(row["output"]), *cells] if several else cells)
    heads = ["scaled feature", "coefficient", "standard error", "95 % range", "spans zero"]
    if several:
        heads.insert(0, "class")
    first = len(heads) - 4
    body = table(heads, lines, numeric=(first, first + 1, first + 2), wide=True)
    return SectionPart("all-coefficients", f"All {len(rows):,} coefficients", body, folded=True, printed=False)


def _error(row: Mapping[str, Any]) -> float | None:
    error = row["standard_error"]
    return float(error) if error is not None and 0 < error < math.inf else None


def _ends(row: Mapping[str, Any]) -> tuple[float, ...]:
    error = _error(row)
    return () if error is None else (row["value"] - Z * error, row["value"] + Z * error)
