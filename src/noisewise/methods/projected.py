"""Private projected gradient descent over a convex set, on full or Poisson batches.

    theta_{t+1} = project(theta_t - eta_t (mean of clipped gradients + noise)),    eta_t = D / (G sqrt(t))

D is the diameter of the set and G^2 = C^2 + d (noise std)^2 bounds E ||noisy gradient||^2. For a convex loss whose
gradients are not clipped the last iterate is within D G (2 + log T) / sqrt(T) of the best point of the set (Shamir &
Zhang 2013), the mean of all iterates within about D G / sqrt(T). ``release`` says which of the two is released.

*Guarantee*: a plan; sigma is calibrated for all steps and the bought size together. Projection onto the set is
post-processing, and so is averaging.

Private empirical risk minimisation by gradient perturbation: Bassily, Smith & Thakurta 2014; Song, Chaudhuri &
Sarwate 2013; Shamir & Zhang 2013.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from ..accounts import Budget, Terms
from ..asking import Curator, Facts, PublicCurator
from ..trusted import validate
from ..trusted.accountants.calibrate import calibrate
from ..trusted.events import FULL, Gaussian, Repeated, Sampling, sampled
from ..trusted.stores.totals import expected_size
from .base import Array, Method, size_noise

RELEASES = ("mean", "last")


class ConvexSet(Protocol):
    """Where theta has to stay; a stack of thetas is projected one by one."""

    def project(self, theta: Array) -> Array: ...
    def diameter(self, dimension: int) -> float: ...


@dataclass(frozen=True)
class Ball:
    """||theta|| <= radius."""

    radius: float

    def project(self, theta: Array) -> Array:
        lengths = np.linalg.norm(np.asarray(theta, np.float64), axis=-1, keepdims=True)
        return (theta * (self.radius / np.maximum(lengths, self.radius))).astype(theta.dtype)

    def diameter(self, dimension: int) -> float:
        return 2 * self.radius


@dataclass(frozen=True)
class Box:
    """|theta_j| <= radius in every coordinate."""

    radius: float

    def project(self, theta: Array) -> Array:
        return theta.clip(-self.radius, self.radius)

    def diameter(self, dimension: int) -> float:
        return 2 * self.radius * math.sqrt(dimension)


@dataclass(frozen=True)
class Simplex:
    """theta_j >= 0 and sum of theta_j = radius.

    >>> Simplex(1.0).project(np.array([0.5, 1.0, -3.0]))
    array([0.25, 0.75, 0.  ])
    """

    radius: float

    def project(self, theta: Array) -> Array:
        """max(theta - tau, 0) with the tau that makes the sum right, found by sorting (Held, Wolfe & Crowder 1974)."""
        descending = np.sort(np.asarray(theta, np.float64))[..., ::-1]
        taus = (descending.cumsum(-1) - self.radius) / np.arange(1, theta.shape[-1] + 1)
        last = np.maximum((descending > taus).sum(-1, keepdims=True) - 1, 0)
        return (theta - np.take_along_axis(taus, last, -1)).clip(0, None).astype(theta.dtype)

    def diameter(self, dimension: int) -> float:
        return math.sqrt(2) * self.radius if dimension > 1 else 0.0


SETS: dict[str, type[Ball | Box | Simplex]] = {"ball": Ball, "box": Box, "simplex": Simplex}


def set_named(name: str, radius: float) -> ConvexSet:
    """The set with that name and size.

    >>> set_named("box", 2.0)
    Box(radius=2.0)
    """
    validate.one_of(tuple(SETS), constraint=name)
    validate.positive(radius=radius)
    return SETS[name](radius)


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


@dataclass(frozen=True)
class ProjectedSgd(ProjectedMethod):
    """Poisson batches of ``batch_size`` = b records on average, or any ``sampling``.

    Each record joins with probability b/n; b = 1 is the notes' "select I uniformly at random" in the form that has a
    tight price (an empty batch is answered with noise). The second moment of a Poisson batch mean is at most C^2 + C^2/b,
    so G^2 = C^2 + C^2/b + d (noise std)^2.

    *Guarantee*: a plan of Poisson-sampled Gaussians, priced by privacy loss distributions. The rate b/n needs a public
    size; with a private one pass ``sampling=("poisson", rate)``, fixed beforehand from a public guess.
    """

    steps: int = 1000
    batch_size: float = 1.0
    sampling: Sampling | None = None
    constraint: str = "ball"
    radius: float = 10.0
    max_grad_norm: float = 1.0
    release: str = "mean"

    name: ClassVar[str] = "projected_sgd"
    summary: ClassVar[str] = "noisy stochastic descent, one record a step, kept inside a ball, box or simplex"
    paper: ClassVar[str] = "Bassily et al. 2014"

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.positive(batch_size=self.batch_size)

    def sampling_of(self, facts: Facts) -> Sampling:
        """The sampling that was asked for, or the one with the expected batch size, from a public size only."""
        if self.sampling is not None:
            return self.sampling
        if not facts.size_is_public or facts.size is None:
            raise ValueError(
                "sampling is None, but the size of the data is private and a rate of batch_size/size would leak it; "
                "pass sampling=('poisson', rate) with a rate from a public guess, or size_is_public=True"
            )
        return ("poisson", min(self.batch_size / facts.size, 1.0))
