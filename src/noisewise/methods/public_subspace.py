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

from ..asking import Curator, Facts, PublicCurator
from ..trusted import validate
from ..trusted.events import FULL, Sampling
from .base import Array
from .gradient_walk import Walk, WalkingMethod
from .nonprivate import required


class State(NamedTuple):
    walk: Walk
    noise_multiplier: float
    basis: Array | None


@dataclass(frozen=True)
class PublicSubspace(WalkingMethod):
    """``rank``: the k directions; ``refresh``: the number of steps after which they are found anew."""

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
        super().__post_init__()
        validate.whole(rank=self.rank, refresh=self.refresh)

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        walk = self.set_out(theta, facts, required(public, self.name))
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
        return state._replace(walk=self.onward(walk, answer), basis=basis)
