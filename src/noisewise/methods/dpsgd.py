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

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..accounts import Terms
from ..asking import Curator, Facts, PublicCurator
from ..trusted.events import FULL, Sampling
from .base import Array
from .walk import Walk, WalkingMethod


class State(NamedTuple):
    walk: Walk
    noise_multiplier: float


@dataclass(frozen=True)
class DpSgd(WalkingMethod):
    """Constant noise, any sampling, SGD, momentum, Adam and other projectors.

    ``max_grad_norm`` may be a tuple with a clip norm for each layer of a torch module: one event, with the same noise on
    every coordinate.
    """

    steps: int = 100
    sampling: Sampling = FULL
    max_grad_norm: float | tuple[float, ...] = 1.0
    optimizer: str = "momentum"
    learning_rate: float | None = None
    l2: float = 0.0
    tail: float = 0.5

    name: ClassVar[str] = "dpsgd"
    summary: ClassVar[str] = "clipped gradients, constant Gaussian noise, fixed plan"
    paper: ClassVar[str] = "Abadi et al. 2016"
    layers: ClassVar[bool] = True

    def terms(self, facts: Facts) -> Terms:
        clips = self.max_grad_norm
        if isinstance(clips, tuple) and not (facts.tensors and len(clips) == len(facts.groups)):
            raise ValueError(
                f"max_grad_norm has {len(clips)} clip norms; pass one number, or for a torch module one for each of its "
                f"{len(facts.groups)} trained parameters"
            )
        return super().terms(facts)

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        return State(self.set_out(theta, facts, public), self.noise_multiplier(facts))

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        clip, theta, sigma = self.max_grad_norm, state.walk.theta, state.noise_multiplier
        if isinstance(clip, tuple):
            answer = private.layered_gradient(theta, clips=clip, noise_multiplier=sigma, sampling=self.sampling)
        else:
            answer = private.gradient(theta, clip=clip, noise_multiplier=sigma, sampling=self.sampling)
        return state._replace(walk=self.onward(state.walk, answer))
