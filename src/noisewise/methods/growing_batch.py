"""Batches that grow: cheap, noisy steps first, large and clear ones last.

    q_s = q_first (q_last / q_first)^(s / (S - 1)),  s = 0 .. S-1,  each stage s for steps/S steps
    g_t = (sum over a Poisson(q_s) batch of clip(gradient_i, C) + N(0, sigma_s^2 C^2)) / (q_s n)

``noise="constant"``: the same sigma in every stage, so that the noise on the mean falls as 1/q_s.
``noise="proportional"``: sigma_s grows with q_s, so that the noise on the mean stays the same and only the sampling
noise falls. On generated tables the first is worse than equal batches and the second as good as they are, from fewer
records per step: growing batches save time, not budget.

*Guarantee*: a plan. Rates and noise multipliers are fixed beforehand and priced together by privacy loss
distributions; the few stages keep that price quick.

Feldman, Koren & Talwar 2020, Private Stochastic Convex Optimization: Optimal Rates in Linear Time (growing batches).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from ..accounts import Budget, Terms
from ..asking import Curator, Facts, PublicCurator
from ..trusted import validate
from ..trusted.accountants.calibrate import least_noise
from ..trusted.events import Event, Gaussian, Poisson, Repeated
from .base import Array, size_noise
from .gradient_walk import Walk, WalkingMethod

NOISES = ("constant", "proportional")


class State(NamedTuple):
    walk: Walk
    plan: tuple[Poisson, ...]


@dataclass(frozen=True)
class GrowingBatch(WalkingMethod):
    """Poisson rates grow from ``first_rate`` to ``last_rate`` in ``stages`` equal parts of the run."""

    steps: int = 100
    first_rate: float = 0.05
    last_rate: float = 0.5
    stages: int = 4
    noise: str = "proportional"
    max_grad_norm: float = 1.0
    optimizer: str = "momentum"
    learning_rate: float | None = None
    l2: float = 0.0
    tail: float = 0.5

    name: ClassVar[str] = "growing_batch"
    summary: ClassVar[str] = "Poisson batches that grow over the run, fixed plan"
    paper: ClassVar[str] = "Feldman, Koren & Talwar 2020"

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.whole(stages=self.stages)
        validate.share(first_rate=self.first_rate, last_rate=self.last_rate)
        validate.one_of(NOISES, noise=self.noise)

    def rates(self) -> tuple[float, ...]:
        """The sampling rate of every step.

        >>> GrowingBatch(steps=6, first_rate=0.1, last_rate=0.4, stages=3).rates()
        (0.1, 0.1, 0.2, 0.2, 0.4, 0.4)
        """
        stages = min(self.stages, self.steps)
        growth = (self.last_rate / self.first_rate) ** (1 / max(stages - 1, 1))
        return tuple(
            min(round(self.first_rate * growth ** (step * stages // self.steps), 12), 1.0) for step in range(self.steps)
        )

    def plan(self, facts: Facts) -> tuple[Poisson, ...]:
        """The event of every step, from the budget and the settings alone."""
        rates = self.rates()
        return _calibrated(facts.budget, rates, self.noise == "proportional", size_noise(facts))

    def terms(self, facts: Facts) -> Terms:
        return self.plan_of(facts, *(Repeated(step, count) for step, count in Counter(self.plan(facts)).items()))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        return State(self.set_out(theta, facts, public), self.plan(facts))

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        event = state.plan[state.walk.step]
        assert isinstance(event.event, Gaussian)
        answer = private.gradient(
            state.walk.theta,
            clip=self.max_grad_norm,
            noise_multiplier=event.event.noise_multiplier,
            sampling=("poisson", event.rate),
        )
        return state._replace(walk=self.onward(state.walk, answer))


@lru_cache(maxsize=32)
def _calibrated(
    budget: Budget, rates: tuple[float, ...], proportional: bool, also: tuple[Gaussian, ...]
) -> tuple[Poisson, ...]:
    """The least noise with which all steps, and ``also``, keep within the budget."""

    def at(scale: float) -> tuple[Poisson, ...]:
        top = max(rates)
        return tuple(Poisson(rate, Gaussian(scale * (rate / top if proportional else 1.0))) for rate in rates)

    def plan(scale: float) -> list[Event]:
        return [*also, *(Repeated(step, count) for step, count in Counter(at(scale)).items())]

    return at(least_noise(plan, budget))
