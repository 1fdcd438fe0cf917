"""The room: the only code that holds private records. Everything else asks it questions and pays for the answers."""

from __future__ import annotations

from .curator import Answer, Curator, Facts
from .objective import PerturbedObjective
from .oneshot import Descent, NoisyWalk, OnePass
from .public import PublicCurator
from .statistics import (
    Correct,
    Count,
    CrossMoment,
    FirstMoment,
    MinEigenvalue,
    NormAtMost,
    SecondMoment,
    SquaredError,
    SquaredLength,
    Statistic,
)

__all__ = [
    "Answer",
    "Correct",
    "Count",
    "CrossMoment",
    "Curator",
    "Descent",
    "Facts",
    "FirstMoment",
    "MinEigenvalue",
    "NoisyWalk",
    "NormAtMost",
    "OnePass",
    "PerturbedObjective",
    "PublicCurator",
    "SecondMoment",
    "SquaredError",
    "SquaredLength",
    "Statistic",
]
