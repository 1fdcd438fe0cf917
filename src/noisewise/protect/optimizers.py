"""Optimizers: from a noised mean gradient to the next theta. Post-processing, so they cost nothing.

Each is a frozen rule with ``init(dimension) -> state`` and ``(answer, theta, state) -> (new theta, state)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from ..asking import Answer
from .arrays import Array

S = TypeVar("S")


class Optimizer(Protocol[S]):
    def init(self, dimension: int) -> S: ...
    def __call__(self, answer: Answer, theta: Array, state: S) -> tuple[Array, S]: ...


class GradientMoments(NamedTuple):
    """What an optimizer remembers of earlier gradients."""

    step: int
    first: Array
    second: Array


class _OfMoments:
    def init(self, dimension: int) -> GradientMoments:
        return GradientMoments(0, 0.0, 0.0)


@dataclass(frozen=True)
class Sgd:
    """theta - eta g."""

    learning_rate: float

    def init(self, dimension: int) -> None:
        return None

    def __call__(self, answer: Answer, theta: Array, state: None) -> tuple[Array, None]:
        return theta - self.learning_rate * answer.value, None


@dataclass(frozen=True)
class Momentum:
    """theta - eta v with v <- beta v + g (Polyak 1964, heavy ball)."""

    learning_rate: float
    beta: float = 0.9

    def init(self, dimension: int) -> Array:
        return 0.0

    def __call__(self, answer: Answer, theta: Array, state: Array) -> tuple[Array, Array]:
        velocity = answer.value + self.beta * state
        return theta - self.learning_rate * velocity, velocity


@dataclass(frozen=True)
class DebiasedMomentum(_OfMoments):
    """theta - eta v / (1 - beta^t) with v <- beta v + (1 - beta) g: an average of past gradients."""

    learning_rate: float
    beta: float = 0.9

    def __call__(self, answer: Answer, theta: Array, state: GradientMoments) -> tuple[Array, GradientMoments]:
        step = state.step + 1
        first = self.beta * state.first + (1 - self.beta) * answer.value
        rate = self.learning_rate / (1 - self.beta**step)
        return theta - rate * first, GradientMoments(step, first, state.second)


@dataclass(frozen=True)
class AdaGrad(_OfMoments):
    """theta - eta g / sqrt(sum of g^2) (Duchi et al. 2011)."""

    learning_rate: float
    floor: float = 1e-8

    def __call__(self, answer: Answer, theta: Array, state: GradientMoments) -> tuple[Array, GradientMoments]:
        second = state.second + answer.value**2
        moved = theta - self.learning_rate * answer.value / (second**0.5 + self.floor)
        return moved, GradientMoments(state.step + 1, state.first, second)


@dataclass(frozen=True)
class Adam(_OfMoments):
    """theta - eta m / (sqrt(v) + floor) with debiased averages m of g and v of g^2 (Kingma & Ba 2015)."""

    learning_rate: float
    beta: float = 0.9
    beta_squared: float = 0.999
    floor: float = 1e-8

    def __call__(self, answer: Answer, theta: Array, state: GradientMoments) -> tuple[Array, GradientMoments]:
        step = state.step + 1
        first = self.beta * state.first + (1 - self.beta) * answer.value
        second = self.beta_squared * state.second + (1 - self.beta_squared) * answer.value**2
        spread = (second / (1 - self.beta_squared**step)) ** 0.5 + self.floor
        rate = self.learning_rate / (1 - self.beta**step)
        return theta - rate * first / spread, GradientMoments(step, first, second)


class NoisyMoments(NamedTuple):
    """What an optimizer remembers of earlier gradients, and how much of their squares is noise."""

    step: int
    first: Array
    second: Array
    noise: float


@dataclass(frozen=True)
class AdamBC:
    """Adam without the bias that privacy noise puts on its second moment (Tang, Shpilevskiy & Lecuyer 2024, DP-AdamBC).

    Every squared entry of a noised gradient is too large by s^2 on average, s the known deviation of the noise, so Adam
    divides all coordinates by about s and moves like SGD. Here theta - eta m / (sqrt(max(v - s^2, share s^2)) + floor):
    v and s^2 are averages over the same steps, debiased; ``share`` is what v errs by when the gradient is all noise.
    """

    learning_rate: float
    beta: float = 0.9
    beta_squared: float = 0.999
    floor: float = 1e-8
    share: float = 0.05

    def init(self, dimension: int) -> NoisyMoments:
        return NoisyMoments(0, 0.0, 0.0, 0.0)

    def __call__(self, answer: Answer, theta: Array, state: NoisyMoments) -> tuple[Array, NoisyMoments]:
        step = state.step + 1
        first = self.beta * state.first + (1 - self.beta) * answer.value
        second = self.beta_squared * state.second + (1 - self.beta_squared) * answer.value**2
        noise = self.beta_squared * state.noise + (1 - self.beta_squared) * answer.noise_std**2
        whole = 1 - self.beta_squared**step
        signal = ((second - noise) / whole).clip(self.share * noise / whole, None)
        rate = self.learning_rate / (1 - self.beta**step)
        moved = theta - rate * first / (signal**0.5 + self.floor)
        return moved, NoisyMoments(step, first, second, noise)


OPTIMIZERS = {
    "sgd": Sgd,
    "momentum": Momentum,
    "debiased_momentum": DebiasedMomentum,
    "adagrad": AdaGrad,
    "adam": Adam,
    "adam_bc": AdamBC,
}
