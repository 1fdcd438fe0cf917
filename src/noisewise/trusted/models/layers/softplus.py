from __future__ import annotations

import numpy as np

from ...late import Tensor, torch
from .base import Array, Layer, layer


@layer
class Softplus(Layer):
    """log(1 + exp(z))."""

    name = "softplus"

    def forward(self, z: Tensor) -> Tensor:
        return torch.nn.functional.softplus(z)

    def derivative(self, a: Tensor) -> Tensor:
        return -torch.expm1(-a)

    def by_entry(self, z: Array) -> Array:
        return np.logaddexp(0.0, z)
