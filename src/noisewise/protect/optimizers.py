"""Optimizers: from a noised mean gradient to the next theta. Post-processing, so they cost nothing.

Each is a frozen rule with ``init(dimension) -> state`` and ``(answer, theta, state) -> (new theta, state)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from ..curator import Answer
from ..trusted.late import Tensor, torch

S = TypeVar("S")


class Optimizer(Protocol[S]):
    def init(self, dimension: int) -> S: ...
    def __call__(self, answer: Answer, theta: Tensor, state: S) -> tuple[Tensor, S]: ...


class GradientMoments(NamedTuple):
    """What an optimizer remembers of earlier gradients."""

    step: int
    first: Tensor
    second: Tensor


class _OfMoments:
    def init(self, dimension: int) -> GradientMoments:
        return GradientMoments(0, torch.zeros(dimension), torch.zeros(dimension))


@dataclass(frozen=True)
class Sgd:
    """theta - eta g."""

    learning_rate: float

    def init(self, dimension: int) -> None:
        return None

    def __call__(self, answer: Answer, theta: Tensor, state: None) -> tuple[Tensor, None]:
        return torch.add(theta, answer.value, alpha=-self.learning_rate), None


@dataclass(frozen=True)
class Momentum:
    """theta - eta v with v <- beta v + g (Polyak 1964, heavy ball)."""

    learning_rate: float
    beta: float = 0.9

    def init(self, dimension: int) -> Tensor:
        return torch.zeros(dimension)

    def __call__(self, answer: Answer, theta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        velocity = torch.add(answer.value, state, alpha=self.beta)
        return torch.add(theta, velocity, alpha=-self.learning_rate), velocity


@dataclass(frozen=True)
class DebiasedMomentum(_OfMoments):
    """theta - eta v / (1 - beta^t) with v <- beta v + (1 - beta) g: an average of past gradients."""

    learning_rate: float
    beta: float = 0.9

    def __call__(self, answer: Answer, theta: Tensor, state: GradientMoments) -> tuple[Tensor, GradientMoments]:
        step = state.step + 1
        first = torch.lerp(answer.value, state.first, self.beta)
        rate = self.learning_rate / (1 - self.beta**step)
        return torch.add(theta, first, alpha=-rate), GradientMoments(step, first, state.second)


@dataclass(frozen=True)
class AdaGrad(_OfMoments):
    """theta - eta g / sqrt(sum of g^2) (Duchi et al. 2011)."""

    learning_rate: float
    floor: float = 1e-8

    def __call__(self, answer: Answer, theta: Tensor, state: GradientMoments) -> tuple[Tensor, GradientMoments]:
        second = torch.addcmul(state.second, answer.value, answer.value)
        moved = torch.addcdiv(theta, answer.value, second.sqrt().add_(self.floor), value=-self.learning_rate)
        return moved, GradientMoments(state.step + 1, state.first, second)


@dataclass(frozen=True)
class Adam(_OfMoments):
    """theta - eta m / (sqrt(v) + floor) with debiased averages m of g and v of g^2 (Kingma & Ba 2015)."""

    learning_rate: float
    beta: float = 0.9
    beta_squared: float = 0.999
    floor: float = 1e-8

    def __call__(self, answer: Answer, theta: Tensor, state: GradientMoments) -> tuple[Tensor, GradientMoments]:
        step = state.step + 1
        first = torch.lerp(answer.value, state.first, self.beta)
        second = torch.lerp(answer.value.square(), state.second, self.beta_squared)
        spread = torch.sqrt(second / (1 - self.beta_squared**step)).add_(self.floor)
        rate = self.learning_rate / (1 - self.beta**step)
        return torch.addcdiv(theta, first, spread, value=-rate), GradientMoments(step, first, second)


class NoisyMoments(NamedTuple):
    """What an optimizer remembers of earlier gradients, and how much of their squares is noise."""

    step: int
    first: Tensor
    second: Tensor
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
        return NoisyMoments(0, torch.zeros(dimension), torch.zeros(dimension), 0.0)

    def __call__(self, answer: Answer, theta: Tensor, state: NoisyMoments) -> tuple[Tensor, NoisyMoments]:
        step = state.step + 1
        first = torch.lerp(answer.value, state.first, self.beta)
        second = torch.lerp(answer.value.square(), state.second, self.beta_squared)
        noise = self.beta_squared * state.noise + (1 - self.beta_squared) * answer.noise_std**2
        whole = 1 - self.beta_squared**step
        signal = torch.clamp((second - noise) / whole, min=self.share * noise / whole)
        rate = self.learning_rate / (1 - self.beta**step)
        moved = torch.addcdiv(theta, first, signal.sqrt_().add_(self.floor), value=-rate)
        return moved, NoisyMoments(step, first, second, noise)


OPTIMIZERS = {
    "sgd": Sgd,
    "momentum": Momentum,
    "debiased_momentum": DebiasedMomentum,
    "adagrad": AdaGrad,
    "adam": Adam,
    "adam_bc": AdamBC,
}
