"""Buying the number of records, when it is private: one Gaussian count at a hundredth of the budget.

Its noise has standard deviation 10/mu records (mu: what the budget is worth in Gaussian DP), about 100 records at
(0.5, 1e-8), and it costs the rest of the run half a percent more noise.
"""

from __future__ import annotations

import math

from ..asking import Facts
from ..trusted.accountants.gdp import mu_of
from ..trusted.events import Gaussian

SIZE_SHARE = 0.01


def size_noise(facts: Facts) -> tuple[Gaussian, ...]:
    """The paid count as an event of the plan; nothing when the size is public. Depends on the budget alone."""
    if facts.size_is_public:
        return ()
    mu = mu_of(facts.budget.epsilon, facts.budget.delta)
    if facts.budget.adjacency == "replace_one":  # where a Gaussian costs twice its mu; private there if persons differ
        mu /= 2
    return (Gaussian(1 / (mu * math.sqrt(SIZE_SHARE))),)
