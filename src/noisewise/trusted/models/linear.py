"""Linear models in closed form: the gradient of one record is slope(z, y) times x, so clipping is one reweighting.

With x = r u, ||u|| = 1, and s = loss'(z, y), the per-record gradient is (r s) u of norm r ||s||. The clipped sum is
U^T c with c the r s clipped to norm C: two matrix products, no per-record gradient, no autograd. Divided by a scale, a
gradient has the squared norm sum_k c_k^2 ||u / scale_k||^2; projected on a basis B, it is sum_k c_k B_k^T u, as many
numbers per record as the basis has columns, computed in double precision because it may cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..late import Tensor, torch
from ..losses import Loss
from .base import Model, factors, stacked_factors, stacked_slopes
from .batches import Batch, row_by_row, weighted_sum

FAR = 200.0  # a theta longer than that has scores whose rounding in single precision is no longer negligible
NEAR = (
    2.0**20
)  # clips to which a gradient is cut before it is projected, so that what rounding loses stays below a clip


@dataclass(frozen=True)
class Linear(Model):
    """Scores X theta (one output) or X Theta^T (several outputs); an intercept is a constant column of X."""

    features: int
    loss: Loss
    outputs: int = 1

    linear: ClassVar[bool] = True
    coordinates: ClassVar[bool] = True
    records: ClassVar[str] = "linear"
    grade: ClassVar[str] = "exact"

    def __post_init__(self) -> None:
        self.check()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.features, self.outputs

    @property
    def groups(self) -> tuple[int, ...]:
        return (self.features * self.outputs,)

    def start(self) -> Tensor:
        return torch.zeros(self.dimension)

    def scores(self, theta: Tensor, X: Tensor) -> Tensor:
        return X @ (theta if self.outputs == 1 else theta.view(self.outputs, self.features).T)

    def in_old_basis(self, theta: Tensor, matrix: Tensor) -> Tensor:
        return (theta.double().view(self.outputs, self.features) @ matrix.double().T).flatten().to(theta.dtype)

    def rows(self, batch: Batch) -> Tensor:
        return batch.X.double() * batch.lengths.double()[:, None]

    def _batch_scores(self, theta: Tensor, batch: Batch) -> Tensor:
        """Scores of the batch. Where the slope jumps or is steep, they must not depend on a record's company by rounding."""
        gentle = self.loss.smoothness <= 1 or self.outputs > 1  # softmax is gentle unless its classes are weighted
        if gentle and self.outputs == 1 and not float(torch.linalg.vector_norm(theta)) <= FAR:
            gentle = False  # scores are so large that their rounding is felt, also by a smooth loss
        return self._scaled(self.scores(theta, batch.X) if gentle else row_by_row(batch.X, theta), batch)

    def _scaled(self, values: Tensor, batch: Batch) -> Tensor:
        return values.mul_(batch.lengths if self.outputs == 1 else batch.lengths[:, None])

    def losses(self, theta: Tensor, batch: Batch) -> Tensor:
        return self.loss.value(self._batch_scores(theta, batch), batch.y)

    def _slopes(self, theta: Tensor, batch: Batch) -> Tensor:
        """c with gradient c u, one row per record, finite or not."""
        return self._scaled(self.loss.slope(self._batch_scores(theta, batch), batch.y), batch)

    def norms(self, theta: Tensor, batch: Batch) -> Tensor:
        slopes = self._slopes(theta, batch)
        norms: Tensor = slopes.abs_() if self.outputs == 1 else torch.linalg.vector_norm(slopes, dim=1)
        return torch.where(torch.isfinite(norms), norms, math.inf)

    def per_record(self, theta: Tensor, batch: Batch) -> Tensor:
        c = self._slopes(theta, batch).view(len(batch), self.outputs, 1)
        rows = (c * batch.X[:, None, :]).flatten(1).double()
        return rows.masked_fill(~(torch.isfinite(rows).all(1) & batch.valid)[:, None], 0.0)

    def _chunk_sum(self, theta: Tensor, batch: Batch, clip: float) -> Tensor:
        if self.outputs > 1:
            return super()._chunk_sum(theta, batch, clip)
        c = self._slopes(theta, batch).nan_to_num_(0.0, 0.0, 0.0).clamp_(-clip, clip)
        return weighted_sum(c, batch.X)

    def _seen(
        self, theta: Tensor, batch: Batch, clip: float, scale: Tensor | None, basis: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        c = self._slopes(theta, batch).view(len(batch), self.outputs)
        finite = torch.isfinite(c).all(1) & batch.valid
        c = c.masked_fill(~finite[:, None], 0.0)
        if basis is not None:
            near = c.double().mul_(factors(torch.linalg.vector_norm(c, dim=1, dtype=torch.float64), NEAR * clip))
            rows, blocks = batch.X.double(), basis.double().view(self.outputs, self.features, -1)
            inside = sum((near[:, k, None] * (rows @ block) for k, block in enumerate(blocks)), start=torch.zeros(()))
            norms = torch.linalg.vector_norm(inside, dim=1)
            return (inside * factors(norms, clip)).sum(0), norms, finite
        if scale is None:
            norms = torch.linalg.vector_norm(c, dim=1)
            return weighted_sum(c * factors(norms, clip), batch.X).flatten(), norms, finite
        per_output = scale.float().view(self.outputs, self.features)
        lengths = torch.stack([torch.linalg.vector_norm(batch.X / row, dim=1) for row in per_output], dim=1)
        norms = torch.linalg.vector_norm(c * lengths, dim=1)
        total = weighted_sum(c * factors(norms, clip), batch.X).flatten()
        return total / per_output.flatten().double(), norms, finite

    def stacked_scores(self, thetas: Tensor, batch: Batch) -> Tensor:
        if self.outputs == 1:
            return thetas @ batch.X.T * batch.lengths
        stacked = thetas.view(len(thetas), self.outputs, self.features)
        return torch.einsum("nd,rkd->rnk", batch.X, stacked) * batch.lengths[:, None]

    def clipped_means(self, thetas: Tensor, batch: Batch, clip: Tensor) -> Tensor:
        slopes = stacked_slopes(self.loss, self.stacked_scores(thetas, batch), batch.y)
        if self.outputs == 1:
            return torch.clamp(slopes * batch.lengths, -clip[:, None], clip[:, None]) @ batch.X / len(batch)
        c = slopes * batch.lengths[:, None]
        c = c * stacked_factors(torch.linalg.vector_norm(c, dim=2), clip)[:, :, None]
        return torch.einsum("rnk,nd->rkd", c, batch.X).flatten(1) / len(batch)
