"""DP-SGD: clipped gradients with Gaussian noise, the same at every step.

    g_t = (sum over batch of clip(gradient_i, C) + N(0, sigma^2 C^2)) / (expected batch size)
    theta_{t+1} = theta_t - projector(g_t) - eta lambda theta_t

The mean of the last ``tail`` share of the iterates is released: averaging is post-processing and cancels noise.

*Guarantee*: a plan. sigma is calibrated before the first record is touched so that all steps together (and the
bought size, when the size is private) cost at most the budget: exactly by Gaussian DP for full batches, by privacy
loss distributions for Poisson batches, by Renyi DP for fixed-size batches (replace_one only).

Abadi et al. 2016, Deep Learning with Differential Privacy; Song, Chaudhuri & Sarwate 2013.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .. import _validate
from ..accounting.calibrate import calibrate
from ..accounting.gdp import mu_of
from ..budget import Terms
from ..curator import Answer, Curator, Facts, PublicCurator
from ..events import FULL, Gaussian, Repeated, Sampling, sampled
from ..protect.optimizers import OPTIMIZERS, Optimizer
from .base import Method
from .nonprivate import minimise
from .size import size_noise

WARM_START_L2 = 0.01  # a start from few public rows should not run away


class State(NamedTuple):
    step: int
    theta: Tensor
    noise_multiplier: float
    projector: Optimizer[Any]
    memory: Any
    tail_sum: Tensor


@dataclass(frozen=True)
class DpSgd(Method):
    """Constant noise, any sampling, SGD, momentum, Adam and other projectors."""

    steps: int = 100
    sampling: Sampling = FULL
    max_grad_norm: float = 1.0
    optimizer: str = "momentum"
    learning_rate: float | None = None
    l2: float = 0.0
    tail: float = 0.5

    name: ClassVar[str] = "dpsgd"
    summary: ClassVar[str] = "clipped gradients, constant Gaussian noise, fixed plan"
    paper: ClassVar[str] = "Abadi et al. 2016"

    def __post_init__(self) -> None:
        _validate.whole(steps=self.steps)
        _validate.positive(max_grad_norm=self.max_grad_norm)
        _validate.one_of(tuple(OPTIMIZERS), optimizer=self.optimizer)
        _validate.share(tail=self.tail)
        _validate.not_negative(l2=self.l2)
        if self.learning_rate is not None:
            _validate.positive(learning_rate=self.learning_rate)

    def noise_multiplier(self, facts: Facts) -> float:
        """sigma, from the budget and the number of steps alone."""
        return float(calibrate(facts.budget, steps=self.steps, sampling=self.sampling, also=size_noise(facts)))

    def terms(self, facts: Facts) -> Terms:
        step = sampled(self.sampling, Gaussian(self.noise_multiplier(facts)))
        return Terms.plan((*size_noise(facts), Repeated(step, self.steps)))

    def init(self, theta: Tensor, facts: Facts, public: PublicCurator | None) -> State:
        if public is not None:
            theta = minimise(public, theta, l2=WARM_START_L2, steps=50)
        rate = self.learning_rate or default_learning_rate(self.optimizer, facts)
        projector: Optimizer[Any] = OPTIMIZERS[self.optimizer](rate)
        sigma = self.noise_multiplier(facts)
        return State(0, theta, sigma, projector, projector.init(len(theta)), torch.zeros_like(theta))

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        answer = private.gradient(
            state.theta, clip=self.max_grad_norm, noise_multiplier=state.noise_multiplier, sampling=self.sampling
        )
        if self.l2:
            answer = Answer(answer.value + self.l2 * state.theta, answer.noise_std)  # after the noise: costs nothing
        theta, memory = state.projector(answer, state.theta, state.memory)
        in_tail = state.step + 1 > self.steps - self.tail_steps
        tail_sum = state.tail_sum + theta if in_tail else state.tail_sum
        return state._replace(step=state.step + 1, theta=theta, memory=memory, tail_sum=tail_sum)

    def done(self, state: State) -> bool:
        return state.step >= self.steps

    def finish(self, state: State, public: PublicCurator | None) -> Tensor:
        return state.tail_sum / self.tail_steps if state.step >= self.steps else state.theta

    @property
    def tail_steps(self) -> int:
        return max(1, round(self.tail * self.steps))

    def total_steps(self) -> int:
        return self.steps


def default_learning_rate(optimizer: str, facts: Facts) -> float:
    """A step size from public or released facts: larger where the budget buys a clear gradient.

    r = n mu / sqrt(d) is the signal-to-noise ratio of one release of the whole budget (mu halves under replace_one).
    Momentum steps grow as sqrt(r), up to 2 or the 2/M that a smooth loss allows; SGD takes the ten steps that momentum
    0.9 adds up, up to 1/M; Adam and AdaGrad move each coordinate by about their rate.
    """
    budget = facts.budget
    mu = mu_of(budget.epsilon, budget.delta) / (2 if budget.adjacency == "replace_one" else 1)
    ratio = (facts.size or 1.0) * mu / math.sqrt(facts.dimension)
    largest = 2.0 if math.isinf(facts.smoothness) else min(2.0, 2 / facts.smoothness)
    rate = min(0.5 * math.sqrt(ratio / 30), largest)
    if optimizer == "momentum":
        return rate
    if optimizer in ("sgd", "debiased_momentum"):
        return 10 * rate if math.isinf(facts.smoothness) else min(10 * rate, 1 / facts.smoothness)
    return 0.2 * rate
