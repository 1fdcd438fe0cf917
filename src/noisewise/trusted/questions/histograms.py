"""How many records fall between given edges, for every column at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..facts import Answer, Facts
from ..question import HowAsked, Question, question
from ..stores.totals import Drawn, Floats, IntegerTotal


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
        return math.nextafter(math.sqrt(how.features), 1e9), math.nextafter(math.sqrt(2 * how.features), 1e9)

    def total(self, records: Any, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return IntegerTotal(records.counts(self.edges).reshape(-1), 1, 1.0)

    def answer(self, noisy: Sequence[Floats], facts: Facts, how: HowAsked) -> Answer:
        return Answer(noisy[0].reshape(len(self.edges), -1), self.noise_std(how))

    @classmethod
    def cases(cls, dimension: int) -> list[Histograms]:
        return [cls(np.tile(np.linspace(-1.0, 1.0, 9), (dimension, 1)))]
