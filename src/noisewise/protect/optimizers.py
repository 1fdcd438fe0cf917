"""Optimizers: from a noised mean gradient to the next theta. Post-processing, so they cost nothing.

Each is a frozen rule with ``init(dimension) -> state`` and ``(answer, theta, state) -> (new theta, state)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..asking import Answer

# Arrays of a protector: numpy's in a private run, torch's tensors with a graph in meta-training, by the very same code.
#
# The two share arithmetic, ``x.clip(low, high)``, ``x ** 0.5``, ``x.sum(1)`` and slices. What they do not share is here.


Array = Any  # of either kind, in single precision


def filled(like: Array, shape: tuple[int, ...], value: float) -> Array:
    """An array of that shape, of the kind of ``like``."""
    if isinstance(like, np.ndarray):
        return np.full(shape, value, np.float32)
    return like.new_full(shape, value).float()


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


# A brake for steps that are too long for the records: released gradients that contradict each other tell where.
#
# A step beyond 2/h along a direction of curvature h lands further away on the other side, and the next one comes back: a
# run that goes to and fro, in which everything else is learned and this is not. The clearer the answers, the longer the
# steps, so it is a large budget that does harm. Answers show it: with G_t the gradient released at theta_t,
#
# G_t . G_(t-1) < -3 sd   (sd the standard deviation of the noise in it)
#
# cannot be noise. The direction u of G_t - G_(t-1) and its curvature h = |G_t - G_(t-1)| / u.(theta_t - theta_(t-1)) are
# kept, and from then on a step goes along u no further than -u.G/h, to where the gradient would vanish.
#
# *Guarantee*: post-processing of released answers, whose noise is known; nothing is asked.


Vector = NDArray[np.float64]
MIN_CLEAR_DEVIATIONS = 3.0  # of noise
MAX_DIRECTIONS = 16
MIN_NEW_SHARE = 0.7  # of a direction's length outside of those that are held already


class HeldDirection(NamedTuple):
    """A unit vector, orthogonal to the others that are held, and the largest curvature that was seen along it."""

    along: Vector
    curvature: float


class ReleasedGradient(NamedTuple):
    """A released gradient, the standard deviation of the noise on each coordinate, and where it was asked."""

    gradient: Vector
    noise: float
    theta: Vector


class Brake(NamedTuple):
    """What was seen so far; never changed, only replaced."""

    last: ReleasedGradient | None = None
    held: tuple[HeldDirection, ...] = ()

    def seen(self, asked: ReleasedGradient) -> Brake:
        """The brake after one more answer."""
        if self.last is None or not contradict(self.last, asked):
            return self._replace(last=asked)
        change, moved = asked.gradient - self.last.gradient, asked.theta - self.last.theta
        along = change / np.linalg.norm(change)
        way = float(along @ moved)
        if way <= 0:
            return self._replace(last=asked)
        return Brake(asked, _with(self.held, along, float(np.linalg.norm(change)) / way))

    def braked(self, asked: ReleasedGradient, step: Vector) -> Vector:
        """The step, no further along what is held than to where the gradient would vanish."""
        for along, curvature in self.held:
            wanted, limit = float(along @ step), -float(along @ asked.gradient) / curvature
            step = step + (min(max(wanted, min(limit, 0.0)), max(limit, 0.0)) - wanted) * along
        return step


def agreement(one: ReleasedGradient, other: ReleasedGradient) -> tuple[float, float]:
    """The product of two gradients, and the standard deviation of what noise makes of it."""
    first, second = float(one.gradient @ one.gradient), float(other.gradient @ other.gradient)
    variance = other.noise**2 * first + one.noise**2 * second + len(one.gradient) * (one.noise * other.noise) ** 2
    return float(one.gradient @ other.gradient), math.sqrt(variance)


def contradict(one: ReleasedGradient, other: ReleasedGradient) -> bool:
    """Whether two gradients point against each other, clearly beyond their noise."""
    product, deviation = agreement(one, other)
    return product < -MIN_CLEAR_DEVIATIONS * deviation


def _with(held: tuple[HeldDirection, ...], along: Vector, curvature: float) -> tuple[HeldDirection, ...]:
    """What is held with one direction more, or with a larger curvature of the one that it is nearest to."""
    rest = along - sum((float(old.along @ along) * old.along for old in held), np.zeros_like(along))
    length = float(np.linalg.norm(rest))
    if length > MIN_NEW_SHARE and len(held) < MAX_DIRECTIONS:
        return (*held, HeldDirection(rest / length, curvature))
    nearest = max(range(len(held)), key=lambda place: abs(float(held[place].along @ along)))
    old = held[nearest]
    return (*held[:nearest], HeldDirection(old.along, max(old.curvature, curvature)), *held[nearest + 1 :])
