"""What anyone may know of a table's columns: declared, never read from private rows."""

from __future__ import annotations

from dataclasses import dataclass

from .scale import check_scale


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
