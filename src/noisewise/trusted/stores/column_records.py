"""Columns as they come from a file, before there is a model or a scale: counted, never laid out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from .protocol import HeldRecords
from .totals import Floats, Integers


class ColumnRecords(HeldRecords):
    """A way to read the private columns, a piece at a time: matrices with one row per record; called for every question."""

    __slots__ = ("_columns", "_pieces")

    def __init__(self, pieces: Callable[[], Iterable[Floats]], columns: int) -> None:
        self._pieces, self._columns = pieces, columns

    @property
    def columns(self) -> int:
        return self._columns

    def __len__(self) -> int:
        raise TypeError("columns are read whole, never sampled")

    def counts(self, edges: Floats) -> Integers:
        """How many values of each column lie between its edges, one row per column."""
        bins = edges.shape[1] - 1
        total = np.zeros((self.columns, bins), np.int64)
        for piece in self._pieces():
            for j in range(self.columns):
                places = np.searchsorted(edges[j], piece[:, j], side="right") - 1  # NaN sorts last
                total[j] += np.bincount(places[(places >= 0) & (places < bins)], minlength=bins)
        return total
