"""Public records laid out for fast sums: what every gradient formula needs, computed once.

In single precision, as rounding does no harm for public rows. Private rows stand on an integer grid:
:mod:`noisewise.trusted.stores`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS_PER_CHUNK = 65536
ROWS_PER_PIECE = 4096
MAX_ROW_NORM = 2.0**40  # a longer row is treated as not finite: its products could overflow or underflow
MIN_DIVISOR = float(np.finfo(np.float32).tiny)
Singles = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """Feature rows, labels, and the length of each row; one with an entry that is not finite is zeros and not ``valid``."""

    X: Any
    y: Any
    lengths: Any
    valid: Any

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Any) -> Batch:
        """Some records, by their numbers or as a slice."""
        return Batch(*(part[rows] for part in (self.X, self.y, self.lengths, self.valid)))


def in_chunks(batch: Batch, chunk_sum: Callable[[Batch], Floats]) -> Floats:
    """Sum of ``chunk_sum`` over chunks that stay in the cache, so that a full pass reads the records once."""
    if len(batch) <= ROWS_PER_CHUNK:
        return chunk_sum(batch)
    count = -(-len(batch) // ROWS_PER_CHUNK)
    ends = [len(batch) * i // count for i in range(count + 1)]
    return np.asarray(sum(chunk_sum(batch.take(slice(*ends))) for ends in pairwise(ends)))


RowSource = Callable[[int, int], NDArray[Any]]  # (start, length): the rows


def lay_out(
    X: NDArray[Any] | RowSource,
    y: NDArray[Any],
    *,
    unit_rows: bool,
    classes: int | None,
    columns: int | None = None,
) -> Batch:
    """Rows in single precision, divided by their lengths if ``unit_rows``, non-finite ones masked once and for all.

    ``X`` is a matrix, or a source of rows of that many ``columns``. The rows are copied: changing X later changes nothing.
    ``classes``: labels are class numbers below it, and a row with another label is masked too; None: real labels.
    """
    n, source = len(y), X if callable(X) else None
    matrix = None if callable(X) else np.asarray(X)
    rows = np.empty((n, (columns or 0) if matrix is None else matrix.shape[1]), np.float32)
    lengths, valid = np.empty(n, np.float32), np.empty(n, bool)
    labels: NDArray[Any] = np.array(y, np.float32 if classes is None else np.int64)
    usable = np.isfinite(labels) if classes is None else (labels >= 0) & (labels < classes)
    for start in range(0, n, ROWS_PER_CHUNK):
        here = slice(start, min(start + ROWS_PER_CHUNK, n))
        given = source(start, here.stop - start) if source is not None else matrix[here]  # type: ignore[index]
        with np.errstate(all="ignore"):
            chunk = np.asarray(given).astype(np.float32)
            long = np.sqrt(np.einsum("ij,ij->i", chunk, chunk, dtype=np.float64))
        good = (long < MAX_ROW_NORM) & usable[here]  # false for NaN
        long = np.where(good, long, 0.0)
        chunk[~good] = 0.0
        rows[here] = chunk / np.maximum(long, MIN_DIVISOR)[:, None] if unit_rows else chunk
        lengths[here], valid[here] = long, good
    return Batch(rows, np.where(valid, labels, labels.dtype.type(0)), lengths, valid)


def in_new_basis(rows_of: Callable[[Batch], Floats], batch: Batch, matrix: NDArray[Any]) -> RowSource:
    """Rows x @ matrix, to be laid out anew; a masked row becomes NaN, so that laying it out masks it again."""
    plain = np.asarray(matrix, np.float64)

    def rows(start: int, length: int) -> Floats:
        part = batch.take(slice(start, start + length))
        return np.where(part.valid[:, None], rows_of(part) @ plain, math.nan)

    return rows


def weighted_sum(weights: NDArray[Any], rows: Singles) -> Floats:
    """weights^T rows: (d,) for (n,) weights, (K, d) for (n, K), in double precision; products are in single."""
    return np.asarray(weights.T.astype(np.float32) @ rows, np.float64)


def row_by_row(rows: Singles, theta: Singles) -> Singles:
    """rows @ theta, or rows @ theta^T for a matrix, with each row summed by itself.

    A matrix product rounds a row differently in another place or company; for a loss whose slope jumps, one record
    more or less could then flip the slopes of others. Long rows are summed in pieces of ``ROWS_PER_PIECE`` columns: numpy sums a
    longer one differently when it is alone.
    """
    pattern = "ij,j->i" if theta.ndim == 1 else "ij,kj->ik"
    total = np.einsum(pattern, rows[:, :ROWS_PER_PIECE], theta[..., :ROWS_PER_PIECE])
    for start in range(ROWS_PER_PIECE, rows.shape[1], ROWS_PER_PIECE):
        here = slice(start, start + ROWS_PER_PIECE)
        total += np.einsum(pattern, rows[:, here], theta[..., here])
    return np.asarray(total)
