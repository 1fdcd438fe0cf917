"""Rows of a table as few entries of many coordinates: hats of numbers, categories, and products of two of them.

Hats are linear B-splines: a number at place u between knots j and j+1 has the entries 1-f at j and f at j+1. Neighbouring
hats share records, so that a coordinate is rarely empty. A missing value has a coordinate of its own: what to make of it is
learned. All of it is frozen data; a row's entries follow from that row alone, by + - * on single values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LOG_POINTS = 129

# --- scales: piecewise linear maps from declared points to ranks, from 0 at the first to 1 at the last. A logarithmic scale has
# points at equal ratios, declared knots are points at equal distances, bought ranks are points at quantiles. ---


def positions(values: Floats, points: Floats, ranks: Floats) -> Floats:
    """The place of each value, clamped to the ends; NaN for what is missing.

    >>> positions(np.array([5.0, 15.0, np.nan, 99.0]), np.array([0.0, 10.0, 20.0]), np.array([0.0, 0.5, 1.0])).tolist()
    [0.25, 0.75, nan, 1.0]
    """
    missing = np.isnan(values)
    inside = np.minimum(np.maximum(np.where(missing, points[0], values), points[0]), points[-1])
    piece = np.clip(np.searchsorted(points, inside, side="right") - 1, 0, len(points) - 2)
    slopes = slopes_of(points, ranks)
    place = ranks[piece] + (inside - points[piece]) * slopes[piece]
    place = np.where(place > ranks[piece], np.minimum(place, ranks[piece + 1]), ranks[piece])  # also if it is no number
    return np.where(missing, np.nan, place)


def slopes_of(points: Floats, ranks: Floats) -> Floats:
    """How fast ranks grow from each point to the next."""
    return (ranks[1:] - ranks[:-1]) / (points[1:] - points[:-1])


def check_scale(points: object, ranks: object, name: str = "a scale") -> None:
    """Refuse what is no scale: points that grow, a plain distance apart, and as many ranks that grow from 0 to 1."""
    at, to = np.asarray(points, np.float64), np.asarray(ranks, np.float64)
    if at.ndim != 1 or at.shape != to.shape or len(at) < 2:
        raise ValueError(f"points and ranks of {name} must be as many, at least two")
    with np.errstate(all="ignore"):
        steps, rises = np.diff(at), np.diff(to)
        plain = (steps > 0) & (rises > 0) & np.isfinite(steps) & np.isfinite(rises / steps)
    if not (plain.all() and to[0] == 0 and to[-1] == 1):
        raise ValueError(f"points of {name} must grow, not too near or far apart, and their ranks from 0 to 1")


def values_at(places: Floats, points: Floats, ranks: Floats) -> Floats:
    """The value at each place: the way back, for pictures and reports."""
    return np.interp(places, ranks, points)


def log_scale(low: float, high: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Points at equal ratios from low > 0 to high."""
    points = np.geomspace(low, high, LOG_POINTS)
    points[0], points[-1] = low, high
    return tuple(points.tolist()), tuple(np.linspace(0.0, 1.0, LOG_POINTS).tolist())


# --- columns of a table: declared, never read from private rows ---

STEPS, STEPS_BETWEEN = 1 << 16, 1 << 8  # of single precision: over a whole scale, and from a point of it to the next


@dataclass(frozen=True)
class TableColumn:
    """A number, with the points and ranks of its declared scale, or a category, with the coordinate of each value.

    In a table a category is its position among the declared ones; NaN is a missing value.
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
        """Whether single precision is too coarse for the scale, as from 1e9 to 1e9 + 100."""
        if not self.number:
            return False
        with np.errstate(over="ignore", invalid="ignore"):  # beyond single precision: fine too
            ends = np.maximum(np.abs(self.points[:-1]), np.abs(self.points[1:]))
            step = np.spacing(ends.astype(np.float32)).astype(np.float64)
            between, whole = np.diff(self.points) >= STEPS_BETWEEN * step, self.points[-1] - self.points[0]
            return not bool(between.all() and whole >= STEPS * step.max())


def cell_type(columns: Sequence[TableColumn]) -> type[np.floating[Any]]:
    """The type of a table's cells: single precision, or double where a declared scale is too fine. It never depends on values."""
    return np.float64 if any(column.fine for column in columns) else np.float32


Places = NDArray[Any]  # whole numbers
Singles = NDArray[np.float32]  # an entry as it is kept, whether it is made anew or laid out again
Seen = dict[Any, Floats]  # where the values of a column are on a scale: worked out once for all blocks of it
MAX_KNOTS = 1024
MAX_COORDINATES = 1 << 20


@dataclass(frozen=True)
class Hats:
    """A number column seen through ``knots`` hats that are evenly spaced on its scale, from points to ranks."""

    column: int
    points: tuple[float, ...]
    ranks: tuple[float, ...]
    knots: int

    entries = 2
    roundness = 2 / 3  # the mean of f^2 + (1-f)^2, if values lie anywhere between knots

    def __post_init__(self) -> None:
        check_scale(self.points, self.ranks)
        if not 2 <= self.knots <= MAX_KNOTS:
            raise ValueError(f"there are 2 to {MAX_KNOTS} knots of hats")

    @property
    def width(self) -> int:
        return self.knots + 1

    @property
    def columns(self) -> tuple[int, ...]:
        return (self.column,)

    def __call__(self, table: Floats, seen: Seen | None = None) -> tuple[Places, Singles]:
        key = (self.column, self.points, self.ranks)
        at = None if seen is None else seen.get(key)
        if at is None:
            at = positions(table[:, self.column], *self._scale)
            if seen is not None:
                seen[key] = at
        place = at * (self.knots - 1)
        missing = np.isnan(place)
        known = np.where(missing, 0.0, place)
        first = np.minimum(np.floor(known), self.knots - 2).astype(np.int64)
        rest = known - first
        places = np.stack([np.where(missing, self.knots, first), np.where(missing, 0, first + 1)], axis=1)
        values = np.stack([np.where(missing, 1.0, 1.0 - rest), np.where(missing, 0.0, rest)], axis=1)
        return places.astype(np.int32), values.astype(np.float32)

    @cached_property
    def _scale(self) -> tuple[Floats, Floats]:
        return np.asarray(self.points, float), np.asarray(self.ranks, float)

    def knot_values(self) -> Floats:
        """Where the knots are, in the column's own unit."""
        return values_at(np.linspace(0, 1, self.knots), *self._scale)

    def words(self, columns: Sequence[TableColumn]) -> list[str]:
        name = columns[self.column].name
        return [*(f"{name}~{value:.6g}" for value in self.knot_values()), f"{name} missing"]


@dataclass(frozen=True)
class Codes:
    """A category column: ``groups`` has the coordinate of each category; those of one group share it."""

    column: int
    groups: tuple[int, ...]

    entries, roundness = 1, 1.0

    def __post_init__(self) -> None:
        if not self.groups or {*self.groups} != {*range(len({*self.groups}))}:
            raise ValueError("groups must number the coordinates of the categories from 0 on, without a gap")

    @property
    def width(self) -> int:
        return max(self.groups) + 2

    @property
    def columns(self) -> tuple[int, ...]:
        return (self.column,)

    def __call__(self, table: Floats, seen: Seen | None = None) -> tuple[Places, Singles]:
        codes = table[:, self.column]
        known = (codes >= 0) & (codes < len(self.groups))  # false for NaN
        coordinates = np.array([*self.groups, self.width - 1], dtype=np.int64)
        places = coordinates[np.where(known, codes, len(self.groups)).astype(np.int64)]
        return places[:, None].astype(np.int32), np.ones((len(codes), 1), np.float32)

    def words(self, columns: Sequence[TableColumn]) -> list[str]:
        column, names = columns[self.column], []
        for group in range(self.width - 1):
            members = [word for word, of in zip(column.words, self.groups, strict=False) if of == group]
            names.append(f"{column.name}={'|'.join(members) or group}")
        return [*names, f"{column.name} missing"]


@dataclass(frozen=True)
class Product:
    """Two columns at once: a coordinate for each pair of theirs."""

    first: Hats | Codes
    second: Hats | Codes

    @property
    def roundness(self) -> float:
        return self.first.roundness * self.second.roundness

    @property
    def width(self) -> int:
        return self.first.width * self.second.width

    @property
    def entries(self) -> int:
        return self.first.entries * self.second.entries

    @property
    def columns(self) -> tuple[int, ...]:
        return (self.first.column, self.second.column)

    def __call__(self, table: Floats, seen: Seen | None = None) -> tuple[Places, Singles]:
        (p, v), (q, w) = self.first(table, seen), self.second(table, seen)
        places = (p[:, :, None] * self.second.width + q[:, None, :]).reshape(len(table), self.entries)
        return places, (v[:, :, None] * w[:, None, :]).reshape(len(table), self.entries)

    def words(self, columns: Sequence[TableColumn]) -> list[str]:
        return [f"{a} x {b}" for a in self.first.words(columns) for b in self.second.words(columns)]


Block = Hats | Codes | Product


@dataclass(frozen=True, eq=False)
class Features:
    """Blocks side by side, and an intercept last; ``gains`` multiply the coordinates, one each."""

    blocks: tuple[Block, ...]
    gains: Floats

    part: ClassVar[str] = "features"
    questions: ClassVar[tuple[str, ...]] = ("FirstMoment",)
    words: ClassVar[str] = (
        "how many records have each coordinate of the features, by which they are centred and balanced"
    )

    def __post_init__(self) -> None:
        if self.gains.shape != (self.width,) or not bool((np.isfinite(self.gains) & (self.gains > 0)).all()):
            raise ValueError(f"gains must be {self.width} finite positive numbers, one for each coordinate")

    @cached_property
    def width(self) -> int:
        width = sum(block.width for block in self.blocks) + 1
        if width > MAX_COORDINATES:
            raise ValueError(f"{width} coordinates; make fewer knots, categories or pairs, at most {MAX_COORDINATES}")
        return width

    @property
    def entries(self) -> int:
        return sum(block.entries for block in self.blocks) + 1

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Where the coordinates of each block are."""
        ends = np.cumsum([0, *(block.width for block in self.blocks)]).tolist()
        return tuple(slice(start, end) for start, end in pairwise(ends))

    def __call__(self, table: Floats) -> tuple[Places, Floats]:
        """Places and values of the entries of each row, the blocks' side by side, times their gains, and the intercept's."""
        seen: Seen = {}
        rows, at = len(table), 0
        places, values = np.empty((rows, self.entries), np.int64), np.empty((rows, self.entries))
        for block, span in zip(self.blocks, self.spans, strict=True):
            where, what = block(table, seen)
            here = slice(at, at + block.entries)
            places[:, here] = where + span.start
            values[:, here] = what * self.gains[span][where]
            at += block.entries
        places[:, -1], values[:, -1] = self.width - 1, self.gains[-1]
        return places, values

    def scores(self, theta: Floats, table: Floats) -> Floats:
        """The score of each row of a table, or one column per row of theta."""
        matrix, (places, values) = np.atleast_2d(theta), self(table)
        scores: Floats = np.stack([(values * row[places]).sum(1) for row in matrix], axis=1)
        return scores[:, 0] if theta.ndim == 1 else scores

    def check(self, columns: Sequence[TableColumn]) -> None:
        """Refuse blocks of columns that the table does not have, or of the other kind."""
        for block in self.blocks:
            for part in (block.first, block.second) if isinstance(block, Product) else (block,):
                known = 0 <= part.column < len(columns) and columns[part.column].number == isinstance(part, Hats)
                if not known or (isinstance(part, Codes) and len(part.groups) != len(columns[part.column].groups)):
                    raise ValueError("features name a column that the table does not have, or has as another kind")

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {"blocks": [_block_dict(block) for block in self.blocks], "gains": self.gains.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Features:
        """What :meth:`to_dict` wrote; anything else is refused."""
        return cls(tuple(_block_from(block) for block in data["blocks"]), np.asarray(data["gains"], dtype=float))


def even(blocks: Sequence[Block]) -> Features:
    """Every block with the same gain, rows of norm at most 1, and a faint intercept."""
    gain = np.sqrt((1 - 2.0**-8) / max(len(blocks), 1))
    return Features(tuple(blocks), np.append(np.full(sum(block.width for block in blocks), gain), 2.0**-4))


def features_anew(features: object) -> Features:
    """The same features made anew of plain numbers; a subclass, whose function would be run on rows, is refused."""
    if type(features) is not Features:
        raise TypeError(
            f"{type(features).__name__} is no description of features; pass noisewise.methods.preparation.Features"
        )
    gains = np.array(np.asarray(features.gains), dtype=np.float64)
    return Features(tuple(_block_anew(block) for block in tuple(features.blocks)), gains)


def _block_anew(block: object) -> Block:
    if type(block) is Hats:
        points, ranks = (tuple(float(end) + 0.0 for end in ends) for ends in (block.points, block.ranks))
        return Hats(int(block.column), points, ranks, int(block.knots))
    if type(block) is Codes:
        return Codes(int(block.column), tuple(int(group) for group in block.groups))
    if type(block) is Product:
        first, second = _block_anew(block.first), _block_anew(block.second)
        if isinstance(first, Product) or isinstance(second, Product):
            raise TypeError("a product is of two plain blocks, hats or codes")
        return Product(first, second)
    raise TypeError(f"{type(block).__name__} is no block of features; pass Hats, Codes or Product")


def _block_dict(block: Block) -> dict[str, Any]:
    if isinstance(block, Hats):
        return {"hats": block.column, "points": list(block.points), "ranks": list(block.ranks), "knots": block.knots}
    if isinstance(block, Codes):
        return {"codes": block.column, "groups": list(block.groups)}
    return {"product": [_block_dict(block.first), _block_dict(block.second)]}


def _block_from(data: Mapping[str, Any]) -> Block:
    if "hats" in data:
        points, ranks = (tuple(float(end) for end in data[name]) for name in ("points", "ranks"))
        return Hats(int(data["hats"]), points, ranks, int(data["knots"]))
    if "codes" in data:
        return Codes(int(data["codes"]), tuple(int(group) for group in data["groups"]))
    first, second = (_block_from(part) for part in data["product"])
    if isinstance(first, Product) or isinstance(second, Product):
        raise ValueError("a product is of two plain blocks")
    return Product(first, second)
