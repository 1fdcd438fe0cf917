"""The shapes in which methods ask: thin, each one question handed to :meth:`Asking.ask`.

A curator, one that also keeps what it released, one that answers from a tape, and one whose answers an auditor reads all
share them, and differ in ``ask`` alone. Who asks with torch tensors is answered in tensors (:mod:`noisewise.tensors`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypedDict, Unpack

from .tensors import array, in_kind
from .trusted.events import FULL, Sampling
from .trusted.facts import Answer
from .trusted.features.features import Features
from .trusted.question import plain
from .trusted.questions.choice import Choice
from .trusted.questions.gradient import Gradient
from .trusted.questions.gradient_norm import GradientNorm
from .trusted.questions.layered_gradient import LayeredGradient


class GradientOptions(TypedDict, total=False):
    """What a gradient may be asked with: see :class:`~noisewise.trusted.questions.gradient.Gradient`."""

    scale: Any
    basis: Any
    quantile_at: float | None
    count_noise_multiplier: float | None


class Asking(ABC):
    """Whoever answers questions. Each answer draws its own batch and is charged before it is computed."""

    __slots__ = ()

    @abstractmethod
    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        """The answer to one question; ``noise`` is the noise multiplier, or the epsilon of a choice."""

    def gradient(
        self,
        theta: Any,
        *,
        clip: float,
        noise_multiplier: float,
        sampling: Sampling = FULL,
        **options: Unpack[GradientOptions],
    ) -> Answer:
        """The noised mean of clipped gradients at theta: :class:`~noisewise.trusted.questions.gradient.Gradient`."""
        given = {name: array(option) for name, option in options.items()}
        asked = Gradient.of(array(theta), clip, **given)
        return _as(theta, self.ask(asked, noise=noise_multiplier, sampling=sampling))

    def layered_gradient(
        self,
        theta: Any,
        *,
        clips: Sequence[float],
        noise_multiplier: float,
        sampling: Sampling = FULL,
        shares: Sequence[float] | None = None,
    ) -> Answer:
        """The same with a clip norm for each layer: :class:`~noisewise.trusted.questions.layered_gradient.LayeredGradient`."""
        asked = LayeredGradient.of(array(theta), clips, shares)
        return _as(theta, self.ask(asked, noise=noise_multiplier, sampling=sampling))

    def gradient_norm(
        self, theta: Any, *, clip: float, noise_multiplier: float, sampling: Sampling = FULL, squared: bool = False
    ) -> Answer:
        """Its norm, or the square: :class:`~noisewise.trusted.questions.gradient_norm.GradientNorm`."""
        question = GradientNorm(plain(array(theta)), plain(clip), bool(squared))
        return _as(theta, self.ask(question, noise=noise_multiplier, sampling=sampling))

    def choose(self, thetas: Sequence[Any], *, loss_bound: float, epsilon: float, sampling: Sampling = FULL) -> int:
        """The index of a candidate with a small loss: :class:`~noisewise.trusted.questions.choice.Choice`."""
        question = Choice(tuple(plain(array(theta)) for theta in thetas), plain(loss_bound))
        return int(self.ask(question, noise=epsilon, sampling=sampling).value)

    def statistic(self, what: Any, *, noise_multiplier: float, sampling: Sampling = FULL) -> Answer:
        """One of the statistics of :mod:`noisewise.trusted.questions`, as a noised sum over the batch."""
        return self.ask(what, noise=noise_multiplier, sampling=sampling)


class Wrapping(Asking):
    """Asks another, and passes on what is not a question."""

    facts = property(attrgetter("_asked.facts"))
    meter = property(attrgetter("_asked.meter"))
    trace = property(attrgetter("_asked.trace"))
    simulation = property(attrgetter("_asked.simulation"))
    features = property(attrgetter("_asked.features"))

    def __init__(self, asked: Any) -> None:
        self._asked = asked

    def change_basis(self, matrix: Any) -> None:
        self._asked.change_basis(matrix)

    def prepare(self, features: Features) -> None:
        self._asked.prepare(features)

    def centre(self, centre: Any, scale: float) -> None:
        self._asked.centre(centre, scale)

    def in_first_basis(self, theta: Any) -> Any:
        return self._asked.in_first_basis(theta)


def _as(theta: Any, answer: Answer) -> Answer:
    """The answer in the kind of array that it was asked with."""
    value = in_kind(theta, answer.value)
    return answer if value is answer.value else answer._replace(value=value)
