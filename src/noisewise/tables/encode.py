"""From cells to numbers by declared columns: numbers as they are, categories as one column of zeros and ones each.

An encoder knows nothing but the schema. Cells that the schema does not allow are refused before a curator exists, in a
line that names the column and never the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..trusted.validate import did_you_mean
from .files import is_number, is_text, unusable
from .refusal import Refusal, our_words
from .schema import Column, Scalar, Schema, gaps
from .values import (
    FORMS,
    MISSING_WORDS,
    CodeArray,
    is_missing_word,
    key,
    moments,
    number_of,
    numbers_in,
    places_in,
    text_of,
    values_in,
)

if TYPE_CHECKING:
    import pandas as pd

    from .schema import Column

Floats = NDArray[np.float64]
MISSING, UNKNOWN = -1, -2
COMMAED = r"^\s*[+-]?([0-9]+,[0-9]*|,[0-9]+)([eE][+-]?[0-9]+)?\s*$"
POINTED = r"^\s*[+-]?([0-9][0-9.]*\.[0-9.]*|\.[0-9]+)([,eE][0-9+-]*)?\s*$"
NOT_ENCODED = '{} cannot be read: a cell is neither a number nor a text in UTF-8; correct it or set kind = "ignore"'
WAYS_OUT = 'correct those labels, or set target_missing = "drop" in the schema'
NO_CODE = -1  # the class of a record without a label; in a regression its label is NaN


def cells_of(data: Any, place: int, column: Column) -> pa.Array:
    """A column as an Arrow array of numbers, texts or booleans, or of dates and times where the schema declares a unit."""
    name = column.name
    if isinstance(data, pa.RecordBatch):
        cells = _plain(data.column(place))
        if (data.schema.metadata or {}).get(b"decimal") == b"," and is_text(cells.type):
            cells = with_points(cells, column)
    else:
        series = data.iloc[:, place]
        if series.dtype == object:  # cells of any type, where Arrow's reading of one may depend on the others
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
    """Texts with decimal commas written as points; in a number column a number with a point is refused.

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
    """Refuse a cell that is neither number nor text, such as a list, or a date without a declared unit."""
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


@dataclass(frozen=True)
class Encoder:
    """Rows of a table as a float64 matrix, by a complete schema.

    >>> schema = Schema((Column("age", "number", 0, 100), Column("job", "category", categories=("clerk", "farmer"))))
    >>> encoder = Encoder(schema)
    >>> encoder(pa.RecordBatch.from_pydict({"age": ["30", "?"], "job": ["farmer", ""]})).tolist()
    [[30.0, 0.0, 1.0], [50.0, 0.0, 0.0]]
    >>> encoder.feature_names
    ('age', 'job=clerk', 'job=farmer')
    """

    schema: Schema

    def __post_init__(self) -> None:
        if open_ends := [gap for gap in gaps(self.schema) if gap.what != "target"]:
            raise Refusal(f"the schema is not complete: {open_ends[0]}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read from a file: the features, then the target if there is one."""
        names = tuple(column.name for column in self.schema.features)
        return names if self.schema.target is None else (*names, self.schema.target)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of the matrix; a category as "job=clerk"."""
        names: list[str] = []
        for column in self.schema.features:
            values = [value if isinstance(value, str) else key(value) for value in column.categories]
            names += [column.name] if column.kind == "number" else [f"{column.name}={value}" for value in values]
        return tuple(names)

    @cached_property
    def low(self) -> Floats:
        """Lower bounds of the columns of the matrix, 0 for categories."""
        return np.concatenate([_ends(column, column.low, 0.0) for column in self.schema.features])

    @cached_property
    def high(self) -> Floats:
        """Upper bounds of the columns of the matrix, 1 for categories."""
        return np.concatenate([_ends(column, column.high, 1.0) for column in self.schema.features])

    @cached_property
    def classes(self) -> NDArray[Any] | None:
        """The declared classes, sorted; None when the target is a number. Classes of mixed types become texts."""
        if self._target.kind == "number":
            return None
        values = _comparable(self._target.categories)
        return np.asarray([values[place] for place in np.argsort(self._sorted_positions)])

    def check(self, names: Iterable[str], *, predict: bool = False, target: bool = True) -> None:
        """Refuse a table that lacks a column, or has one the schema does not name.

        ``predict``: other columns are ignored, and the target may be absent; ``target=False``: the target may be absent.
        """
        there = list(names)
        optional = predict or not target
        needed = [name for name in self.columns if not (optional and name == self.schema.target)]
        if lacking := [name for name in needed if name not in set(there)]:
            word = "the target" if lacking[0] == self.schema.target else "the column"
            meant = did_you_mean(lacking[0], [name for name in there if name not in self._names])
            raise Refusal(
                f"the data lacks {word} {lacking[0]!r} that the schema names; correct the data or the schema{meant}"
            )
        if not predict and (extra := [name for name in there if name not in self._names]):
            raise Refusal(
                f'the data has the column {extra[0]!r} that the schema does not name; add it with kind = "ignore"'
            )

    def __call__(self, data: pa.RecordBatch | pd.DataFrame, *, predict: bool = False) -> Floats:
        """The matrix of features; the target may be absent."""
        return self._stacked(_feature, data, predict)

    def table(self, data: pa.RecordBatch | pd.DataFrame, *, predict: bool = False) -> Floats:
        """One column for each feature: numbers, or positions among the categories; NaN if missing."""
        return self._stacked(_cell, data, predict)

    def _stacked(self, part: Callable[[Any, int, Column], Floats], data: Any, predict: bool) -> Floats:
        names = _columns_of(data)
        self.check(names, predict=predict, target=False)
        with our_words(NOT_ENCODED.format("the rows")):
            return np.column_stack([part(data, names[column.name], column) for column in self.schema.features])

    def labels(self, data: pa.RecordBatch | pd.DataFrame, *, clamp: bool = True) -> NDArray[Any]:
        """The target: positions in ``classes`` (int64), or numbers (float64), clamped to their bounds.

        Records without a label, if the schema drops them, have ``NO_CODE`` or NaN (:func:`labelled`).
        """
        target, names = self._target, _columns_of(data)
        if target.name not in names:
            raise Refusal(f"the data lacks the target {target.name!r} that the schema names")
        with our_words(NOT_ENCODED.format(f"target {target.name!r}")):
            return self._labels(cells_of(data, names[target.name], target), target, clamp)

    def _labels(self, cells: pa.Array, target: Column, clamp: bool) -> NDArray[Any]:
        dropped = self.schema.target_missing == "drop"
        if target.kind == "number":
            numbers = numbers_of(cells, target)
            if not dropped and np.isnan(numbers).any():
                raise Refusal(f"target {target.name!r} has missing labels; {WAYS_OUT}")
            return np.clip(numbers, target.low, target.high) if clamp else numbers
        codes = codes_of(cells, target)
        if not dropped and (codes == MISSING).any():
            raise Refusal(f"target {target.name!r} has missing labels; {WAYS_OUT}")
        if (codes == UNKNOWN).any():
            raise Refusal(
                f"target {target.name!r} has a label that is not among its categories; declare every class, or correct "
                "those labels or leave their records out"
            )
        return np.where(codes == MISSING, NO_CODE, self._sorted_positions[codes])

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the schema."""
        return self.schema.to_dict()

    @classmethod
    def from_dict(cls, data: Any) -> Encoder:
        """The inverse of :meth:`to_dict`."""
        return cls(Schema.from_dict(data))

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.schema.columns)

    @property
    def _target(self) -> Column:
        if self.schema.target is None:
            raise Refusal("the schema names no target; set target to the column to predict")
        return self.schema[self.schema.target]

    @cached_property
    def _sorted_positions(self) -> CodeArray:
        """Position in ``classes`` of each declared category."""
        values = _comparable(self._target.categories)
        order = sorted(range(len(values)), key=values.__getitem__)
        return np.argsort(order)


def labelled(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Which records have a label, from the result of :meth:`Encoder.labels`."""
    return y != NO_CODE if y.dtype.kind == "i" else ~np.isnan(y)


def _comparable(categories: tuple[Scalar, ...]) -> list[Any]:
    """Categories of one type, which has an order; several types become texts."""
    types = {type(value) for value in categories}
    numbers = types == {int, float} and all(abs(value) < 2**53 for value in categories)  # type: ignore[arg-type]
    return list(categories) if len(types) == 1 or numbers else [key(value) for value in categories]


def _ends(column: Column, end: float | None, of_category: float) -> Floats:
    return np.full(1, end) if column.kind == "number" else np.full(len(column.categories), of_category)


def _columns_of(data: Any) -> dict[str, int]:
    """The place of each column; the names of a DataFrame may be of any type."""
    with our_words("a Schema needs a table with names of columns; pass a DataFrame"):
        names = data.schema.names if isinstance(data, pa.RecordBatch) else [str(name) for name in data.columns]
    if len(set(names)) < len(names):
        repeated = next(name for i, name in enumerate(names) if name in names[:i])
        raise Refusal(f"the data has the column {repeated!r} twice; rename or drop one of them")
    return {name: place for place, name in enumerate(names)}


def _feature(data: Any, place: int, column: Column) -> Floats:
    with our_words(NOT_ENCODED.format(f"column {column.name!r}")):
        cells = cells_of(data, place, column)
        if column.kind != "number":
            return (_known_codes(cells, column)[:, None] == np.arange(len(column.categories))).astype(np.float64)
        numbers, stand_in = numbers_of(cells, column), column.middle if column.missing is None else column.missing
        return np.where(np.isnan(numbers), stand_in, numbers)[:, None]


def _cell(data: Any, place: int, column: Column) -> Floats:
    with our_words(NOT_ENCODED.format(f"column {column.name!r}")):
        cells = cells_of(data, place, column)
        if column.kind == "number":
            numbers = numbers_of(cells, column)
            return numbers if column.missing is None else np.where(np.isnan(numbers), column.missing, numbers)
        codes = _known_codes(cells, column)
        return np.where(codes < 0, np.nan, codes)


def _known_codes(cells: pa.Array, column: Column) -> CodeArray:
    """Positions among the categories, negative for missing cells that have no stand-in."""
    codes = codes_of(cells, column)
    if column.unknown == "refuse" and (codes == UNKNOWN).any():
        raise Refusal(
            f"column {column.name!r} has a value that is not among its categories; "
            'add every value that can occur, or set unknown = "missing"'
        )
    keys = [key(value) for value in column.categories]
    absent = MISSING if column.missing is None else keys.index(key(column.missing))
    return np.where(codes < 0, absent, codes)
