"""Clipped mean gradients written in differentiable operations, for a stack of parameter vectors at once.

What meta-training unrolls: the same numbers as ``clipped_sum`` of the model divided by the number of records, for each
row of ``thetas``, but with a graph from the parameters and the clip norm to the answer. For public records only: it is
slower than the closed forms and makes no promise about rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..losses import Loss
from .batches import Batch
from .layers import ACTIVATIONS, MLP
from .linear import Linear


def clipped_means(model: Linear | MLP, thetas: Tensor, batch: Batch, clip: Tensor) -> Tensor:
    """Mean gradient at each row of ``thetas`` (R, dimension), records clipped to the entries of ``clip`` (R,)."""
    bound = clip
    if isinstance(model, MLP):
        return _perceptron(model, thetas, batch, bound)
    slopes = _slopes(model.loss, linear_scores(model, thetas, batch), batch.y)
    if model.outputs == 1:
        c = slopes * batch.lengths
        return torch.clamp(c, -bound[:, None], bound[:, None]) @ batch.X / len(batch)
    c = slopes * batch.lengths[:, None]
    c = c * _factors(torch.linalg.vector_norm(c, dim=2), bound)[:, :, None]
    return torch.einsum("rnk,nd->rkd", c, batch.X).flatten(1) / len(batch)


def mean_losses(model: Linear | MLP, thetas: Tensor, batch: Batch) -> Tensor:
    """Mean loss at each row of ``thetas``."""
    scores = _forward(model, thetas, batch)[1] if isinstance(model, MLP) else linear_scores(model, thetas, batch)
    return _values(model.loss, scores, batch.y).mean(1)


def linear_scores(model: Linear, thetas: Tensor, batch: Batch) -> Tensor:
    """Scores (R, n) of one output, or (R, n, K) of several."""
    if model.outputs == 1:
        return thetas @ batch.X.T * batch.lengths
    stacked = thetas.view(len(thetas), model.outputs, model.features)
    return torch.einsum("nd,rkd->rnk", batch.X, stacked) * batch.lengths[:, None]


def _perceptron(model: MLP, thetas: Tensor, batch: Batch, bound: Tensor) -> Tensor:
    """One backward pass by hand: norms of all layers first, then each layer's weighted sum (see ``layers``)."""
    inputs, scores = _forward(model, thetas, batch)
    slopes = _slopes(model.loss, scores, batch.y)
    gradients = [slopes[:, :, None] if model.outputs == 1 else slopes]
    layers = _layers(model, thetas)
    for a, (weights, _) in zip(inputs[:0:-1], layers[:0:-1], strict=True):
        gradients.append(torch.bmm(gradients[-1], weights) * _derivative(model.activation, a))
    gradients.reverse()
    squares = [
        b.square().sum(2) * ((batch.lengths.square() if a is inputs[0] else a.square().sum(2)) + 1)
        for a, b in zip(inputs, gradients, strict=True)
    ]
    factors = _factors(torch.sqrt(torch.stack(squares).sum(0) + 1e-20), bound)[:, :, None]
    parts = []
    for a, b in zip(inputs, gradients, strict=True):
        weighted = (b * factors).transpose(1, 2)
        parts += [torch.matmul(weighted, a).flatten(1), weighted.sum(2)]
    return torch.cat(parts, 1) / len(batch)


def _layers(model: MLP, thetas: Tensor) -> list[tuple[Tensor, Tensor]]:
    sizes = [
        into * out for pair in zip(model.sizes, model.sizes[1:], strict=False) for into, out in [pair, (1, pair[1])]
    ]
    flat = thetas.split(sizes, dim=1)
    return [
        (flat[2 * i].view(len(thetas), model.sizes[i + 1], model.sizes[i]), flat[2 * i + 1])
        for i in range(len(model.sizes) - 1)
    ]


def _forward(model: MLP, thetas: Tensor, batch: Batch) -> tuple[list[Tensor], Tensor]:
    """The input of each layer (the first without a stack), and the scores."""
    layers = _layers(model, thetas)
    inputs = [batch.X]
    for number, (weights, bias) in enumerate(layers):
        outputs = torch.matmul(inputs[-1], weights.transpose(1, 2)) + bias[:, None, :]
        if number == len(layers) - 1:
            return inputs, outputs[:, :, 0] if model.outputs == 1 else outputs
        inputs.append(_activated(model.activation, outputs))
    raise AssertionError("a perceptron has a last layer")


def _activated(name: str, z: Tensor) -> Tensor:
    assert name in ACTIVATIONS
    match name:
        case "tanh":
            return torch.tanh(z)
        case "sigmoid":
            return torch.sigmoid(z)
        case "relu":
            return torch.relu(z)
    return torch.nn.functional.softplus(z)


def _derivative(name: str, a: Tensor) -> Tensor:
    """Of the activation, from its value."""
    match name:
        case "tanh":
            return 1 - a.square()
        case "sigmoid":
            return a * (1 - a)
        case "relu":
            return (a > 0).to(a.dtype)
    return -torch.expm1(-a)


def _factors(norms: Tensor, bound: Tensor) -> Tensor:
    return (bound[:, None] / norms.clamp(min=1e-20)).clamp(max=1)


def _values(loss: Loss, scores: Tensor, y: Tensor) -> Tensor:
    """Loss of each record in each copy, (R, n)."""
    if loss.task != "classes":
        return loss.value(scores, y)
    copies, n, outputs = scores.shape
    return loss.value(scores.reshape(-1, outputs), y.repeat(copies)).view(copies, n)


def _slopes(loss: Loss, scores: Tensor, y: Tensor) -> Tensor:
    """Derivative of each record's loss in its scores, with a graph where the scores have one."""
    with torch.enable_grad():
        at = scores if scores.requires_grad else scores.detach().requires_grad_(True)
        (slopes,) = torch.autograd.grad(_values(loss, at, y).sum(), at, create_graph=scores.requires_grad)
    return slopes
