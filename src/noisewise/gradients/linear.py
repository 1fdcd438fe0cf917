"""Linear models in closed form: the gradient of one record is slope(z, y) times x, so clipping is one reweighting.

With s_i = loss'(z_i, y_i), the per-record gradient norm is ||s_i|| * ||x_i||. The clipped sum is X^T w with
w_i = s_i * min(1, C / (||s_i|| ||x_i||)): two matrix products, no per-record gradient, no autograd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..losses import Loss
from .batches import SLACK, Batch, blocked_sum


@dataclass(frozen=True)
class Linear:
    """Scores X theta (one output) or X Theta^T (several outputs); an intercept is a constant column of X."""

    features: int
    loss: Loss
    outputs: int = 1

    @property
    def dimension(self) -> int:
        return self.features * self.outputs

    def start(self) -> Tensor:
        """The public starting point: zero."""
        return torch.zeros(self.dimension)

    def scores(self, theta: Tensor, X: Tensor) -> Tensor:
        if self.outputs == 1:
            return X @ theta
        return X @ theta.view(self.outputs, self.features).T

    def losses(self, theta: Tensor, batch: Batch) -> Tensor:
        """Loss of each record."""
        return self.loss.value(self.scores(theta, batch.X), batch.y)

    def _slopes(self, theta: Tensor, batch: Batch) -> Tensor:
        """Slope of each record's loss in its scores, as a matrix; a record with one that is not finite has slope 0."""
        slopes = self.loss.slope(self.scores(theta, batch.X), batch.y)
        if self.outputs == 1:
            return slopes.nan_to_num_(0, 0, 0)[:, None]
        return slopes.masked_fill_(~torch.isfinite(slopes).all(1, keepdim=True), 0)

    def norms(self, theta: Tensor, batch: Batch) -> Tensor:
        """Gradient norm of each record."""
        return torch.linalg.vector_norm(self._slopes(theta, batch), dim=1) / batch.inverse_norms

    def clipped_sum(self, theta: Tensor, batch: Batch, clip: float) -> Tensor:
        """Sum over the batch of gradients clipped to norm ``clip``; a gradient that is not finite counts as zero.

        A gradient s x is clipped by clipping its slope s to norm clip / ||x||.
        """
        slopes = self._slopes(theta, batch)
        if math.isinf(clip):
            slopes = slopes.masked_fill_(~batch.valid()[:, None], 0)
        elif self.outputs == 1:
            bound = batch.inverse_norms[:, None] * ((1 - SLACK) * clip)
            slopes = torch.clamp(slopes, -bound, bound)
        else:
            bound = batch.inverse_norms[:, None] * ((1 - SLACK) * clip)
            slopes.mul_((bound / torch.linalg.vector_norm(slopes, dim=1, keepdim=True)).nan_to_num_(1).clamp_(max=1))
        return blocked_sum(slopes, batch.X).flatten()
