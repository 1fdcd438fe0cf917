"""What a question may ask of records, wherever they live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import PSEUDO_RANDOM, Arithmetic
from ..features.features import Features
from .grid import Allocator, in_memory
from .sum_limits import (
    CLIP,
    CLIPS,
    LEVELS,
    POSITIVE,
    SCALES,
    THETA,
    THETAS,
    ArgumentKind,
    Limit,
    Sum,
    in_levels,
    of_ones,
    up_to_ones,
)
from .totals import Drawn, FloatRows, Floats, Integers, IntegerTotal

EXACT = Arithmetic("exact", (PSEUDO_RANDOM,))
Parts = Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]
F = TypeVar("F", bound=Callable[..., Any])
SUMS: dict[str, Sum] = {}  # by name: what is asked of records that lie elsewhere


class Elsewhere:
    """Stands for rows that are not here."""

    def held(self, model: Any, store: Any, coins: Any = None) -> HeldRecords:
        """The records, laid out where they are."""
        raise NotImplementedError

    def counted(self, classes: int | None) -> NDArray[np.bool_] | None:
        """Which of them have a label (:func:`~noisewise.trusted.stores.grid.labelled`); None where all have one."""


def everywhere(*takes: ArgumentKind, limit: Limit, entries: Callable[..., float] = lambda *_: 0.0) -> Callable[[F], F]:
    """A sum over records, asked by its name of each rank where they lie at several (``summed``), and added up.

    ``takes`` its arguments, and so many records add up to no more than its ``limit``: see :class:`~.asked.Sum`.
    """

    def named(total: F) -> F:
        SUMS[total.__name__] = Sum(total, takes, limit, entries)
        return _asked_elsewhere(total)

    return named


def answered(
    *takes: ArgumentKind, limit: Limit = of_ones, entries: Callable[..., float] = lambda *_: 0.0
) -> Callable[[F], F]:
    """The same of a sum that each kind of records has its own way to: what it is called in :class:`HeldRecords`."""

    def named(total: F) -> F:
        name = total.__name__

        def own(records: HeldRecords, drawn: Drawn, *arguments: Any, **options: Any) -> Any:
            return getattr(records, name)(drawn, *arguments, **options)

        SUMS[name] = Sum(own, takes, limit, entries)
        return _asked_elsewhere(total)

    return named


def _asked_elsewhere(total: F) -> F:
    """A sum that records which lie elsewhere are asked by its name."""

    @wraps(total)
    def asked(records: HeldRecords, drawn: Drawn, *arguments: Any, **options: Any) -> Any:
        found = records.summed(total.__name__, drawn, *arguments, **options)
        return total(records, drawn, *arguments, **options) if found is NotImplemented else found

    return asked  # type: ignore[return-value]


class HeldRecords(ABC):
    """Private rows behind exact integer totals, here or on other machines; ``drawn``: which of them.

    A kind of records has what it can answer; the rest is refused here, which only their kind decides, never their values.
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def columns(self) -> int:
        """How many numbers a row has."""

    @property
    def arithmetic(self) -> Arithmetic:
        """How exact totals are."""
        return EXACT

    @property
    def coordinates(self) -> bool:
        """Whether gradients can be clipped in other coordinates."""
        return False

    # --- sums over records at one theta ---

    @answered(THETA, CLIP)
    def gradients(self, drawn: Drawn, theta: Floats, clip: float) -> IntegerTotal:
        """The sum of gradients, each clipped to norm ``clip``."""
        raise self._without("gradients")

    @answered(THETA, CLIPS)
    def layered(self, drawn: Drawn, theta: Floats, clips: Sequence[float]) -> Sequence[IntegerTotal]:
        """The same with a clip for each layer, a total for each."""
        raise self._without("layers")

    @answered(THETA, CLIP)
    def vectors(
        self, drawn: Drawn, theta: Floats, clip: float, *, scale: Floats | None, basis: Floats | None
    ) -> IntegerTotal:
        """The sum of gradients seen in other coordinates, and clipped there."""
        raise self._without("gradients in other coordinates")

    @answered(THETA, POSITIVE)
    def short(
        self,
        drawn: Drawn,
        theta: Floats,
        threshold: float,
        *,
        scale: Floats | None = None,
        basis: Floats | None = None,
    ) -> IntegerTotal:
        """How many gradients are shorter, along a ramp."""
        raise self._without("norms of gradients")

    @answered(THETAS, POSITIVE, limit=up_to_ones)
    def losses(self, drawn: Drawn, thetas: Sequence[Floats], bound: float) -> IntegerTotal:
        """The sum of losses cut to [0, bound], at each theta."""
        raise self._without("losses")

    def summed(self, name: str, drawn: Drawn, *arguments: Any, **options: Any) -> Any:
        """A sum of ``SUMS``, asked by its name where the records lie; NotImplemented: they are here."""
        return NotImplemented

    # --- sums over rows, and counts ---

    @answered()
    def row_sum(self, drawn: Drawn) -> IntegerTotal:
        """The sum of rows, cut to norm 1."""
        raise self._without("rows of numbers")

    def unit_rows(self, drawn: Drawn) -> Parts:
        """Rows cut to norm 1 with labels, a part at a time."""
        raise self._without("rows of numbers")

    def scored(self, drawn: Drawn, theta: Floats) -> Parts:
        """Scores at theta with labels, a part at a time."""
        raise self._without("scores")

    def float_rows(self) -> FloatRows:
        """All rows and labels in double precision, for walks and minimisers."""
        raise self._without("rows of numbers")

    @answered(SCALES, LEVELS, limit=in_levels, entries=lambda _, scales, levels: len(scales) * 2.0 ** (levels + 1))
    def levels(self, drawn: Drawn, maps: Sequence[Any], levels: int) -> Integers:
        """How the values of a table's columns are spread."""
        raise self._without("columns of a table")

    def counts(self, edges: Floats) -> Integers:
        """How many values of each column lie between its edges."""
        raise self._without("columns as they came")

    def meta_gradients(self, asked: Any, size: float) -> IntegerTotal:
        """The sum over shards of a protector's gradients."""
        raise self._without("shards")

    # --- the same records, laid out by other public rules ---

    def in_basis(self, matrix: Floats, store: Allocator = in_memory) -> HeldRecords:
        """Every row x as x @ matrix."""
        raise self._without("rows of numbers")

    def prepared(self, features: Features, store: Allocator = in_memory) -> HeldRecords:
        """Rows made of a table's cells by other features."""
        raise self._without("a table")

    def centred(self, centre: Floats, scale: float, store: Allocator = in_memory) -> HeldRecords:
        """Every row x of a table as scale (x - centre)."""
        raise self._without("a table")

    def _without(self, what: str) -> ValueError:
        return ValueError(f"these records have no {what}; ask another question, or train another model")
