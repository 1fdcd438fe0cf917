"""The room: the only code that holds private records. Everything else asks it questions and pays for the answers."""

from __future__ import annotations

from . import columns, questions
from .asking import Asking
from .curator import Curator
from .facts import Answer, Facts
from .gradient import Choice, Gradient, GradientNorm
from .objective import PerturbedObjective
from .oneshot import Descent, NoisyWalk, OnePass
from .public import PublicCurator
from .questions import QUESTIONS
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
)

assert columns  # its question is one of the room's
questions.close()

__all__ = [
    "QUESTIONS",
    "Answer",
    "Asking",
    "Choice",
    "Correct",
    "Count",
    "CrossMoment",
    "Curator",
    "Descent",
    "Facts",
    "FirstMoment",
    "Gradient",
    "GradientNorm",
    "MinEigenvalue",
    "NoisyWalk",
    "NormAtMost",
    "OnePass",
    "PerturbedObjective",
    "PublicCurator",
    "SecondMoment",
    "SquaredError",
    "SquaredLength",
]
