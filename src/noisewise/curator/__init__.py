"""The room: the only code that holds private records. Everything else asks it questions and pays for the answers."""

from __future__ import annotations

from ..facts import Answer, Facts
from . import columns
from .asking import Asking
from .curator import Curator
from .objective import PerturbedObjective
from .oneshot import Descent, NoisyWalk, OnePass
from .proved import Proved
from .public import PublicCurator
from .questions import QUESTIONS
from .questions.at_theta import Correct, NormAtMost, SquaredError
from .questions.choice import Choice
from .questions.finished import ErrorMoments, ScoreHistogram
from .questions.gradient import Gradient
from .questions.gradient_norm import GradientNorm
from .questions.layered_gradient import LayeredGradient
from .questions.moments import Count, CrossMoment, FirstMoment, MinEigenvalue, SecondMoment, SquaredLength

#: every kind of question by the name that a trace has, whole runs in the room included
KINDS: dict[str, type[Proved]] = {kind.name: kind for kind in QUESTIONS.values()}
KINDS |= {kind.name: kind for kind in (Descent, OnePass, PerturbedObjective)}
__all__ = ["KINDS", "Answer", "Asking", "Curator", "Facts", "PublicCurator", "columns"]
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
