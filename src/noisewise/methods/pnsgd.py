"""PNSGD: one noisy step per private record, then steps on public records that hide the last of them.

    theta <- project(theta - eta (gradient of one record + l2 (theta - theta_0) + N(0, s^2)))

Only the last iterate is released. Each contracting noisy step after a record's own makes it harder to see, so the
price is that of the last private record, with all the public steps behind it: s = sigma L / sqrt(public steps + 1).

*Guarantee*: a plan of one Gaussian event under replace_one, proved in :class:`noisewise.asking.OnePass` by Gaussian
DP (the paper's Renyi bound asks for about a third more noise at small epsilon). Public rows are needed: without them
nothing hides the last record; walking over them several times is free.

Feldman, Mironov, Talwar & Thakurta 2018, Privacy Amplification by Iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..accounts import Terms
from ..asking import Curator, Facts, OnePass, PublicCurator
from ..protect.signal import signal_to_noise
from ..trusted import validate
from ..trusted.accountants.calibrate import calibrate
from ..trusted.events import Gaussian
from ..trusted.walks.oneshot import Whole, loss_constants
from .base import Array, Method
from .nonprivate import warm_start
from .output_perturbation import State, ball


@dataclass(frozen=True)
class Pnsgd(Method):
    """``learning_rate`` None chooses eta from public facts; ``passes`` over the public rows end the walk."""

    learning_rate: float | None = None
    passes: int = 4
    l2: float = 0.0
    radius: float | None = None

    name: ClassVar[str] = "pnsgd"
    summary: ClassVar[str] = "one noisy pass, private records first, public ones last, the end released"
    paper: ClassVar[str] = "Feldman et al. 2018"
    whole: ClassVar[type[Whole] | None] = OnePass
    losses: ClassVar[tuple[str, ...]] = ("logistic", "huber_hinge", "squared", "softmax")
    needs_public: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validate.whole(passes=self.passes)
        validate.not_negative(l2=self.l2)
        validate.positive_or_none(learning_rate=self.learning_rate, radius=self.radius)

    def noise_multiplier(self, facts: Facts) -> float:
        """sigma, from the budget alone."""
        return float(calibrate(facts.budget, steps=1))

    def terms(self, facts: Facts) -> Terms:
        if facts.budget.adjacency != "replace_one":
            raise ValueError(
                "adjacency is 'add_remove'; pass 'replace_one': one pass over the records in order has a "
                "price only when their number is fixed"
            )
        loss_constants(facts, ball(self.radius, facts))  # refuses what the proof does not cover
        return Terms.plan(Gaussian(self.noise_multiplier(facts)))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        if public is None:
            raise ValueError("public is missing; pnsgd needs public rows to walk over after the private ones")
        return State(warm_start(theta, public), self.noise_multiplier(facts), facts, 0)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        assert public is not None
        rows, labels = public.batch.X * public.batch.lengths[:, None], public.batch.y
        radius = ball(self.radius, state.facts)
        rate = self.learning_rate or balanced_rate(state.facts, public.size * self.passes, self.l2, radius)
        walk = OnePass(state.theta, rows, labels, rate, state.noise_multiplier, self.l2, radius, self.passes)
        return state._replace(theta=private.last_iterate(walk).value, step=1)


def balanced_rate(facts: Facts, public_steps: int, l2: float, radius: float) -> float:
    """eta = 2.5 r / (M s sqrt(n d)) for rows of norm r, at most 1/(M + l2).

    n steps learn about eta n and leave noise of variance about eta s^2 d: eta = 1 / (s sqrt(n d)) balances the two, and
    s = L sigma / sqrt(public steps). The factor comes from a coarse sweep on a census-like and a real table.
    """
    L, M = loss_constants(facts, radius)
    size, r = facts.size or 1.0, facts.row_bound
    return min(2.5 * r / L * signal_to_noise(facts) * math.sqrt((public_steps + 1) / size) / size / M, 1 / (M + l2))
