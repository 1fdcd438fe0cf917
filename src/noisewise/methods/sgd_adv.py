"""SgdAdv: noisy SGD, its noise calibrated by advanced composition.

    theta_{t+1} = theta_t - eta (clipped mean gradient of a Poisson batch + noise)

The steps are those of ``dpsgd``; only the price differs. It is a baseline: advanced composition asks for several times
the noise that Gaussian DP or privacy loss distributions ask for.

*Guarantee*: a plan. Each step is a classical Gaussian mechanism of epsilon at most 1, amplified by sampling, and all of
them are composed by Dwork & Roth 2014, Theorem 3.20 (see :func:`accounting.classic.advanced_epsilon`). The theorem
charges every event like the dearest one, so a bought size, which is dear, makes it refuse: declare the size public.

Bassily, Smith & Thakurta 2014, Private Empirical Risk Minimization: Efficient Algorithms and Tight Error Bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..asking import Facts
from ..trusted.events import Sampling
from .dpsgd import DpSgd


@dataclass(frozen=True)
class SgdAdv(DpSgd):
    """DP-SGD priced as in 2014."""

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
