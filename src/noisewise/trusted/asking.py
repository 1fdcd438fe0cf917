"""The shapes in which methods ask: thin, each one question handed to :meth:`Asking.ask`.

A curator, one that also keeps what it released, one that answers from a tape, and one whose answers an auditor reads all
share them, and differ in ``ask`` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from .events import FULL, Sampling
from .facts import Answer
from .late import Tensor
from .question import plain
from .questions.choice import Choice
from .questions.gradient import Gradient
from .questions.gradient_norm import GradientNorm
from .questions.layered_gradient import LayeredGradient


class GradientOptions(TypedDict, total=False):
    """What a gradient may be asked with: see :class:`~noisewise.trusted.questions.gradient.Gradient`."""

    scale: Tensor | None
    basis: Tensor | None
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
        theta: Tensor,
        *,
        clip: float,
        noise_multiplier: float,
        sampling: Sampling = FULL,
        **options: Unpack[GradientOptions],
    ) -> Answer:
        """The noised mean of clipped gradients at theta: :class:`~noisewise.trusted.questions.gradient.Gradient`."""
        return self.ask(Gradient.of(theta, clip, **options), noise=noise_multiplier, sampling=sampling)

    def layered_gradient(
        self,
        theta: Tensor,
        *,
        clips: Sequence[float],
        noise_multiplier: float,
        sampling: Sampling = FULL,
        shares: Sequence[float] | None = None,
    ) -> Answer:
        """The same with a clip norm for each layer: :class:`~noisewise.trusted.questions.layered_gradient.LayeredGradient`."""
        return self.ask(LayeredGradient.of(theta, clips, shares), noise=noise_multiplier, sampling=sampling)

    def gradient_norm(
        self, theta: Tensor, *, clip: float, noise_multiplier: float, sampling: Sampling = FULL, squared: bool = False
    ) -> Answer:
        """Its norm, or the square: :class:`~noisewise.trusted.questions.gradient_norm.GradientNorm`."""
        question = GradientNorm(plain(theta), plain(clip), bool(squared))
        return self.ask(question, noise=noise_multiplier, sampling=sampling)

    def choose(self, thetas: Sequence[Tensor], *, loss_bound: float, epsilon: float, sampling: Sampling = FULL) -> int:
        """The index of a candidate with a small loss: :class:`~noisewise.trusted.questions.choice.Choice`."""
        question = Choice(tuple(plain(theta) for theta in thetas), plain(loss_bound))
        return int(self.ask(question, noise=epsilon, sampling=sampling).value)

    def statistic(self, what: Any, *, noise_multiplier: float, sampling: Sampling = FULL) -> Answer:
        """One of the statistics of :mod:`noisewise.trusted.questions`, as a noised sum over the batch."""
        return self.ask(what, noise=noise_multiplier, sampling=sampling)
