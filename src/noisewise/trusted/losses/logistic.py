from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import elementwise as plain
from .base import Floats, Labels, Loss, Tensor, of_two


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-y z))."""

    name, kernel = "logistic", 0
    lipschitz, smoothness = 1.0, 0.25
    typical_clip, typical_norm = 0.5, 14.0
    has_probabilities = True

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import softplus

        return softplus(-y * z)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return z.sigmoid().add_(y, alpha=-0.5).sub_(0.5)

    def row_value(self, z: Floats, y: Labels) -> Floats:
        margin = -y * z
        return np.maximum(margin, 0.0) + plain.log(1.0 + plain.exp(-np.abs(margin)))

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        return _slope(plain.exp(-np.abs(z)), z, y)

    def near_slope(self, z: Floats, y: Labels) -> Floats:
        return _slope(np.exp(-np.abs(z)), z, y)

    def probabilities(self, z: Floats) -> Floats:
        return of_two(z)


def _slope(odds: Floats, z: Floats, y: Labels) -> Floats:
    """The slope, given exp(-|z|)."""
    likely = 1.0 / (1.0 + odds)
    return (np.where(z >= 0, likely, 1.0 - likely) - 0.5) - 0.5 * y
