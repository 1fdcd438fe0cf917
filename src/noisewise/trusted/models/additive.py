"""A model of a table: scores are sums of effects of its columns, linear in features that a method may ask for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ..features.table_columns import TableColumn
from .linear import Linear


@dataclass(frozen=True)
class Additive(Linear):
    """Scores of rows that are made of ``columns``; until features are asked for there is an intercept alone."""

    columns: tuple[TableColumn, ...] = field(default=(), kw_only=True)

    table: ClassVar[bool] = True
    records: ClassVar[str] = "tables"

    @property
    def row_width(self) -> int:
        return len(self.columns)

    def of_width(self, features: int) -> Additive:
        """The same model of rows with so many coordinates."""
        return replace(self, features=features)
