"""What one column of a schema may declare: every refusal names the column and what to do."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..trusted.validate import did_you_mean
from .values import FORMS, UNITS, in_unit, key

if TYPE_CHECKING:
    from .schema import Column


Scalar = str | bool | int | float
KINDS = ("number", "category", "ignore")
UNKNOWN = ("refuse", "missing")
SCALES = ("linear", "log")
MAX_CATEGORIES = 10_000


def end_from(column: Column, end: str) -> float:
    """A bound as a number; with a unit it may be a date or a time."""
    value = getattr(column, end)
    if not column.unit or isinstance(value, int | float | np.number):
        return number_from(column.name, end, value)
    number = in_unit(value, column.unit, column.since)
    if number is None:
        raise ValueError(f"column {column.name!r}: {end} must be a number of {column.unit}, or as in {FORMS}")
    return number


def since_from(name: str, unit: Any, since: Any) -> str:
    """The date that a unit counts from, as a text; unit and date are checked."""
    who = f"column {name!r}"
    if unit not in ("", *UNITS):
        raise ValueError(f"{who}: unit is {unit!r}; pass one of {', '.join(UNITS)}{did_you_mean(unit, UNITS)}")
    if since == "":
        return ""
    if not unit:
        raise ValueError(f"{who}: since is for dates and times; set a unit, e.g. years, or remove it")
    text = since.strip() if isinstance(since, str) else getattr(since, "isoformat", str)()
    if in_unit(text, "seconds", "") is None or ":" in text[:3]:
        raise ValueError(f"{who}: since must be a date such as 2000-01-01")
    return str(text)


def number_from(name: str, end: str, value: Any) -> float:
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"column {name!r}: {end} must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"column {name!r}: {end} must be finite")
    return number + 0.0  # no negative zero


def plain_value(name: str, value: Any) -> Scalar:
    """A category as a schema keeps it: whole numbers as int."""
    value = _plain(value)
    if not isinstance(value, str | bool | int | float):
        raise ValueError(f"column {name!r}: categories must be texts, numbers or booleans")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"column {name!r}: a category must be finite")
        return int(value) if value == int(value) and abs(value) < 2**53 else float(value)
    if isinstance(value, str):
        encodable(value, f"a category of column {name!r}")
        return str(value)
    return value


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python; 0.1 in single precision means 0.1."""
    if isinstance(value, np.floating) and value.dtype != np.float64:
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


def encodable(text: str, who: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{who} holds half a character (a lone surrogate); write it as UTF-8") from None


def check_column(column: Column) -> None:
    who = f"column {column.name!r}"
    encodable(column.name, "the name of a column")
    if column.kind not in ("", *KINDS):
        raise ValueError(
            f"{who}: kind is {column.kind!r}; pass one of {', '.join(KINDS)}{did_you_mean(column.kind, KINDS)}"
        )
    if column.unknown not in UNKNOWN:
        raise ValueError(f'{who}: unknown is {column.unknown!r}; pass "refuse" or "missing"')
    if column.kind == "number" and (column.categories or column.unknown != "refuse"):
        raise ValueError(f"{who} is a number; categories and unknown are for categories, remove them")
    if column.kind == "category" and (column.low is not None or column.high is not None):
        raise ValueError(f"{who} is a category; low and high are for numbers, remove them")
    if column.low is not None and column.high is not None and not 0 < column.high - column.low < math.inf:
        raise ValueError(f"{who}: low is {column.low:g} and high is {column.high:g}; low must be below high")
    _check_shape(column, who)
    keys = [key(value) for value in column.categories]
    if repeated := [value for i, value in enumerate(column.categories) if keys[i] in keys[:i]]:
        raise ValueError(f"{who}: category {repeated[0]!r} is listed twice (1, 1.0 and '1' are the same); list it once")
    if column.missing is not None and column.kind == "number":
        value = number_from(column.name, "missing", column.missing)
        if (column.low is not None and value < column.low) or (column.high is not None and value > column.high):
            raise ValueError(f"{who}: missing is outside of the bounds; set it from low to high")
        object.__setattr__(column, "missing", int(value) if value == int(value) else value)
    elif column.missing is not None:
        object.__setattr__(column, "missing", plain_value(column.name, column.missing))
        if column.kind == "category" and column.categories and key(column.missing) not in keys:
            raise ValueError(f"{who}: missing is not among the categories; name one of them, or leave it out")


def _check_shape(column: Column, who: str) -> None:
    """Refuse a scale, knots or rare categories that contradict the rest of the column."""
    if column.scale not in SCALES:
        raise ValueError(f"{who}: scale is {column.scale!r}; pass one of {', '.join(SCALES)}")
    if column.kind != "number" and (column.scale != "linear" or column.knots):
        raise ValueError(f"{who}: scale and knots are for numbers, remove them")
    if column.kind not in ("", "number") and column.unit:
        raise ValueError(f'{who}: unit makes numbers of dates and times; set kind = "number", or remove it')
    if column.kind != "category" and column.rare:
        raise ValueError(f"{who}: rare is for categories, remove it")
    if column.scale == "log" and column.low is not None and column.low <= 0:
        raise ValueError(f"{who}: scale is log but low is {column.low:g}; set low above 0, or scale to linear")
    if column.knots:
        low, high = column.low, column.high
        inside = (low is None or column.knots[0] >= low) and (high is None or column.knots[-1] <= high)
        if not inside or len(column.knots) < 2 or any(b <= a for a, b in pairwise(column.knots)):
            raise ValueError(f"{who}: knots must be at least two growing numbers from low to high")
    if len(column.categories) > MAX_CATEGORIES:
        raise ValueError(
            f"{who} has {len(column.categories)} categories; an id tells nothing about others: set kind to ignore, or "
            f"declare at most {MAX_CATEGORIES}"
        )
    known = {key(value) for value in column.categories}
    if strange := [value for value in column.rare if key(value) not in known]:
        raise ValueError(f"{who}: {strange[0]!r} is called rare but is not among the categories; add it there")


def tells_nothing(column: Column) -> str | None:
    """Why a feature has the same value in every row; None if it may differ."""
    if column.kind == "category" and len(column.categories) == 1 and column.unknown == "refuse":
        return (
            f'column {column.name!r} has one category, which tells nothing; set kind = "ignore", list the others, or set '
            'unknown = "missing" if others can occur'
        )
    return None
