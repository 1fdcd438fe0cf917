"""A curator for columns as they come from a file, before there are bounds to scale them by.

It answers one question, :class:`Histograms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import index
from typing import NoReturn

from .events import FULL
from .facts import Released, facts_of_columns, shown_trace
from .gate import Desk
from .meter import AdditiveMeter, PlanMeter
from .opening import MeterView, checked_meter
from .question import HowAsked, checked_noise, plain
from .questions.histograms import Histograms
from .stores.column_records import ColumnRecords
from .stores.totals import Floats
from .units import Unit


class ColumnCurator:
    """Holds a way to read the private columns; every answer is charged before it is computed."""

    __slots__ = ("__columns", "__desk", "__rows")

    def __init__(
        self,
        pieces: Callable[[], Iterable[Floats]],
        columns: int,
        *,
        meter: AdditiveMeter | PlanMeter,
        seed: int | None = None,
        rows_per_unit: int | None = None,
    ) -> None:
        if (columns := index(columns)) < 1:
            raise ValueError(f"columns is {columns!r}; pass at least one")
        meter = checked_meter(meter)
        self.__columns, self.__rows = columns, Histograms.refuse(meter.budget.adjacency, FULL, Unit(rows_per_unit))
        self.__desk = Desk(meter, seed, ColumnRecords(pieces, columns))

    @property
    def meter(self) -> MeterView:
        """The meter that every question is charged to, to look at."""
        return self.__desk.view

    @property
    def trace(self) -> tuple[Released, ...]:
        """Every answered question, described by released facts."""
        return shown_trace(self.__desk.trace)

    def histograms(self, edges: Floats, *, noise_multiplier: float) -> tuple[Floats, float]:
        """How many values lie between the edges of every column, and the noise's deviation: :class:`Histograms`."""
        asked = Histograms(plain(edges))  # of plain copies, and so not rebuilt
        if len(asked.edges) != self.__columns:
            raise ValueError(f"edges must be {self.__columns} rows of at least two finite, growing numbers")
        adjacency, noise = self.__desk.view.budget.adjacency, checked_noise(noise_multiplier)
        facts = facts_of_columns(self.__desk.view.budget, self.__columns)
        how = HowAsked(adjacency, FULL, noise, math.nan, self.__columns, self.__rows)
        answer = self.__desk.release(asked, how, facts, self.__desk.records)
        return answer.value, answer.noise_std

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a curator holds private records and is never copied or saved")

    __copy__ = __deepcopy__ = __reduce_ex__ = __getstate__ = _refuse
