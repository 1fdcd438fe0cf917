"""Bounds from noisy counts: differentially private quantiles of columns that nobody has declared anything about.

Two Gaussian histograms of every column at once, half of the budget each. The first has bins between powers of two, from
2^-20 to 2^64 on both sides of zero. Bins that clearly hold records count; the outer ones that hold half a percent of them
together are dropped, so that a few odd values do not stretch the rest. The second has 64 equal bins between what is left,
and the bounds are its 1 % and 99 % quantiles: the outermost edges beyond which no more than 1 % of the records clearly
lie. Where noise drowns every bin, the fullest one counts.

Nothing here sees a record: whoever holds the columns answers, and is paid for it before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from ...accounts import MeterView
from ...trusted.features.scale import Floats
from ...trusted.questions.histograms import Histograms

POWERS = np.exp2(np.arange(-20.0, 65.0))
COARSE = np.concatenate([-POWERS[::-1], [0.0], POWERS])
BIN_COUNT = 64
TAIL = 0.01
MISTAKE = 1e-3  # how often noise alone may look like records in any bin: one such bin far out spoils a column


class Counted(Protocol):
    """Who answers for the columns: noisy counts between edges, each charged to its meter before."""

    @property
    def meter(self) -> MeterView: ...

    def histograms(self, edges: Floats, *, noise_multiplier: float) -> tuple[Floats, float]: ...


@dataclass(frozen=True)
class Bounds:
    """Where the values of number columns lie, from the lowest to the highest that counts."""

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
        """As plain data, for JSON."""
        return {"columns": list(self.columns), "low": list(self.low), "high": list(self.high)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote."""
        low, high = (tuple(float(end) for end in data[name]) for name in ("low", "high"))
        return cls(tuple(str(name) for name in data["columns"]), low, high)


def bought_bounds(curator: Counted, columns: Sequence[str]) -> Bounds:
    """Bounds of columns of these names, from the curator's whole budget."""
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
    """First and last bin that matters: outside of them lie clear bins with at most TAIL/2 of the count, on each side."""
    full = np.where(counts > clear, counts, 0.0)
    if not full.any():
        return int(counts.argmax()), int(counts.argmax())
    most = TAIL / 2 * full.sum()
    first = int(np.argmax(np.cumsum(full) > most))
    last = len(full) - 1 - int(np.argmax(np.cumsum(full[::-1]) > most))
    return first, last


def _reach(low: float, high: float) -> tuple[float, float]:
    """From or to zero when that is no further away than a bin is wide: a bound of 0 keeps zeros zero in scaling."""
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
