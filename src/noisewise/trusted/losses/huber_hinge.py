from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .base import Floats, Labels, Loss, Tensor


@dataclass(frozen=True)
class HuberHinge(Loss):
    """The hinge with its corner rounded over ``width`` on each side (Chaudhuri et al. 2011).

    With m = 1 - y z: 0 below -h, m above h, (m + h)^2 / (4 h) between.
    """

    width: float = 0.5

    name, kernel, lipschitz = "huber_hinge", 2, 1.0
    protector = "hinge"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.width) and self.width > 0):
            raise ValueError(f"width is {self.width!r}; pass a finite number > 0")

    @property
    def words(self) -> str:
        return f"{self.name} of width {self.width}"

    @property
    def smoothness(self) -> float:
        return 1 / (2 * self.width)

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        margin = 1 - y * z
        middle = (margin + self.width).clamp(min=0, max=2 * self.width)
        return middle.square() / (4 * self.width) + (margin - self.width).relu()

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return -y * ((1 - y * z + self.width) / (2 * self.width)).clamp(0, 1)

    def row_value(self, z: Floats, y: Labels) -> Floats:
        margin = 1.0 - y * z
        middle = np.minimum(np.maximum(margin + self.width, 0.0), 2 * self.width)
        return middle * middle / (4 * self.width) + np.maximum(margin - self.width, 0.0)

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        share: Floats = np.minimum(np.maximum(((1.0 - y * z) + self.width) / (2 * self.width), 0.0), 1.0)
        return -y * share
