"""Records laid out for fast sums: what every gradient formula needs, computed once.

Rows and coefficients are kept in single precision. One record more at the front of a file moves every other record on by a
place, and what each block of a sum loses to rounding can then change alike in all of them; in single precision that was
seen to add up to a whole clip norm at four million records. So sums over many records run in double precision, in chunks of
at most ``CHUNK`` = 2^16: n terms of norm at most C are off by at most 2^16 2^-53 n C, 0.0001 C for ten million. Sums over few
run in blocks of k terms in single precision, each off by at most (1 + 2 + ... + (k-1)) 2^-24 C, which is n (k-1) 2^-24 C for
the n/k blocks of two neighbours: with n k <= ``PRODUCT`` less than the slack by n 2^-24 C, which the rounding of norms needs.
``SLACK`` covers that and the rounding of norms: records are clipped to (1 - SLACK) C, so that the stated sensitivity C
includes both up to some fifty million records (2^-36 n C for two neighbours). (Exact sums on a grid would make the slack unnecessary; they are not here yet.)
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

CHUNK = 65536
PIECE = 4096
STRIPE = 1 << 17  # entries that are turned to double precision at a time, 1 MB
FEW = 2048  # records up to which blocks of single precision are accurate enough
PRODUCT = 1 << 15  # of the number of records and the length of a block
DOUBLED = 1 << 24  # entries up to which rows in memory are also kept in double precision, 128 MB
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
    doubled: Tensor | None = None  # X in double precision, where it is kept

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
        doubled = None if self.doubled is None else self.doubled.narrow(0, start, length)
        X, y, lengths = (part.narrow(0, start, length) for part in (self.X, self.y, self.lengths))
        return Batch(X, y, lengths, valid, doubled)


def in_chunks(batch: Batch, chunk_sum: Callable[[Batch], Tensor]) -> Tensor:
    """Sum of ``chunk_sum`` over chunks that stay in the cache, so that a full pass reads the records once.

    Chunks are of about equal size, so none is short: many records are never summed as few are.
    """
    if len(batch) <= CHUNK:
        return chunk_sum(batch)
    count = -(-len(batch) // CHUNK)
    ends = [len(batch) * (i + 1) // count for i in range(count)]
    total = chunk_sum(batch.narrow(0, ends[0]))
    for start, end in pairwise(ends):
        total += chunk_sum(batch.narrow(start, end - start))
    return total


Source = Callable[[int, int], Tensor]  # (start, length): so many rows from there on
Store = Callable[[int, int], Tensor]  # (rows, columns): an empty float32 matrix to keep rows in


def in_memory(rows: int, columns: int) -> Tensor:
    """Where laid out rows are kept unless there are too many: in memory."""
    return torch.empty(rows, columns)


@dataclass(frozen=True)
class Mapped:
    """Keeps laid out rows in a file of ``folder``, mapped into memory, so that they need not fit into it.

    The file has no name from the start: nobody else can open it, and it is gone with the process, however that ends.
    """

    folder: Path

    def __call__(self, rows: int, columns: int) -> Tensor:
        if rows == 0 or columns == 0:
            return torch.empty(rows, columns)
        with tempfile.TemporaryFile(dir=self.folder, prefix="noisewise-") as file:
            file.truncate(4 * rows * columns)
            return torch.from_numpy(np.memmap(file, np.float32, "r+", shape=(rows, columns)))


def lay_out(
    X: Tensor | Source,
    y: Tensor,
    *,
    unit_rows: bool,
    classes: int | None,
    store: Store = in_memory,
    columns: int | None = None,
) -> Batch:
    """Rows in single precision, divided by their lengths if ``unit_rows``, non-finite ones masked once and for all.

    ``X`` is a matrix, or a source of rows with so many ``columns``. The rows are copied to ``store`` in
    chunks: a caller that changes X later must not change what was measured.
    ``classes``: labels are class numbers below it, and a row with another label is masked too; None: real labels.
    """
    part = partial(torch.narrow, X, 0) if isinstance(X, Tensor) else X
    rows = store(len(y), X.shape[1] if isinstance(X, Tensor) else columns or 0)
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
    everywhere = bool(valid.all())
    if not everywhere:
        labels = torch.where(valid, labels, torch.zeros((), dtype=labels.dtype))
    doubled = rows.double() if store is in_memory and len(y) > FEW and rows.numel() <= DOUBLED else None
    return Batch(rows, labels, lengths, None if everywhere else valid, doubled)


def in_new_basis(rows_of: Callable[[Batch], Tensor], batch: Batch, matrix: Tensor) -> Source:
    """Rows x @ matrix, to be laid out anew; a masked row becomes NaN, so that laying it out masks it again."""
    plain = matrix.double()

    def rows(start: int, length: int) -> Tensor:
        part = batch.narrow(start, length)
        changed = rows_of(part) @ plain
        return changed if part.valid is None else torch.where(part.valid[:, None], changed, math.nan)

    return rows


def safe_sum(weights: Tensor, rows: Tensor, *, doubled: Tensor | None = None, into: Tensor | None = None) -> Tensor:
    """weights^T rows in double precision, or so that it hardly matters; see the module's text.

    ``weights`` is (n,) or (n, K), the result (d,) or (K, d) in double precision, written to ``into`` if given.
    ``doubled``: the rows in double precision, if somebody has them.
    """
    columns = weights.unsqueeze(1) if weights.ndim == 1 else weights
    total = torch.empty(columns.shape[1], rows.shape[1], dtype=torch.float64) if into is None else into
    if len(rows) <= FEW:
        _in_blocks(columns, rows, total)
    elif doubled is not None:
        torch.mm(columns.double().T, doubled, out=total)
    else:
        _in_stripes(columns.double(), rows, total.zero_())
    return total[0] if weights.ndim == 1 else total


def _in_blocks(weights: Tensor, rows: Tensor, total: Tensor) -> None:
    """Blocks of single precision, as long as PRODUCT allows, added in double."""
    n, columns = rows.shape
    length = min(1 << (PRODUCT // max(n, 1)).bit_length() - 1, max(n, 1))
    whole = n - n % length
    if whole == length or (whole <= 4 * length and total.numel() > 4096):  # large results are better not stacked
        total.copy_(weights[:length].T @ rows[:length])
        for start in range(length, whole, length):
            total.add_(weights[start : start + length].T @ rows[start : start + length])
    else:
        blocks = weights[:whole].view(-1, length, weights.shape[1]).transpose(1, 2)
        torch.sum(torch.bmm(blocks, rows[:whole].view(-1, length, columns)), 0, dtype=total.dtype, out=total)
    if whole < n:
        total.add_(weights[whole:].T @ rows[whole:])


def _in_stripes(weights: Tensor, rows: Tensor, total: Tensor) -> None:
    """Rows turned to double precision a stripe at a time, so that it stays in the cache."""
    height = max(STRIPE // max(rows.shape[1], 1), 128)
    stripe = torch.empty(min(height, len(rows)), rows.shape[1], dtype=torch.float64)
    for start in range(0, len(rows), height):
        part = rows[start : start + height]
        total.addmm_(weights[start : start + height].T, stripe[: len(part)].copy_(part))


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
