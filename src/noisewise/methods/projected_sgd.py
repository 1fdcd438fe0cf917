"""Private projected stochastic gradient descent over a convex set, one record a step.

    theta_{t+1} = project(theta_t - eta_t (sum of clipped gradients of a batch + noise) / b),    eta_t = D / (G sqrt(t))

Each record joins a batch independently with probability b/n, so that the batch holds ``batch_size`` = b records on
average; b = 1 is the notes' "select I uniformly at random" in the form that has a tight price (an empty batch is
answered with noise). G^2 = C^2/b + C^2 + d (noise std)^2 bounds E ||noisy gradient||^2: the second moment of a Poisson
batch mean is at most C^2 + C^2/b.

*Guarantee*: a plan of Poisson-sampled Gaussians, priced by privacy loss distributions. The rate b/n needs a public
size; with a private one pass ``sampling=("poisson", rate)``, fixed beforehand from a public guess.

Song, Chaudhuri & Sarwate 2013; Bassily, Smith & Thakurta 2014; Shamir & Zhang 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from torch import Tensor

from .. import _validate
from ..accounting.calibrate import calibrate
from ..budget import Budget, Terms
from ..curator import Curator, Facts, PublicCurator
from ..events import Gaussian, Repeated, Sampling, sampled
from ..protect.sets import set_named
from .base import Method
from .projected_gd import RELEASES, Walk, start, walk
from .size import size_noise


@dataclass(frozen=True)
class ProjectedSgd(Method):
    """Poisson batches of ``batch_size`` records on average, or any ``sampling``."""

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
        _validate.whole(steps=self.steps)
        _validate.positive(max_grad_norm=self.max_grad_norm, batch_size=self.batch_size)
        _validate.one_of(RELEASES, release=self.release)
        set_named(self.constraint, self.radius)

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

    def noise_multiplier(self, facts: Facts) -> float:
        """sigma, from public facts alone."""
        return _calibrated(facts.budget, self.steps, self.sampling_of(facts), size_noise(facts))

    def terms(self, facts: Facts) -> Terms:
        step = sampled(self.sampling_of(facts), Gaussian(self.noise_multiplier(facts)))
        return Terms.plan((*size_noise(facts), Repeated(step, self.steps)))

    def init(self, theta: Tensor, facts: Facts, public: PublicCurator | None) -> Walk:
        sampling, inside = self.sampling_of(facts), set_named(self.constraint, self.radius)
        return start(theta, facts, inside, self.max_grad_norm, self.noise_multiplier(facts), sampling)

    def step(self, state: Walk, private: Curator, public: PublicCurator | None) -> Walk:
        return walk(state, private, self.max_grad_norm)

    def done(self, state: Walk) -> bool:
        return state.step >= self.steps

    def finish(self, state: Walk, public: PublicCurator | None) -> Tensor:
        return state.total / state.step if self.release == "mean" else state.theta

    def total_steps(self) -> int:
        return self.steps


@lru_cache(maxsize=32)
def _calibrated(budget: Budget, steps: int, sampling: Sampling, also: tuple[Gaussian, ...]) -> float:
    """Remembered, because small rates and little noise take privacy loss distributions many seconds."""
    return float(calibrate(budget, steps=steps, sampling=sampling, also=also))
