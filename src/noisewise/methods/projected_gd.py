"""Private projected gradient descent over a convex set.

    theta_{t+1} = project(theta_t - eta_t (mean of clipped gradients + noise)),    eta_t = D / (G sqrt(t))

D is the diameter of the set and G^2 = C^2 + d (noise std)^2 bounds E ||noisy gradient||^2. For a convex loss whose
gradients are not clipped the last iterate is within D G (2 + log T) / sqrt(T) of the best point of the set (Shamir &
Zhang 2013), the mean of all iterates within about D G / sqrt(T). ``release`` says which of the two is released.

*Guarantee*: a plan; sigma is calibrated for all steps and the bought size together. Projection onto the set is
post-processing, and so is averaging.

Private empirical risk minimisation by gradient perturbation: Bassily, Smith & Thakurta 2014; Shamir & Zhang 2013.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from .. import _validate
from ..accounting.calibrate import calibrate
from ..budget import Terms
from ..curator import Curator, Facts, PublicCurator
from ..curator.sampling import expected_size
from ..events import FULL, Gaussian, Repeated, Sampling
from ..protect.sets import ConvexSet, set_named
from .base import Method
from .size import size_noise

RELEASES = ("mean", "last")


class Walk(NamedTuple):
    """Where a projected walk is, and what it was told beforehand."""

    step: int
    theta: Tensor
    noise_multiplier: float
    sampling: Sampling
    inside: ConvexSet
    rate: float  # D / G
    total: Tensor


@dataclass(frozen=True)
class ProjectedGd(Method):
    """Full batches; ``constraint`` is "ball", "box" or "simplex" of size ``radius``."""

    steps: int = 100
    constraint: str = "ball"
    radius: float = 10.0
    max_grad_norm: float = 1.0
    release: str = "mean"

    name: ClassVar[str] = "projected_gd"
    summary: ClassVar[str] = "noisy gradient descent kept inside a ball, box or simplex"
    paper: ClassVar[str] = "Bassily et al. 2014"

    def __post_init__(self) -> None:
        _validate.whole(steps=self.steps)
        _validate.positive(max_grad_norm=self.max_grad_norm)
        _validate.one_of(RELEASES, release=self.release)
        set_named(self.constraint, self.radius)

    def noise_multiplier(self, facts: Facts) -> float:
        """sigma, from the budget and the number of steps alone."""
        return float(calibrate(facts.budget, steps=self.steps, also=size_noise(facts)))

    def terms(self, facts: Facts) -> Terms:
        return Terms.plan((*size_noise(facts), Repeated(Gaussian(self.noise_multiplier(facts)), self.steps)))

    def init(self, theta: Tensor, facts: Facts, public: PublicCurator | None) -> Walk:
        inside = set_named(self.constraint, self.radius)
        return start(theta, facts, inside, self.max_grad_norm, self.noise_multiplier(facts), FULL)

    def step(self, state: Walk, private: Curator, public: PublicCurator | None) -> Walk:
        return walk(state, private, self.max_grad_norm)

    def done(self, state: Walk) -> bool:
        return state.step >= self.steps

    def finish(self, state: Walk, public: PublicCurator | None) -> Tensor:
        return state.total / state.step if self.release == "mean" else state.theta

    def total_steps(self) -> int:
        return self.steps


def start(
    theta: Tensor, facts: Facts, inside: ConvexSet, clip: float, noise_multiplier: float, sampling: Sampling
) -> Walk:
    """The first point of a walk, in the set, and its step size D / G from public or released facts."""
    batch = expected_size(sampling, facts.size or 1.0)
    second_moment = clip**2 * (1 + (1 / batch if sampling[0] == "poisson" else 0.0))
    rate = inside.diameter(len(theta)) / math.sqrt(second_moment + len(theta) * (noise_multiplier * clip / batch) ** 2)
    return Walk(0, inside.project(theta), noise_multiplier, sampling, inside, rate, torch.zeros_like(theta))


def walk(state: Walk, private: Curator, clip: float) -> Walk:
    """One step along a noisy gradient and back into the set."""
    answer = private.gradient(state.theta, clip=clip, noise_multiplier=state.noise_multiplier, sampling=state.sampling)
    eta = state.rate / math.sqrt(state.step + 1)
    theta = state.inside.project(state.theta - eta * answer.value)
    return state._replace(step=state.step + 1, theta=theta, total=state.total + theta)
