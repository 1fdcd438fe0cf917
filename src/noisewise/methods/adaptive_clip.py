"""A clip norm that follows the gradients: the quantile clip, and coordinate-wise AdaClip.

    b_t = released share of records with gradient norm <= C_t              (from the same batch as the gradient)
    C_{t+1} = C_t exp(-eta_C (b_t - gamma))                                ("quantile")
    theta_{t+1} = theta_t - projector(g_t / C_t)

``form="adaclip"`` also divides each coordinate by a scale before the clip, estimated from released gradients:

    m <- beta_1 m + (1 - beta_1) g_t,   v <- beta_2 v + (1 - beta_2) max((g_t - m)^2 - noise variance, 0)
    scale_j = (s_j / mean of s)^(1/2),  s_j = sqrt(v_j) + floor

Pichapati et al. set the level of the scale from s as well. Released means say little about how long single gradients
are, so here the scale has mean square 1 and the level is the quantile clip's. Steps are taken along g_t / C_t, so that
the step size does not depend on the unit of the gradients.

*Guarantee*: a plan. Each step is one event, the gradient and the count of its batch together, with noise multipliers
fixed beforehand: sigma^-2 = sigma_gradient^-2 + sigma_count^-2, the count taking ``count_share`` of it. C_t and the
scale depend on earlier answers, which a plan allows because the noise is sigma_gradient C_t in their coordinates.

Andrew, Thakkar, McMahan & Ramaswamy 2021, Differentially Private Learning with Adaptive Clipping; Pichapati, Suresh,
Yu, Reddi & Kumar 2019, AdaCliP: Adaptive Clipping for Private SGD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..accounts import Terms
from ..asking import Answer, Curator, Facts, PublicCurator
from ..trusted import validate
from ..trusted.accountants.common import joint_noise, split_noise
from ..trusted.events import FULL, Gaussian, Repeated, Sampling, sampled
from .base import Array
from .gradient_walk import Walk, WalkingMethod

FORMS = ("quantile", "adaclip")
MAX_CLIP_RATIO = 1e3  # the clip stays within this factor of its start
BETA_1, BETA_2 = 0.99, 0.9
FLOOR = 0.1  # of the mean spread: a coordinate that looks quiet is still measured


class State(NamedTuple):
    walk: Walk
    clip: float
    noise: tuple[float, float]
    scale: Array | None
    mean: Array
    variance: Array


@dataclass(frozen=True)
class AdaptiveClip(WalkingMethod):
    """``max_grad_norm`` is where the clip norm starts; ``target_quantile`` of the gradients should be shorter."""

    steps: int = 100
    sampling: Sampling = FULL
    form: str = "quantile"
    max_grad_norm: float = 1.0
    target_quantile: float = 0.5
    clip_learning_rate: float = 0.2
    count_share: float = 0.01
    optimizer: str = "momentum"
    learning_rate: float | None = None
    l2: float = 0.0
    tail: float = 0.5

    name: ClassVar[str] = "adaptive_clip"
    summary: ClassVar[str] = "a clip norm that follows a quantile of the gradient norms; coordinate-wise on request"
    paper: ClassVar[str] = "Andrew et al. 2021; Pichapati et al. 2019"

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.one_of(FORMS, form=self.form)
        validate.positive(clip_learning_rate=self.clip_learning_rate)
        validate.open_unit(target_quantile=self.target_quantile, count_share=self.count_share)

    def noise(self, facts: Facts) -> tuple[float, float]:
        """sigma of the gradient and of the count, from the budget and the number of steps alone."""
        return split_noise(self.noise_multiplier(facts), self.count_share)

    def terms(self, facts: Facts) -> Terms:
        if self.form == "adaclip" and not facts.coordinates:
            raise ValueError("form is 'adaclip', which needs a linear model; pass form='quantile' for a perceptron")
        step = sampled(self.sampling, Gaussian(joint_noise(*self.noise(facts))))
        return self.plan_of(facts, Repeated(step, self.steps))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        walk = self.set_out(theta, facts, public)
        scale = np.ones_like(theta) if self.form == "adaclip" else None
        zero = np.zeros_like(theta)
        return State(walk, float(self.max_grad_norm), self.noise(facts), scale, zero, zero)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        sigma, sigma_count = state.noise
        answer = private.gradient(
            state.walk.theta,
            clip=state.clip,
            noise_multiplier=sigma,
            sampling=self.sampling,
            scale=state.scale,
            quantile_at=state.clip,
            count_noise_multiplier=sigma_count,
        )
        walk = self.onward(state.walk, Answer(answer.value / state.clip, answer.noise_std / state.clip))
        state = state._replace(walk=walk, clip=self._next_clip(state.clip, answer.below))
        return state if state.scale is None else rescaled(state, answer)

    def _next_clip(self, clip: float, below: float | None) -> float:
        share = min(max(below or 0.0, 0.0), 1.0)  # noise may take it outside
        moved = clip * math.exp(-self.clip_learning_rate * (share - self.target_quantile))
        return min(max(moved, self.max_grad_norm / MAX_CLIP_RATIO), self.max_grad_norm * MAX_CLIP_RATIO)


def rescaled(state: State, answer: Answer) -> State:
    """The scale of the next step, from the mean and spread of released gradients less their known noise."""
    assert state.scale is not None
    noise = (answer.noise_std * state.scale) ** 2
    seen = np.maximum((answer.value - state.mean) ** 2 - noise, 0.0)
    variance = BETA_2 * state.variance + (1 - BETA_2) * seen
    spread = np.sqrt(variance)
    spread = spread + FLOOR * spread.mean() + np.finfo(np.float32).tiny
    scale = np.sqrt(spread / spread.mean()).clip(1e-3, 1e3)
    mean = BETA_1 * state.mean + (1 - BETA_1) * answer.value
    return state._replace(scale=scale, mean=mean, variance=variance)
