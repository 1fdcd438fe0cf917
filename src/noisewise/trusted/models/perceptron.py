"""Multi-layer perceptrons by book-keeping: one backward pass gives every per-record norm and the clipped sum.

A dense layer with input a and output gradient b has the per-record gradient b a^T (weights) and b (bias), of squared
norm ||b||^2 (||a||^2 + 1). Summed over the layers that is the squared norm of a record's whole gradient, known before
any weight gradient is formed; then (w * b)^T a is the clipped sum of the layer.

The sums here are in floating point, for public records and for meta-training: a product rounds a row differently in other
company, and at a kink (relu, hinge) one record more can flip the slopes of many others. Private sums are those of
:mod:`noisewise.trusted.stores.perceptron`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss
from .base import Model
from .batches import Batch, Floats
from .layers import LAYERS, Layer

if TYPE_CHECKING:
    from torch import Tensor

Dense = tuple["Tensor", "Tensor"]  # weights, bias
Book = tuple[list["Tensor"], list["Tensor"], "Tensor"]  # inputs and output gradients of each dense layer, norms


@dataclass(frozen=True)
class MLP(Model):
    """Dense layers of ``sizes`` units with ``activation`` between them, e.g. MLP((784, 20, 2), Softmax())."""

    sizes: tuple[int, ...]
    loss: Loss
    activation: str = "tanh"

    records: ClassVar[str] = "perceptron"

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or min(self.sizes) < 1:
            raise ValueError(f"sizes is {self.sizes!r}; pass the units of each layer, e.g. (784, 20, 2)")
        if self.activation not in LAYERS:
            raise ValueError(f"activation is {self.activation!r}; pass one of {', '.join(LAYERS)}")
        self.check()

    @property
    def features(self) -> int:
        return self.sizes[0]

    @property
    def outputs(self) -> int:
        return self.sizes[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sizes

    @property
    def between(self) -> Layer:
        """What stands between the dense layers."""
        return LAYERS[self.activation]

    @property
    def groups(self) -> tuple[int, ...]:
        """A dense layer's weights and bias belong together."""
        return tuple(out * (into + 1) for into, out in pairwise(self.sizes))

    def start(self) -> NDArray[np.float32]:
        """Uniform weights of variance 1/inputs from a fixed seed, biases zero."""
        from ..torch_extra import torch

        generator = torch.Generator().manual_seed(0)
        parts: list[Tensor] = []
        for into, out in pairwise(self.sizes):
            bound = math.sqrt(3 / into)
            parts += [torch.empty(out * into).uniform_(-bound, bound, generator=generator), torch.zeros(out)]
        return np.asarray(torch.cat(parts).numpy())

    def layers(self, theta: Tensor) -> list[Dense]:
        """(weights, bias) of each dense layer, as views of theta; each with a stack in front if theta is one."""
        pairs, front = list(pairwise(self.sizes)), theta.shape[:-1]
        flat = theta.split([length for into, out in pairs for length in (out * into, out)], dim=-1)
        return [(flat[2 * i].view(*front, out, into), flat[2 * i + 1]) for i, (into, out) in enumerate(pairs)]

    def _flat(self, scores: Tensor) -> Tensor:
        return scores[..., 0] if self.outputs == 1 else scores

    def _forward(self, layers: list[Dense], X: Tensor) -> tuple[list[Tensor], Tensor]:
        """The input of each dense layer, and the output of the last (flat when there is one output)."""
        *hidden, (last_weights, last_bias) = layers
        inputs = [X]
        for weights, bias in hidden:
            inputs.append(self.between.forward(bias.addmm(inputs[-1], weights.T)))
        return inputs, self._flat(last_bias.addmm(inputs[-1], last_weights.T))

    def scored(self, theta: Tensor, X: Tensor) -> Tensor:
        """Scores of tensors in the precision that they have, with a graph where that is asked for."""
        return self._forward(self.layers(theta), X)[1]

    def _scores(self, theta: NDArray[Any], X: Any) -> Tensor:
        return self.scored(_tensor(theta), _tensor(X))

    def scores(self, theta: NDArray[Any], X: Any) -> Floats:
        return np.asarray(self._scores(theta, X).numpy())

    def in_old_basis(self, theta: NDArray[Any], matrix: NDArray[Any]) -> Floats:
        """The theta that scores x as the given one scores x @ matrix: another first layer."""
        first = self.sizes[0] * self.sizes[1]
        weights = theta[:first].astype(np.float64).reshape(self.sizes[1], -1) @ matrix.astype(np.float64).T
        return np.concatenate([weights.ravel().astype(theta.dtype), theta[first:]])

    def rows(self, batch: Batch) -> Floats:
        return np.asarray(batch.X, np.float64)

    def losses(self, theta: NDArray[Any], batch: Batch) -> Floats:
        return np.asarray(self.loss.value(self._scores(theta, batch.X), _labels(batch)).numpy())

    def _book(self, theta: NDArray[Any], batch: Batch) -> Book:
        layers, lengths = self.layers(_tensor(theta)), _tensor(batch.lengths)
        inputs, scores = self._forward(layers, _tensor(batch.X))
        slopes = self.loss.slope(scores, _labels(batch))
        gradients = [slopes[:, None] if self.outputs == 1 else slopes]
        for a, (weights, _) in zip(inputs[:0:-1], layers[:0:-1], strict=True):
            gradients.append(self.between.backward(gradients[-1] @ weights, a))
        gradients.reverse()
        squared = _squared_lengths(gradients[0]).mul_(lengths.square().add_(1))
        for a, b in zip(inputs[1:], gradients[1:], strict=True):
            squared.addcmul_(_squared_lengths(b), _squared_lengths(a).add_(1))
        return inputs, gradients, squared.sqrt_()

    def norms(self, theta: NDArray[Any], batch: Batch) -> Floats:
        return np.asarray(self._book(theta, batch)[2].double().numpy())

    def per_record(self, theta: NDArray[Any], batch: Batch) -> Floats:
        inputs, gradients, _ = self._book(theta, batch)
        parts = [
            part.double().numpy()
            for a, b in zip(inputs, gradients, strict=True)
            for part in ((b[:, :, None] * a[:, None, :]).flatten(1), b)
        ]
        rows = np.concatenate(parts, 1)
        return np.where((np.isfinite(rows).all(1) & batch.valid)[:, None], rows, 0.0)

    def _seen(
        self, theta: NDArray[Any], batch: Batch, clip: float, scale: Floats | None, basis: Floats | None
    ) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """There is no closed form of other coordinates: ``scale`` and ``basis`` are refused before."""
        inputs, gradients, norms = self._book(theta, batch)
        factors = (clip / norms).clamp_(max=1)[:, None]
        good = np.asarray(norms.isfinite().numpy() & batch.valid)
        dead = None if good.all() else _tensor(~good)[:, None]  # decides only whether masking has anything to do
        parts = []
        for i, (a, b) in enumerate(zip(inputs, gradients, strict=True)):
            weighted = b.mul_(factors)
            if dead is not None:  # features are finite already; activations of a dead record may not be
                weighted.masked_fill_(dead, 0)
                a = a.masked_fill(dead, 0) if i else a
            parts += [(weighted.T @ a).flatten(), weighted.sum(0)]
        return np.concatenate([part.double().numpy() for part in parts]), norms.double().numpy(), good


def _tensor(values: NDArray[Any]) -> Tensor:
    """The same memory as a tensor, numbers in single precision."""
    from ..torch_extra import torch

    kind = np.float32 if values.dtype.kind == "f" else values.dtype
    return torch.from_numpy(np.ascontiguousarray(values, kind))


def _labels(batch: Batch) -> Tensor:
    return _tensor(batch.y)


def _squared_lengths(rows: Tensor) -> Tensor:
    return rows.norm(dim=1).square_()
