"""What a schema, or bounds, say of a table's columns: scales of numbers, coordinates of categories."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..trusted.features import TableColumn, log_scale
from .preprocess import Floats
from .schema import Column, Schema
from .values import key


def columns_of(schema: Schema) -> tuple[TableColumn, ...]:
    """The features of a complete schema as columns of a table."""
    return tuple(_number(column) if column.kind == "number" else _category(column) for column in schema.features)


def number_columns(low: Floats, high: Floats, names: Sequence[str] | None) -> tuple[TableColumn, ...]:
    """Columns of an array with declared bounds."""
    words = [f"x{i}" for i in range(len(low))] if names is None else [str(name) for name in names]
    ends = zip(words, low.tolist(), high.tolist(), strict=True)
    return tuple(TableColumn(name, (first, last), (0.0, 1.0)) for name, first, last in ends)


def _number(column: Column) -> TableColumn:
    assert column.low is not None and column.high is not None
    if column.knots:
        ranks = tuple(np.linspace(0.0, 1.0, len(column.knots)).tolist())
        return TableColumn(column.name, column.knots, ranks, knots=len(column.knots))
    if column.scale == "log":
        return TableColumn(column.name, *log_scale(column.low, column.high))
    return TableColumn(column.name, (column.low, column.high), (0.0, 1.0))


def _category(column: Column) -> TableColumn:
    """A coordinate for each category; those that the schema calls rare share one."""
    keys = [key(value) for value in column.categories]
    rare = {key(value) for value in column.rare}
    groups, common = [], 0
    for name in keys:
        groups.append(-1 if name in rare else common)
        common += name not in rare
    return TableColumn(column.name, groups=tuple(common if group < 0 else group for group in groups), words=tuple(keys))
