"""SgdMa: noisy SGD, its noise calibrated by the moments accountant.

    theta_{t+1} = theta_t - eta (clipped mean gradient of a Poisson batch + noise)

The steps are those of ``dpsgd``; only the price differs, and it is never below that of privacy loss distributions.

*Guarantee*: a plan under add_remove, full or Poisson batches: epsilon = min over whole lambda <= 32 of
(sum_t alpha_t(lambda) + log(1/delta)) / lambda. No noise brings it below log(1/delta)/32, so (0.5, 1e-8) cannot be met;
such a budget is refused before any record is touched.

Abadi et al. 2016, Deep Learning with Differential Privacy, Theorem 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..asking import Facts
from ..trusted.accountants.classic import LAMBDAS
from ..trusted.events import Sampling
from .dpsgd import DpSgd


@dataclass(frozen=True)
class SgdMa(DpSgd):
    """DP-SGD priced as in 2016."""

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
