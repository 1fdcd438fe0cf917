"""What the name of a column suggests, where nothing else does: never from values."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from .schema import Column

Fields = dict[str, Any]
IGNORED: Fields = {"kind": "ignore"}
BY_NAME: tuple[tuple[str, Fields], ...] = (
    (r"(.*_)?(id|uuid|guid|key|no|nr|number|row|index)|.*\bid", IGNORED),
    (r"(.*_)?(name|email|e-?mail|phone|address|street|ssn|url|comment|note|notes|remark|remarks)", IGNORED),
    (r"(.*_)?(born|birthday|birthdate|date_of_birth|dob)", {"kind": "number", "unit": "years", "low": 1900.0, "high": 2030.0}),
    (r"(.*_)?(date|day|timestamp|datetime)|.*_at", {"kind": "number", "unit": "years"}),
    (r"age|age_.*|.*_age|alter", {"kind": "number", "low": 0.0, "high": 120.0}),
    (r"(.*_)?(year|yr)", {"kind": "number", "low": 1900.0, "high": 2100.0}),
    (r"(.*_)?month", {"kind": "number", "low": 1.0, "high": 12.0}),
    (r"(.*_)?(weekday|day_of_week|dow)", {"kind": "number", "low": 0.0, "high": 7.0}),
    (r"hour|hour_of_day", {"kind": "number", "low": 0.0, "high": 24.0}),
    (r"hours.*|.*hours(_per_week|_worked)?", {"kind": "number", "low": 0.0, "high": 168.0}),
    (r"(.*_)?(percent|percentage|pct)(_.*)?", {"kind": "number", "low": 0.0, "high": 100.0}),
    (r"(.*_)?(share|ratio|fraction|probability|prob)", {"kind": "number", "low": 0.0, "high": 1.0}),
    (r"(.*_)?(lat|latitude)", {"kind": "number", "low": -90.0, "high": 90.0}),
    (r"(.*_)?(lon|lng|long|longitude)", {"kind": "number", "low": -180.0, "high": 180.0}),
    (r"(.*_)?(height|height_cm)", {"kind": "number", "low": 0.0, "high": 250.0}),
    (r"(.*_)?(weight|weight_kg)", {"kind": "number", "low": 0.0, "high": 300.0}),
    (r"(.*_)?bmi", {"kind": "number", "low": 10.0, "high": 80.0}),
    (r"(is|has|was)_.*", {"kind": "category", "categories": (0, 1)}),
    (r"(.*_)?(sex|gender|race|country|state|region|city|job|occupation|sector|status|type|kind|group|class|category|code|education|relationship|colou?r)",
     {"kind": "category"}),
    (r"(.*_)?(count|num|amount|sum|total|price|cost|salary|wage|income|score|balance|size|length|width|duration|temperature|pressure)",
     {"kind": "number"}),
)  # fmt: skip
TARGETS = ("target", "label", "y", "class", "outcome", "response", "diagnosis", "income", "price", "default")


def by_name(column: Column) -> Column:
    """The column with what its name suggests, where nobody has said more.

    >>> by_name(Column("age")).high, by_name(Column("patient_id")).kind, by_name(Column("x7")).kind
    (120.0, 'ignore', '')
    """
    name = re.sub(r"[^a-z0-9]+", "_", column.name.lower()).strip("_")
    found = next((fields for pattern, fields in BY_NAME if re.fullmatch(pattern, name)), {})
    if column.kind == "":
        return replace(column, **found)
    same = column.kind == found.get("kind") and column.unit == found.get("unit", "")
    if column.kind == "number" and same and column.low is None and column.high is None:
        return replace(column, low=found.get("low"), high=found.get("high"))
    if column.kind == "category" and same and not column.categories:
        return replace(column, categories=found.get("categories", ()))
    return column


def target_among(columns: tuple[Column, ...]) -> str:
    """Which column is to be predicted, by its name; the last one if no name says."""
    names = {column.name.lower(): column.name for column in columns}
    return next((names[name] for name in TARGETS if name in names), columns[-1].name)
