"""Keyword validators: the message names the argument and says what to pass instead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(float(value))
    except OverflowError:  # a whole number beyond all floats
        return False


def positive(**named: float) -> None:
    """Refuse anything but finite numbers > 0.

    >>> positive(epsilon=-1.0)
    Traceback (most recent call last):
    ...
    ValueError: epsilon is -1.0; pass a finite number > 0
    """
    for name, value in named.items():
        if not (_is_number(value) and math.isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value!r}; pass a finite number > 0")


def positive_or_none(**named: float | None) -> None:
    """Refuse anything but finite numbers > 0 and None."""
    positive(**{name: value for name, value in named.items() if value is not None})


def not_negative(**named: float) -> None:
    """Refuse anything but finite numbers >= 0."""
    for name, value in named.items():
        if not (_is_number(value) and math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value!r}; pass a finite number >= 0")


def open_unit(**named: float) -> None:
    """Refuse anything but numbers strictly between 0 and 1."""
    for name, value in named.items():
        if not (_is_number(value) and 0 < value < 1):
            raise ValueError(f"{name} is {value!r}; pass a number strictly between 0 and 1")


def share(**named: float) -> None:
    """Refuse anything but numbers in (0, 1]."""
    for name, value in named.items():
        if not (_is_number(value) and 0 < value <= 1):
            raise ValueError(f"{name} is {value!r}; pass a number in (0, 1]")


def whole(*, at_least: int = 1, **named: int) -> None:
    """Refuse anything but whole numbers that are large enough."""
    for name, value in named.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
            raise ValueError(f"{name} is {value!r}; pass a whole number >= {at_least}")


def one_of(choices: Sequence[str], **named: str) -> None:
    """Refuse anything but one of the names in ``choices``."""
    for name, value in named.items():
        if value not in choices:
            raise ValueError(f"{name} is {value!r}; pass one of {', '.join(repr(choice) for choice in choices)}")


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """What to add to a refusal of a name: the known one that is spelt most like it, if any is.

    >>> did_you_mean("incme", ["age", "income"]), did_you_mean("Age", ["age"]), did_you_mean("x", ["age"])
    (" (did you mean 'income'?)", " (did you mean 'age'?)", '')
    """
    spelt = {str(one).strip().lower(): str(one) for one in known}
    near = get_close_matches(str(name).strip().lower(), spelt, n=1, cutoff=0.7)
    return f" (did you mean {spelt[near[0]]!r}?)" if near else ""
