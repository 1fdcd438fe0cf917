"""The room: the only code that holds private records. Everything else asks it questions and pays for the answers."""

from __future__ import annotations

from typing import Any

from ..asking import Asking
from ..public import PublicCurator
from ..tensors import array, in_kind
from ..trusted import columns, curator
from ..trusted.facts import Answer, Facts
from ..trusted.proved import Proved
from ..trusted.questions import QUESTIONS
from ..trusted.questions.at_theta import Correct, NormAtMost, SquaredError
from ..trusted.questions.choice import Choice
from ..trusted.questions.finished import ErrorMoments, ScoreHistogram
from ..trusted.questions.gradient import Gradient
from ..trusted.questions.gradient_norm import GradientNorm
from ..trusted.questions.layered_gradient import LayeredGradient
from ..trusted.questions.moments import Count, CrossMoment, FirstMoment, MinEigenvalue, SecondMoment, SquaredLength
from ..trusted.walks import WHOLE
from ..trusted.walks.objective import PerturbedObjective
from ..trusted.walks.oneshot import Descent, NoisyWalk, OnePass


class Curator(curator.Curator, Asking):
    """The curator with the shapes in which methods ask; rows and thetas are arrays, or torch tensors."""

    __slots__ = ()

    def __init__(self, X: Any, y: Any, **known: Any) -> None:
        super().__init__(array(X), array(y), **known)

    def change_basis(self, matrix: Any) -> None:
        super().change_basis(array(matrix))

    def centre(self, centre: Any, scale: float) -> None:
        super().centre(array(centre), scale)

    def in_first_basis(self, theta: Any) -> Any:
        return in_kind(theta, super().in_first_basis(array(theta)))


#: every kind of question by the name that a trace has, whole runs in the room included
KINDS: dict[str, type[Proved]] = {kind.name: kind for kind in QUESTIONS.values()}
KINDS |= WHOLE
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
