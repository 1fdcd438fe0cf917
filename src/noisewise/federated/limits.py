"""The most that a client's answer can be: what as many records as it has could add up to, checked in whole numbers.

Each line says for one sum what one record adds to it at most. An answer that is larger is none. So a client, whatever it sends,
moves a sum by no more than its records could, and no sum leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..trusted.stores.linear import FINE, LABEL, ROW
from ..trusted.stores.totals import Integers, IntegerTotal

LIMB = 20  # bits: products of two, summed over millions of entries, stay within 64
Check = Callable[[Integers, int, Any], bool]


def within(values: Integers, most: int) -> bool:
    """Whether the vector's norm is at most ``most``, in exact whole numbers.

    >>> within(np.array([3, -4]), 5), within(np.array([3, -4, 1]), 5), within(np.array([-(2**63)]), 2**62)
    (True, False, False)
    """
    if not _entries(values, -most, most):
        return False
    rest, limbs = np.abs(values.ravel()), []
    while rest.any():
        limbs.append(rest & ((1 << LIMB) - 1))
        rest = rest >> LIMB
    total = sum(
        int(np.dot(a, b)) << LIMB * (i + j) for i, a in enumerate(limbs) for j, b in enumerate(limbs)
    )  # python's integers, which have no end
    return total <= most * most


def _entries(values: Integers, low: int, high: int) -> bool:
    """Whether every entry lies from ``low`` to ``high``."""
    return values.size == 0 or (int(values.min()) >= low and int(values.max()) <= high)


def _counts(values: Integers, records: int, cells: int) -> bool:
    """Whether these are counts in which each of so many records is in at most so many cells."""
    return _entries(values, 0, records) and int(values.sum()) <= records * cells


def _levels(values: Integers, records: int, arguments: Any) -> bool:
    """Whether each value is in at most one part of each level of each scale."""
    ends = np.cumsum([0, *(1 << level for level in range(1, int(arguments[1]) + 1))]).tolist()
    parts = [values[:, start:end] for start, end in pairwise(ends)]
    return _entries(values, 0, records) and all(_entries(part.sum(1), 0, records) for part in parts)


OF_SUMS: dict[str, Check] = {
    "squared_length_sum": lambda values, records, _: _entries(values, 0, records * ROW * ROW),
    "second_moment_sum": lambda values, records, _: within(values, records * ROW * ROW),
    "cross_moment_sum": lambda values, records, _: within(values, records * ROW * LABEL),
    "right_less_wrong": lambda values, records, _: _entries(values, -records, records),
    "squared_errors": lambda values, records, _: _entries(values, -records * FINE, records * FINE),
    "error_moments": lambda values, records, _: _entries(values, -records * FINE, records * FINE),
    "score_counts": lambda values, records, asked: _counts(values, records, 1 if asked[2] == 2 else asked[2] + 2),
    "levels": _levels,
}
OF_TOTALS = frozenset({"gradients", "layered", "vectors", "short", "row_sum"})  # a record's part has norm <= ones


def fits(name: str, arrays: Sequence[Integers], zero: Any, arguments: Any, records: int) -> bool:
    """Whether so many records can add up to these arrays; ``zero``: what none of them add up to. An unknown sum: never."""
    if name in OF_SUMS:
        return len(arrays) == 1 and OF_SUMS[name](arrays[0], records, arguments)
    totals: list[IntegerTotal] = zero if isinstance(zero, list) else [zero]
    if name == "losses":
        return _entries(arrays[0], 0, records * totals[0].ones)
    if name not in OF_TOTALS:
        return False
    return all(within(values, records * total.ones) for values, total in zip(arrays, totals, strict=True))
