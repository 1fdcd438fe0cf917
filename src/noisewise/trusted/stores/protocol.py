"""What a question may ask of records, wherever they are stored.

Records may be held by clients, whom nobody trusts and who trust no server. So each sum declares what arguments it takes and what a
given number of records can add up to at most. A client refuses a request with other arguments; a server refuses an answer that is
more than the client's records could add up to. Whatever a client sends, it moves a sum by no more than its records could, and no
sum leaves 64 bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import PSEUDO_RANDOM, Arithmetic
from ..features import Features, TableColumn, check_scale
from .grid import Allocator, in_memory
from .totals import Drawn, FloatRows, Floats, Integers, IntegerTotal

LIMB_BITS = 20  # products of two, summed over millions of entries, stay within 64
MAX_NUMBER = 1 << 62  # of a whole number among the arguments
MAX_LEVELS = 20
Limit = Callable[[Integers, int, int, Sequence[Any]], bool]  # (values, records, ones of the total, arguments)


class Known(NamedTuple):
    """What arguments must fit: the length of theta, the outputs of the model, the columns of the table."""

    dimension: int
    outputs: int
    table: Sequence[TableColumn]


class ArgumentKind(NamedTuple):
    """A kind of argument: whether a value is one, by its type alone, and whether it fits the model and the table.

    ``clips``: the norms that parts of a record are clipped to; a client may have agreed to no larger ones.
    """

    typed: Callable[[Any], bool]
    fits: Callable[[Any, Known], bool] = lambda value, known: True
    clips: Callable[[Any], Sequence[float]] = lambda value: ()


class Sum(NamedTuple):
    """A sum over records: ``total(records, drawn, *arguments)``, the kinds of arguments it takes, and its limit.

    ``limit``: whether that many records can add up to these values. ``entries(columns, *arguments)``: how many numbers are
    needed to compute it, where these are more than the entries of theta.
    """

    total: Callable[..., Any]
    takes: tuple[ArgumentKind, ...]
    limit: Limit
    entries: Callable[..., float]

    def fits(self, arrays: Sequence[Integers], zero: Any, arguments: Sequence[Any], records: int) -> bool:
        """Whether ``records`` records can add up to these arrays; ``zero`` is the sum over no records."""
        totals = zero if isinstance(zero, list) else [zero]
        ones = [total.ones if isinstance(total, IntegerTotal) else 0 for total in totals]
        together = zip(arrays, ones, strict=True)
        return all(self.limit(values, records, most, arguments) for values, most in together)


# --- kinds of arguments ---


def _array(value: Any) -> bool:
    return type(value) is np.ndarray and value.dtype.kind == "f" and value.ndim == 1


def _positive(value: Any) -> bool:
    return isinstance(value, float) and 0 < value < math.inf


def whole(value: Any, most: int = MAX_NUMBER) -> bool:
    return type(value) is int and 0 <= value <= most


def _long(theta: Any, known: Known) -> bool:
    return bool(theta.shape == (known.dimension,))


def _of_numbers(scales: Any, known: Known) -> bool:
    """Whether values are counted on scales of number columns."""
    for column, points, ranks in scales:
        there = isinstance(column, float | int) and 0 <= column < len(known.table) and column == int(column)
        if not there or not known.table[int(column)].number:
            return False
        check_scale(points, ranks)
    return True


VECTOR = ArgumentKind(_array)
THETA = ArgumentKind(_array, _long)
THETAS = ArgumentKind(
    lambda value: type(value) is tuple and all(map(_array, value)),
    lambda value, known: all(_long(theta, known) for theta in value),
)
POSITIVE = ArgumentKind(_positive)  # a bound, or a threshold
CLIP = ArgumentKind(_positive, clips=lambda value: (value,))
CLIPS = ArgumentKind(lambda value: type(value) is tuple and all(map(_positive, value)), clips=tuple)
CLASSES = ArgumentKind(whole, lambda value, known: bool(value == max(known.outputs, 2)))
SCALES = ArgumentKind(
    lambda value: type(value) is tuple and all(type(each) is tuple and len(each) == 3 for each in value), _of_numbers
)
LEVELS = ArgumentKind(lambda value: whole(value, MAX_LEVELS))


# --- what records add ---


def norm_within(values: Integers, most: int) -> bool:
    """Whether the vector's norm is at most ``most``, in exact whole numbers.

    >>> norm_within(np.array([3, -4]), 5), norm_within(np.array([3, -4, 1]), 5), norm_within(np.array([-(2**63)]), 2**62)
    (True, False, False)
    """
    if not entries_within(values, -most, most):
        return False
    rest, limbs = np.abs(values.ravel()), []
    while rest.any():
        limbs.append(rest & ((1 << LIMB_BITS) - 1))
        rest = rest >> LIMB_BITS
    # in integers of Python, which do not overflow
    total = sum(int(np.dot(a, b)) << LIMB_BITS * (i + j) for i, a in enumerate(limbs) for j, b in enumerate(limbs))
    return total <= most * most


def entries_within(values: Integers, low: int, high: int) -> bool:
    """Whether every entry lies from ``low`` to ``high``."""
    return values.size == 0 or (int(values.min()) >= low and int(values.max()) <= high)


def of_ones(values: Integers, records: int, ones: int, arguments: Sequence[Any]) -> bool:
    """Each record adds a vector of norm at most the total's ``ones``."""
    return norm_within(values, records * ones)


def up_to_ones(values: Integers, records: int, ones: int, arguments: Sequence[Any]) -> bool:
    """Each record adds from 0 to the total's ``ones`` to every entry."""
    return entries_within(values, 0, records * ones)


def of_norm(most: int) -> Limit:
    """Each record adds a vector of norm at most ``most``."""
    return lambda values, records, ones, arguments: norm_within(values, records * most)


def between(low: int, high: int) -> Limit:
    """Each record adds a number from ``low`` to ``high`` to every entry."""
    return lambda values, records, ones, arguments: entries_within(values, records * low, records * high)


def counts(cells: Callable[..., float]) -> Limit:
    """Each record counts 1 in at most ``cells(*arguments)`` places."""
    return lambda values, records, ones, arguments: (
        entries_within(values, 0, records) and int(values.sum()) <= records * cells(*arguments)
    )


def in_levels(values: Integers, records: int, ones: int, arguments: Sequence[Any]) -> bool:
    """Each record has at most one value on each scale, in one part of each level."""
    ends = np.cumsum([0, *(1 << level for level in range(1, int(arguments[1]) + 1))]).tolist()
    parts = [values[:, start:end] for start, end in pairwise(ends)]
    return entries_within(values, 0, records) and all(entries_within(part.sum(1), 0, records) for part in parts)


EXACT = Arithmetic("exact", (PSEUDO_RANDOM,))
Parts = Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]
F = TypeVar("F", bound=Callable[..., Any])
SUMS: dict[str, Sum] = {}  # by name


class Elsewhere:
    """Stands for rows that are held elsewhere."""

    def held(self, model: Any, store: Any, coins: Any = None) -> HeldRecords:
        """The records, laid out where they are held."""
        raise NotImplementedError

    def counted(self, classes: int | None) -> NDArray[np.bool_] | None:
        """Which of them have a label (:func:`~noisewise.trusted.stores.grid.labelled`); None where all have one."""


def everywhere(*takes: ArgumentKind, limit: Limit, entries: Callable[..., float] = lambda *_: 0.0) -> Callable[[F], F]:
    """Register a sum over records. Where these are held elsewhere, it is requested there by its name (``summed``).

    ``takes``, ``limit`` and ``entries`` are those of :class:`Sum`.
    """

    def named(total: F) -> F:
        SUMS[total.__name__] = Sum(total, takes, limit, entries)
        return _asked_elsewhere(total)

    return named


def answered(
    *takes: ArgumentKind, limit: Limit = of_ones, entries: Callable[..., float] = lambda *_: 0.0
) -> Callable[[F], F]:
    """The same for a method of :class:`HeldRecords`, which each kind of records computes in its own way."""

    def named(total: F) -> F:
        name = total.__name__

        def own(records: HeldRecords, drawn: Drawn, *arguments: Any, **options: Any) -> Any:
            return getattr(records, name)(drawn, *arguments, **options)

        SUMS[name] = Sum(own, takes, limit, entries)
        return _asked_elsewhere(total)

    return named


def _asked_elsewhere(total: F) -> F:
    """The sum, requested by its name where the records are held elsewhere."""

    @wraps(total)
    def asked(records: HeldRecords, drawn: Drawn, *arguments: Any, **options: Any) -> Any:
        found = records.summed(total.__name__, drawn, *arguments, **options)
        return total(records, drawn, *arguments, **options) if found is NotImplemented else found

    return asked  # type: ignore[return-value]


class HeldRecords(ABC):
    """Private rows behind exact integer totals, here or on other machines; ``drawn``: which of them.

    Each kind of records overrides what it can answer. The rest is refused here: a refusal depends on the kind of records, never on
    their values.
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
        """A sum of ``SUMS`` by its name, computed where the records are held; NotImplemented where that is here."""
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
