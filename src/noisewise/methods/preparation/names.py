"""Names of the coordinates that a table's features have."""

from __future__ import annotations

from collections.abc import Sequence

from ...trusted.features.features import Features, Hats
from ...trusted.features.table_columns import TableColumn


def names_of(features: Features, columns: Sequence[TableColumn]) -> list[str]:
    """A name for each coordinate, no two alike, the intercept's last."""
    names: dict[str, None] = {}
    before: set[int] = set()
    for block in features.blocks:
        again = f" of {block.knots}" if isinstance(block, Hats) and block.column in before else ""
        before |= {block.column} if isinstance(block, Hats) else set()
        for word in block.words(columns):
            name, count = f"{word}{again}", 1
            while name in names:  # knots that differ by little
                name, count = f"{word}{again} ({count + 1})", count + 1
            names[name] = None
    return [*names, "(intercept)"]
