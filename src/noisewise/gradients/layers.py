"""Multi-layer perceptrons by book-keeping: one backward pass gives every per-record norm and the clipped sum.

A Linear layer with input a and output gradient b has the per-record gradient b a^T (weights) and b (bias), of squared
norm ||b||^2 (||a||^2 + 1). Summed over the layers that is the squared norm of a record's whole gradient, known before
any weight gradient is formed; then (w * b)^T a is the clipped sum of the layer.

The sums here are in floating point, for public records and for meta-training: a product rounds a row differently in other
company, and at a kink (relu, hinge) one record more can flip the slopes of many others. Private sums are those of
``perceptron_exact``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from ..losses import Loss, check_weights
from .batches import Batch, Source, in_chunks, lay_out, row_by_row, weighted_sum

aten = torch.ops.aten
Activation = tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]
ACTIVATIONS: dict[str, Activation] = {  # the function, and (output gradient, value) -> input gradient
    "softplus": (torch.nn.functional.softplus, lambda b, a: b.mul_(torch.expm1(-a).neg_())),
    "tanh": (torch.tanh_, aten.tanh_backward),
    "sigmoid": (torch.sigmoid_, aten.sigmoid_backward),
    "relu": (torch.relu_, lambda b, a: aten.threshold_backward(b, a, 0)),
}

# The same, one entry at a time: torch computes the last few entries of a tensor by another routine than the rest.
BY_ENTRY: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "softplus": lambda z: np.logaddexp(0.0, z),
    "tanh": lambda z: 2 * expit(2 * z) - 1,
    "sigmoid": expit,
    "relu": lambda z: np.maximum(z, 0.0),
}


@dataclass(frozen=True)
class MLP:
    """Layers of ``sizes`` units with ``activation`` between them, e.g. MLP((784, 20, 2), Softmax())."""

    sizes: tuple[int, ...]
    loss: Loss
    activation: str = "tanh"

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or min(self.sizes) < 1:
            raise ValueError(f"sizes is {self.sizes!r}; pass the units of each layer, e.g. (784, 20, 2)")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is {self.activation!r}; pass one of {', '.join(ACTIVATIONS)}")
        if (self.outputs > 1) != (self.loss.task == "classes"):
            raise ValueError(
                f"sizes end in {self.outputs} for the loss {self.loss}; softmax has one per class, others one"
            )
        check_weights(self.loss, self.outputs)

    @property
    def features(self) -> int:
        return self.sizes[0]

    @property
    def outputs(self) -> int:
        return self.sizes[-1]

    @property
    def dimension(self) -> int:
        return sum(out * (into + 1) for into, out in pairwise(self.sizes))

    @property
    def groups(self) -> tuple[int, ...]:
        """Lengths of the parts of theta that belong together: a layer's weights and bias."""
        return tuple(out * (into + 1) for into, out in pairwise(self.sizes))

    def start(self) -> Tensor:
        """A public starting point: uniform weights of variance 1/inputs from a fixed seed, biases zero."""
        generator = torch.Generator().manual_seed(0)
        parts: list[Tensor] = []
        for into, out in pairwise(self.sizes):
            bound = math.sqrt(3 / into)
            parts += [torch.empty(out * into).uniform_(-bound, bound, generator=generator), torch.zeros(out)]
        return torch.cat(parts)

    def layers(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(weights, bias) of each layer, as views of theta."""
        pairs = list(pairwise(self.sizes))
        flat = theta.split([length for into, out in pairs for length in (out * into, out)])
        return [(flat[2 * i].view(out, into), flat[2 * i + 1]) for i, (into, out) in enumerate(pairs)]

    def _forward(self, layers: list[tuple[Tensor, Tensor]], X: Tensor) -> tuple[list[Tensor], Tensor]:
        """The input of each layer, and the output of the last (flat when there is one output)."""
        activate, _ = ACTIVATIONS[self.activation]
        *hidden, (last_weights, last_bias) = layers
        inputs = [X]
        for weights, bias in hidden:
            inputs.append(activate(torch.addmm(bias, inputs[-1], weights.T)))
        scores = torch.addmm(last_bias, inputs[-1], last_weights.T)
        return inputs, scores[:, 0] if self.outputs == 1 else scores

    def scores(self, theta: Tensor, X: Tensor) -> Tensor:
        return self._forward(self.layers(theta), X)[1]

    def scores_by_row(self, theta: Tensor, X: Tensor) -> Tensor:
        """Scores that do not depend on a row's company, not even by rounding."""
        *hidden, (last_weights, last_bias) = self.layers(theta)
        with np.errstate(all="ignore"):  # no record may raise; scores that are not finite are their user's matter
            for weights, bias in hidden:
                X = torch.from_numpy(BY_ENTRY[self.activation]((row_by_row(X, weights) + bias).numpy()))
        scores = row_by_row(X, last_weights) + last_bias
        return scores[:, 0] if self.outputs == 1 else scores

    def lay_out(self, X: Tensor | Source, y: Tensor) -> Batch:
        """Records as the formulas below want them: rows as they are, and their lengths."""
        classes = self.outputs if self.loss.task == "classes" else None
        return lay_out(X, y, unit_rows=False, classes=classes, columns=self.features)

    def rows(self, batch: Batch) -> Tensor:
        """The rows of a batch, in double precision."""
        return batch.X.double()

    def in_old_basis(self, theta: Tensor, matrix: Tensor) -> Tensor:
        """The theta that scores x as the given one scores x @ matrix: another first layer."""
        first = self.sizes[0] * self.sizes[1]
        weights = theta[:first].double().view(self.sizes[1], self.sizes[0]) @ matrix.double().T
        return torch.cat([weights.flatten().to(theta.dtype), theta[first:]])

    def losses(self, theta: Tensor, batch: Batch) -> Tensor:
        """Loss of each record."""
        return self.loss.value(self.scores(theta, batch.X), batch.y)

    def _book(self, theta: Tensor, batch: Batch) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Inputs and output gradients of each layer, and each record's gradient norm."""
        _, backward = ACTIVATIONS[self.activation]
        layers = self.layers(theta)
        inputs, scores = self._forward(layers, batch.X)
        slopes = self.loss.slope(scores, batch.y)
        gradients = [slopes[:, None] if self.outputs == 1 else slopes]
        for a, (weights, _) in zip(inputs[:0:-1], layers[:0:-1], strict=True):
            gradients.append(backward(gradients[-1] @ weights, a))
        gradients.reverse()
        squared = _squared_lengths(gradients[0]).mul_(batch.lengths.square().add_(1))
        for a, b in zip(inputs[1:], gradients[1:], strict=True):
            squared.addcmul_(_squared_lengths(b), _squared_lengths(a).add_(1))
        return inputs, gradients, squared.sqrt_()

    def norms(self, theta: Tensor, batch: Batch) -> Tensor:
        """Gradient norm of each record."""
        return self._book(theta, batch)[2]

    def clipped_sum(self, theta: Tensor, batch: Batch, clip: float) -> Tensor:
        """Sum over the batch of gradients clipped to norm ``clip``; a gradient that is not finite counts as zero."""
        with torch.inference_mode():  # skips autograd's book-keeping, which many small operations would feel
            return in_chunks(batch, lambda chunk: self._chunk_sum(theta, chunk, clip))

    def _chunk_sum(self, theta: Tensor, batch: Batch, clip: float) -> Tensor:
        return self._weighted_sum(self._book(theta, batch), batch, clip)

    def _weighted_sum(self, book: tuple[list[Tensor], list[Tensor], Tensor], batch: Batch, clip: float) -> Tensor:
        """The clipped sum of a book, whose output gradients it uses up."""
        inputs, gradients, norms = book
        factors = (clip / norms).clamp_(max=1)[:, None]
        alive = torch.isfinite(norms)
        if batch.valid is not None:
            alive &= batch.valid
        dead = None if bool(alive.all()) else ~alive[:, None]  # decides only whether masking has anything to do
        total, at = torch.empty(self.dimension, dtype=torch.float64), 0
        for a, b in zip(inputs, gradients, strict=True):
            weighted = b.mul_(factors)
            if dead is not None:  # features are finite already; activations of a dead record may not be
                weighted.masked_fill_(dead, 0)
                a = a if a is batch.X else a.masked_fill(dead, 0)
            out, into = b.shape[1], a.shape[1]
            total.narrow(0, at, out * into).view(out, into).copy_(weighted_sum(weighted, a))
            at += out * into
            torch.sum(weighted, 0, dtype=total.dtype, out=total.narrow(0, at, out))
            at += out
        return total


def _squared_lengths(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1).square_()
