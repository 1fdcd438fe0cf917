"""Linear models in closed form: the gradient of one record is slope(z, y) times x, so clipping is one reweighting.

With x = r u, ||u|| = 1, and s = loss'(z, y), the per-record gradient is (r s) u of norm r ||s||. The clipped sum is
U^T c with c the r s clipped to norm C: two matrix products, no per-record gradient, no autograd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..losses import Loss, check_weights
from .batches import Batch, Source, in_chunks, lay_out, row_by_row, weighted_sum

FAR = 200.0  # a theta longer than that has scores whose rounding in single precision is no longer negligible


@dataclass(frozen=True)
class Linear:
    """Scores X theta (one output) or X Theta^T (several outputs); an intercept is a constant column of X."""

    features: int
    loss: Loss
    outputs: int = 1

    def __post_init__(self) -> None:
        if self.outputs < 1 or (self.outputs > 1) != (self.loss.task == "classes"):
            raise ValueError(
                f"outputs is {self.outputs} for the loss {self.loss}; softmax has one per class, others one"
            )
        check_weights(self.loss, self.outputs)

    @property
    def dimension(self) -> int:
        return self.features * self.outputs

    @property
    def groups(self) -> tuple[int, ...]:
        """Lengths of the parts of theta that belong together: one."""
        return (self.dimension,)

    def start(self) -> Tensor:
        """The public starting point: zero."""
        return torch.zeros(self.dimension)

    def scores(self, theta: Tensor, X: Tensor) -> Tensor:
        if self.outputs == 1:
            return X @ theta
        return X @ theta.view(self.outputs, self.features).T

    def scores_by_row(self, theta: Tensor, X: Tensor) -> Tensor:
        """Scores that do not depend on a row's company, not even by rounding."""
        return row_by_row(X, theta if self.outputs == 1 else theta.view(self.outputs, self.features))

    def lay_out(self, X: Tensor | Source, y: Tensor) -> Batch:
        """Records as the formulas below want them: unit rows u and lengths r, x = r u."""
        classes = self.outputs if self.loss.task == "classes" else None
        return lay_out(X, y, unit_rows=True, classes=classes, columns=self.features)

    def rows(self, batch: Batch) -> Tensor:
        """The rows x = r u of a batch, in double precision."""
        return batch.X.double() * batch.lengths.double()[:, None]

    def in_old_basis(self, theta: Tensor, matrix: Tensor) -> Tensor:
        """The theta that scores x as the given one scores x @ matrix."""
        return (theta.double().view(self.outputs, self.features) @ matrix.double().T).flatten().to(theta.dtype)

    def _batch_scores(self, theta: Tensor, batch: Batch) -> Tensor:
        """Scores of the batch. Where the slope jumps or is steep, they must not depend on a record's company by rounding."""
        gentle = self.loss.smoothness <= 1 or self.outputs > 1  # softmax is gentle unless its classes are weighted
        if gentle and self.outputs == 1 and not float(torch.linalg.vector_norm(theta)) <= FAR:
            gentle = False  # scores are so large that their rounding is felt, also by a smooth loss
        return self._scaled(self.scores(theta, batch.X) if gentle else row_by_row(batch.X, theta), batch)

    def _scaled(self, values: Tensor, batch: Batch) -> Tensor:
        return values.mul_(batch.lengths if self.outputs == 1 else batch.lengths[:, None])

    def losses(self, theta: Tensor, batch: Batch) -> Tensor:
        """Loss of each record."""
        return self.loss.value(self._batch_scores(theta, batch), batch.y)

    def slopes(self, theta: Tensor, batch: Batch) -> Tensor:
        """c with gradient c u, one row per record, finite or not."""
        return self._scaled(self.loss.slope(self._batch_scores(theta, batch), batch.y), batch)

    def _coefficients(self, theta: Tensor, batch: Batch) -> Tensor:
        """c with gradient c u, one row per record; a record for which that is not finite has c = 0."""
        slopes = self.slopes(theta, batch)
        if self.outputs == 1:
            return slopes.nan_to_num_(0.0, 0.0, 0.0)
        return slopes.masked_fill_(~torch.isfinite(slopes).all(1, keepdim=True), 0.0)

    def norms(self, theta: Tensor, batch: Batch) -> Tensor:
        """Gradient norm of each record."""
        slopes = self.slopes(theta, batch)
        norms: Tensor = slopes.abs_() if self.outputs == 1 else torch.linalg.vector_norm(slopes, dim=1)
        return torch.where(torch.isfinite(norms), norms, math.inf)

    def clipped_sum(self, theta: Tensor, batch: Batch, clip: float) -> Tensor:
        """Sum over the batch of gradients clipped to norm ``clip``; a gradient that is not finite counts as zero."""
        return in_chunks(batch, lambda chunk: self._chunk_sum(theta, chunk, clip))

    def _chunk_sum(self, theta: Tensor, batch: Batch, clip: float) -> Tensor:
        coefficients = self._coefficients(theta, batch)
        bound = clip
        if self.outputs == 1:
            coefficients.clamp_(-bound, bound)
        elif math.isfinite(clip):
            norms = torch.linalg.vector_norm(coefficients, dim=1, keepdim=True)
            coefficients.mul_(bound / norms.clamp_(min=bound))
        return weighted_sum(coefficients, batch.X).flatten()
