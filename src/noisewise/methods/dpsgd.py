"""DP-SGD: clipped gradients with Gaussian noise, the same at every step.

    g_t = (sum over batch of clip(gradient_i, C) + N(0, sigma^2 C^2)) / (expected batch size)
    theta_{t+1} = theta_t - projector(g_t) - eta lambda theta_t

The mean of the last ``tail`` share of the iterates is released: averaging is post-processing and cancels noise.

*Guarantee*: a plan. sigma is calibrated before the first record is touched so that all steps together (and the
bought size, when the size is private) cost at most the budget: exactly by Gaussian DP for full batches, by privacy
loss distributions for Poisson batches, by Renyi DP for fixed-size batches (replace_one only).

``sgd_adv`` and ``sgd_ma`` are baselines: the same steps, at the prices of 2014 and 2016.

Abadi et al. 2016, Deep Learning with Differential Privacy (Theorem 2 is the moments accountant); Song, Chaudhuri &
Sarwate 2013; Bassily, Smith & Thakurta 2014, Private Empirical Risk Minimization.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..accounts import Terms
from ..asking import Curator, Facts, PublicCurator
from ..trusted.accountants.classic import LAMBDAS
from ..trusted.events import FULL, Sampling
from .base import Array
from .gradient_walk import Walk, WalkingMethod


class State(NamedTuple):
    walk: Walk
    noise_multiplier: float


@dataclass(frozen=True)
class DpSgd(WalkingMethod):
    """Constant noise, any sampling, SGD, momentum, Adam and other projectors.

    ``max_grad_norm`` may be a tuple with a clip norm for each layer of a torch module: one event, with the same noise on
    every coordinate.
    """

    steps: int = 100
    sampling: Sampling = FULL
    max_grad_norm: float | tuple[float, ...] = 1.0
    optimizer: str = "momentum"
    learning_rate: float | None = None
    l2: float = 0.0
    tail: float = 0.5

    name: ClassVar[str] = "dpsgd"
    summary: ClassVar[str] = "clipped gradients, constant Gaussian noise, fixed plan"
    paper: ClassVar[str] = "Abadi et al. 2016"
    layers: ClassVar[bool] = True

    def terms(self, facts: Facts) -> Terms:
        clips = self.max_grad_norm
        if isinstance(clips, tuple) and not (facts.tensors and len(clips) == len(facts.groups)):
            raise ValueError(
                f"max_grad_norm has {len(clips)} clip norms; pass one number, or for a torch module one for each of its "
                f"{len(facts.groups)} trained parameters"
            )
        return super().terms(facts)

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        return State(self.set_out(theta, facts, public), self.noise_multiplier(facts))

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        clip, theta, sigma = self.max_grad_norm, state.walk.theta, state.noise_multiplier
        if isinstance(clip, tuple):
            answer = private.layered_gradient(theta, clips=clip, noise_multiplier=sigma, sampling=self.sampling)
        else:
            answer = private.gradient(theta, clip=clip, noise_multiplier=sigma, sampling=self.sampling)
        return state._replace(walk=self.onward(state.walk, answer))


@dataclass(frozen=True)
class SgdAdv(DpSgd):
    """DP-SGD priced by advanced composition, which asks for several times the noise that tighter accountants ask for.

    *Guarantee*: a plan. Each step is a classical Gaussian mechanism of epsilon at most 1, amplified by sampling, and all
    are composed by Dwork & Roth 2014, Theorem 3.20 (see :func:`accounting.classic.advanced_epsilon`). The theorem charges
    every event like the most expensive one, so a bought size makes it refuse: declare the size public.
    """

    sampling: Sampling = ("poisson", 0.05)

    name: ClassVar[str] = "sgd_adv"
    summary: ClassVar[str] = "noisy SGD priced by advanced composition (a baseline)"
    paper: ClassVar[str] = "Bassily et al. 2014"
    accountant: ClassVar[str] = "advanced"

    def noise_multiplier(self, facts: Facts) -> float:
        try:
            return super().noise_multiplier(facts)
        except ValueError as refusal:
            if facts.size_is_public:
                raise
            raise ValueError(
                f"advanced composition charges each of {self.steps} steps like the bought size, which this budget "
                "cannot pay; pass size_is_public=True, or use method='dpsgd'"
            ) from refusal


@dataclass(frozen=True)
class SgdMa(DpSgd):
    """DP-SGD priced by the moments accountant, which is never below privacy loss distributions.

    *Guarantee*: a plan under add_remove, full or Poisson batches: epsilon = min over whole lambda <= 32 of
    (sum_t alpha_t(lambda) + log(1/delta)) / lambda. No noise brings it below log(1/delta)/32, so (0.5, 1e-8) cannot be
    met; such a budget is refused before any record is touched.
    """

    sampling: Sampling = ("poisson", 0.05)

    name: ClassVar[str] = "sgd_ma"
    summary: ClassVar[str] = "noisy SGD priced by the moments accountant (a baseline)"
    paper: ClassVar[str] = "Abadi et al. 2016"
    accountant: ClassVar[str] = "moments"

    def noise_multiplier(self, facts: Facts) -> float:
        budget = facts.budget
        least = math.log(1 / budget.delta) / max(LAMBDAS)
        if budget.epsilon <= least:
            raise ValueError(
                f"epsilon is {budget.epsilon}, but the moments accountant with orders up to {max(LAMBDAS)} cannot go "
                f"below {least:.4g} at delta {budget.delta}; pass a larger epsilon or delta, or use method='dpsgd'"
            )
        return super().noise_multiplier(facts)
