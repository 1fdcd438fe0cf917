"""Rows that cover every pair of values, where a full product would take long."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*lists: Sequence[Any], among: Any = None) -> list[tuple[Any, ...]]:
    """Rows with a value of each list, such that every pair of values of two lists stands in one.

    ``among``: the rows to choose from, all of the product unless it is said. Of these, every pair that one has is covered.
    """
    rows = list(product(*lists) if among is None else among)
    pairs = {row: {*combinations(enumerate(row), 2)} for row in rows}
    missing = set().union(*pairs.values())
    chosen = []
    while missing:
        row = max(rows, key=lambda row: len(pairs[row] & missing))
        chosen.append(row)
        missing -= pairs[row]
    return chosen
