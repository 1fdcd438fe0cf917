"""What anyone may know of a table's columns: declared, never read from private rows."""

from __future__ import annotations

from dataclasses import dataclass


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

    @property
    def number(self) -> bool:
        return not self.groups
