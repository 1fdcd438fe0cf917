"""Output perturbation: plain descent on the records, Gaussian noise on where it ends.

    theta_{t+1} = project(theta_t - eta gradient of (mean loss + l2/2 ||theta - theta_0||^2)),  t = 0 .. T-1
    released: theta_T + N(0, (sigma L (1 - (1 - eta l2)^T) / (l2 N))^2),  sigma L eta T / N without l2

Two walks on neighbouring records stay close, because a short step on a smooth convex loss brings them together. The
walk is ended early: the noise grows with its length eta T, as the error of ending early falls.

*Guarantee*: a plan of one Gaussian event (and the bought size, when the size is private), exact by Gaussian DP; the
sensitivity is proved in :class:`noisewise.asking.Descent`. Convex smooth losses of linear models; for the hinge pass
the Huberised one, whose width says how smooth it is.

Zhang, Zheng, Mou & Wang 2017, Efficient Private ERM for Smooth Objectives; Wu et al. 2017, Bolt-on Differential Privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..accounts import Terms
from ..asking import Curator, Descent, Facts, PublicCurator
from ..protect.signal import signal_to_noise
from ..trusted import validate
from ..trusted.accountants.calibrate import calibrate
from ..trusted.events import Gaussian
from ..trusted.walks.oneshot import Whole, loss_constants
from .base import Array, Method, size_noise
from .nonprivate import warm_start

STEP_SHARE = 0.5  # of the longest step allowed: the shorter, the less the weight of the records is damped


class State(NamedTuple):
    theta: Array
    noise_multiplier: float
    facts: Facts
    step: int


@dataclass(frozen=True)
class OutputPerturbation(Method):
    """``length`` is eta T, the time that the walk runs; None chooses it from public facts."""

    length: float | None = None
    l2: float = 0.0
    radius: float | None = None

    name: ClassVar[str] = "output_perturbation"
    summary: ClassVar[str] = "plain descent, Gaussian noise on the last iterate"
    paper: ClassVar[str] = "Zhang et al. 2017"
    whole: ClassVar[type[Whole] | None] = Descent
    losses: ClassVar[tuple[str, ...]] = ("logistic", "huber_hinge", "squared", "softmax")

    def __post_init__(self) -> None:
        validate.not_negative(l2=self.l2)
        validate.positive_or_none(length=self.length, radius=self.radius)

    def noise_multiplier(self, facts: Facts) -> float:
        """sigma, from the budget alone."""
        return float(calibrate(facts.budget, steps=1, also=size_noise(facts)))

    def terms(self, facts: Facts) -> Terms:
        loss_constants(facts, ball(self.radius, facts))  # refuses what the proof does not cover
        return Terms.plan((*size_noise(facts), Gaussian(self.noise_multiplier(facts))))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        return State(warm_start(theta, public), self.noise_multiplier(facts), facts, 0)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        radius = ball(self.radius, state.facts)
        _, M = loss_constants(state.facts, radius)
        length = self.length or default_length(state.facts)
        steps = math.ceil(length * (M + self.l2) / STEP_SHARE)
        walk = Descent(state.theta, steps, length / steps, state.noise_multiplier, self.l2, radius)
        return state._replace(theta=private.last_iterate(walk).value, step=1)


def default_length(facts: Facts) -> float:
    """The time eta T: 2.4 ratio / L, or 4 sqrt(ratio) / M in a ball; at most 500 / M, which is a thousand steps.

    The noise has norm length * L / ratio, and L grows with the ball. A compromise of sweeps by factors of 2 on held-out
    rows of census-like tables and three real ones (9 to 124 parameters, ratios from 10 to 2,000); tables of many rare
    columns, such as Adult, gain from a walk several times longer.
    """
    ratio, smoothness = signal_to_noise(facts), facts.smoothness
    bounded = math.isfinite(facts.lipschitz)
    length = 2.4 * ratio / facts.lipschitz if bounded else 4 * math.sqrt(ratio) / smoothness
    return min(max(length, 2 / smoothness), 500 / smoothness) / facts.row_bound**2


def ball(radius: float | None, facts: Facts) -> float:
    """The radius theta is kept in: as set, else sqrt(ratio / 60) / row_bound where slopes need it, else none."""
    if radius is not None:
        return radius
    return math.inf if math.isfinite(facts.lipschitz) else math.sqrt(signal_to_noise(facts) / 60) / facts.row_bound
