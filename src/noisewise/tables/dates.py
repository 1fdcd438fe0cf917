"""Dates and times as numbers, by a declared unit: each cell by itself, whatever the other cells are.

A date or a moment becomes the time since ``since`` in the unit: since 1970-01-01 if nothing is declared, except for years,
which are those of the calendar (2024-07-01 is 2024.497). A time of day counts from midnight, a duration from 0. A moment
with a zone is taken in UTC, one without a zone as it is written.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .arrow_arrays import numbers_in, places_in
from .values import is_missing_word, looks_like_a_date

Floats = NDArray[np.float64]
SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
UNITS = ("years", *SECONDS)
YEAR_SECONDS = 365.2425 * 86_400  # of a duration; years of a date are those of the calendar
MICRO = 1_000_000
EPOCH = datetime(1970, 1, 1)
FORMS = "2024-02-29, 2024-02-29T12:30 or 12:30"
_TIME = re.compile(r"[0-2][0-9]:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?")


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
    """A date or time of Python as a text that :func:`in_unit` reads; any other cell as it is."""
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
