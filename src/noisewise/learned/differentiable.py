"""Clipped mean gradients and mean losses of public rows in differentiable operations: what meta-training unrolls.

Many copies of a model's parameters, ``thetas`` (R, dimension), are tried on the same rows side by side, with a graph from
parameters and clip norms to the answers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..asking import array
from ..trusted.losses import Loss
from ..trusted.models import MLP, Model
from ..trusted.torch_extra import Tensor, torch


class TaskRows(NamedTuple):
    """Public rows of a linear model or a perceptron, of unit length where the model keeps lengths apart."""

    model: Any
    X: Tensor
    y: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, model: Model, X: NDArray[Any] | Tensor, y: NDArray[Any] | Tensor) -> TaskRows:
        batch = model.lay_out(np.asarray(array(X)), np.asarray(array(y)))
        return cls(model, *(torch.from_numpy(part) for part in (batch.X, batch.y, batch.lengths)))

    def __len__(self) -> int:
        return len(self.y)

    def scores(self, thetas: Tensor) -> Tensor:
        """(R, n) of one output, or (R, n, K) of several."""
        return _layers(self, thetas)[1] if isinstance(self.model, MLP) else _linear_scores(self, thetas)

    def mean_losses(self, thetas: Tensor) -> Tensor:
        """The mean loss (R,) of each copy."""
        return _values(self.model.loss, self.scores(thetas), self.y).mean(1)

    def clipped_means(self, thetas: Tensor, clip: Tensor) -> Tensor:
        """The mean gradient (R, dimension) of each copy, every row's clipped to the copy's entry of ``clip`` (R,)."""
        clipped = _layered_sums if isinstance(self.model, MLP) else _linear_sums
        return clipped(self, thetas, clip) / len(self)


def starts(model: Model, copies: int = 1) -> Tensor:
    """The public starting point, once for each copy."""
    return torch.from_numpy(model.start()).repeat(copies, 1)


def _values(loss: Loss, scores: Tensor, y: Tensor) -> Tensor:
    """The loss (R, n) of each row in each copy."""
    if loss.task != "classes":
        return loss.value(scores, y)
    copies, n, outputs = scores.shape
    return loss.value(scores.reshape(-1, outputs), y.repeat(copies)).view(copies, n)


def _slopes(loss: Loss, scores: Tensor, y: Tensor) -> Tensor:
    """Derivative of each row's loss in its scores, with a graph where the scores have one."""
    with torch.enable_grad():
        at = scores if scores.requires_grad else scores.detach().requires_grad_(True)
        (slopes,) = torch.autograd.grad(_values(loss, at, y).sum(), at, create_graph=scores.requires_grad)
    return slopes


def _factors(norms: Tensor, bound: Tensor) -> Tensor:
    """What each row is multiplied by so that its norm is at most its copy's bound."""
    return (bound[:, None] / norms.clamp(min=1e-20)).clamp(max=1)


def _linear_scores(rows: TaskRows, thetas: Tensor) -> Tensor:
    outputs, features = rows.model.outputs, rows.model.features
    if outputs == 1:
        return thetas @ rows.X.T * rows.lengths
    return torch.einsum("nd,rkd->rnk", rows.X, thetas.view(-1, outputs, features)) * rows.lengths[:, None]


def _linear_sums(rows: TaskRows, thetas: Tensor, clip: Tensor) -> Tensor:
    slopes = _slopes(rows.model.loss, rows.scores(thetas), rows.y)
    if rows.model.outputs == 1:
        return torch.clamp(slopes * rows.lengths, -clip[:, None], clip[:, None]) @ rows.X
    c = slopes * rows.lengths[:, None]
    c = c * _factors(torch.linalg.vector_norm(c, dim=2), clip)[:, :, None]
    return torch.einsum("rnk,nd->rkd", c, rows.X).flatten(1)


def _layers(rows: TaskRows, thetas: Tensor) -> tuple[list[Tensor], Tensor]:
    """The input of each dense layer, and the scores; the first input is the same for all copies."""
    model, inputs = rows.model, [rows.X]
    layers = model.layers(thetas)
    for number, (weights, bias) in enumerate(layers, 1):
        outputs = torch.matmul(inputs[-1], weights.transpose(1, 2)) + bias[:, None, :]
        inputs.append(outputs if number == len(layers) else model.between.forward(outputs))
    return inputs[:-1], inputs[-1][..., 0] if model.outputs == 1 else inputs[-1]


def _layered_sums(rows: TaskRows, thetas: Tensor, clip: Tensor) -> Tensor:
    """By book-keeping, as in :mod:`noisewise.trusted.models.perceptron`."""
    model, layers = rows.model, rows.model.layers(thetas)
    inputs, scores = _layers(rows, thetas)
    slopes = _slopes(model.loss, scores, rows.y)
    gradients = [slopes[:, :, None] if model.outputs == 1 else slopes]
    for a, (weights, _) in zip(inputs[:0:-1], layers[:0:-1], strict=True):
        gradients.append(torch.bmm(gradients[-1], weights) * model.between.derivative(a))
    gradients.reverse()
    squares = [
        b.square().sum(2) * ((rows.lengths.square() if a is rows.X else a.square().sum(2)) + 1)
        for a, b in zip(inputs, gradients, strict=True)
    ]
    factors = _factors(torch.sqrt(torch.stack(squares).sum(0) + 1e-20), clip)[:, :, None]
    parts = []
    for a, b in zip(inputs, gradients, strict=True):
        weighted = (b * factors).transpose(1, 2)
        parts += [torch.matmul(weighted, a).flatten(1), weighted.sum(2)]
    return torch.cat(parts, 1)
