"""Public records laid out for fast sums: what every gradient formula needs, computed once.

In single precision, for public rows and meta-training, where rounding harms nobody. Private rows stand on an integer grid:
:mod:`noisewise.trusted.stores`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from ..late import Tensor, torch

CHUNK = 65536
PIECE = 4096
LONGEST = 2.0**40  # a longer row is treated as not finite: its products could overflow or underflow


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """Feature rows, labels, and the length of each row; one with an entry that is not finite is zeros and not ``valid``."""

    X: Tensor
    y: Tensor
    lengths: Tensor
    valid: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Tensor) -> Batch:
        return Batch(*(part.index_select(0, rows) for part in (self.X, self.y, self.lengths, self.valid)))

    def narrow(self, start: int, length: int) -> Batch:
        """A view of consecutive records."""
        return Batch(*(part.narrow(0, start, length) for part in (self.X, self.y, self.lengths, self.valid)))


def in_chunks(batch: Batch, chunk_sum: Callable[[Batch], Tensor]) -> Tensor:
    """Sum of ``chunk_sum`` over chunks that stay in the cache, so that a full pass reads the records once."""
    if len(batch) <= CHUNK:
        return chunk_sum(batch)
    count = -(-len(batch) // CHUNK)
    ends = [len(batch) * (i + 1) // count for i in range(count)]
    total = chunk_sum(batch.narrow(0, ends[0]))
    for start, end in pairwise(ends):
        total += chunk_sum(batch.narrow(start, end - start))
    return total


RowSource = Callable[[int, int], Tensor]  # (start, length): so many rows from there on


def lay_out(
    X: Tensor | RowSource,
    y: Tensor,
    *,
    unit_rows: bool,
    classes: int | None,
    columns: int | None = None,
) -> Batch:
    """Rows in single precision, divided by their lengths if ``unit_rows``, non-finite ones masked once and for all.

    ``X`` is a matrix, or a source of rows with so many ``columns``. The rows are copied: a
    caller that changes X later must not change what was measured.
    ``classes``: labels are class numbers below it, and a row with another label is masked too; None: real labels.
    """
    part = partial(torch.narrow, X, 0) if isinstance(X, Tensor) else X
    rows = torch.empty(len(y), X.shape[1] if isinstance(X, Tensor) else columns or 0)
    lengths, valid = torch.empty(len(y)), torch.empty(len(y), dtype=torch.bool)
    if classes is None:
        labels = y.to(torch.float32, copy=True)
        usable = torch.isfinite(labels)
    else:
        labels = y.to(torch.int64, copy=True)
        usable = (labels >= 0) & (labels < classes)
    for start in range(0, len(y), CHUNK):
        here = slice(start, min(start + CHUNK, len(y)))
        chunk = part(start, here.stop - start).to(torch.float32)
        long = torch.linalg.vector_norm(chunk, dim=1, dtype=torch.float64)
        good = (long < LONGEST) & usable[here]  # false for NaN
        long = torch.where(good, long, 0.0)
        chunk = torch.where(good[:, None], chunk, 0.0)
        rows[here] = chunk / long.clamp(min=torch.finfo(torch.float32).tiny)[:, None] if unit_rows else chunk
        lengths[here], valid[here] = long, good
    return Batch(rows, torch.where(valid, labels, torch.zeros((), dtype=labels.dtype)), lengths, valid)


def in_new_basis(rows_of: Callable[[Batch], Tensor], batch: Batch, matrix: Tensor) -> RowSource:
    """Rows x @ matrix, to be laid out anew; a masked row becomes NaN, so that laying it out masks it again."""
    plain = matrix.double()

    def rows(start: int, length: int) -> Tensor:
        part = batch.narrow(start, length)
        return torch.where(part.valid[:, None], rows_of(part) @ plain, math.nan)

    return rows


def weighted_sum(weights: Tensor, rows: Tensor) -> Tensor:
    """weights^T rows: (d,) for (n,) weights, (K, d) for (n, K), in double precision; products are in single."""
    return (weights @ rows if weights.ndim == 1 else weights.T @ rows).double()


def row_by_row(rows: Tensor, theta: Tensor) -> Tensor:
    """rows @ theta, or rows @ theta^T for a matrix, with each row summed by itself.

    A matrix product rounds a row differently in another place or company; for a loss whose slope jumps, one record
    more or less could then flip the slopes of others. Long rows are summed in pieces of ``PIECE`` columns: numpy sums a
    longer one differently when it is alone.
    """
    pattern = "ij,j->i" if theta.ndim == 1 else "ij,kj->ik"
    plain, weights = rows.numpy(), theta.numpy()
    total = np.einsum(pattern, plain[:, :PIECE], weights[..., :PIECE])
    for start in range(PIECE, plain.shape[1], PIECE):
        here = slice(start, start + PIECE)
        total += np.einsum(pattern, plain[:, here], weights[..., here])
    return torch.from_numpy(total)
