from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .. import elementwise as plain
from .base import Floats, Labels, Loss, Tensor, of_two, shares


@dataclass(frozen=True)
class Softmax(Loss):
    """Cross-entropy of softmax(z) against the class y: log sum exp(z) - z_y."""

    name, task, kernel = "softmax", "classes", 4
    lipschitz, smoothness = math.sqrt(2), 0.5
    typical_norm, has_probabilities = 14.0, True

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(z, y, reduction="none")

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return z.softmax(1).scatter_add_(1, y[:, None], z.new_full((len(y), 1), -1.0))

    def row_value(self, z: Floats, y: Labels) -> Floats:
        largest, _, total = _exponentials(z)
        return (largest + plain.log(total)) - z[np.arange(len(y)), y]

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        _, parts, total = _exponentials(z)
        parts = parts / total[:, None]
        parts[np.arange(len(y)), y] -= 1.0
        return parts

    def near_slope(self, z: Floats, y: Labels) -> Floats:
        slopes = shares(z)
        slopes[np.arange(len(y)), y] -= 1.0
        return slopes

    def probabilities(self, z: Floats) -> Floats:
        return of_two(z[:, 1] - z[:, 0]) if z.shape[1] == 2 else shares(z)


def _exponentials(z: Floats) -> tuple[Floats, Floats, Floats]:
    """The largest score of each row, exp of what each is below it, and the sum of these, in the order of the classes."""
    largest = z.max(axis=1)
    parts = plain.exp(z - largest[:, None])
    total = parts[:, 0].copy()
    for k in range(1, z.shape[1]):
        total += parts[:, k]
    return largest, parts, total
