from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import Floats, Labels, Loss, Tensor


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, 1 - y z); not smooth."""

    name, kernel, lipschitz = "hinge", 1, 1.0
    protector = "hinge"

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return (1 - y * z).relu()

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return (-y).where(y * z < 1, 0.0)

    def row_value(self, z: Floats, y: Labels) -> Floats:
        return np.maximum(1.0 - y * z, 0.0)

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        slope: Floats = np.where(y * z < 1.0, -1.0 * y, 0.0)
        return slope
