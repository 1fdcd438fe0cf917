"""What the cells of one column are: numbers, codes of categories, missing. Each cell means what it means by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .arrow_arrays import CodeArray, numbers_in, places_in, values_in
from .dates import FORMS, moments, text_of
from .files import is_number, is_text, unusable
from .refusal import Refusal
from .values import MISSING_WORDS, is_missing_word, key, number_of

if TYPE_CHECKING:
    from .schema import Column

Floats = NDArray[np.float64]
MISSING, UNKNOWN = -1, -2
COMMAED = r"^\s*[+-]?([0-9]+,[0-9]*|,[0-9]+)([eE][+-]?[0-9]+)?\s*$"
POINTED = r"^\s*[+-]?([0-9][0-9.]*\.[0-9.]*|\.[0-9]+)([,eE][0-9+-]*)?\s*$"


def cells_of(data: Any, place: int, column: Column) -> pa.Array:
    """A column as an Arrow array of numbers, texts or booleans, or of dates and times where a unit makes numbers of them."""
    name = column.name
    if isinstance(data, pa.RecordBatch):
        cells = _plain(data.column(place))
        if (data.schema.metadata or {}).get(b"decimal") == b"," and is_text(cells.type):
            cells = with_points(cells, column)
    else:
        series = data.iloc[:, place]
        if series.dtype == object:  # cells of any type: what Arrow makes of one may depend on the others
            absent = series.isna()
            for cell in {type(cell): cell for cell, gone in zip(series, absent, strict=True) if not gone}.values():
                _refuse_odd(cell, column)
            cells = pa.array(
                [None if gone else key(text_of(cell)) for cell, gone in zip(series, absent, strict=True)], pa.string()
            )
        else:
            cells = pa.array(series, from_pandas=True)
        cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    cells = _plain(cells)
    if trouble := unusable(cells.type, dated=bool(column.unit)):
        raise Refusal(f"column {name!r} {trouble}")
    return cells


def with_points(cells: pa.Array, column: Column | None = None) -> pa.Array:
    """Texts in which a number with a decimal comma has a point; in a number column one with a point is refused.

    Each cell by itself: 1,5 is 1.5, and any other text stays. What 1.234 means where commas are decimals nobody can tell.
    """
    numbers = column is not None and column.kind == "number" and not column.unit
    if numbers and pc.any(pc.match_substring_regex(cells, POINTED)).as_py():
        raise Refusal(
            f"column {column.name!r} holds a number with a point, but the decimal sign is a comma; write numbers as "  # type: ignore[union-attr]
            "1234,5 throughout, or leave --decimal out"
        )
    return pc.if_else(pc.match_substring_regex(cells, COMMAED), pc.replace_substring(cells, ",", "."), cells)


def _plain(cells: pa.Array) -> pa.Array:
    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells


def _refuse_odd(cell: Any, column: Column) -> None:
    """Dates without a unit, lists and other things that are neither number nor text."""
    try:
        trouble = unusable(pa.scalar(cell).type, dated=bool(column.unit))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        trouble = (
            None if isinstance(cell, int | float | str | bool) else "holds things that are neither numbers nor text"
        )
    if trouble:
        raise Refusal(f"column {column.name!r} {trouble}")


def numbers_of(cells: pa.Array, column: Column) -> Floats:
    """Numbers, with NaN for what is missing; dates and times by the column's unit."""
    if column.unit:
        return _dated(cells, column)
    try:
        return _as_floats(cells)
    except pa.ArrowException:
        pass  # missing words and spaces
    trimmed = pc.utf8_trim_whitespace(cells)
    words = pa.array(sorted(MISSING_WORDS), trimmed.type)
    trimmed = pc.if_else(pc.is_in(pc.utf8_lower(trimmed), words), pa.scalar(None, trimmed.type), trimmed)
    try:
        return _as_floats(trimmed)
    except pa.ArrowException:
        pass  # true and false, and what is no number
    coded = trimmed.dictionary_encode()
    numbers = [number_of(text) for text in coded.dictionary.to_pylist()]
    if None in numbers:
        raise Refusal(
            f"column {column.name!r} holds text where numbers are needed; write numbers as 1.5 (or pass --decimal ,), give "
            'dates a unit such as unit = "years", or set kind = "category" or "ignore"'
        )
    return np.array([*numbers, np.nan], dtype=np.float64)[places_in(coded)]


def _dated(cells: pa.Array, column: Column) -> Floats:
    numbers = moments(cells, column.unit, column.since)
    if numbers is None:
        raise Refusal(
            f"column {column.name!r} has the unit {column.unit}, and a cell that is no date or time, or a time where the "
            f'unit is years; write them as {FORMS}, or set kind = "ignore"'
        )
    return numbers


def _as_floats(cells: pa.Array) -> Floats:
    return numbers_in(pc.cast(cells, pa.float64(), safe=not is_number(cells.type)), np.nan)


def codes_of(cells: pa.Array, column: Column) -> CodeArray:
    """Position of each cell among the categories, MISSING or UNKNOWN; a declared category is never a missing word."""
    coded = cells.dictionary_encode()
    declared = {key(value): place for place, value in enumerate(column.categories)}
    codes = [_code(value, declared) for value in values_in(coded)]
    return np.array([*codes, MISSING], dtype=np.int64)[places_in(coded)]


def _code(value: Any, declared: dict[str, int]) -> int:
    if value is None or value != value:
        return MISSING
    place = declared.get(key(value))
    if place is not None:
        return place
    return MISSING if isinstance(value, str) and is_missing_word(value) else UNKNOWN
