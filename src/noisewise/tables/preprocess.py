"""Scaling rows by declared bounds, so that no record can reach further than its neighbours know.

Nothing here is read from private rows: bounds are declared, values outside them are clamped, a missing or infinite
value becomes the nearest bound or, for NaN, the middle of the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..trusted import elementwise as plain
from ..trusted.features import TableColumn, cell_type
from ..trusted.validate import did_you_mean

Floats = NDArray[np.float64]
WAYS_OUT = (
    "pass bounds=(low, high), one pair per column or {'column': (low, high), ...}, declared by you and never read from private "
    "rows; a schema=, which has categories too (noisewise.Schema); or bounds='buy', which pays for them from the budget"
)


@dataclass(frozen=True)
class Scaling:
    """Columns to [-1, 1] (to [0, 1] when the lower bound is 0, which keeps zeros zero), an intercept, rows of norm <= 1.

    ``unit_rows=True`` divides each row by its own norm (harmless for the sign of a linear score); ``False`` divides
    every row by the largest norm the bounds allow, which keeps a linear function of the features linear.
    """

    low: Floats
    high: Floats
    unit_rows: bool
    kept: ClassVar[type[np.floating[Any]]] = np.float32  # as what rows are kept
    cells: ClassVar[bool] = False  # whether rows are cells of a table, from which a method makes its features

    @property
    def features(self) -> int:
        """Columns after scaling, the intercept included."""
        return len(self.low) + 1

    def __call__(self, X: Floats) -> Floats:
        anchored = self.low == 0
        centre = np.where(anchored, 0.0, (self.low + self.high) / 2)
        reach = np.where(anchored, self.high, (self.high - self.low) / 2)
        middle = (self.low + self.high) / 2
        bounded = np.clip(np.where(np.isnan(X), middle, X), self.low, self.high)
        rows = np.empty((len(X), self.features))
        rows[:, :-1] = np.clip((bounded - centre) / reach, -1, 1)  # rounding of extreme bounds must not reach further
        rows[:, -1] = 1.0
        rows /= plain.lengths(rows)[:, None] if self.unit_rows else math.sqrt(self.features)
        return rows


@dataclass(frozen=True)
class Cells(Scaling):
    """A table's cells as they came, for a method that makes features of its ``columns``: their scales clamp and place them.

    ``low`` and ``high`` are those of :class:`Scaling`, which a run folder keeps for every model.
    """

    columns: tuple[TableColumn, ...] = ()
    cells: ClassVar[bool] = True

    @property
    def features(self) -> int:
        return len(self.columns)

    @property
    def kept(self) -> type[np.floating[Any]]:  # type: ignore[override]
        return cell_type(self.columns)

    def __call__(self, X: Floats) -> Floats:
        return np.array(X, dtype=np.float64)


def declared_bounds(
    columns: int, names: Sequence[str] | None, *, bounds: Any, schema: Mapping[str, Any] | None
) -> tuple[Floats, Floats]:
    """Lower and upper bound of each column from ``bounds`` (one pair, one per column, or by name) or ``schema`` (by name)."""
    if schema is not None and bounds is not None:
        raise ValueError("bounds and schema are both given; pass one of them")
    named = schema if schema is not None else bounds if isinstance(bounds, Mapping) else None
    if named is not None:
        bounds = _by_name("bounds" if schema is None else "schema", named, names)
    if bounds is None:
        raise ValueError(f"bounds are missing; {WAYS_OUT}")
    try:
        pairs = np.asarray(bounds, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"bounds is {bounds!r}; {WAYS_OUT}") from None
    if pairs.shape == (2,):
        pairs = np.tile(pairs, (columns, 1))
    if pairs.shape != (columns, 2):
        raise ValueError(f"bounds has shape {pairs.shape}; pass (low, high), or one pair for each of {columns} columns")
    low, high = pairs[:, 0].copy(), pairs[:, 1].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        bad = np.flatnonzero(~(np.isfinite(high - low) & (low < high)))
    if len(bad):
        column = f"column {names[bad[0]]!r}" if names is not None else f"column {bad[0]}"
        raise ValueError(f"bounds of {column} are {tuple(pairs[bad[0]].tolist())}; pass finite numbers with low < high")
    return low, high


def _by_name(who: str, bounds: Mapping[str, Any], names: Sequence[str] | None) -> list[Any]:
    """The pairs in the order of the columns."""
    if names is None:
        raise ValueError(f"{who} names columns but X has no column names; pass a DataFrame, or one pair per column")
    if missing := [name for name in names if name not in bounds]:
        meant = did_you_mean(missing[0], [name for name in bounds if name not in set(names)])
        raise ValueError(f"{who} has no bounds for column {missing[0]!r}; add {missing[0]!r}: (low, high){meant}")
    for name in names:
        if isinstance(bounds[name], str) or np.shape(bounds[name]) != (2,) or isinstance(bounds[name][0], str):
            raise ValueError(
                f"{who} has no pair (low, high) for column {name!r}; for categories pass "
                f"schema=noisewise.Schema({{{name!r}: ['one', 'another'], ...}}), with (low, high) for numbers"
            )
    return [bounds[name] for name in names]


def interval(name: str, pair: Any) -> tuple[float, float]:
    """One declared (low, high), checked."""
    try:
        low, high = (float(end) for end in pair)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {pair!r}; pass (low, high)") from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"{name} is {pair!r}; pass finite numbers with low < high")
    return low, high
