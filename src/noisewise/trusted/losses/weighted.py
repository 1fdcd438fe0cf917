from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from .base import Floats, Labels, Loss, Tensor

MAX_WEIGHT = 1e12  # of a class


@dataclass(frozen=True)
class ClassWeighted(Loss):
    """Another classification loss times a declared weight of the record's class: weights[0] for -1 or class 0, ..."""

    loss: Loss
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(0 <= weight <= MAX_WEIGHT for weight in self.weights):
            raise ValueError(f"weights are {self.weights!r}; pass numbers from 0 to {MAX_WEIGHT:g}")

    @property
    def words(self) -> str:
        return f"{self.loss} weighted {self.weights}"

    @property
    def smoothness(self) -> float:
        return max(self.weights) * self.loss.smoothness

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return self._weight(y, z) * self.loss.value(z, y)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        slope = self.loss.slope(z, y)
        weight = self._weight(y, z)
        return weight * slope if slope.ndim == 1 else weight[:, None] * slope

    def row_value(self, z: Floats, y: Labels) -> Floats:
        return self.row_weights(y) * self.loss.row_value(z, y)

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        return self._weighted(self.loss.row_slope(z, y), y)

    def near_slope(self, z: Floats, y: Labels) -> Floats:
        return self._weighted(self.loss.near_slope(z, y), y)

    def _weighted(self, slope: Floats, y: Labels) -> Floats:
        weight = self.row_weights(y)
        return slope * weight if slope.ndim == 1 else slope * weight[:, None]

    def row_weights(self, y: Labels) -> Floats:
        """The weight of each record's class."""
        return np.array(self.weights)[(y > 0).astype(np.int64) if self.task == "binary" else y.astype(np.int64)]

    def _weight(self, y: Tensor, z: Tensor) -> Tensor:
        return z.new_tensor(self.weights)[(y > 0).long() if self.task == "binary" or y.is_floating_point() else y]

    def probabilities(self, z: Floats) -> Floats:
        return self.loss.probabilities(z)


# All other attributes are those of the loss.
for _fact in ("name", "task", "kernel", "typical_clip", "typical_norm", "protector", "has_probabilities"):
    setattr(ClassWeighted, _fact, property(attrgetter(f"loss.{_fact}")))
ClassWeighted.lipschitz = property(lambda self: max(self.weights) * self.loss.lipschitz)  # type: ignore[assignment]


def check_weights(loss: Loss, outputs: int) -> None:
    """Refuse weights that are not one for each class."""
    weights = getattr(loss, "weights", None)
    if weights is not None and len(weights) != max(outputs, 2):
        raise ValueError(f"weights are {len(weights)} for {max(outputs, 2)} classes; pass one for each")
