"""Bounds and ranks from noisy counts: differentially private quantiles of columns about which nothing was declared.

Two Gaussian histograms of every column at once, half of the budget each. The first has bins between powers of two, from
2^-20 to 2^64 on both sides of zero. Bins that clearly hold records count; the outer ones that hold half a percent of them
together are dropped, so that a few odd values do not stretch the rest. The second has 64 equal bins between what is left,
and the bounds are its 1 % and 99 % quantiles: the outermost edges beyond which no more than 1 % of the records clearly
lie. Where noise drowns every bin, the fullest one counts.

Nothing here sees a record: whoever holds the columns answers, and each answer is charged first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from ...accounts import MeterView
from ...trusted.features import Floats, check_scale, positions, values_at
from ...trusted.questions.columns import ColumnLevels, Histograms

POWERS = np.exp2(np.arange(-20.0, 65.0))
COARSE = np.concatenate([-POWERS[::-1], [0.0], POWERS])
BIN_COUNT = 64
TAIL = 0.01
MISTAKE = 1e-3  # how often noise alone may look like records in any bin: one such bin far out spoils a column


class Counted(Protocol):
    """Holds the columns, and answers with noisy counts between edges, which are charged to its meter first."""

    @property
    def meter(self) -> MeterView: ...

    def histograms(self, edges: Floats, *, noise_multiplier: float) -> tuple[Floats, float]: ...


@dataclass(frozen=True)
class Bounds:
    """Where the values of number columns lie, but for outliers."""

    columns: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    part: ClassVar[str] = "bounds"
    questions: ClassVar[tuple[str, ...]] = (Histograms.name,)

    def __post_init__(self) -> None:
        if not len(self.columns) == len(self.low) == len(self.high):
            raise ValueError("there must be a low and a high for each column")

    @property
    def words(self) -> str:
        return f"bounds of {len(self.columns)} columns, from two noisy histograms"

    def to_dict(self) -> dict[str, Any]:
        return {"columns": list(self.columns), "low": list(self.low), "high": list(self.high)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        low, high = (tuple(float(end) for end in data[name]) for name in ("low", "high"))
        return cls(tuple(str(name) for name in data["columns"]), low, high)


def bought_bounds(curator: Counted, columns: Sequence[str]) -> Bounds:
    low, high = quantile_bounds(curator, len(columns))
    return Bounds(tuple(columns), tuple(low.tolist()), tuple(high.tolist()))


def quantile_bounds(curator: Counted, columns: int) -> tuple[Floats, Floats]:
    """Lower and upper bound of every column, from the curator's whole budget."""
    counts, std = curator.histograms(np.tile(COARSE, (columns, 1)), noise_multiplier=curator.meter.noise_for(0.5))
    clear = std * math.sqrt(2 * math.log(counts.size / (2 * MISTAKE)))  # P(Z > t) < exp(-t^2/2)/2, over all bins
    ends = np.array([_outermost(row, clear) for row in counts])
    edges = np.array([np.linspace(*_reach(COARSE[first], COARSE[last + 1]), BIN_COUNT + 1) for first, last in ends])
    counts, std = curator.histograms(edges, noise_multiplier=curator.meter.noise_for(1.0))
    quantiles = np.array([_quantiles(row, line, std) for row, line in zip(counts, edges, strict=True)])
    return quantiles[:, 0], quantiles[:, 1]


def _outermost(counts: Floats, clear: float) -> tuple[int, int]:
    """First and last bin that matters: clear bins outside have at most TAIL/2 of the count, on each side."""
    full = np.where(counts > clear, counts, 0.0)
    if not full.any():
        return int(counts.argmax()), int(counts.argmax())
    most = TAIL / 2 * full.sum()
    first = int(np.argmax(np.cumsum(full) > most))
    last = len(full) - 1 - int(np.argmax(np.cumsum(full[::-1]) > most))
    return first, last


def _reach(low: float, high: float) -> tuple[float, float]:
    """Extended to zero when that is no further than a bin is wide: a bound of 0 keeps zeros zero in scaling."""
    return (0.0 if 0 < low < high / BIN_COUNT else low), (0.0 if low / BIN_COUNT < high < 0 else high)


def _quantiles(counts: Floats, edges: Floats, std: float) -> tuple[float, float]:
    """The edges beyond which at most TAIL of the count lies, by noisy sums from both ends.

    A sum of k bins has noise of std sqrt(k); twice that is forgiven, so that noise does not stretch the bounds.
    """
    most = TAIL * max(float(counts.sum()), 1.0) + 2 * std * np.sqrt(np.arange(1, len(counts) + 1))
    below, above = np.cumsum(counts) > most, np.cumsum(counts[::-1]) > most
    first = int(np.argmax(below)) if below.any() else 0
    last = len(counts) - 1 - (int(np.argmax(above)) if above.any() else 0)
    return (float(edges[first]), float(edges[last + 1])) if first <= last else (float(edges[0]), float(edges[-1]))


# Ranks: points at the quantiles of a column, from its noisy dyadic counts. Everything here is post-processing.
# Level l counts the records in each of 2^l equal parts of the declared scale. Counts of a part and of its halves are two
# answers to one question; the best of both, weighted by their noise, is found from the bottom up and then from the top down
# (Hay et al. 2010, Boosting the accuracy of differentially private histograms through consistency).

RankScale = tuple[tuple[float, ...], tuple[float, ...]]

POINTS = 65
SPIKE = 0.02  # of all records: the most that one value may take of the ranks
MAX_STRAIGHT_SHARE = 0.03  # of all records, that may lie between the ends of a column of two values
FLOOR = 0.001  # of the ranks that the declared scale keeps, so that they grow


@dataclass(frozen=True)
class Ranks:
    """Scales of number columns by their quantiles, as points and ranks, and the columns that have two values alone."""

    scales: tuple[tuple[int, RankScale], ...]
    two_valued: tuple[int, ...] = ()

    part: ClassVar[str] = "ranks"
    questions: ClassVar[tuple[str, ...]] = (ColumnLevels.name,)
    words: ClassVar[str] = "ranks of number columns, from noisy dyadic counts"

    def __post_init__(self) -> None:
        for column, (points, ranks) in self.scales:
            check_scale(points, ranks, f"the ranks of column {column}")

    def of(self, declared: Sequence[RankScale]) -> list[RankScale]:
        """The declared scales, or the ranks where there are some."""
        own = dict(self.scales)
        return [own.get(column, scale) for column, scale in enumerate(declared)]

    def to_dict(self) -> dict[str, Any]:
        scales = [[column, list(points), list(ranks)] for column, (points, ranks) in self.scales]
        return {"scales": scales, "two_valued": list(self.two_valued)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        scales = tuple(
            (int(column), (tuple(map(float, points)), tuple(map(float, ranks))))
            for column, points, ranks in data["scales"]
        )
        return cls(scales, tuple(int(column) for column in data["two_valued"]))


def ranks_from(counts: Mapping[int, Sequence[Floats]], declared: Sequence[RankScale], noise_std: float) -> Ranks:
    """The ranks of columns, from the counts of each on all levels, coarse first, on its declared scale."""
    finest = {column: consistent(levels) for column, levels in counts.items()}
    two = tuple(i for i, parts in finest.items() if two_valued(parts, float(counts[i][0].sum()), noise_std))
    scales = {i: quantile_points(parts, *declared[i]) for i, parts in finest.items() if i not in two}
    return Ranks(tuple(scales.items()), two)


def public_ranks(cells: Floats, columns: Sequence[int], declared: Sequence[RankScale], levels: int) -> Ranks:
    """The ranks of these columns of public rows, counted as private ones are, without noise."""
    parts, counts = 1 << levels, {}
    for column in columns:
        places = positions(cells[:, column], *(np.asarray(ends, float) for ends in declared[column]))
        at = np.minimum(places[~np.isnan(places)] * parts, parts - 1).astype(np.int64)
        finest = np.bincount(at, minlength=parts).astype(np.float64)
        counts[column] = [finest.reshape(1 << level, -1).sum(1) for level in range(1, levels + 1)]
    return ranks_from(counts, declared, 0.0)


def consistent(levels: Sequence[Floats]) -> Floats:
    """The counts of the finest level, from noisy counts of all levels, coarse first, each with the same noise."""
    upward, variance = [levels[-1]], 1.0
    for counts in levels[-2::-1]:
        halves, of_halves = upward[-1][::2] + upward[-1][1::2], 2 * variance
        weight = of_halves / (of_halves + 1)
        upward.append(weight * counts + (1 - weight) * halves)
        variance = of_halves / (of_halves + 1)
    best = upward[-1]
    for counts in upward[-2::-1]:
        left, right = counts[::2], counts[1::2]
        more = (best - (left + right)) / 2
        best = np.empty_like(counts)
        best[::2], best[1::2] = left + more, right + more
    return best


def two_valued(counts: Floats, total: float, noise_std: float) -> bool:
    """Whether nearly all records clearly have the lowest or the highest value, so that two hats are enough."""
    return float(counts[1:-1].sum()) + noise_std < MAX_STRAIGHT_SHARE * max(total, 1.0)


def quantile_points(counts: Floats, points: Sequence[float], ranks: Sequence[float]) -> RankScale:
    """Points at the quantiles of a column whose scale went from ``points`` to ``ranks``, and their ranks.

    ``counts``: :func:`consistent` ones, of equal parts of that scale.
    """
    below = np.concatenate([[0.0], np.cumsum(counts)])
    growing = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2
    parts = np.maximum(np.diff(growing), 0.0)
    parts = np.minimum(parts, SPIKE * max(float(parts.sum()), 1.0))
    even = np.linspace(0.0, 1.0, len(parts) + 1)
    share = np.concatenate([[0.0], np.cumsum(parts)]) / max(float(parts.sum()), 1e-9)
    rank = (1 - FLOOR) * share + FLOOR * even
    rank = rank / rank[-1]
    at = np.linspace(0.0, 1.0, POINTS)
    places = np.interp(at, rank, even)
    values = values_at(places, np.asarray(points, float), np.asarray(ranks, float))
    values[0], values[-1] = points[0], points[-1]
    keep = np.concatenate([[True], np.diff(values) > 0])
    keep[0] = True
    if not keep[-1]:  # the last point stays, whatever lies on it
        keep[np.flatnonzero(keep)[-1]], keep[-1] = False, True
        keep[0] = True
    return tuple(values[keep].tolist()), tuple(at[keep].tolist())
