"""A curator for columns as they come from a file, before there are bounds to scale them by.

It answers one question: how many records fall between given edges, for every column at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch

from ..budget import AdditiveMeter, MeterView, PlanMeter, checked_meter
from ..events import FULL
from ..records.totals import Drawn, Floats, Integers, IntegerTotal
from .desk import Desk, checked_noise
from .facts import Answer, Facts, Released
from .noise import Stream
from .questions import HowAsked, Sum, plain, question, rebuilt


class ColumnRecords:
    """A way to read the private columns, a piece at a time: matrices with one row per record; called for every question."""

    __slots__ = ("_pieces", "columns")

    def __init__(self, pieces: Callable[[], Iterable[Floats]], columns: int) -> None:
        self._pieces, self.columns = pieces, columns

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


def _growing(edges: Floats) -> bool:
    if edges.ndim != 2 or edges.shape[1] < 2:
        return False
    with np.errstate(over="ignore"):  # from -1e308 to 1e308 is growth too
        return bool(np.isfinite(edges).all() and (np.diff(edges, axis=1) > 0).all())


@question
@dataclass(frozen=True, eq=False)
class Histograms(Sum):
    """How many values of column j lie in [edges[j, k], edges[j, k+1]), for every j and k. A value outside of the edges or
    not a number is in no bin.

    *Sensitivity*: with m columns a record is in at most m bins, with 1 in each, so adding or removing it moves all
    counts together by at most sqrt(m); replacing it moves at most 2 m of them by 1, which is sqrt(2 m).
    """

    edges: Floats
    name: ClassVar[str] = "histograms"
    words: ClassVar[str] = "histograms of columns"

    def __post_init__(self) -> None:
        if not isinstance(self.edges, np.ndarray) or not _growing(self.edges):
            raise ValueError("edges must be a row of at least two finite, growing numbers for each column")

    def check(self, facts: Facts) -> None:
        raise TypeError("histograms are of columns as they came; ask a ColumnCurator for them")

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return math.nextafter(math.sqrt(terms.features), 1e9), math.nextafter(math.sqrt(2 * terms.features), 1e9)

    def total(self, records: Any, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        return IntegerTotal(records.counts(self.edges).reshape(-1), 1, 1.0)

    def answer(self, noisy: Sequence[Floats], facts: Any, terms: HowAsked) -> Answer:
        return Answer(torch.from_numpy(noisy[0].reshape(len(self.edges), -1)), self.noise_std(terms))

    @classmethod
    def cases(cls, dimension: int) -> list[Histograms]:
        return [cls(np.tile(np.linspace(-1.0, 1.0, 9), (dimension, 1)))]


class ColumnCurator:
    """Holds a way to read the private columns; every answer is charged before it is computed."""

    __slots__ = ("__columns", "__desk")

    def __init__(
        self,
        pieces: Callable[[], Iterable[Floats]],
        columns: int,
        *,
        meter: AdditiveMeter | PlanMeter,
        seed: int | None = None,
    ) -> None:
        if columns < 1:
            raise ValueError(f"columns is {columns!r}; pass at least one")
        self.__columns = columns
        self.__desk = Desk(ColumnRecords(pieces, columns), checked_meter(meter), Stream(seed))

    @property
    def meter(self) -> MeterView:
        """The meter that every question is charged to, to look at."""
        return self.__desk.view

    @property
    def trace(self) -> tuple[Released, ...]:
        """Every answered question, described by released facts."""
        return self.__desk.released()

    def histograms(self, edges: Floats, *, noise_multiplier: float) -> tuple[Floats, float]:
        """How many values lie between the edges of every column, and the noise's deviation: :class:`Histograms`."""
        asked = rebuilt(Histograms(plain(edges)))
        if len(asked.edges) != self.__columns:
            raise ValueError(f"edges must be {self.__columns} rows of at least two finite, growing numbers")
        how = HowAsked(
            self.__desk.view.budget.adjacency, FULL, checked_noise(noise_multiplier), math.nan, self.__columns
        )
        answer = self.__desk.answer(asked, how, None)
        return answer.value.numpy(), answer.noise_std

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a curator holds private records and is never copied or saved")

    __copy__ = __deepcopy__ = __reduce_ex__ = __getstate__ = _refuse
