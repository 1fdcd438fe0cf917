"""What one column of a schema may say: every refusal names the column and what to do."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..trusted.validate import did_you_mean
from .values import FORMS, UNITS, in_unit, is_missing_word, key, looks_like_a_date, looks_like_a_time, number_of

if TYPE_CHECKING:
    from .schema import Column


Scalar = str | bool | int | float
KINDS = ("number", "category", "ignore")
UNKNOWN = ("refuse", "missing")
SCALES = ("linear", "log")


def end_from(column: Column, end: str) -> float:
    """A bound as a number: where a unit makes numbers of dates and times, it may be one."""
    value = getattr(column, end)
    if not column.unit or isinstance(value, int | float | np.number):
        return number_from(column.name, end, value)
    number = in_unit(value, column.unit, column.since)
    if number is None:
        raise ValueError(f"column {column.name!r}: {end} must be a number of {column.unit}, or as in {FORMS}")
    return number


def since_from(name: str, unit: Any, since: Any) -> str:
    """The date that a unit counts from, as a text; both are checked."""
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
    """A category as it is kept: whole numbers as int."""
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
    """A number of numpy as Python's own; 0.1 in single precision means 0.1."""
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
        raise ValueError(f"{who}: category {repeated[0]!r} is there twice (1, 1.0 and '1' are the same); list it once")
    if column.missing is not None:
        _check_missing(column, who, keys)


MAX_CATEGORIES = 10_000


def _check_shape(column: Column, who: str) -> None:
    """Refuse a scale, knots or rare categories that the rest of the column does not bear out."""
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
    """Why a feature has the same value in every row, in words; None if it may differ."""
    if column.kind == "category" and len(column.categories) == 1 and column.unknown == "refuse":
        return (
            f'column {column.name!r} has one category, which tells nothing; set kind = "ignore", list the others, or set '
            'unknown = "missing" if others can occur'
        )
    return None


def _check_missing(column: Column, who: str, keys: list[str]) -> None:
    if column.kind == "number":
        value = number_from(column.name, "missing", column.missing)
        if (column.low is not None and value < column.low) or (column.high is not None and value > column.high):
            raise ValueError(f"{who}: missing is outside of the bounds; set it from low to high")
        object.__setattr__(column, "missing", int(value) if value == int(value) else value)
        return
    object.__setattr__(column, "missing", plain_value(column.name, column.missing))
    if column.kind == "category" and column.categories and key(column.missing) not in keys:
        raise ValueError(f"{who}: missing is not among the categories; name one of them, or leave it out")


# What PUBLIC rows show of a column, in bounded memory: kind, bounds, categories, and whether it tells anything.


MAX_LISTED_CATEGORIES = 200
MIN_VALUES = 20  # before a column is called an id or constant
MAX_REMEMBERED_VALUES = 100_000  # different ones, to see whether one comes twice
SAMPLED_VALUES = 1000  # of a batch, that the median is taken of
HEAVY_TAIL_FACTOR = 20.0  # times the median: where the largest value of a heavy tail lies
MIN_CATEGORY_SHARE = 0.002  # of the rows: a category of fewer is rare
AN_ID = 'looks like an id in the public rows, where no value comes twice; set kind = "ignore"'
A_CONSTANT = 'is constant in the public rows; set kind = "ignore"'
HEAVY = f'has a heavy tail: scale = log? It reaches beyond {HEAVY_TAIL_FACTOR:g} times its median in the public rows; scale = "log" may suit it'
A_CODE = 'has few whole numbers: a code?; if they stand for kinds of things, set kind = "category" and categories = {}'
CODE_COUNT_RANGE = 3, 12  # different whole numbers that may be a code; two are as good as numbers


@dataclass
class SeenColumn:
    """What was seen in one public column."""

    rows: int = 0
    missing: int = 0
    low: float = math.inf
    high: float = -math.inf
    numeric: bool = True
    whole: bool = True
    boolean: bool = True
    dates: bool = True
    times: bool = True
    keys: Counter[str] = field(default_factory=Counter)  # with one key more than the most categories at most
    many: bool = False
    apart: set[str] | None = field(default_factory=set)  # None: a value came twice, or is a fraction
    sample: list[float] = field(default_factory=list)

    def look(self, cells: pa.Array) -> None:
        """Take in one batch."""
        cells = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
        values, counts = (pc.value_counts(cells).field(name) for name in ("values", "counts"))
        several = values.to_numpy(zero_copy_only=False) if pa.types.is_floating(values.type) else values.to_pylist()
        numbers, times = [], []
        for value, count in zip(several, counts.to_pylist(), strict=True):
            self.rows += count
            if value is None or value != value or (isinstance(value, str) and is_missing_word(value)):
                self.missing += count
            else:
                numbers.append(self._take(value, count))
                times.append(count)
        if self.numeric and numbers:
            every = np.sort(np.repeat(numbers, times))
            self.sample += every[np.linspace(0, len(every) - 1, min(len(every), SAMPLED_VALUES)).astype(int)].tolist()

    def _take(self, value: Any, count: int) -> float:
        text = key(value)
        boolean = text in ("true", "false")
        number = None if boolean else (number_of(value) if isinstance(value, str) else float(value))
        self.boolean &= boolean
        self.numeric &= number is not None
        self.dates &= isinstance(value, str) and looks_like_a_date(value)
        self.times &= isinstance(value, str) and looks_like_a_time(value)
        if number is not None and math.isfinite(number):
            self.low, self.high = min(self.low, number), max(self.high, number)
        whole = number is not None and math.isfinite(number) and number == int(number)
        self.whole &= whole
        if not self.many or text in self.keys:
            self.keys[text] += count
            self.many = len(self.keys) > MAX_LISTED_CATEGORIES
        if count > 1 or (number is not None and not whole) or (self.apart is not None and text in self.apart):
            self.apart = None
        elif self.apart is not None and len(self.apart) < MAX_REMEMBERED_VALUES:
            self.apart.add(text)
        return math.nan if number is None else number

    @property
    def categories(self) -> tuple[Scalar, ...]:
        """The different values, sorted: as booleans or numbers if all are, otherwise as texts."""
        if self.boolean:
            return tuple(text == "true" for text in sorted(self.keys))
        numbers = [number for text in self.keys if (number := number_of(text)) is not None and key(number) == text]
        if len(numbers) == len(self.keys) and all(map(math.isfinite, numbers)):
            return tuple(sorted(numbers))
        return tuple(sorted(self.keys))  # "01" is a code, not the number 1

    @property
    def rare(self) -> tuple[Scalar, ...]:
        """Categories that few rows have, if there are two or more to share a coordinate."""
        few = tuple(
            value
            for value in self.categories
            if self.keys[key(value)] < MIN_CATEGORY_SHARE * (self.rows - self.missing)
        )
        return few if len(few) > 1 else ()

    @property
    def doubt(self) -> str:
        """Why the column would tell a model nothing, in words; nothing if it may."""
        there = self.rows - self.missing
        if there < MIN_VALUES:
            return ""
        if len(self.keys) == 1 and not self.missing:
            return A_CONSTANT
        numbered = self.numeric and self.high - self.low < 2 * there
        moments = self.dates or self.times
        return AN_ID if self.apart is not None and not moments and (numbered or not self.numeric) else ""

    @property
    def code(self) -> str:
        """Whether the numbers may be codes of categories, in words; nothing if they are not few, or not whole."""
        few = (
            self.numeric
            and self.whole
            and not self.many
            and CODE_COUNT_RANGE[0] <= len(self.keys) <= CODE_COUNT_RANGE[1]
        )
        if not few or self.rows - self.missing < MIN_VALUES:
            return ""
        return A_CODE.format(f"[{', '.join(key(value) for value in self.categories)}]")

    @property
    def heavy(self) -> bool:
        """Whether the largest number is far beyond the median, and all are above 0."""
        finite = [number for number in self.sample if math.isfinite(number)]
        return (
            self.numeric
            and len(finite) >= MIN_VALUES
            and self.low > 0
            and self.high > HEAVY_TAIL_FACTOR * float(np.median(finite))
        )
