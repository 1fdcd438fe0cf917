"""What theory promises: convergence bounds, optimal noise schedules, privacy-loss tails, accountants side by side.

Plain formulas on public numbers (numpy and scipy, never torch); nothing here sees a record. ``docs/theory.md`` states each
formula and where its source had to be corrected.
"""

from .accountants import compare_accountants
from .erm import best_private_steps, last_iterate_bound, private_bound, second_moment, subsampled
from .momentum import largest_rate, momentum_bound, momentum_influence, momentum_schedule, noise_figure, zeta
from .risk import (
    Problem,
    advantage,
    best_steps,
    descent_bound,
    descent_influence,
    optimal_schedule,
    privacy_total,
    quadratic,
    schedule_bound,
    uniform_schedule,
)
from .simulate import bound_rows, measured_influence, simulated_risk
from .tails import approximate_tail, gaussian_tail, pure_tail, tcdp_tail, zcdp_tail

__all__ = [
    "Problem",
    "advantage",
    "approximate_tail",
    "best_private_steps",
    "best_steps",
    "bound_rows",
    "compare_accountants",
    "descent_bound",
    "descent_influence",
    "gaussian_tail",
    "largest_rate",
    "last_iterate_bound",
    "measured_influence",
    "momentum_bound",
    "momentum_influence",
    "momentum_schedule",
    "noise_figure",
    "optimal_schedule",
    "privacy_total",
    "private_bound",
    "pure_tail",
    "quadratic",
    "schedule_bound",
    "second_moment",
    "simulated_risk",
    "subsampled",
    "tcdp_tail",
    "uniform_schedule",
    "zcdp_tail",
    "zeta",
]
