from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .base import Layer, layer


@layer
class Softplus(Layer):
    """log(1 + exp(z))."""

    name = "softplus"

    def forward(self, z: Tensor) -> Tensor:
        return torch.nn.functional.softplus(z)

    def derivative(self, a: Tensor) -> Tensor:
        return -torch.expm1(-a)

    def by_entry(self, z: NDArray[Any]) -> NDArray[Any]:
        return np.logaddexp(0.0, z)
