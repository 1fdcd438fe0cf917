"""What anyone may know of a table's columns: declared, never read from private rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .scale import check_scale

STEPS, STEPS_BETWEEN = 1 << 16, 1 << 8  # of single precision: over a whole scale, and from a point of it to the next


@dataclass(frozen=True)
class TableColumn:
    """A number, with the points and ranks of its declared scale, or a category, with the coordinate of each value.

    In a table a category is its position among the declared ones; NaN is a value that is missing.
    """

    name: str
    points: tuple[float, ...] = ()
    ranks: tuple[float, ...] = ()
    groups: tuple[int, ...] = ()
    knots: int | None = None  # declared ones are kept
    words: tuple[str, ...] = ()  # of the categories

    def __post_init__(self) -> None:
        if self.number:
            check_scale(self.points, self.ranks, f"the scale of column {self.name!r}")

    @property
    def number(self) -> bool:
        return not self.groups

    @property
    def fine(self) -> bool:
        """Whether single precision would put values together that the scale tells apart, as from 1e9 to 1e9 + 100."""
        if not self.number:
            return False
        with np.errstate(over="ignore", invalid="ignore"):  # beyond single precision: fine too
            ends = np.maximum(np.abs(self.points[:-1]), np.abs(self.points[1:]))
            step = np.spacing(ends.astype(np.float32)).astype(np.float64)
            between, whole = np.diff(self.points) >= STEPS_BETWEEN * step, self.points[-1] - self.points[0]
            return not bool(between.all() and whole >= STEPS * step.max())


def cell_type(columns: Sequence[TableColumn]) -> type[np.floating[Any]]:
    """How cells of a table are kept: single precision, or double where a declared scale is too fine; no value decides."""
    return np.float64 if any(column.fine for column in columns) else np.float32
