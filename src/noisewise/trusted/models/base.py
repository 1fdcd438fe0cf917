"""What a model is: its shape, its capabilities as plain data, and sums of its gradients over public rows.

Public sums are in floating point, where rounding does no harm. Private sums are exact: :mod:`noisewise.trusted.stores`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss, check_weights
from .batches import Batch, Floats, RowSource, in_chunks, lay_out

RAMP = 0.1  # a norm counts as short below 0.9, as long above 1.1 thresholds, and in proportion between


class Model(ABC):
    """Scores of rows by a flat vector theta, and the loss that they go into.

    Code asks for the capabilities of a model, never for its type. ``linear``: scores are products of rows with theta, so that a
    record's gradient is its slope times its row. ``coordinates``: gradients can be clipped in other coordinates, divided by a scale
    or inside a basis. ``table``: rows are cells of a table, from which features are made. ``tensors``: records are tensors of any
    shape, and questions about rows do not apply. ``records`` names the module of :mod:`noisewise.trusted.stores` that sums over
    private rows of this kind of model.
    """

    loss: Loss
    linear: ClassVar[bool] = False
    coordinates: ClassVar[bool] = False
    table: ClassVar[bool] = False
    tensors: ClassVar[bool] = False
    records: ClassVar[str]
    grade: ClassVar[str] = "bounded"  # the best that sums over its records can have: see arithmetic

    if TYPE_CHECKING:  # fields here, properties there

        @property
        def features(self) -> int: ...
        @property
        def outputs(self) -> int: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Numbers on the way from a row to its scores: features first, outputs last."""

    @property
    @abstractmethod
    def groups(self) -> tuple[int, ...]:
        """Lengths of the parts of theta that belong together."""

    @property
    def dimension(self) -> int:
        return sum(self.groups)

    @property
    def classes(self) -> int | None:
        """How many classes labels number, from 0 on; None for labels that are signs or real."""
        return self.outputs if self.loss.task == "classes" else None

    def check(self) -> None:
        """Refuse a loss that wants another number of outputs, or weights of another number of classes."""
        if self.outputs < 1 or (self.outputs > 1) != (self.loss.task == "classes"):
            raise ValueError(
                f"{self.outputs} outputs for the loss {self.loss}; pass one per class where labels are classes, else 1"
            )
        check_weights(self.loss, self.outputs)

    def refuse_rows(self, X: Any, y: Any) -> None:
        """Refuse records of another shape, by what is public of them."""
        if X.ndim != 2 or X.shape[1] != self.row_width or y.ndim != 1 or len(X) != len(y):
            raise ValueError(f"X must be 2-d with {self.row_width} columns and y 1-d, as long as X has rows")

    @property
    def row_width(self) -> int:
        """Columns of the rows as they come."""
        return self.features

    @abstractmethod
    def start(self) -> NDArray[np.float32]:
        """The public starting point."""

    @abstractmethod
    def scores(self, theta: NDArray[Any], X: NDArray[Any]) -> Floats: ...

    @abstractmethod
    def in_old_basis(self, theta: NDArray[Any], matrix: Floats) -> Floats:
        """The theta that scores x as the given one scores x @ matrix."""

    def lay_out(self, X: NDArray[Any] | RowSource, y: NDArray[Any]) -> Batch:
        """Public records as the formulas want them: of a linear model, unit rows u and lengths r, x = r u."""
        return lay_out(X, y, unit_rows=self.linear, classes=self.classes, columns=self.features)

    @abstractmethod
    def rows(self, batch: Batch) -> Floats:
        """The rows of a batch as they came, in double precision."""

    @abstractmethod
    def losses(self, theta: NDArray[Any], batch: Batch) -> Floats:
        """Loss of each record."""

    @abstractmethod
    def norms(self, theta: NDArray[Any], batch: Batch) -> Floats:
        """Gradient norm of each record."""

    @abstractmethod
    def per_record(self, theta: NDArray[Any], batch: Batch) -> Floats:
        """Every record's gradient as a row, in double precision; one that is not finite is 0."""

    def clipped_sum(self, theta: NDArray[Any], batch: Batch, clip: float) -> Floats:
        """Sum over the batch of gradients clipped to norm ``clip``; a gradient that is not finite counts as zero."""
        with np.errstate(all="ignore"):
            return in_chunks(batch, lambda chunk: self._chunk_sum(theta, chunk, clip))

    def _chunk_sum(self, theta: NDArray[Any], batch: Batch, clip: float) -> Floats:
        return self._seen(theta, batch, clip, None, None)[0]

    def clipped_sum_and_count(
        self,
        theta: NDArray[Any],
        batch: Batch,
        clip: float,
        *,
        scale: Floats | None = None,
        basis: Floats | None = None,
        threshold: float | None = None,
    ) -> tuple[Floats, Floats | None]:
        """The clipped sum in the coordinates asked for, and the centred count of short gradients in those coordinates.

        ``scale`` divides each coordinate of a record's gradient before it is clipped (Pichapati et al. 2019), ``basis``
        replaces the gradient by its coordinates in a subspace (Zhou, Wu & Banerjee 2020), ``threshold`` asks for a count of
        short gradients (Andrew et al. 2021). Each record adds a vector of norm at most ``clip`` to the sum and a number in
        [-1/2, 1/2] to the count; one whose gradient is not finite adds zero and -1/2.
        """

        def chunk_sum(chunk: Batch) -> Floats:
            total, norms, alive = self._seen(theta, chunk, clip, scale, basis)
            return np.append(total, 0.0 if threshold is None else soft_count(norms, alive, threshold))

        with np.errstate(all="ignore"):
            both = in_chunks(batch, chunk_sum)
            return both[:-1], None if threshold is None else both[-1:]

    @abstractmethod
    def _seen(
        self, theta: NDArray[Any], batch: Batch, clip: float, scale: Floats | None, basis: Floats | None
    ) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """The clipped sum in other coordinates, the norms there, and whose gradient is finite."""


def factors(norms: Floats, bound: float) -> Floats:
    """What each record is multiplied by so that its norm is at most ``bound``, as a column."""
    return np.ones((len(norms), 1)) if math.isinf(bound) else (bound / np.maximum(norms, bound))[:, None]


def soft_count(norms: Floats, alive: NDArray[np.bool_], threshold: float) -> float:
    """Sum of a ramp from +1/2 for short to -1/2 for long norms: a count that would jump could jump for many by rounding."""
    ramp = np.clip((threshold - norms) / (2 * RAMP * threshold), -0.5, 0.5)
    return float(np.where(alive, ramp, -0.5).sum())


def leading_subspace(rows: Floats, rank: int) -> Floats:
    """An orthonormal basis, as columns, of the ``rank`` directions in which rows are largest (fewer if there are)."""
    n, d = rows.shape
    rank = min(rank, n, d)
    if n >= d:
        return np.asarray(np.linalg.eigh(rows.T @ rows)[1][:, : -rank - 1 : -1])
    left = np.linalg.eigh(rows @ rows.T)[1][:, : -rank - 1 : -1]
    return np.asarray(np.linalg.qr(rows.T @ left)[0])
