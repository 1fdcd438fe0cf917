"""Tools that try to break a method or a trained model, and say what they got."""

from __future__ import annotations

from .canaries import Neighbours, small_setting, worst_case
from .error_bounds import Confirmation
from .gan import gan
from .inversion import inversion
from .leakage import leakage
from .lower_bound import Audit, epsilon_lower_bound, power_against_half_noise
from .membership import membership, membership_game

__all__ = [
    "Audit",
    "Confirmation",
    "Neighbours",
    "epsilon_lower_bound",
    "gan",
    "inversion",
    "leakage",
    "membership",
    "membership_game",
    "power_against_half_noise",
    "small_setting",
    "worst_case",
]
