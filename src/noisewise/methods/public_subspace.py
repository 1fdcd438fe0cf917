"""Projected DP-SGD: noise only in the directions in which public gradients are large.

    B_t = the k leading directions of the public records' gradients at theta_t
    g_t = B_t (sum over batch of clip(B_t^T gradient_i, C) + N(0, sigma^2 C^2)) / (expected batch size)
    theta_{t+1} = theta_t - projector(g_t)

The paper clips and noises whole gradients and projects the answer. For linear models gradients are projected before
they are clipped: the same noise in the subspace, and nothing is clipped away for what lies outside it. A perceptron's
answer is projected as in the paper.

*Guarantee*: a plan, as for DP-SGD. The basis comes from public records and released iterates, so projecting costs
nothing. What the public gradients do not span is never learned.

Zhou, Wu & Banerjee 2020, Bypassing the Ambient Dimension: Private SGD with Gradient Subspace Identification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from .. import _validate
from ..accounting.calibrate import calibrate
from ..budget import Terms
from ..curator import Curator, Facts, PublicCurator
from ..events import FULL, Gaussian, Repeated, Sampling, sampled
from ..protect.optimizers import OPTIMIZERS
from .base import Method
from .size import size_noise
from .walk import Walk, arrived, onward, set_out


class State(NamedTuple):
    walk: Walk
    noise_multiplier: float
    basis: Tensor | None


@dataclass(frozen=True)
class PublicSubspace(Method):
    """``rank``: the k directions; ``refresh``: they are found anew every so many steps."""

    steps: int = 100
    sampling: Sampling = FULL
    rank: int = 20
    refresh: int = 10
    max_grad_norm: float = 1.0
    optimizer: str = "momentum"
    learning_rate: float | None = None
    l2: float = 0.0
    tail: float = 0.5

    name: ClassVar[str] = "public_subspace"
    summary: ClassVar[str] = "gradients projected on the leading directions of public gradients"
    paper: ClassVar[str] = "Zhou, Wu & Banerjee 2020"
    needs_public: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _validate.whole(steps=self.steps, rank=self.rank, refresh=self.refresh)
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
        if public is None or public.size == 0:
            raise ValueError("public_subspace needs public rows; pass public=(X, y) or another method")
        walk = set_out(theta, facts, public, self.optimizer, self.learning_rate)
        return State(walk, self.noise_multiplier(facts), None)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        assert public is not None
        basis, walk = state.basis, state.walk
        if basis is None or walk.step % self.refresh == 0:
            basis = public.gradient_subspace(walk.theta, self.rank)
        answer = private.gradient(
            walk.theta,
            clip=self.max_grad_norm,
            noise_multiplier=state.noise_multiplier,
            sampling=self.sampling,
            basis=basis,
        )
        return state._replace(
            walk=onward(walk, answer.value, l2=self.l2, steps=self.steps, tail=self.tail), basis=basis
        )

    def done(self, state: State) -> bool:
        return state.walk.step >= self.steps

    def finish(self, state: State, public: PublicCurator | None) -> Tensor:
        return arrived(state.walk, steps=self.steps, tail=self.tail)

    def total_steps(self) -> int:
        return self.steps
