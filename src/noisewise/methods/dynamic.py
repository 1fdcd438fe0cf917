"""DYN: gradient descent whose noise falls as its influence on the final loss grows.

    v_t = beta v_{t-1} + (1 - beta) g_t,    theta_{t+1} = theta_t - eta v_t / (1 - beta^t)
    sigma_t^2 = (1/R) sum_i sqrt(q_i / q_t)

A step leaves a share gamma of the excess loss, so the noise of early steps is mostly forgotten: q_t = gamma^(T-t)
without momentum (``momentum=0``), and the exact influence of :func:`protect.schedules.debiased_momentum` with it.
gamma = 1 - eta mu with mu the least curvature of the loss, measured on public rows; without them 0.98. (A smaller gamma
spends so little on early steps that noise carries theta far along flat directions, where it is not forgotten.) The last
iterate is released.

*Guarantee*: full batches use the GDP filter, which is exact and covers that gamma, and so the noise, may depend on public
rows and on the bought size. Sampled batches are a plan, fixed and priced before the first record is touched, which knows
no public rows, so gamma is the setting or 0.98.

Hong, Wang & Zhou 2022, Dynamic Privacy Budget Allocation Improves Data Efficiency of DP Gradient Descent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..accounts import Terms
from ..asking import Answer, Curator, Facts, PublicCurator
from ..protect import schedules
from ..protect.optimizers import DebiasedMomentum, GradientMoments
from ..trusted import validate
from ..trusted.accountants.calibrate import Floats, calibrate
from ..trusted.events import FULL, Gaussian, Sampling, sampled
from .base import Array, Method, size_noise
from .gradient_walk import default_learning_rate
from .nonprivate import warm_start

GAMMA = 0.98  # without public rows: what steps leave of the excess loss in slow directions, at best
REACH = 0.05  # distance over which the change of the public gradient is measured; a kink within it counts
MAX_HESSIAN_COLUMNS = 2000


class State(NamedTuple):
    step: int
    theta: Array
    noise_multipliers: Floats
    projector: DebiasedMomentum
    memory: GradientMoments


@dataclass(frozen=True)
class Dynamic(Method):
    """Influence-optimal noise; ``gamma`` in (0, 1] overrides what public rows or the loss would say."""

    steps: int = 100
    sampling: Sampling = FULL
    max_grad_norm: float = 1.0
    momentum: float = 0.9
    learning_rate: float | None = None
    gamma: float | None = None
    l2: float = 0.0

    name: ClassVar[str] = "dynamic"
    summary: ClassVar[str] = "noise falls as its influence on the final loss grows"
    paper: ClassVar[str] = "Hong et al. 2022"

    def __post_init__(self) -> None:
        validate.whole(steps=self.steps)
        validate.positive(max_grad_norm=self.max_grad_norm)
        validate.not_negative(l2=self.l2)
        validate.positive_or_none(learning_rate=self.learning_rate)
        if self.gamma is not None:
            validate.share(gamma=self.gamma)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum!r}; pass a number in [0, 1)")

    def noise_multipliers(self, facts: Facts, public: PublicCurator | None = None) -> Floats:
        """sigma_1 .. sigma_T, from public facts and rows alone."""
        gamma = self.gamma or self._gamma(facts, public)
        q = schedules.debiased_momentum(self.steps, gamma, self.momentum)
        shape = schedules.noise_shape(q)
        return calibrate(facts.budget, steps=self.steps, sampling=self.sampling, shape=shape, also=size_noise(facts))

    def terms(self, facts: Facts) -> Terms:
        if self.sampling[0] == "full":
            return Terms.adaptive("gdp")
        noise = self.noise_multipliers(facts)
        steps = (sampled(self.sampling, Gaussian(sigma)) for sigma in noise.tolist())
        return Terms.plan((*size_noise(facts), *steps))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        theta = warm_start(theta, public)
        noise = self.noise_multipliers(facts, public if self.sampling[0] == "full" else None)
        projector = DebiasedMomentum(self._rate(facts), self.momentum)
        return State(0, theta, noise, projector, projector.init(len(theta)))

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        sigma = float(state.noise_multipliers[state.step])
        answer = private.gradient(state.theta, clip=self.max_grad_norm, noise_multiplier=sigma, sampling=self.sampling)
        answer = Answer(answer.value + self.l2 * state.theta, answer.noise_std)
        theta, memory = state.projector(answer, state.theta, state.memory)
        return state._replace(step=state.step + 1, theta=theta, memory=memory)

    def _rate(self, facts: Facts) -> float:
        """eta: that of DP-SGD, at most the 1/M of Theorem 3.2, or 8/M with momentum, which damps."""
        if self.learning_rate is not None:
            return self.learning_rate
        rate = default_learning_rate("debiased_momentum", facts)
        return rate if math.isinf(facts.smoothness) else min(rate, (8 if self.momentum else 1) / facts.smoothness)

    def _gamma(self, facts: Facts, public: PublicCurator | None) -> float:
        """1 - eta (least public curvature + l2), from 0.9 to 1; without public rows ``GAMMA``."""
        if public is None or facts.tensors or facts.dimension > MAX_HESSIAN_COLUMNS:
            return GAMMA
        at = warm_start(public.model.start(), public)
        return min(max(1 - self._rate(facts) * (least_curvature(public, at) + self.l2), 0.9), 1.0)


def least_curvature(public: PublicCurator, theta: Array) -> float:
    """The smallest eigenvalue of the Hessian of the mean public loss at theta, never below 0.

    Column j is (grad(theta + h e_j) - grad(theta - h e_j)) / (2 h), which also smooths kinks over a distance h.
    """
    steps = REACH * np.eye(len(theta), dtype=theta.dtype)
    columns = [public.gradient(theta + step).value - public.gradient(theta - step).value for step in steps]
    hessian = np.array(columns, np.float64) / (2 * REACH)
    return max(float(np.linalg.eigvalsh((hessian + hessian.T) / 2)[0]), 0.0)
