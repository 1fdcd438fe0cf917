"""From declared columns to numbers: numbers as they are, categories as one column of zeros and ones each.

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
from numpy.typing import NDArray

from ..trusted.validate import did_you_mean
from .cells import MISSING, UNKNOWN, CodeArray, Floats, cells_of, codes_of
from .cells import numbers_of as numbers_of
from .refusal import Refusal, our_words
from .schema import Column, Scalar, Schema, gaps
from .values import key

if TYPE_CHECKING:
    import pandas as pd

NOT_ENCODED = '{} cannot be read: a cell is neither a number nor a text in UTF-8; correct it or set kind = "ignore"'
WAYS_OUT = 'correct those labels, or set target_missing = "drop" in the schema'
NO_CODE = -1  # the class of a record without a label; in a regression its label is NaN


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
        """As plain data: the schema."""
        return self.schema.to_dict()

    @classmethod
    def from_dict(cls, data: Any) -> Encoder:
        """The encoder that ``to_dict`` wrote down."""
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
