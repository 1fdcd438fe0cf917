"""Private rows of a table, kept as they came, from which rows of features are laid out as often as a method asks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..fast import kernels
from ..features import Codes, Features, Floats, Hats, Product, cell_type, even, positions, slopes_of
from .grid import ROWS_PER_CHUNK, Allocator, in_memory, numbers
from .linear import NONE
from .protocol import HeldRecords
from .sparse import SparseRecords, SparseRows, lay_out_sparse
from .totals import Drawn, Integers

Map = tuple[float, tuple[float, ...], tuple[float, ...]]  # a column, points and ranks of its scale


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Table:
    """Numbers and category codes, a row per record, NaN where one is missing, and labels."""

    cells: NDArray[Any]
    labels: NDArray[Any]
    classes: int | None

    def rows(self, features: Features, store: Allocator) -> SparseRows:
        """Every record's row of features, from its own cells alone."""
        entries = maker(features)

        def part(start: int, length: int) -> tuple[NDArray[Any], Floats]:
            return entries(self.cells[start : start + length])

        sizes = {"entries": features.entries, "width": features.width}
        starts = [*(span.start for span in features.spans), features.width - 1]
        return lay_out_sparse(part, self.labels, classes=self.classes, store=store, starts=starts, **sizes)


def maker(features: Features) -> Callable[[NDArray[Any]], tuple[NDArray[Any], Floats]]:
    """What makes the entries of rows of cells, compiled or not: the same bits. Its arrays hold until it is asked again."""
    if not kernels.compiled():
        return lambda cells: features(cells.astype(np.float64))
    plan, kernel, wide = KernelPlan.of(features), _compiled(), features.entries
    room: list[NDArray[Any]] = [np.empty((0, wide), np.int64), np.empty((0, wide))]

    def made(cells: NDArray[Any]) -> tuple[NDArray[Any], Floats]:
        n = len(cells)
        if len(room[0]) < n:
            room[:] = np.empty((n, wide), np.int64), np.empty((n, wide))
        where, numbers = room[0][:n], room[1][:n]
        kernel.entries(cells, *plan, features.gains, where, numbers)
        return where, numbers

    return made


class KernelPlan(NamedTuple):
    """Features as plain arrays, for the kernel: scales, sides (hats and codes) that stand on them, blocks made of sides."""

    scales: Integers  # a row each: column, where its points begin and end
    points: Floats
    ranks: Floats
    slopes: Floats  # from each point to the next
    sides: Integers  # (2, scale, knots, 0) for hats, (1, column, where its coordinates begin and end) for codes
    coordinates: Integers  # of categories, and last of what is none
    blocks: Integers  # first side, second or -1, the width of the second, where the block's coordinates begin

    @classmethod
    def of(cls, features: Features) -> KernelPlan:
        scales: dict[tuple[int, Any, Any], int] = {}
        sides: dict[Hats | Codes, int] = {}
        blocks = []
        for block, span in zip(features.blocks, features.spans, strict=True):
            parts = (block.first, block.second) if isinstance(block, Product) else (block,)
            numbers = [sides.setdefault(part, len(sides)) for part in parts]
            blocks.append((numbers[0], numbers[1] if len(parts) > 1 else -1, parts[-1].width, span.start))
        coordinates: list[int] = []
        described = [_side(side, scales, coordinates) for side in sides]
        points, ranks = ([np.asarray(scale[k], np.float64) for scale in scales] for k in (1, 2))
        ends = np.cumsum([0, *map(len, points)]).tolist()
        return cls(
            _whole([(key[0], *span) for key, span in zip(scales, pairwise(ends), strict=True)], 3),
            np.concatenate([*points, ONE]),
            np.concatenate([*ranks, ONE]),
            np.concatenate([*(np.append(slopes_of(at, to), 0.0) for at, to in zip(points, ranks, strict=True)), ONE]),
            _whole(described, 4),
            np.array([*coordinates, 0], np.int64),
            _whole(blocks, 4),
        )


ONE = np.zeros(1)  # so that no array is empty


def _side(
    side: Hats | Codes, scales: dict[tuple[int, Any, Any], int], coordinates: list[int]
) -> tuple[int, int, int, int]:
    if isinstance(side, Hats):
        return 2, scales.setdefault((side.column, side.points, side.ranks), len(scales)), side.knots, 0
    begin = len(coordinates)
    coordinates += [*side.groups, side.width - 1]
    return 1, side.column, begin, len(coordinates)


def _whole(rows: Sequence[tuple[int, ...]], width: int) -> Integers:
    return np.array(rows, np.int64).reshape(len(rows), width)


def _compiled() -> Any:
    return importlib.import_module("..fast.table_kernels", __package__)


@dataclass(frozen=True, slots=True, repr=False)
class TableRecords(SparseRecords):
    """Rows of features, and the table that they are made of."""

    table: Table | None = None

    def prepared(self, features: Features, store: Allocator = in_memory) -> TableRecords:
        """The same records as rows of other features."""
        assert self.table is not None
        return TableRecords(self.table.rows(features, store), self.loss, self.outputs, self.table)

    def levels(self, drawn: Drawn, maps: Sequence[Map], levels: int) -> Integers:
        """For each scale and level l = 1 .. levels: how many values lie in each of the 2^l equal parts of the scale."""
        assert self.table is not None
        ends = np.cumsum([0, *(1 << level for level in range(1, levels + 1))]).tolist()
        counts = np.zeros((len(maps), ends[-1]), np.int64)
        spans = [counts[:, start:end] for start, end in pairwise(ends)]
        for row, (column, points, ranks) in zip(spans[-1], maps, strict=True):
            self._count(drawn, int(column), np.array(points), np.array(ranks), row)
        for coarse, fine in zip(spans[-2::-1], spans[:0:-1], strict=True):
            np.add(fine[:, ::2], fine[:, 1::2], out=coarse)
        return counts

    def _count(self, drawn: Drawn, column: int, points: Floats, ranks: Floats, counts: Integers) -> None:
        """Add up how many values of a column lie in each of the equal parts of a scale."""
        assert self.table is not None
        cells = self.table.cells
        if kernels.compiled():
            chosen = NONE if drawn.rows is None else drawn.rows
            options = (column, points, ranks, slopes_of(points, ranks), counts)
            _compiled().count_levels(cells, chosen, drawn.rows is None, *options)
            return
        for here in self.parts(drawn, ROWS_PER_CHUNK):
            places = positions(cells[here, column].astype(np.float64), points, ranks)
            places = places[~np.isnan(places)] * len(counts)
            counts += np.bincount(np.minimum(places, len(counts) - 1).astype(np.int64), minlength=len(counts))


def held_table(cells: NDArray[Any], labels: NDArray[Any], model: Any, store: Allocator) -> TableRecords:
    """A table behind exact totals, with an intercept as its only feature so far."""
    plain = numbers(cells)
    own = store(len(plain), plain.shape[1], cell_type(model.columns))
    own[:] = plain
    table = Table(own, numbers(labels).copy(), model.classes)
    return TableRecords(table.rows(even(()), store), model.loss, model.outputs, table)


class ColumnRecords(HeldRecords):
    """Columns as they come from a file, before there is a model or a scale: counted, never laid out.

    ``pieces`` reads them, for every question anew, as matrices with one row per record.
    """

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
