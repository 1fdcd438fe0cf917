"""What a question may ask of records, wherever they live."""

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
from ..features.features import Features, TableColumn, check_scale
from .grid import Allocator, in_memory
from .totals import Drawn, FloatRows, Floats, Integers, IntegerTotal

# What a sum over records is asked with, and what so many records can add up to at most: said where the sum is defined.
#
# Records may lie with clients, whom nobody trusts and who trust no server. A client refuses a request whose arguments are not of the
# kinds that the sum takes; a server takes no answer that is more than the client's records could add up to. So a client, whatever it
# sends, moves a sum by no more than its records could, and no sum leaves 64 bits. A sum cannot be defined without saying both.


LIMB_BITS = 20  # products of two, summed over millions of entries, stay within 64
MAX_NUMBER = 1 << 62  # of a whole number that is asked with
MAX_LEVELS = 20
Limit = Callable[[Integers, int, int, Sequence[Any]], bool]  # of: values, records, ones of the total, arguments


class Known(NamedTuple):
    """What arguments must fit: how long a theta is, how many outputs the model has, the table's columns."""

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
    """A sum over records: how it is computed of (records, drawn, *arguments), and what is said of it where it is defined.

    ``limit``: whether so many records can add up to these values. ``entries``: how many numbers it is made in, of (columns, *arguments),
    where these are more than a theta has.
    """

    total: Callable[..., Any]
    takes: tuple[ArgumentKind, ...]
    limit: Limit
    entries: Callable[..., float]

    def fits(self, arrays: Sequence[Integers], zero: Any, arguments: Sequence[Any], records: int) -> bool:
        """Whether so many records can add up to these arrays; ``zero``: what none of them add up to."""
        totals = zero if isinstance(zero, list) else [zero]
        ones = [total.ones if isinstance(total, IntegerTotal) else 0 for total in totals]
        together = zip(arrays, ones, strict=True)
        return all(self.limit(values, records, most, arguments) for values, most in together)


# --- what arguments are ---


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
    total = sum(
        int(np.dot(a, b)) << LIMB_BITS * (i + j) for i, a in enumerate(limbs) for j, b in enumerate(limbs)
    )  # python's integers, which have no end
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
