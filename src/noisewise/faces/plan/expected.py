"""What to expect of a private model of a table, from recorded simulations: no private record is read.

kept = (private score - constant's) / (best score without privacy - constant's): the share that "auto" keeps of what the better
of a linear model and boosted trees, trained on as many rows without privacy, gains over always giving one answer. Scores are
ROC AUC, or R^2 if the target is a number. ``KEPT`` holds the 10 %, 50 % and 90 % quantiles over generated tasks and public
tables with a similar ``n mu / columns ** POWER``, as printed by

    noisewise bench expected --data TABLES

docs/results/expected.md says what was run and how far single tasks lie from it. Between rows, values are interpolated in the
logarithm; beyond the ends they are constant, and ``within`` is False.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

POWER = 0.75
BY = "n mu / columns^0.75"
CLASSES, NUMBER = "classes", "number"
KEPT: dict[str, tuple[tuple[float, float, float, float], ...]] = {
    CLASSES: (
        (1.88, -0.045, 0.184, 0.502),
        (3.03, -0.045, 0.218, 0.502),
        (5.88, 0.014, 0.351, 0.657),
        (9.57, 0.129, 0.436, 0.832),
        (22.5, 0.315, 0.644, 0.923),
        (53.6, 0.595, 0.848, 1.001),
        (95.7, 0.706, 0.934, 1.014),
        (225.0, 0.744, 0.972, 1.026),
        (536.0, 0.8, 0.977, 1.026),
        (888.0, 0.818, 0.984, 1.026),
        (2050.0, 0.869, 0.988, 1.026),
        (4710.0, 0.869, 0.993, 1.026),
    ),
    NUMBER: (
        (3.21, -1.325, -0.414, -0.006),
        (6.45, -0.999, -0.205, 0.345),
        (9.76, -0.73, 0.065, 0.666),
        (22.2, -0.028, 0.398, 0.863),
        (53.9, 0.3, 0.748, 0.966),
        (99.7, 0.398, 0.855, 0.996),
        (226.0, 0.454, 0.929, 1.005),
        (549.0, 0.613, 0.929, 1.005),
        (926.0, 0.711, 0.933, 1.005),
        (2010.0, 0.736, 0.949, 1.005),
        (4610.0, 0.815, 0.975, 1.005),
    ),
}


@dataclass(frozen=True, slots=True)
class Expected:
    """The share kept: the median of simulations, with nine of ten above ``low`` and nine of ten below ``high``.

    ``at``: the value of ``by`` that was looked up; ``within``: whether simulations had such values.
    """

    low: float
    mid: float
    high: float
    by: str
    at: float
    within: bool


def expected(clarity: float, columns: int, classes: int | None) -> Expected:
    """What to expect for n mu = ``clarity`` and a target with classes (None: a number).

    >>> small, large = expected(300.0, 10, 2), expected(30_000.0, 10, 2)
    >>> small.mid < large.mid, small.low < small.mid < small.high
    (True, True)
    """
    at = clarity / columns**POWER
    rows = np.array(KEPT[NUMBER if classes is None else CLASSES])
    low, mid, high = (float(np.interp(np.log(at), np.log(rows[:, 0]), column)) for column in rows[:, 1:].T)
    return Expected(low, mid, high, BY, at, bool(rows[0, 0] <= at <= rows[-1, 0]))


def clarity_for(share: float, columns: int, classes: int | None) -> float:
    """The least n mu at which the median of simulations keeps this share; infinite if none does.

    >>> round(expected(clarity_for(0.8, 10, 2), 10, 2).mid, 6)
    0.8
    """
    rows = KEPT[NUMBER if classes is None else CLASSES]
    mids = [row[2] for row in rows]
    place = bisect_left(mids, share)
    if place == len(rows):
        return float("inf")
    if place == 0:
        return rows[0][0] * float(columns**POWER)
    (before, below), (after, above) = ((rows[i][0], mids[i]) for i in (place - 1, place))
    part = (share - below) / (above - below)
    return float(before ** (1 - part) * after**part * columns**POWER)
