"""Private rows dealt into shards by secret coins, each of which trains by itself: one vector for each, summed in integers.

A record's coin belongs to its place, not to its values: replacing a record moves no other record to another shard. A shard keeps
the first rows that it is dealt, up to a height that follows from public facts, and so do shapes, memory and time. ``unroll``,
trusted code that the builder of the curator passes, trains inside the shards: it gets the rows, sides and seed of every shard,
and what it makes of one shard follows from that shard alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models import Model
from .protocol import HeldRecords
from .totals import Floats, Integers, IntegerTotal, clipped

FINE = 1 << 30  # of the vector that one shard adds
SIDES = 2  # rows of a shard that are trained on, and rows that judge; then the other way round
NOBODY = -1


class ShardRows(NamedTuple):
    """Every shard's rows (S, h, columns), labels (S, h), sides 0 and 1, or -1 where there is no row, and seeds. Private."""

    rows: NDArray[np.float32]
    labels: NDArray[Any]
    sides: Integers
    seeds: list[int]

    def part(self, start: int, stop: int) -> ShardRows:
        """Some of the shards."""
        return ShardRows(*(part[start:stop] for part in self[:3]), self.seeds[start:stop])  # type: ignore[call-arg,arg-type]


# Vectors (S, k), one row for each shard; a shard whose vector is not finite counts as zero.
Unroll = Callable[[Model, Any, ShardRows], Floats]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Shards:
    """How shards are dealt and trained. ``coins``: a stream of its own, never that of the noise."""

    model: Model
    unroll: Unroll
    coins: Any

    def over(self, records: HeldRecords, counted: NDArray[np.bool_] | None = None) -> ShardedRecords:
        """These records, to be dealt into shards; records that do not count take a place in a shard and are on no side."""
        return ShardedRecords(records, self, counted)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ShardedRecords(HeldRecords):
    """Records that are asked shard by shard."""

    held: HeldRecords
    shards: Shards
    counted: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.held)

    @property
    def columns(self) -> int:
        return self.held.columns

    def meta_gradients(self, asked: Any, size: float) -> IntegerTotal:
        """The sum over shards of vectors clipped to norm ``asked.clip``; coins are fresh with every question.

        ``size``: how many records there are as far as is known, which is public.
        """
        dealt = deal(self.held, int(asked.shards), size, self.shards.coins, self.counted)
        vectors = self.shards.unroll(self.shards.model, asked, dealt)
        vectors = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0).astype(np.float64)
        whole = clipped(vectors, np.sqrt(np.square(vectors).sum(1)), asked.clip, FINE)
        return IntegerTotal(whole.sum(0), FINE, asked.clip)


def height_of(expected: float, shards: int) -> int:
    """How many rows of a shard count, from public facts: by chance a shard in 10,000 is dealt more."""
    mean = expected / shards
    return math.ceil(mean + 4 * math.sqrt(mean)) + 4


def deal(
    records: HeldRecords, shards: int, expected: float, coins: Any, counted: NDArray[np.bool_] | None = None
) -> ShardRows:
    """Rows by secret coins, a word for each place: its low bits are the shard, a power of two of them, another the side."""
    seeds = [int(word) for word in coins.words(shards) & (2**62 - 1)]
    height, words = height_of(expected, shards), coins.words(len(records))
    shard, side = words & (shards - 1), words >> 40 & (SIDES - 1)
    order = np.argsort(shard, kind="stable")  # by shard, and within a shard by place
    counts = np.bincount(shard, minlength=shards)
    within = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = order[within < height]
    cell = shard[kept] * height + within[within < height]
    float_rows = records.float_rows()
    rows, labels = (_laid(values, kept, cell, shards * height) for values in float_rows)
    sides = np.full(shards * height, NOBODY)
    side = side if counted is None else np.where(counted, side, NOBODY)
    sides[cell] = side[kept]
    cut = (shards, height)
    return ShardRows(rows.reshape(*cut, -1), labels.reshape(cut), sides.reshape(cut), seeds)


def _laid(values: NDArray[Any], kept: Integers, cell: Integers, cells: int) -> NDArray[Any]:
    """Rows, or labels, in their cells, in single precision; zeros where there is none."""
    laid = np.zeros((cells, *values.shape[1:]), np.float32 if values.dtype.kind == "f" else np.int64)
    laid[cell] = values[kept]
    return laid
