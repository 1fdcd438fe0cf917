"""The walk that gradient methods share: an optimizer's steps from a public start, and the mean of the last iterates."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..accounts import Terms
from ..asking import Answer, Facts, PublicCurator
from ..protect.optimizers import OPTIMIZERS, Optimizer
from ..protect.signal import signal_to_noise
from ..trusted import validate
from ..trusted.accountants.calibrate import calibrate
from ..trusted.events import Event, Gaussian, Repeated, Sampling, sampled
from .base import Array, Method, size_noise
from .nonprivate import warm_start

MODULE_RATES = {"sgd": 0.5, "momentum": 0.1, "debiased_momentum": 0.5, "adagrad": 0.01, "adam": 1e-3, "adam_bc": 1e-3}


class Walk(NamedTuple):
    step: int
    theta: Array
    optimizer: Optimizer[Any]
    memory: Any
    tail_sum: Array


class WalkingMethod(Method):
    """A fixed number of noisy gradients, priced as a plan; a subclass asks the question of a step.

    Its state has a ``walk``. The mean of the last ``tail`` share of the iterates is released: post-processing that
    cancels noise. Settings are declared by the subclasses, in the order in which a statement lists them.
    """

    steps: int
    sampling: Sampling
    max_grad_norm: Any  # a clip norm, or several where there are ``layers``
    optimizer: str
    learning_rate: float | None
    l2: float
    tail: float
    accountant: ClassVar[str] = "auto"  # the one that asks for the least noise
    layers: ClassVar[bool] = False  # whether max_grad_norm may be a tuple, one for each layer of a torch module

    def __post_init__(self) -> None:
        validate.whole(steps=self.steps)
        several = self.layers and isinstance(self.max_grad_norm, tuple) and len(self.max_grad_norm) > 0
        for clip in self.max_grad_norm if several else (self.max_grad_norm,):
            validate.positive(max_grad_norm=clip)
        validate.positive_or_none(learning_rate=self.learning_rate)
        validate.one_of(tuple(OPTIMIZERS), optimizer=self.optimizer)
        validate.share(tail=self.tail)
        validate.not_negative(l2=self.l2)

    def noise_multiplier(self, facts: Facts) -> float:
        """sigma, from the budget and the number of steps alone."""
        also = size_noise(facts)
        return calibrate(facts.budget, steps=self.steps, sampling=self.sampling, also=also, accountant=self.accountant)

    def terms(self, facts: Facts) -> Terms:
        step = sampled(self.sampling, Gaussian(self.noise_multiplier(facts)))
        return self.plan_of(facts, Repeated(step, self.steps))

    def plan_of(self, facts: Facts, *events: Event) -> Terms:
        """A plan of these events and the bought size."""
        return Terms.plan((*size_noise(facts), *events), self.accountant)

    def set_out(self, theta: Array, facts: Facts, public: PublicCurator | None) -> Walk:
        """At the public start, or at the minimum of the public loss if there are public rows."""
        theta = warm_start(theta, public)
        rate = self.learning_rate or default_learning_rate(self.optimizer, facts)
        optimizer: Optimizer[Any] = OPTIMIZERS[self.optimizer](rate)
        return Walk(0, theta, optimizer, optimizer.init(len(theta)), np.zeros_like(theta))

    def onward(self, walk: Walk, answer: Answer) -> Walk:
        """One step along a released gradient; l2 is added after the noise and costs nothing."""
        if self.l2:
            answer = answer._replace(value=answer.value + self.l2 * walk.theta)
        theta, memory = walk.optimizer(answer, walk.theta, walk.memory)
        in_tail = walk.step + 1 > self.steps - self.tail_steps
        tail_sum = walk.tail_sum + theta if in_tail else walk.tail_sum
        return walk._replace(step=walk.step + 1, theta=theta, memory=memory, tail_sum=tail_sum)

    @property
    def tail_steps(self) -> int:
        return max(1, round(self.tail * self.steps))

    def done(self, state: Any) -> bool:
        return bool(state.walk.step >= self.steps)

    def finish(self, state: Any, public: PublicCurator | None) -> Array:
        walk: Walk = state.walk
        summed = walk.step - (self.steps - self.tail_steps)  # fewer where an answer was lost, and its step with it
        return walk.tail_sum / summed if summed > 0 else walk.theta


def default_learning_rate(optimizer: str, facts: Facts) -> float:
    """A step size from public or released facts: larger where the budget buys a clear gradient.

    r = n mu / sqrt(d) is the signal-to-noise ratio of one release of the whole budget (mu halves under replace_one).
    Momentum steps grow as sqrt(r), up to 2 or the 2/M that a smooth loss allows; SGD takes the ten steps that momentum
    0.9 adds up, up to 1/M; Adam and AdaGrad move each coordinate by about their rate. Of torch modules nothing is known:
    theirs are rates that are usual for networks (``MODULE_RATES``).
    """
    if facts.tensors:
        return MODULE_RATES[optimizer]
    largest = 2.0 if math.isinf(facts.smoothness) else min(2.0, 2 / facts.smoothness)
    rate = min(0.5 * math.sqrt(signal_to_noise(facts) / 30), largest)
    if optimizer == "momentum":
        return rate
    if optimizer in ("sgd", "debiased_momentum"):
        return 10 * rate if math.isinf(facts.smoothness) else min(10 * rate, 1 / facts.smoothness)
    return 0.2 * rate
