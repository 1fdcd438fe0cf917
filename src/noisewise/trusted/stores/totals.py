"""Exact totals: integers, and what they stand for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..events import Sampling

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, repr=False)
class IntegerTotal:
    """A sum over records in integers. Private: it never leaves the curator without noise.

    A record's part of it has norm at most ``ones``, which stands for the real number ``one``: that is what a question's
    unit is measured in. A whole number stands for ``one / ones`` unless ``step`` says otherwise.
    """

    values: Integers
    ones: int
    one: float
    step: float | None = None

    @property
    def worth(self) -> float:
        """What the integer 1 stands for."""
        return self.one / self.ones if self.step is None else self.step

    def __add__(self, other: IntegerTotal) -> IntegerTotal:
        return IntegerTotal(self.values + other.values, self.ones, self.one, self.step)


class Drawn(NamedTuple):
    """The records that a question sees: row numbers in order, None for all; and how many were expected, which is public."""

    rows: Integers | None = None
    expected: float = math.inf

    def only(self, counted: NDArray[np.bool_] | None) -> Drawn:
        """The same batch without the records that do not count; None: all do. No other record moves."""
        if counted is None:
            return self
        rows = np.flatnonzero(counted) if self.rows is None else self.rows[counted[self.rows]]
        return self._replace(rows=rows)

    def count(self, records: int) -> int:
        """The size of the batch, where there are ``records`` records in all. Private."""
        return records if self.rows is None else len(self.rows)


def expected_size(sampling: Sampling, size: float) -> float:
    """The expected batch size, from the public or released size: what a sum is divided by, never the realised one."""
    match sampling:
        case ("poisson", rate):
            return max(rate * size, 1.0)
        case ("fixed", rate):
            return max(float(fixed_size(rate, round(size))), 1.0)
    return max(size, 1.0)


def fixed_size(rate: float, records: int) -> int:
    """rate * records rounded down, exactly; b where the rate is the float b / records (2^-53 of it, which prices round up by)."""
    near = min(records, round(rate * records))
    return near if near and near / records == rate else min(records, math.floor(Fraction(rate) * records))


class FloatRows(NamedTuple):
    """Rows and labels in double precision, for walks and minimisers, which are iterations of floats. Private."""

    rows: Floats
    labels: NDArray[Any]


def clipped(vectors: Floats, lengths: Floats, clip: float, ones: int) -> Integers:
    """Rows as integers of norm at most ``ones``, which stands for ``clip``: shortened, then truncated toward zero.

    Truncation makes no entry larger, so only the rounding of lengths could break the bound; it is checked in integers, and
    a row that broke it would count as zero.
    """
    most = ones * (1 - 2.0**-40)
    factor = np.where(lengths > clip, most / np.maximum(lengths, clip), most / clip)
    real = vectors * factor[:, None]
    whole = np.where(np.abs(real) <= ones, real, 0.0).astype(np.int64)  # truncates; false for NaN
    fits = np.isfinite(lengths) & ((whole * whole).sum(1) <= ones * ones)
    whole[~fits] = 0
    return whole
