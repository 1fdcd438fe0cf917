"""Records laid out for fast sums: what every gradient formula needs, computed once.

Sums run in blocks: single precision inside a block of ``BLOCK`` records, double precision between blocks. Inside a
block of k terms of norm at most C, rounding makes two neighbouring sums differ by about sqrt(k) * k * 2^-24 * C more
than they should (Higham & Mary 2019), 0.0007 C at k = 512. ``SLACK`` covers it: records are clipped to
(1 - SLACK) C, so that the stated sensitivity C includes the rounding of norms and sums. (Exact sums on a grid would
make the slack unnecessary; they are not here yet.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 512
SLACK = 2.0**-10


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """Feature rows, labels and inverse row norms.

    A row with an entry that is not finite is stored as zeros with inverse norm 0, so that it is clipped to nothing.
    """

    X: Tensor
    y: Tensor
    inverse_norms: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Tensor) -> Batch:
        return Batch(self.X.index_select(0, rows), self.y.index_select(0, rows), self.inverse_norms.index_select(0, rows))

    def valid(self) -> Tensor:
        """Which rows are finite."""
        return self.inverse_norms > 0


def lay_out(X: Tensor, y: Tensor) -> Batch:
    """Rows in single precision with their inverse norms, non-finite rows masked once and for all."""
    rows = X.to(torch.float32).contiguous()
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    finite = torch.isfinite(norms)
    if not bool(finite.all()):
        rows = torch.where(finite[:, None], rows, 0.0)
        norms = torch.where(finite, norms, math.inf)
    return Batch(rows, y, norms.clamp_(min=2.0**-100).reciprocal_().float())


def blocked_sum(weights: Tensor, rows: Tensor) -> Tensor:
    """weights^T rows, (K, d): one block in single precision, more of them added in double; ``weights`` is (n, K)."""
    n, outputs = weights.shape
    if n <= BLOCK:
        return weights.T @ rows
    whole = n - n % BLOCK
    blocks = weights[:whole].view(-1, BLOCK, outputs).transpose(1, 2)
    total = torch.bmm(blocks, rows[:whole].view(-1, BLOCK, rows.shape[1])).sum(0, dtype=torch.float64)
    return total.add_(weights[whole:].T @ rows[whole:])
