"""The unit of privacy: one record, or one person with a bounded number of rows that count; in numbers and in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .events import FULL, Event, Sampling

UNIT = "one record"
CLIENT = "one client, all its rows"  # they count together, as one record
PERSON = re.compile(r"one person, at most ([1-9][0-9]{0,6}) rows?")
RELATIONS = {
    "add_remove": "with or without any one {}",
    "replace_one": "with any one {} replaced by any other",
}
MAX_ROWS_PER_PERSON = 1 << 20  # that may count


class Unit(NamedTuple):
    """The unit of privacy: a record (``rows`` is None), or a person of whom at most ``rows`` rows count.

    It is a tuple, so that code that gets it cannot change it.

    >>> [Unit(rows).words for rows in (None, 1, 3)]
    ['one record', 'one person, at most 1 row', 'one person, at most 3 rows']
    """

    rows: int | None = None

    @property
    def persons(self) -> bool:
        return self.rows is not None

    @property
    def most(self) -> int:
        """How many rows of it count at most; 1 of a record."""
        return self.rows or 1

    def fixes_size(self, adjacency: str) -> bool:
        """Whether all neighbours have as many rows that count, so that their number is public."""
        return adjacency == "replace_one" and self.most == 1

    def counted(self, sampling: Sampling = FULL, *, most: int = MAX_ROWS_PER_PERSON) -> int:
        """The same, checked; refused where the proof covers at most ``most`` rows of a person, or no batches."""
        rows = 1 if self.rows is None else self.rows
        if type(rows) is not int or not 1 <= rows <= MAX_ROWS_PER_PERSON:
            raise ValueError(
                f"rows_per_unit is {rows!r}; pass how many rows of a person may count, from 1 to {MAX_ROWS_PER_PERSON}"
            )
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

    @property
    def words(self) -> str:
        """As a statement has it."""
        return UNIT if self.rows is None else f"one person, at most {self.rows} row{'s' * (self.rows != 1)}"

    @classmethod
    def of_words(cls, words: str) -> Unit:
        """The unit of a statement; other words are refused. A client counts once, with all its rows."""
        if words == CLIENT:
            return cls(1)
        found = PERSON.fullmatch(words)
        unit = cls(None if found is None else int(found[1]))
        if words != unit.words:
            raise ValueError(f"the unit is {words!r}; prices are for {UNIT!r} or {cls(2).words!r}")
        return unit


RECORD = Unit()


def relation(promise: Mapping[str, Any]) -> str:
    """How neighbouring data sets differ, in words."""
    return RELATIONS[promise["adjacency"]].format(promise["unit"].split(",")[0].removeprefix("one "))


LOST = "lost"  # in a trace, in place of a question: an answer that was paid for but not recorded


class Released(NamedTuple):
    """One line of a trace: a question that was answered, described by released facts only."""

    question: str
    event: Event
    clip: float | None
    noise_std: float
    norm: float | None
    spent: float
