"""What is protected: one record, or one person with all rows, of whom at most so many count; in numbers and in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .events import FULL, Sampling

UNIT = "one record"
CLIENT = "one client, all its rows"  # which count together, as one record
PERSON = re.compile(r"one person, at most ([1-9][0-9]{0,6}) rows?")
RELATIONS = {
    "add_remove": "with or without any one {}",
    "replace_one": "with any one {} replaced by any other",
}
MOST_ROWS = 1 << 20  # of a person that may count


def rows_per_person(declared: int | None, sampling: Sampling = FULL, *, most: int = MOST_ROWS) -> int:
    """How many rows of a person count at most, one where nobody says; what is proved for at most ``most`` is refused beyond."""
    rows = 1 if declared is None else declared
    if type(rows) is not int or not 1 <= rows <= MOST_ROWS:
        raise ValueError(f"rows_per_unit is {rows!r}; pass how many rows of a person may count, from 1 to {MOST_ROWS}")
    if rows > max(most, 1) or (rows > 1 and sampling != FULL):
        what = (
            "batches are drawn of rows, and priced"
            if sampling != FULL
            else "output and objective perturbation are proved"
        )
        raise ValueError(
            f"rows_per_unit is {rows}, but {what} for one row per person; pass rows_per_unit=1, or a method that asks "
            "all records at once, e.g. method='descent'"
        )
    return rows


def unit_of(rows_per_unit: int | None) -> str:
    """What is protected, in words: a record, or a person with all rows, of which so many count.

    >>> unit_of(None), unit_of(1), unit_of(3)
    ('one record', 'one person, at most 1 row', 'one person, at most 3 rows')
    """
    return UNIT if rows_per_unit is None else f"one person, at most {rows_per_unit} row{'s' * (rows_per_unit != 1)}"


def rows_of_unit(unit: str) -> int | None:
    """How many rows of a person count, from the words of :func:`unit_of`; None for a record. Other words are refused.

    A client counts once, with all its rows.
    """
    if unit == CLIENT:
        return 1
    found = PERSON.fullmatch(unit)
    rows = None if found is None else int(found[1])
    if unit != unit_of(rows):
        raise ValueError(f"the unit is {unit!r}; prices are for {UNIT!r} or {unit_of(2)!r}")
    return rows


def relation(promise: Mapping[str, Any]) -> str:
    """How neighbouring data sets differ, in words."""
    return RELATIONS[promise["adjacency"]].format(promise["unit"].split(",")[0].removeprefix("one "))
