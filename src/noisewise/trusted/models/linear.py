"""Linear models in closed form: the gradient of one record is slope(z, y) times x, so clipping is one reweighting.

With x = r u, ||u|| = 1, and s = loss'(z, y), the per-record gradient is (r s) u of norm r ||s||. The clipped sum is
U^T c with c the r s clipped to norm C: two matrix products, no per-record gradient, no autograd. Divided by a scale, a
gradient has the squared norm sum_k c_k^2 ||u / scale_k||^2; projected on a basis B, it is sum_k c_k B_k^T u, as many
numbers per record as the basis has columns, computed in double precision because it may cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..features import TableColumn
from ..losses import Loss
from .base import Model, factors
from .batches import Batch, Floats, row_by_row, weighted_sum

FAR = 200.0  # a theta longer than that has scores whose rounding in single precision is no longer negligible
NEAR = 2.0**20  # a gradient is cut to that many clips before it is projected, so that rounding errors stay below a clip


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

    def start(self) -> NDArray[np.float32]:
        return np.zeros(self.dimension, np.float32)

    def scores(self, theta: NDArray[Any], X: NDArray[Any]) -> Floats:
        return np.asarray(X @ (theta if self.outputs == 1 else theta.reshape(self.outputs, self.features).T))

    def in_old_basis(self, theta: NDArray[Any], matrix: NDArray[Any]) -> Floats:
        wide = theta.astype(np.float64).reshape(self.outputs, self.features)
        return np.asarray((wide @ matrix.astype(np.float64).T).ravel(), theta.dtype)

    def rows(self, batch: Batch) -> Floats:
        return np.asarray(batch.X, np.float64) * batch.lengths.astype(np.float64)[:, None]

    def _batch_scores(self, theta: NDArray[Any], batch: Batch) -> Floats:
        """Scores of the batch. Where the slope jumps or is steep, they must not depend on a record's company by rounding."""
        gentle = self.loss.smoothness <= 1 or self.outputs > 1  # softmax is gentle unless its classes are weighted
        theta = theta.astype(np.float32)
        if gentle and self.outputs == 1 and not float(np.linalg.norm(theta)) <= FAR:
            gentle = False  # scores are so large that their rounding is felt, also by a smooth loss
        return self._scaled(self.scores(theta, batch.X) if gentle else row_by_row(batch.X, theta), batch)

    def _scaled(self, values: NDArray[Any], batch: Batch) -> Floats:
        lengths = batch.lengths.astype(np.float64)
        return np.asarray(values * (lengths if self.outputs == 1 else lengths[:, None]))

    def losses(self, theta: NDArray[Any], batch: Batch) -> Floats:
        with np.errstate(all="ignore"):
            return self.loss.row_value(self._batch_scores(theta, batch), batch.y)

    def _slopes(self, theta: NDArray[Any], batch: Batch) -> Floats:
        """c with gradient c u, one row per record, finite or not."""
        with np.errstate(all="ignore"):
            return self._scaled(self.loss.row_slope(self._batch_scores(theta, batch), batch.y), batch)

    def norms(self, theta: NDArray[Any], batch: Batch) -> Floats:
        slopes = self._slopes(theta, batch)
        norms = np.abs(slopes) if self.outputs == 1 else np.linalg.norm(slopes, axis=1)
        return np.where(np.isfinite(norms), norms, math.inf)

    def per_record(self, theta: NDArray[Any], batch: Batch) -> Floats:
        c = self._slopes(theta, batch).reshape(len(batch), self.outputs, 1)
        rows = (c * batch.X[:, None, :]).reshape(len(batch), -1)
        return np.where((np.isfinite(rows).all(1) & batch.valid)[:, None], rows, 0.0)

    def _chunk_sum(self, theta: NDArray[Any], batch: Batch, clip: float) -> Floats:
        if self.outputs > 1:
            return super()._chunk_sum(theta, batch, clip)
        return weighted_sum(
            np.clip(np.nan_to_num(self._slopes(theta, batch), posinf=0.0, neginf=0.0), -clip, clip), batch.X
        )

    def _seen(
        self, theta: NDArray[Any], batch: Batch, clip: float, scale: Floats | None, basis: Floats | None
    ) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        c = self._slopes(theta, batch).reshape(len(batch), self.outputs)
        finite = np.isfinite(c).all(1) & batch.valid
        c = np.where(finite[:, None], c, 0.0)
        if basis is not None:
            near = c * factors(np.linalg.norm(c, axis=1), NEAR * clip)
            rows = batch.X.astype(np.float64)
            blocks = np.asarray(basis, np.float64).reshape(self.outputs, self.features, -1)
            inside = sum(near[:, k, None] * (rows @ block) for k, block in enumerate(blocks))
            norms = np.linalg.norm(inside, axis=1)
            return (inside * factors(norms, clip)).sum(0), norms, finite
        if scale is None:
            norms = np.linalg.norm(c, axis=1)
            return weighted_sum(c * factors(norms, clip), batch.X).ravel(), norms, finite
        per_output = np.asarray(scale, np.float64).reshape(self.outputs, self.features)
        lengths = np.stack([np.linalg.norm(batch.X / row, axis=1) for row in per_output], axis=1)
        norms = np.linalg.norm(c * lengths, axis=1)
        return weighted_sum(c * factors(norms, clip), batch.X).ravel() / per_output.ravel(), norms, finite


@dataclass(frozen=True)
class Additive(Linear):
    """A model of a table: scores are linear in features of its ``columns``; before features are chosen, in an intercept alone."""

    columns: tuple[TableColumn, ...] = field(default=(), kw_only=True)

    table: ClassVar[bool] = True
    records: ClassVar[str] = "tables"

    @property
    def row_width(self) -> int:
        return len(self.columns)

    def of_width(self, features: int) -> Additive:
        """The same model of rows with that many coordinates."""
        return replace(self, features=features)
