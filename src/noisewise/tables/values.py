"""What a cell means, whether it came from CSV, Parquet or a DataFrame: one rule for texts, numbers, booleans, dates and times.

A category is compared by its *key*: surrounding space is dropped, numbers are written in their shortest form and
booleans in lower case. So 1, 1.0, "1" and "1.00" are one category, True and "TRUE" another; "01" stays a text of its
own, because leading zeros are part of a code.

A date or a moment becomes the time since ``since`` in the declared unit: since 1970-01-01 where nothing is declared, except for years,
which are those of the calendar (2024-07-01 is 2024.497). A time of day counts from midnight, a duration from nothing. A
moment with a zone is taken in UTC, one without as it is written.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MISSING_WORDS = frozenset({"", "?", ".", "na", "n/a", "#n/a", "<na>", "nan", "null"})  # in any case, space dropped
FORMULA = (*"=+-@\t\r\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four are wide = + - @
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf|infinity|nan(\([a-z0-9_]*\))?)")
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_PLAIN = re.compile(r"[+-]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]([T ][0-9:.,]*(Z|[+-][0-9:]{2,6})?)?")
CodeArray = NDArray[np.int64]
Floats = NDArray[np.float64]
SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
UNITS = ("years", *SECONDS)
YEAR_SECONDS = 365.2425 * 86_400  # of a duration; years of a date are those of the calendar
MICRO = 1_000_000
EPOCH = datetime(1970, 1, 1)
FORMS = "2024-02-29, 2024-02-29T12:30 or 12:30"
_TIME = re.compile(r"[0-2][0-9]:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?")


def key(value: Any) -> str:
    """The text by which a value is compared with the declared categories.

    >>> [key(value) for value in (1, 1.0, "1", " 1.00 ", True, "TRUE", "01", 0.5, "5e-1", "clerk ")]
    ['1', '1', '1', '1', 'true', 'true', '01', '0.5', '0.5', 'clerk']
    """
    if isinstance(value, str):
        return _key_of_text(value.strip())
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, np.floating) and value.dtype != np.float64:
        value = float(str(value))  # 0.1 in single precision means 0.1
    if isinstance(value, float | np.floating | Decimal):
        return _key_of_number(value)
    return str(value).strip()


def _key_of_text(text: str) -> str:
    if text.lower() in ("true", "false"):
        return text.lower()
    if _WHOLE.fullmatch(text):
        return "0" if text.lstrip("+-") == "0" else text.removeprefix("+")
    if any(digit in text for digit in "0123456789") and _PLAIN.fullmatch(text):
        try:
            return _key_of_number(float(text)) if math.isfinite(float(text)) else text
        except ValueError:  # an exponent alone
            return text
    return text


def _key_of_number(value: Any) -> str:
    if math.isfinite(value) and value == int(value):
        return str(int(value))
    return repr(float(value))


def is_missing_word(text: str) -> bool:
    """Whether a text stands for a missing value.

    >>> is_missing_word(" NaN"), is_missing_word("none")
    (True, False)
    """
    return text.strip().lower() in MISSING_WORDS


def number_of(text: str) -> float | None:
    """The number that a text stands for, with 1 for true and 0 for false; None if it is no number.

    >>> number_of("+1.5e3"), number_of("true"), number_of("1,5"), number_of("many")
    (1500.0, 1.0, None, None)
    """
    text = text.strip()
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    if not _NUMBER.fullmatch(text):
        return None
    return math.nan if text.lower().lstrip("+-").startswith("nan") else float(text)


def looks_like_a_date(text: str) -> bool:
    """Whether a text is an ISO date, with or without a time.

    >>> looks_like_a_date("2024-02-29"), looks_like_a_date("2024-02-29T12:00:00Z"), looks_like_a_date("20240229")
    (True, True, False)
    """
    return _DATE.fullmatch(text.strip()) is not None


def inert(value: Any) -> Any:
    """A text for a CSV that no spreadsheet takes for a formula: a ' in front of = + - @, tab or line end, unless it
    writes a number. Anything but a text stays as it is. OWASP, CSV injection.

    >>> [inert(value) for value in ("=1+1", "@SUM(A1)", "-1", "+1e3", "-x", "yes", -1)]
    ["'=1+1", "'@SUM(A1)", '-1', '+1e3', "'-x", 'yes', -1]
    """
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    number = number_of(value)
    return f"'{value}" if number is None or not math.isfinite(number) else value


def numbers_in(cells: pa.Array, missing: Any) -> NDArray[Any]:
    """Whole or floating numbers of fixed size, with ``missing`` for nulls; a view of Arrow's memory, not to be written to.

    Arrow's own conversion imports pandas, which takes longer than reading a table of some thousand rows.

    >>> numbers_in(pa.array([1.5, None, 2.5])[1:], np.nan).tolist()
    [nan, 2.5]
    """
    kind = np.dtype(cells.type.to_pandas_dtype())
    if len(cells) == 0:  # an empty array may have no buffer
        return np.empty(0, kind)
    filled = pc.fill_null(cells, pa.scalar(missing, cells.type)) if cells.null_count else cells
    return np.frombuffer(filled.buffers()[1], kind, len(filled), filled.offset * kind.itemsize)


def places_in(coded: pa.DictionaryArray) -> CodeArray:
    """Where each cell is in the dictionary; the end (-1) for a null.

    >>> places_in(pa.array(["b", None, "a", "b"]).dictionary_encode()).tolist()
    [0, -1, 1, 0]
    """
    return numbers_in(coded.indices, -1).astype(np.int64)


def values_in(coded: pa.DictionaryArray) -> Any:
    """The values of a dictionary array: floating numbers as a numpy array of their precision, others as Python objects."""
    values = coded.dictionary
    return numbers_in(values, np.nan) if pa.types.is_floating(values.type) else values.to_pylist()


def in_unit(value: Any, unit: str, since: str) -> float | None:
    """The number that a date, a time or the text of one stands for; None for anything else, and a time of day in years.

    >>> in_unit("2024-07-01", "years", ""), in_unit("1970-01-03T12:00", "days", ""), in_unit("06:30", "hours", "")
    (2024.4972677595629, 2.5, 6.5)
    >>> in_unit("2024-01-01", "years", "1990-01-01"), in_unit("1 July", "days", "")
    (34.0, None)
    """
    moment = _parsed(value.strip()) if isinstance(value, str) else value
    if isinstance(moment, time) and unit != "years":
        moment = datetime.combine(EPOCH, moment.replace(tzinfo=None)) - EPOCH
    if isinstance(moment, timedelta):
        return float(_of_micros(np.array([_micros(moment)]), unit)[0])
    if isinstance(moment, date):
        return float(_since(np.array([_micros(_naive(moment) - EPOCH)]), unit, since)[0])
    return None


def moments(cells: pa.Array, unit: str, since: str) -> Floats | None:
    """Numbers of a column of dates, times or their texts, NaN for missing ones; None if a cell is anything else."""
    kind = cells.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _filled(cells, lambda micros: _since(micros, unit, since), pa.timestamp("us"))
    if pa.types.is_duration(kind):
        return _filled(cells, lambda micros: _of_micros(micros, unit), pa.duration("us"))
    if pa.types.is_time(kind) and unit != "years":
        return _filled(cells, lambda micros: _of_micros(micros, unit), pa.time64("us"))
    coded = cells.dictionary_encode()
    numbers: list[float] = []
    for text in coded.dictionary.to_pylist():
        if not isinstance(text, str):
            return None
        number = np.nan if is_missing_word(text) else in_unit(text, unit, since)
        if number is None:
            return None
        numbers.append(number)
    return np.array([*numbers, np.nan])[places_in(coded)]


def text_of(cell: Any) -> Any:
    """A date or time of Python as a text that :func:`in_unit` reads; anything else as it is."""
    return cell.isoformat() if isinstance(cell, date | time) else cell


def is_moment(kind: pa.DataType) -> bool:
    """Whether a column of this type holds dates, times or durations."""
    kinds = pa.types
    return bool(kinds.is_date(kind) or kinds.is_timestamp(kind) or kinds.is_time(kind) or kinds.is_duration(kind))


def looks_like_a_time(text: str) -> bool:
    """Whether a text is a time of day.

    >>> looks_like_a_time("06:30"), looks_like_a_time("6.30")
    (True, False)
    """
    return _TIME.fullmatch(text.strip()) is not None


def _parsed(text: str) -> date | time | None:
    try:
        if looks_like_a_time(text):
            return time.fromisoformat(text)
        return datetime.fromisoformat(text) if looks_like_a_date(text) else None
    except ValueError:  # no such day
        return None


def _naive(moment: date) -> datetime:
    if not isinstance(moment, datetime):
        return datetime(moment.year, moment.month, moment.day)
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def _micros(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def _filled(cells: pa.Array, numbers: Any, kind: pa.DataType) -> Floats:
    """Numbers of cells that Arrow keeps as whole numbers, NaN for nulls."""
    if pa.types.is_timestamp(cells.type):
        kind = pa.timestamp("us", tz=cells.type.tz)
    whole = pc.cast(pc.cast(cells, kind, safe=False), pa.int64())
    there = numbers_in(pc.cast(pc.is_valid(whole), pa.uint8()), 0) > 0
    return np.where(there, numbers(numbers_in(whole, 0)), np.nan)


def _since(micros: NDArray[np.int64], unit: str, since: str) -> Floats:
    start = _micros(_naive(datetime.fromisoformat(since)) - EPOCH) if since else 0
    if unit != "years":
        return _of_micros(micros - start, unit)
    return _years(micros) - (_years(np.array([start]))[0] if since else 0.0)


def _years(micros: NDArray[np.int64]) -> Floats:
    """Years of the calendar: the year, and the share of it that has passed."""
    moments = np.asarray(micros, np.int64).view("M8[us]")
    years = moments.astype("M8[Y]")
    begin, end = (part.astype("M8[us]").view(np.int64) for part in (years, years + 1))
    passed = (moments.view(np.int64) - begin) / (end - begin)
    return np.asarray(years.view(np.int64) + 1970.0 + passed, np.float64)


def _of_micros(micros: NDArray[np.int64], unit: str) -> Floats:
    return np.asarray(micros, np.int64) / (MICRO * (YEAR_SECONDS if unit == "years" else SECONDS[unit]))
