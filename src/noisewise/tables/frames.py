"""A PUBLIC DataFrame as a source of rows, so that a schema is filled from it as from a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .files import Share
from .fill import filled_from
from .refusal import Refusal, our_words
from .schema import Column, Schema
from .values import key

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of a frame as Arrow has them; cells of any type, of which the type says nothing, as texts."""

    names: tuple[str, ...]
    arrays: tuple[pa.Array, ...]
    untyped: frozenset[str]

    where = "the frame"

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    def types(self, name: str) -> list[pa.DataType | None]:
        """The type of a column, None where cells are of any type."""
        return [None if name in self.untyped else self.arrays[self.names.index(name)].type]

    def batches(
        self, columns: Sequence[str] | None = None, *, progress: Share | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All rows at once."""
        names = list(self.names if columns is None else columns)
        yield pa.RecordBatch.from_arrays([self.arrays[self.names.index(name)] for name in names], names=names)


def fill_from_frame(frame: pd.DataFrame, target: str | None) -> Schema:
    """Kinds, bounds and categories as PUBLIC rows have them; a column of the type category has those of its type."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise Refusal(f"frame is {type(frame).__name__}; pass a DataFrame of public rows")
    if not len(frame):
        raise Refusal("the frame has no rows; pass public rows")
    source = framed(frame)
    made = filled_from(source, None, target)
    for name, dtype in zip(source.names, frame.dtypes, strict=True):
        if isinstance(dtype, pd.CategoricalDtype):
            made = made.with_column(_of_type(made[name], dtype, name == target))
    return made


def _of_type(column: Column, dtype: Any, target: bool) -> Column:
    """All categories of a type of pandas: it says itself what can occur."""
    values = dtype.categories.tolist()
    if not all(isinstance(value, str | bool | int | float) for value in values):
        return column
    known = {key(value) for value in values}
    rare = tuple(value for value in column.rare if key(value) in known)
    return replace(
        column, kind="category", low=None, high=None, categories=tuple(values), unknown="refuse", rare=rare, note="",
        scale="linear",
    )  # fmt: skip


def framed(frame: pd.DataFrame) -> Frame:
    """A frame as a source."""
    names = tuple(str(name) for name in frame.columns)
    if len(set(names)) < len(names):
        raise Refusal("the frame has a column twice; rename or drop one of them")
    untyped = frozenset(
        name for name, dtype in zip(names, frame.dtypes, strict=True) if dtype.kind == "O" and dtype.name == "object"
    )
    arrays = []
    for place, name in enumerate(names):
        with our_words(f"column {name!r} cannot be read; write numbers or texts in it"):
            arrays.append(_array(frame.iloc[:, place]))
    return Frame(names, tuple(arrays), untyped)


def _array(cells: pd.Series) -> pa.Array:
    if cells.dtype == object:
        texts = [None if gone else key(cell) for cell, gone in zip(cells, cells.isna(), strict=True)]
        return pa.array(texts, pa.string())
    found = pa.array(cells, from_pandas=True)
    whole = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return whole.dictionary_decode() if pa.types.is_dictionary(whole.type) else whole
