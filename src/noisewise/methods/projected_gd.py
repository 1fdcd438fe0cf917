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
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from ..accounts import Budget, Terms
from ..asking import Curator, Facts, PublicCurator
from ..protect.projectors import ConvexSet, set_named
from ..trusted import validate
from ..trusted.accountants.calibrate import calibrate
from ..trusted.events import FULL, Gaussian, Repeated, Sampling, sampled
from ..trusted.stores.totals import expected_size
from .base import Array, Method, size_noise

RELEASES = ("mean", "last")


class State(NamedTuple):
    step: int
    theta: Array
    noise_multiplier: float
    sampling: Sampling
    inside: ConvexSet
    rate: float  # D / G
    total: Array


class ProjectedMethod(Method):
    """Noisy steps, each back into the set; a subclass says how batches are drawn and declares the settings."""

    steps: int
    constraint: str
    radius: float
    max_grad_norm: float
    release: str

    def __post_init__(self) -> None:
        validate.whole(steps=self.steps)
        validate.positive(max_grad_norm=self.max_grad_norm)
        validate.one_of(RELEASES, release=self.release)
        set_named(self.constraint, self.radius)

    def sampling_of(self, facts: Facts) -> Sampling:
        """How a batch is drawn, from public facts alone."""
        return FULL

    def noise_multiplier(self, facts: Facts) -> float:
        """sigma, from public facts alone."""
        return _calibrated(facts.budget, self.steps, self.sampling_of(facts), size_noise(facts))

    def terms(self, facts: Facts) -> Terms:
        step = sampled(self.sampling_of(facts), Gaussian(self.noise_multiplier(facts)))
        return Terms.plan((*size_noise(facts), Repeated(step, self.steps)))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        """The first point, in the set, and the step size D / G from public or released facts."""
        sampling, inside = self.sampling_of(facts), set_named(self.constraint, self.radius)
        sigma, clip = self.noise_multiplier(facts), self.max_grad_norm
        batch = expected_size(sampling, facts.size or 1.0)
        second_moment = clip**2 * (1 + (1 / batch if sampling[0] == "poisson" else 0.0))
        rate = inside.diameter(len(theta)) / math.sqrt(second_moment + len(theta) * (sigma * clip / batch) ** 2)
        return State(0, inside.project(theta), sigma, sampling, inside, rate, np.zeros_like(theta))

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        answer = private.gradient(
            state.theta, clip=self.max_grad_norm, noise_multiplier=state.noise_multiplier, sampling=state.sampling
        )
        eta = state.rate / math.sqrt(state.step + 1)
        theta = state.inside.project(state.theta - eta * answer.value)
        return state._replace(step=state.step + 1, theta=theta, total=state.total + theta)

    def finish(self, state: State, public: PublicCurator | None) -> Array:
        return state.total / state.step if self.release == "mean" else state.theta


@lru_cache(maxsize=32)
def _calibrated(budget: Budget, steps: int, sampling: Sampling, also: tuple[Gaussian, ...]) -> float:
    """Remembered, because small rates and little noise take privacy loss distributions many seconds."""
    return float(calibrate(budget, steps=steps, sampling=sampling, also=also))


@dataclass(frozen=True)
class ProjectedGd(ProjectedMethod):
    """Full batches; ``constraint`` is "ball", "box" or "simplex" of size ``radius``."""

    steps: int = 100
    constraint: str = "ball"
    radius: float = 10.0
    max_grad_norm: float = 1.0
    release: str = "mean"

    name: ClassVar[str] = "projected_gd"
    summary: ClassVar[str] = "noisy gradient descent kept inside a ball, box or simplex"
    paper: ClassVar[str] = "Bassily et al. 2014"
