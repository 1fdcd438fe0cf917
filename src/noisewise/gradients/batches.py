"""Records laid out for fast sums: what every gradient formula needs, computed once.

Sums run in blocks: single precision inside a block of ``BLOCK`` records, double precision between blocks. Inside a
block of k terms of norm at most C, rounding makes two neighbouring sums differ by about sqrt(k) * k * 2^-24 * C more
than they should (Higham & Mary 2019), 0.0007 C at k = 512, and b blocks by sqrt(b) times what one differs.
``SLACK`` covers it for some ten million records (measured: 0.00096 C at four million): records are clipped to
(1 - SLACK) C, so that the stated sensitivity C includes the rounding of norms and sums. (Exact sums on a grid would
make the slack unnecessary; they are not here yet.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BLOCK = 512
CHUNK = 65536
SLACK = 2.0**-9
LONGEST = 2.0**40  # a longer row is treated as not finite: its products could overflow or underflow


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """Feature rows, labels, and the length of each row.

    A row with an entry that is not finite is stored as zeros with length 0 and is not among the ``valid`` ones
    (None: all are).
    """

    X: Tensor
    y: Tensor
    lengths: Tensor
    valid: Tensor | None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Tensor) -> Batch:
        valid = None if self.valid is None else self.valid.index_select(0, rows)
        return Batch(
            self.X.index_select(0, rows), self.y.index_select(0, rows), self.lengths.index_select(0, rows), valid
        )

    def narrow(self, start: int, length: int) -> Batch:
        """A view of consecutive records."""
        valid = None if self.valid is None else self.valid.narrow(0, start, length)
        X, y, lengths = (part.narrow(0, start, length) for part in (self.X, self.y, self.lengths))
        return Batch(X, y, lengths, valid)


def in_chunks(batch: Batch, chunk_sum: Callable[[Batch], Tensor]) -> Tensor:
    """Sum of ``chunk_sum`` over chunks that stay in the cache, so that a full pass reads the records once."""
    if len(batch) <= CHUNK:
        return chunk_sum(batch)
    total = chunk_sum(batch.narrow(0, CHUNK))
    for start in range(CHUNK, len(batch), CHUNK):
        total += chunk_sum(batch.narrow(start, min(CHUNK, len(batch) - start)))
    return total


def in_new_basis(rows: Tensor, valid: Tensor | None, matrix: Tensor) -> Tensor:
    """rows @ matrix; a masked row becomes NaN, so that laying it out masks it again."""
    changed = rows @ matrix.double()
    return changed if valid is None else torch.where(valid[:, None], changed, math.nan)


def lay_out(X: Tensor, y: Tensor, *, unit_rows: bool, classes: int | None) -> Batch:
    """Rows in single precision, divided by their lengths if ``unit_rows``, non-finite ones masked once and for all.

    ``classes``: labels are class numbers below it, and a row with another label is masked too; None: real labels.
    """
    rows = X.to(torch.float32, copy=True)  # a caller that changes X later must not change what was measured
    lengths = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    valid = lengths < LONGEST  # false for NaN
    if classes is None:
        labels = y.to(torch.float32, copy=True)
        valid &= torch.isfinite(labels)
    else:
        labels = y.to(torch.int64, copy=True)
        valid &= (labels >= 0) & (labels < classes)
    everywhere = bool(valid.all())
    if not everywhere:
        rows = torch.where(valid[:, None], rows, 0.0)
        lengths = torch.where(valid, lengths, 0.0)
        labels = torch.where(valid, labels, torch.zeros((), dtype=labels.dtype))
    if unit_rows:
        rows = rows / lengths.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    return Batch(rows.float().contiguous(), labels, lengths.float(), None if everywhere else valid)


def sum_dtype(records: int) -> torch.dtype:
    """The precision in which :func:`blocked_sum` returns a sum over so many records."""
    return torch.float32 if records <= BLOCK else torch.float64


def blocked_sum(weights: Tensor, rows: Tensor, *, into: Tensor | None = None) -> Tensor:
    """weights^T rows: one block in single precision, more of them added in double.

    ``weights`` is (n,) or (n, K), the result (d,) or (K, d), written to ``into`` if given.
    """
    n = len(rows)
    if n <= BLOCK:
        return torch.matmul(weights.T if weights.ndim == 2 else weights, rows, out=into)
    whole = n - n % BLOCK
    blocks = weights[:whole].view(-1, BLOCK, weights.numel() // n).transpose(1, 2)
    sums = torch.bmm(blocks, rows[:whole].view(-1, BLOCK, rows.shape[1]))
    total = torch.sum(sums if weights.ndim == 2 else sums[:, 0], 0, dtype=torch.float64, out=into)
    return total.add_(blocked_sum(weights[whole:], rows[whole:]))


def row_by_row(rows: Tensor, theta: Tensor) -> Tensor:
    """rows @ theta with each row summed by itself.

    A matrix product rounds a row differently in another place or company; for a loss whose slope jumps, one record
    more or less could then flip the slopes of others.
    """
    return torch.from_numpy(np.einsum("ij,j->i", rows.numpy(), theta.numpy()))
