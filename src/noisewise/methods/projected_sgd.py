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
from typing import ClassVar

from ..asking import Facts
from ..trusted import validate
from ..trusted.events import Sampling
from .projected_gd import ProjectedMethod


@dataclass(frozen=True)
class ProjectedSgd(ProjectedMethod):
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
