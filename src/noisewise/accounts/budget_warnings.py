"""Warnings about a budget: one of each kind in a process, and a banner in the report.

All of it follows from the budget and from a size that is public; no record has a part in it, and nobody is asked anything.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from ..trusted.process import Process, this_process
from .account import BudgetWarning

MAX_USUAL_EPSILON, MAX_USUAL_DELTA = 10.0, 1e-3
EPSILON = 1.0  # the default
_said: set[tuple[Process, str]] = set()  # by process: each worker has its own standard error


def concerns(epsilon: float, delta: float, *, size: float | None = None, chosen: bool = True) -> dict[str, str]:
    """The warnings about a budget, by kind; ``size`` is given only where the number of records is public.

    ``chosen``: whether somebody chose epsilon.

    >>> [*concerns(1.0, 1e-6)], [*concerns(11.0, 0.01)], [*concerns(1.0, 1e-4, size=5000)]
    ([], ['epsilon', 'delta'], ['delta'])
    """
    found = {}
    if epsilon > MAX_USUAL_EPSILON:
        found["epsilon"] = (
            f"epsilon is {epsilon:g}, above {MAX_USUAL_EPSILON:g}: what anybody believes about a record may change e^{epsilon:g} "
            "times in odds, which is hardly a limit; pass an epsilon of about 1, or at most 10"
        )
    if size is not None and size >= 1 and delta > 0.1 / size:
        found["delta"] = (
            f"delta is {delta:g}, above 1/(10 x {size:,.0f} records): it is the share of cases in which anything about a "
            f"record may come out, and should be well below one record; pass at most {0.1 / size:.1g}"
        )
    elif delta > MAX_USUAL_DELTA:
        found["delta"] = (
            f"delta is {delta:g}, above {MAX_USUAL_DELTA:g}: it is the share of cases in which anything about a record may come "
            "out; pass one well below 1/records, e.g. 1e-6"
        )
    if not chosen:
        found["default"] = unchosen(epsilon)
    return found


def unchosen(epsilon: float) -> str:
    """The warning about an epsilon that nobody chose."""
    return (
        f"nobody chose epsilon, so the default of {epsilon:g} is spent; how much may become known about a person is for you "
        "to decide: pass epsilon="
    )


def concerns_of(promise: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    """The warnings about a statement's promise, given the settings of its run folder."""
    return concerns(promise["epsilon"], promise["delta"], chosen=chosen(settings))


def chosen(settings: Mapping[str, Any]) -> bool:
    """Whether the user chose the epsilon of a run with these settings."""
    return settings.get("epsilon_by") != "default"


def warn_of(epsilon: float, delta: float, *, size: float | None = None, chosen: bool = True) -> None:
    """Warn about a budget that is about to be spent, once for each kind in a process."""
    for kind, text in concerns(epsilon, delta, size=size, chosen=chosen).items():
        if (this_process(), kind) not in _said:
            _said.add((this_process(), kind))
            warnings.warn(text, BudgetWarning, stacklevel=3)
