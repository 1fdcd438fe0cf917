"""Buying the bounds that a schema lacks, from files: which columns, for which part of a budget, and how they are read.

:mod:`noisewise.methods.preparation.bounds` has the two noisy histograms and turns them into bounds.

*Guarantee*: a GDP filter (Smith & Thakurta 2022) over both histograms; everything after them is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounts import Budget, Terms
from ..accounts.account import Account, paying
from ..accounts.purse import Purse
from ..methods.preparation.bounds import bought_bounds
from ..trusted.accountants.choose import choose_terms
from ..trusted.curator import ColumnCurator
from ..trusted.events import Repeated, to_dict
from .encode import MISSING, NOT_ENCODED, cells_of, codes_of, numbers_of
from .file_pieces import Pinned
from .files import Share, Source
from .persons import Mask
from .refusal import our_words
from .schema import Column, Schema, gaps

Floats = NDArray[np.float64]
DELTA_SHARE = 0.1  # of the run's delta: so small a delta costs little more noise when it is divided
OTHER_STREAM = 1 << 64  # added to a simulation's seed, or it would buy with the noise that it trains with


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
        persons = self.schema.persons
        pinned = None if persons is None else Pinned(source.paths)
        counted = None if persons is None else persons.in_files(source, seed=seed)
        pieces = partial(_pieces, source, self.schema, self.columns, progress, counted)
        bought = self.paid_for(pieces, purse, seed=seed)
        if pinned is not None:
            pinned.check()  # in a changed file rows that were not chosen would count
        return bought

    def paid_for(
        self, pieces: Callable[[], Iterable[Floats]], purse: Purse | Account | None, *, seed: int | None = None
    ) -> tuple[Schema, dict[str, Any]]:
        """The same from matrices of these columns; of persons, only the rows that count."""
        unit = self.schema.protects
        paid, budget = paying(self.budget, purse, simulation=seed is not None, persons=unit.persons)
        other = None if seed is None else seed + OTHER_STREAM
        with paid.part(terms_of(budget), budget, what="bounds") as part:
            curator = ColumnCurator(pieces, len(self.columns), meter=part.meter, seed=other, rows_per_unit=unit.rows)
            bought = bought_bounds(curator, [column.name for column in self.columns])
        filled, meter = self.schema, part.meter
        for column, low, high in zip(self.columns, bought.low, bought.high, strict=True):
            filled = filled.with_column(with_bounds(column, low, high))
        return filled, {
            "epsilon": meter.budget.epsilon,
            "delta": meter.budget.delta,
            "meter": meter.describe(),
            "events": [to_dict(Repeated(leaf, count)) for leaf, count in meter.events.items()],
            "what": bought.words,
        }


def terms_of(budget: Budget) -> Terms:
    """The terms on which this budget buys bounds."""
    return choose_terms(budget, adaptive=True)


def purchase(schema: Schema, *, epsilon: float, budget: Budget) -> Purchase:
    """A purchase of the bounds that ``schema`` lacks, for ``epsilon`` and a tenth of the delta of the run's ``budget``."""
    part_of(epsilon, budget)
    missing = tuple(schema[gap.column] for gap in gaps(schema) if gap.what == "bounds" and gap.column is not None)
    share = Budget(epsilon, DELTA_SHARE * budget.delta, adjacency=budget.adjacency)
    return Purchase(schema, missing, share)


def part_of(epsilon: float, budget: Budget) -> None:
    """Refuse an epsilon that is not a part of the budget's."""
    if not 0 < epsilon < budget.epsilon:
        raise ValueError(
            f"bounds-epsilon is {epsilon:g}; pass a part of epsilon, more than 0 and less than {budget.epsilon:g}"
        )


def with_bounds(column: Column, low: float, high: float) -> Column:
    """The column with these bounds; a declared end stays, and the stand-in for a missing value is clamped."""
    width = high - low
    low, high = (low if column.low is None else column.low), (high if column.high is None else column.high)
    if not low < high:  # the declared end lies beyond the bought one
        reach = max(width, abs(low if column.high is None else high) / 2)
        low, high = (low, low + reach) if column.high is None else (high - reach, high)
    missing = None if column.missing is None else min(max(float(column.missing), low), high)
    return replace(column, low=low, high=high, missing=missing, note="")


def _pieces(
    source: Source, schema: Schema, columns: tuple[Column, ...], progress: Share | None, counted: Mask | None
) -> Iterator[Floats]:
    """The columns, of rows that count: NaN, which is in no bin, for records without a label that a schema drops."""
    read, names = 0, [column.name for column in columns]
    target = schema[str(schema.target)] if schema.target_missing == "drop" else None
    if target is not None and target.name not in names:
        names.append(target.name)
    for batch in source.batches(names, progress=progress):
        with our_words(NOT_ENCODED.format("a column")):
            numbers = [numbers_of(cells_of(batch, place, column), column) for place, column in enumerate(columns)]
            piece = np.column_stack(numbers)
            if target is not None:
                labels = cells_of(batch, names.index(target.name), target)
                number = target.kind == "number"
                absent = np.isnan(numbers_of(labels, target)) if number else codes_of(labels, target) == MISSING
                piece[absent] = np.nan
        if counted is not None:
            here = counted[read : read + len(piece)]
            read += len(piece)
            piece = piece[: len(here)][here]
        yield piece
