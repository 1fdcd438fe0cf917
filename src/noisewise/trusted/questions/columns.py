"""How the values of columns are spread: counts between given edges, and dyadic counts, from which quantiles follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..facts import Answer, Facts
from ..features import check_scale
from ..question import AnswerLine, HowAsked, Question, between, question
from ..stores.protocol import MAX_LEVELS, SUMS
from ..stores.totals import Drawn, Floats, IntegerTotal

LevelScale = tuple[float, tuple[float, ...], tuple[float, ...]]


def moved(cells: float) -> tuple[float, float]:
    """How far a record that is in ``cells`` parts moves all counts, when added and when replaced."""
    return math.nextafter(math.sqrt(cells), 1e9), math.nextafter(math.sqrt(2 * cells), 1e9)


@question
@dataclass(frozen=True, eq=False)
class Histograms(Question):
    """How many values of column j lie in [edges[j, k], edges[j, k+1]), for every j and k. A value outside of the edges or
    not a number is in no bin.

    *Sensitivity*: with m columns a record is in at most m bins, with 1 in each, so adding or removing it moves all
    counts together by at most sqrt(m); replacing it moves at most 2 m of them by 1, which is sqrt(2 m).
    """

    edges: Floats
    name: ClassVar[str] = "histograms"
    words: ClassVar[str] = "histograms of columns"
    samplings: ClassVar[tuple[str, ...]] = ("full",)
    in_one_place: ClassVar[bool] = True

    def __post_init__(self) -> None:
        table = isinstance(self.edges, np.ndarray) and self.edges.ndim == 2 and self.edges.shape[1] > 1
        with np.errstate(over="ignore"):  # from -1e308 to 1e308 is growth too
            growing = table and np.isfinite(self.edges).all() and (np.diff(self.edges, axis=1) > 0).all()
        if not growing:
            raise ValueError("edges must be a row of at least two finite, growing numbers for each column")

    @classmethod
    def of_model(cls, facts: Facts) -> None:
        raise TypeError("histograms are of columns as they came; ask a ColumnCurator for them")

    def moves(self, how: HowAsked) -> tuple[float, float]:
        return moved(how.features)

    def total(self, records: Any, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return IntegerTotal(records.counts(self.edges).reshape(-1), 1, 1.0)

    def answer(self, noisy: Sequence[Floats], facts: Facts, how: HowAsked) -> Answer:
        return Answer(noisy[0].reshape(len(self.edges), -1), self.noise_std(how))

    @classmethod
    def cases(cls, dimension: int) -> list[Histograms]:
        return [cls(np.tile(np.linspace(-1.0, 1.0, 9), (dimension, 1)))]


@question
@dataclass(frozen=True)
class ColumnLevels(Question):
    """How many values of each scale (a column of the table, points, ranks) lie in each of its 2, 4, .. 2^levels equal parts.

    *Sensitivity*: for each of K scales and L levels a record with a value there is in one part and counts 1, one without
    is in none; so adding or removing it moves all counts together by at most sqrt(K L), and replacing it moves at most
    2 K L of them by 1, which is sqrt(2 K L).
    """

    scales: tuple[LevelScale, ...]
    levels: float
    name: ClassVar[str] = "column levels"
    words: ClassVar[str] = "how values of columns are spread"
    shape: ClassVar[tuple[int, ...]] = (-1,)

    def __post_init__(self) -> None:
        between("levels", self.levels, 1, MAX_LEVELS)
        for column, points, ranks in self.scales:
            between("the column of a scale", column, 0, 1e6)
            check_scale(points, ranks)
        whole = [self.levels, *(column for column, _, _ in self.scales)]
        if len(whole) < 2 or any(number != int(number) for number in whole):
            raise ValueError("scales are missing, or levels or a column is no whole number; pass at least one scale")

    @classmethod
    def of_model(cls, facts: Facts) -> None:
        if not facts.table:
            raise ValueError("there is no table whose columns could be counted; ask about a table")

    def check(self, facts: Facts) -> None:
        self.of_model(facts)
        if any(column >= len(facts.table) or not facts.table[int(column)].number for column, _, _ in self.scales):
            raise ValueError("scales name a column that is no number column of a table; ask about those alone")

    def moves(self, how: HowAsked) -> tuple[float, float]:
        return moved(len(self.scales) * self.levels)

    @classmethod
    def ranges(cls, how: HowAsked, line: AnswerLine) -> list[tuple[float, float]]:
        """For as many columns and levels as there can be, or as the method asks about."""
        numbers = sum(column.number for column in line.facts.table)
        any_cells = {k * levels for k in range(1, numbers + 1) for levels in range(1, MAX_LEVELS + 1)}
        cells = any_cells if line.parts is None else {line.parts}
        return [(std, std) for std in (how.noise * how.unit(*moved(count)) for count in cells)]

    def numbers(self, facts: Facts) -> float:
        return SUMS["levels"].entries(facts.features, self.scales, self.levels)

    def total(self, records: Any, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return IntegerTotal(records.levels(drawn, self.scales, int(self.levels)).reshape(-1), 1, 1.0)

    @classmethod
    def cases(cls, dimension: int) -> list[ColumnLevels]:
        return [cls(((0.0, (-1.0, 0.0, 1.0), (0.0, 0.3, 1.0)),), 3.0)]
