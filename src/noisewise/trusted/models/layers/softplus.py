from __future__ import annotations

import numpy as np

from .base import Array, Layer, Tensor, layer


@layer
class Softplus(Layer):
    """log(1 + exp(z))."""

    name = "softplus"

    def forward(self, z: Tensor) -> Tensor:
        from ...torch_extra import torch

        return torch.nn.functional.softplus(z)

    def derivative(self, a: Tensor) -> Tensor:
        from ...torch_extra import torch

        return -torch.expm1(-a)

    def by_entry(self, z: Array) -> Array:
        return np.logaddexp(0.0, z)
