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
from typing import ClassVar

from ..late import Tensor, torch
from ..losses import Loss
from .base import Model, stacked_factors, stacked_slopes
from .batches import Batch, weighted_sum
from .layers import LAYERS, Layer

Dense = tuple[Tensor, Tensor]  # weights, bias
Book = tuple[list[Tensor], list[Tensor], Tensor]  # inputs and output gradients of each dense layer, norms


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

    def start(self) -> Tensor:
        """Uniform weights of variance 1/inputs from a fixed seed, biases zero."""
        generator = torch.Generator().manual_seed(0)
        parts: list[Tensor] = []
        for into, out in pairwise(self.sizes):
            bound = math.sqrt(3 / into)
            parts += [torch.empty(out * into).uniform_(-bound, bound, generator=generator), torch.zeros(out)]
        return torch.cat(parts)

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
            inputs.append(self.between.forward(torch.addmm(bias, inputs[-1], weights.T)))
        return inputs, self._flat(torch.addmm(last_bias, inputs[-1], last_weights.T))

    def scores(self, theta: Tensor, X: Tensor) -> Tensor:
        return self._forward(self.layers(theta), X)[1]

    def in_old_basis(self, theta: Tensor, matrix: Tensor) -> Tensor:
        """The theta that scores x as the given one scores x @ matrix: another first layer."""
        first = self.sizes[0] * self.sizes[1]
        weights = theta[:first].double().view(self.sizes[1], self.sizes[0]) @ matrix.double().T
        return torch.cat([weights.flatten().to(theta.dtype), theta[first:]])

    def rows(self, batch: Batch) -> Tensor:
        return batch.X.double()

    def losses(self, theta: Tensor, batch: Batch) -> Tensor:
        return self.loss.value(self.scores(theta, batch.X), batch.y)

    def _book(self, theta: Tensor, batch: Batch) -> Book:
        layers = self.layers(theta)
        inputs, scores = self._forward(layers, batch.X)
        slopes = self.loss.slope(scores, batch.y)
        gradients = [slopes[:, None] if self.outputs == 1 else slopes]
        for a, (weights, _) in zip(inputs[:0:-1], layers[:0:-1], strict=True):
            gradients.append(self.between.backward(gradients[-1] @ weights, a))
        gradients.reverse()
        squared = _squared_lengths(gradients[0]).mul_(batch.lengths.square().add_(1))
        for a, b in zip(inputs[1:], gradients[1:], strict=True):
            squared.addcmul_(_squared_lengths(b), _squared_lengths(a).add_(1))
        return inputs, gradients, squared.sqrt_()

    def norms(self, theta: Tensor, batch: Batch) -> Tensor:
        return self._book(theta, batch)[2]

    def per_record(self, theta: Tensor, batch: Batch) -> Tensor:
        inputs, gradients, _ = self._book(theta, batch)
        parts = [
            part
            for a, b in zip(inputs, gradients, strict=True)
            for part in ((b[:, :, None] * a[:, None, :]).flatten(1), b)
        ]
        rows = torch.cat(parts, dim=1).double()
        return rows.masked_fill(~(torch.isfinite(rows).all(1) & batch.valid)[:, None], 0.0)

    def _seen(
        self, theta: Tensor, batch: Batch, clip: float, scale: Tensor | None, basis: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """There is no closed form of other coordinates: ``scale`` and ``basis`` are refused before."""
        inputs, gradients, norms = self._book(theta, batch)
        factors = (clip / norms).clamp_(max=1)[:, None]
        good = torch.isfinite(norms) & batch.valid
        dead = None if bool(good.all()) else ~good[:, None]  # decides only whether masking has anything to do
        parts: list[Tensor] = []
        for a, b in zip(inputs, gradients, strict=True):
            weighted = b.mul_(factors)
            if dead is not None:  # features are finite already; activations of a dead record may not be
                weighted.masked_fill_(dead, 0)
                a = a if a is batch.X else a.masked_fill(dead, 0)
            parts += [weighted_sum(weighted, a).flatten(), weighted.sum(0, dtype=torch.float64)]
        return torch.cat(parts), norms, good

    def _stacked(self, layers: list[Dense], batch: Batch) -> tuple[list[Tensor], Tensor]:
        """:meth:`_forward` for a stack of parameters, with a graph; the first input has no stack."""
        inputs = [batch.X]
        for number, (weights, bias) in enumerate(layers, 1):
            outputs = torch.matmul(inputs[-1], weights.transpose(1, 2)) + bias[:, None, :]
            inputs.append(outputs if number == len(layers) else self.between.forward(outputs))
        return inputs[:-1], self._flat(inputs[-1])

    def stacked_scores(self, thetas: Tensor, batch: Batch) -> Tensor:
        return self._stacked(self.layers(thetas), batch)[1]

    def clipped_means(self, thetas: Tensor, batch: Batch, clip: Tensor) -> Tensor:
        layers = self.layers(thetas)
        inputs, scores = self._stacked(layers, batch)
        slopes = stacked_slopes(self.loss, scores, batch.y)
        gradients = [slopes[:, :, None] if self.outputs == 1 else slopes]
        for a, (weights, _) in zip(inputs[:0:-1], layers[:0:-1], strict=True):
            gradients.append(torch.bmm(gradients[-1], weights) * self.between.derivative(a))
        gradients.reverse()
        squares = [
            b.square().sum(2) * ((batch.lengths.square() if a is inputs[0] else a.square().sum(2)) + 1)
            for a, b in zip(inputs, gradients, strict=True)
        ]
        factors = stacked_factors(torch.sqrt(torch.stack(squares).sum(0) + 1e-20), clip)[:, :, None]
        parts = []
        for a, b in zip(inputs, gradients, strict=True):
            weighted = (b * factors).transpose(1, 2)
            parts += [torch.matmul(weighted, a).flatten(1), weighted.sum(2)]
        return torch.cat(parts, 1) / len(batch)


def _squared_lengths(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1).square_()
