"""The base of both meters: a promise, counts of what was paid for, and one owner."""

from __future__ import annotations

import math
import threading
from collections import Counter
from fractions import Fraction
from typing import NoReturn

from noisewise.trusted.accountants.terms import Budget
from noisewise.trusted.events import Leaf
from noisewise.trusted.process import this_process


class BudgetExhausted(Exception):
    """The event asked for more than is left: it did not happen, and the meter is as before. Public facts only."""


class NotCopied:
    """A meter or a purse: a copy, a pickle or a forked process would spend the same budget twice."""

    __slots__ = ("_lock", "_process")  # no instance can have a method of its own

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            "a meter cannot be copied or pickled: the copy would spend the same budget twice; "
            "keep one meter, or rebuild an empty one with meter_from(budget, description) for an audit"
        )

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def __init__(self) -> None:
        self._process = this_process()
        self._lock = threading.Lock()

    def _check_process(self) -> None:
        if this_process() != self._process:
            raise RuntimeError(
                "this meter belongs to another process: a forked copy would spend the same budget twice; "
                "ask the process that made it"
            )


class Counts(NotCopied):
    """The promise that a meter keeps, what was paid for, and whether it is closed."""

    __slots__ = ("_budget", "_closed", "_events")

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget, self._closed = budget, False
        self._events: Counter[Leaf] = Counter()

    @property
    def budget(self) -> Budget:
        """The promise this meter keeps."""
        return self._budget

    @property
    def events(self) -> Counter[Leaf]:
        """What was paid for, with counts."""
        return Counter(self._events)

    @property
    def closed(self) -> bool:
        """Whether it accepts no more events."""
        return self._closed

    def close(self) -> None:
        """Accept no more events: what was spent is final, so that the rest can be given to others."""
        with self._lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise BudgetExhausted("this meter was settled: what it left belongs to others now; open another one")


def up(exact: Fraction) -> float:
    """The least float that is at least this."""
    value = float(exact)
    return value if Fraction(value) >= exact else math.nextafter(value, math.inf)
