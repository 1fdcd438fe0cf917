"""All figures of an evaluation: a table, how predicted and observed shares go together, labels against predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..metrics import SHARES, WORDS
from .charts import Series, line_chart
from .markup import Markup, aside, charts, figure, join, name_of, table, tag
from .words import number, percent

SHOWN = 5  # evaluations, the latest first
MOST_CLASSES = 12  # in a table of labels and predictions
EXPLAINED = {
    "baseline_accuracy": "of the most frequent class",
    "balanced_accuracy": "mean over the classes",
    "roc_auc": "1/2 is chance",
    "log_loss": "lower is better",
    "calibration_error": "0 is best",
    "rmse": "in the target's unit",
    "mae": "in the target's unit",
    "r2": "0 is the mean for all",
}


def figures(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The figures of the latest evaluation that has them, and those of a few before it, folded."""
    having = [(place, row) for place, row in enumerate(rows) if row.get("metrics") is not None]
    if not having:
        return None
    (place, latest), *others = having[: -SHOWN - 1 : -1]
    return join(
        tag("h3", "All figures, ", _of(latest)),
        _one(place, latest),
        *(
            tag("details", tag("summary", "All figures, ", _of(row), f" (evaluation {place + 1})"), _one(place, row))
            for place, row in others
        ),
    )


def _of(row: Mapping[str, Any]) -> Markup:
    return join(name_of(row["file"]), f", {row['rows']} rows")


def _one(place: int, row: Mapping[str, Any]) -> Markup:
    verdict = row.get("verdict")
    missing = [WORDS[name] for name in _asked(row) if _value(row, name) is None]
    note = f"Not to be had from these rows or this budget: {', '.join(missing)}." if missing else None
    lines = [
        (
            join(WORDS[name], tag("div", EXPLAINED[name], class_="soft small") if name in EXPLAINED else None),
            _shown(name, _value(row, name)),
            " to ".join(_shown(name, end) for end in row["metrics"][name]["interval"] or ()) or "-",
        )
        for name in _asked(row)
        if _value(row, name) is not None
    ]
    return join(
        tag("div", tag("strong", verdict), class_="note") if verdict else None,
        charts(
            aside(
                table(("figure", "value", "95 % range"), lines, numeric=(1, 2)), note, _confusion(row.get("confusion"))
            ),
            _calibration(place, row.get("calibration"), row.get("confusion")),
        ),
    )


def _asked(row: Mapping[str, Any]) -> list[str]:
    """The figures that such a model can have."""
    numbers = ("rmse", "mae", "r2")
    regression = any(_value(row, name) is not None for name in numbers)
    return [name for name in WORDS if name in row["metrics"] and (name in numbers) == regression]


def _value(row: Mapping[str, Any], name: str) -> float | None:
    value: float | None = row["metrics"].get(name, {}).get("value")
    return None if value is None or math.isnan(value) else value


def _shown(name: str, value: float | None) -> str:
    return "-" if value is None else percent(value) if name in SHARES and 0 <= value <= 1 else number(value, 3)


def _calibration(
    place: int, points: Sequence[Mapping[str, float]] | None, confusion: Mapping[str, Any] | None
) -> Markup | None:
    if not points:
        return None
    curve = [(point["predicted"], point["observed"]) for point in points]
    told = "; ".join(f"predicted {percent(x)}, observed {percent(y)}" for x, y in curve)
    chart = line_chart(
        f"calibration-{place}",
        [
            Series("as it should be", [(0.0, 0.0), (1.0, 1.0)], "dashed", 3),
            Series("observed", curve, "line", 1),
        ],
        title="Predicted and observed shares",
        description=told,
        x_label="predicted probability",
        y_label="observed share",
        x_limits=(0.0, 1.0),
        y_limits=(0.0, 1.0),
        show=percent,
        show_x=percent,
    )
    classes = [] if confusion is None else confusion["classes"]
    which = name_of(classes[1]) if len(classes) == 2 else "the most likely class"
    told = " turned out so. A curve of private rows has noise on every point."
    return figure("Calibration", chart, join("Of rows with such a probability of ", which, ", this share", told))


def _confusion(confusion: Mapping[str, Any] | None) -> Markup | None:
    if confusion is None or len(confusion["classes"]) > MOST_CLASSES:
        return None
    classes = confusion["classes"]
    lines = [(name_of(name), *map(number, counts)) for name, counts in zip(classes, confusion["counts"], strict=True)]
    heads = ("label", *(f"predicted {name}" for name in classes))
    return tag("div", tag("h3", "Labels and predictions"), table(heads, lines, numeric=range(1, len(heads))))


def compared(rows: Sequence[Mapping[str, Any]], metric: str) -> Markup | None:
    """The other figures of simulated methods, folded."""
    having = [row for row in rows if row.get("metrics")]
    names = [name for name in WORDS if name != metric and any(name in row["metrics"] for row in having)]
    if not names:
        return None
    lines = [(name_of(row["method"]), *(_shown(name, _value(row, name)) for name in names)) for row in having]
    inside = table(("method", *(WORDS[name] for name in names)), lines, numeric=range(1, len(names) + 1), wide=True)
    return tag("details", tag("summary", "Other figures of each method, means"), inside)
