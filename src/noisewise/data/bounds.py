"""Buying bounds: differentially private quantiles of columns that nobody has declared anything about.

Two Gaussian histograms of every column at once, half of the budget each. The first has bins between powers of two, from
2^-20 to 2^64 on both sides of zero. Bins that clearly hold records count; the outer ones that hold half a percent of them
together are dropped, so that a few odd values do not stretch the rest. The second has 64 equal bins between what is left,
and the bounds are its 1 % and 99 % quantiles: the outermost edges beyond which no more than 1 % of the records clearly
lie. Where noise drowns every bin, the fullest one counts.

*Guarantee*: a GDP filter (Smith & Thakurta 2022) over both histograms; everything after them is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..accounting.choose import choose_terms
from ..budget import Budget, Meter
from ..budget.account import Account, paying
from ..budget.purse import Purse
from ..curator.columns import ColumnCurator
from ..events import Repeated, to_dict
from .encode import NOT_ENCODED, numbers_of
from .files import Share, Source
from .persons import Mask
from .refusal import our_words
from .schema import Column, Schema, gaps

Floats = NDArray[np.float64]
DELTA_SHARE = 0.1  # of the run's delta; a tail this far out costs little more noise when it is divided
POWERS = np.exp2(np.arange(-20.0, 65.0))
COARSE = np.concatenate([-POWERS[::-1], [0.0], POWERS])
BINS = 64
TAIL = 0.01
MISTAKE = 1e-3  # how often noise alone may look like records in any bin: one such bin far out spoils a column
OTHER_STREAM = 1 << 64  # a simulation's seed here is not the one it trains with, or both would draw the same noise


@dataclass(frozen=True)
class Purchase:
    """A part of a run's budget that buys the missing bounds of a schema."""

    schema: Schema
    columns: tuple[Column, ...]
    budget: Budget

    def bounds(
        self, source: Source, purse: Purse | Account | None, *, seed: int | None = None, progress: Share | None = None
    ) -> tuple[Schema, dict[str, Any]]:
        """The schema with its missing bounds, bought from ``source``, and what a statement says about it."""
        persons = self.schema.persons is not None
        paid, budget = paying(self.budget, purse, simulation=seed is not None, persons=persons)
        with paid.part(choose_terms(budget, adaptive=True), budget, what="bounds") as part:
            filled = self._bounds(source, part.meter, seed, progress)
        return filled, self._preparation(part.meter)

    def _bounds(self, source: Source, meter: Meter, seed: int | None, progress: Share | None) -> Schema:
        persons = self.schema.persons
        counted = None if persons is None else persons.in_files(source, seed=seed)
        pieces = partial(_pieces, source, self.columns, progress, counted)
        other, rows = None if seed is None else seed + OTHER_STREAM, self.schema.rows_per_unit
        curator = ColumnCurator(pieces, len(self.columns), meter=meter, seed=other, rows_per_unit=rows)
        low, high = quantile_bounds(curator, len(self.columns))
        filled = self.schema
        for column, ends in zip(self.columns, zip(low.tolist(), high.tolist(), strict=True), strict=True):
            filled = filled.with_column(with_bounds(column, *ends))
        return filled

    def _preparation(self, meter: Meter) -> dict[str, Any]:
        return {
            "epsilon": meter.budget.epsilon,
            "delta": meter.budget.delta,
            "meter": meter.describe(),
            "events": [to_dict(Repeated(leaf, count)) for leaf, count in meter.events.items()],
            "what": f"bounds of {len(self.columns)} columns, from two noisy histograms",
        }


def purchase(schema: Schema, *, epsilon: float, budget: Budget) -> Purchase:
    """A purchase of the bounds that ``schema`` lacks, for ``epsilon`` and a tenth of the delta of the run's ``budget``."""
    part_of(epsilon, budget)
    missing = tuple(schema[gap.column] for gap in gaps(schema) if gap.what == "bounds" and gap.column is not None)
    share = Budget(epsilon, DELTA_SHARE * budget.delta, adjacency=budget.adjacency)
    return Purchase(schema, missing, share)


def part_of(epsilon: float, budget: Budget) -> None:
    """Refuse what is not a part of the budget's epsilon."""
    if not 0 < epsilon < budget.epsilon:
        raise ValueError(
            f"bounds-epsilon is {epsilon:g}; pass a part of epsilon, more than 0 and less than {budget.epsilon:g}"
        )


def with_bounds(column: Column, low: float, high: float) -> Column:
    """The column with these bounds; an end that is declared already stays, and what a missing value becomes is clamped."""
    width = high - low
    low, high = (low if column.low is None else column.low), (high if column.high is None else column.high)
    if not low < high:  # the other end was declared beyond what was bought
        reach = max(width, abs(low if column.high is None else high) / 2)
        low, high = (low, low + reach) if column.high is None else (high - reach, high)
    missing = None if column.missing is None else min(max(float(column.missing), low), high)
    return replace(column, low=low, high=high, missing=missing, note="")


def quantile_bounds(curator: ColumnCurator, columns: int) -> tuple[Floats, Floats]:
    """Lower and upper bound of every column, from the curator's whole budget."""
    counts, std = curator.histograms(np.tile(COARSE, (columns, 1)), noise_multiplier=curator.meter.noise_for(0.5))
    clear = std * math.sqrt(2 * math.log(counts.size / (2 * MISTAKE)))  # P(Z > t) < exp(-t^2/2)/2, over all bins
    ends = np.array([_outermost(row, clear) for row in counts])
    edges = np.array([np.linspace(*_reach(COARSE[first], COARSE[last + 1]), BINS + 1) for first, last in ends])
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
    return (0.0 if 0 < low < high / BINS else low), (0.0 if low / BINS < high < 0 else high)


def _quantiles(counts: Floats, edges: Floats, std: float) -> tuple[float, float]:
    """The edges beyond which at most TAIL of the count lies, by noisy sums from both ends.

    A sum of k bins has noise of std sqrt(k); twice that is forgiven, so that noise does not stretch the bounds.
    """
    most = TAIL * max(float(counts.sum()), 1.0) + 2 * std * np.sqrt(np.arange(1, len(counts) + 1))
    below, above = np.cumsum(counts) > most, np.cumsum(counts[::-1]) > most
    first = int(np.argmax(below)) if below.any() else 0
    last = len(counts) - 1 - (int(np.argmax(above)) if above.any() else 0)
    return (float(edges[first]), float(edges[last + 1])) if first <= last else (float(edges[0]), float(edges[-1]))


def _pieces(
    source: Source, columns: tuple[Column, ...], progress: Share | None, counted: Mask | None = None
) -> Iterator[Floats]:
    read = 0
    for batch in source.batches([column.name for column in columns], progress=progress):
        with our_words(NOT_ENCODED.format("a column")):
            pairs = zip(batch.columns, columns, strict=True)
            piece = np.column_stack([numbers_of(_plain(cells), column) for cells, column in pairs])
        if counted is not None:
            here = counted[read : read + len(piece)]
            read += len(piece)
            piece = piece[: len(here)][here]
        yield piece


def _plain(cells: pa.Array) -> pa.Array:
    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
