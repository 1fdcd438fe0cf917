from __future__ import annotations

from dataclasses import dataclass

from .base import Floats, Labels, Loss, Tensor


@dataclass(frozen=True)
class Squared(Loss):
    """(z - y)^2, for real targets and, with ``signs``, as a least-squares classifier of labels -1 and +1."""

    signs: bool = False

    name, kernel, smoothness = "squared", 3, 2.0
    typical_norm, protector = 5.5, "squared"
    learning, effect_clip = 0.625, 0.2

    @property
    def task(self) -> str:
        return "binary" if self.signs else "regression"

    @property
    def typical_clip(self) -> float:
        return 2.0 if self.signs else 1.0

    def as_classifier(self) -> Squared:
        return Squared(signs=True)

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return (z - y).square()

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return 2 * (z - y)

    def row_value(self, z: Floats, y: Labels) -> Floats:
        return (z - y) * (z - y)

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        return 2.0 * (z - y)
