from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from .base import Layer, layer


@layer
class Sigmoid(Layer):
    """1 / (1 + exp(-z))."""

    name = "sigmoid"

    def forward(self, z: Tensor) -> Tensor:
        return z.sigmoid_()

    def derivative(self, a: Tensor) -> Tensor:
        return a * (1 - a)

    def backward(self, b: Tensor, a: Tensor) -> Tensor:
        return torch.ops.aten.sigmoid_backward.grad_input(b, a, grad_input=b)

    def by_entry(self, z: NDArray[Any]) -> NDArray[Any]:
        return expit(z)
