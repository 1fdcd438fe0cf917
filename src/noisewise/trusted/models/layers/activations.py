"""The layers that come with the library."""

from __future__ import annotations

import numpy as np

from .base import Array, Layer, Tensor, layer


@layer
class Relu(Layer):
    """max(z, 0)."""

    name = "relu"

    def forward(self, z: Tensor) -> Tensor:
        return z.relu_()

    def derivative(self, a: Tensor) -> Tensor:
        return (a > 0).to(a.dtype)

    def backward(self, b: Tensor, a: Tensor) -> Tensor:
        from ...torch_extra import torch

        return torch.ops.aten.threshold_backward.grad_input(b, a, 0, grad_input=b)

    def by_entry(self, z: Array) -> Array:
        return np.maximum(z, 0.0)


@layer
class Sigmoid(Layer):
    """1 / (1 + exp(-z))."""

    name = "sigmoid"

    def forward(self, z: Tensor) -> Tensor:
        return z.sigmoid_()

    def derivative(self, a: Tensor) -> Tensor:
        return a * (1 - a)

    def backward(self, b: Tensor, a: Tensor) -> Tensor:
        from ...torch_extra import torch

        return torch.ops.aten.sigmoid_backward.grad_input(b, a, grad_input=b)

    def by_entry(self, z: Array) -> Array:
        return 0.5 * np.tanh(0.5 * z) + 0.5


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


@layer
class Tanh(Layer):
    """tanh(z)."""

    name = "tanh"

    def forward(self, z: Tensor) -> Tensor:
        return z.tanh_()

    def derivative(self, a: Tensor) -> Tensor:
        return 1 - a.square()

    def backward(self, b: Tensor, a: Tensor) -> Tensor:
        from ...torch_extra import torch

        return torch.ops.aten.tanh_backward.grad_input(b, a, grad_input=b)

    def by_entry(self, z: Array) -> Array:
        return np.tanh(z)
