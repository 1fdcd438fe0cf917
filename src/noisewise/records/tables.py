"""Private rows of a table, kept as they came, from which rows of features are laid out as often as a method asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..late import Tensor
from ..prepare.columns import cell_type
from ..prepare.features import Block, Features, even
from ..prepare.scale import Floats, positions
from .grid import CHUNK, Integers, Store, in_memory
from .sparse import SparseRecords, SparseRows, lay_out_sparse
from .totals import Drawn

KEPT = 1 << 28  # bytes of entries that are kept to be laid out again
Entries = tuple[NDArray[Any], NDArray[Any]]
Map = tuple[float, tuple[float, ...], tuple[float, ...]]  # a column, points and ranks of its scale


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Table:
    """Numbers and category codes, a row per record, NaN where one is missing, and labels."""

    cells: NDArray[Any]
    labels: Tensor
    classes: int | None
    made: dict[Block, Entries] = field(default_factory=dict)  # of blocks that are asked for again, if they are small
    recent: list[tuple[Block, ...]] = field(default_factory=list)  # those of the last two features; no others are kept

    def rows(self, features: Features, store: Store) -> SparseRows:
        """Every record's row of features, from its own cells alone."""
        small = len(self.cells) * features.entries * 8 <= KEPT
        self._forget(features.blocks)

        def part(start: int, length: int) -> tuple[NDArray[Any], Floats]:
            here = slice(start, start + length)
            if not small:
                return features(self.cells[here].astype(np.float64))
            made = [self.entries(block) for block in features.blocks]
            return features.joined([(places[here], values[here]) for places, values in made], length)

        sizes = {"entries": features.entries, "width": features.width}
        return lay_out_sparse(part, self.labels, classes=self.classes, store=store, **sizes)

    def _forget(self, blocks: tuple[Block, ...]) -> None:
        """Keep the entries of what was asked for last and now: a method that asks on and on must not fill the memory."""
        self.recent[:] = [*self.recent[-1:], blocks]
        for block in [block for block in self.made if not any(block in some for some in self.recent)]:
            del self.made[block]

    def entries(self, block: Block) -> Entries:
        """The entries of a block in all rows, kept for the next features that have it."""
        if block not in self.made:
            self.made[block] = block(self.cells.astype(np.float64))
        return self.made[block]


@dataclass(frozen=True, slots=True, repr=False)
class TableRecords(SparseRecords):
    """Rows of features, and the table that they are made of."""

    table: Table | None = None

    def prepared(self, features: Features, store: Store = in_memory) -> TableRecords:
        """The same records as rows of other features."""
        assert self.table is not None
        return TableRecords(self.table.rows(features, store), self.loss, self.outputs, self.table)

    def levels(self, drawn: Drawn, maps: Sequence[Map], levels: int) -> Integers:
        """For each scale and level l = 1 .. levels: how many values lie in each of the 2^l equal parts of the scale."""
        assert self.table is not None
        cells, counts = 1 << levels, np.zeros((len(maps), 1 << levels), np.int64)
        for here in self.parts(drawn, CHUNK):
            piece = self.table.cells[here]
            for row, (column, points, ranks) in zip(counts, maps, strict=True):
                values = piece[:, int(column)].astype(np.float64)
                places = positions(values, np.array(points), np.array(ranks))
                places = places[~np.isnan(places)]
                row += np.bincount(np.minimum(places * cells, cells - 1).astype(np.int64), minlength=cells)
        coarser = [counts.reshape(len(maps), 1 << level, -1).sum(2) for level in range(1, levels + 1)]
        return np.concatenate(coarser, axis=1)


def held_table(cells: Tensor, labels: Tensor, model: Any, store: Store) -> TableRecords:
    """A table behind exact totals, with an intercept as its only feature so far."""
    plain = cells.detach().as_subclass(Tensor).numpy()
    own = store(len(plain), plain.shape[1], cell_type(model.columns))
    own[:] = plain
    table = Table(own, labels.detach().clone(), model.classes)
    return TableRecords(table.rows(even(()), store), model.loss, model.outputs, table)
