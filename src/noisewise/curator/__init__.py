"""The room: the only code that holds private records. Everything else asks it questions and pays for the answers."""

from __future__ import annotations

from ..facts import Answer, Facts
from . import columns
from .asking import Asking
from .curator import Curator
from .objective import PerturbedObjective
from .oneshot import Descent, NoisyWalk, OnePass
from .public import PublicCurator
from .questions import QUESTIONS
from .questions.at_theta import Correct, NormAtMost, SquaredError
from .questions.choice import Choice
from .questions.finished import ErrorMoments, ScoreHistogram
from .questions.gradient import Gradient
from .questions.gradient_norm import GradientNorm
from .questions.layered_gradient import LayeredGradient
from .questions.moments import Count, CrossMoment, FirstMoment, MinEigenvalue, SecondMoment, SquaredLength

__all__ = ["Answer", "Asking", "Curator", "Facts", "PublicCurator", "columns"]
__all__ += [
    "QUESTIONS",
    "Choice",
    "Descent",
    "Gradient",
    "GradientNorm",
    "LayeredGradient",
    "NoisyWalk",
    "OnePass",
    "PerturbedObjective",
]
__all__ += ["Count", "CrossMoment", "FirstMoment", "MinEigenvalue", "SecondMoment", "SquaredLength"]
__all__ += ["Correct", "ErrorMoments", "NormAtMost", "ScoreHistogram", "SquaredError"]
