"""Exact sums over a batch, chunk by chunk: integers on the grid of the rows, so that no order of adding matters."""

from __future__ import annotations

import numpy as np

from .linear import FINE, LABEL, ROW
from .protocol import POSITIVE, THETA, HeldRecords, between, everywhere, of_norm
from .totals import Drawn, Floats, Integers


@everywhere(limit=between(0, ROW * ROW))
def squared_length_sum(records: HeldRecords, drawn: Drawn) -> Integers:
    """Sum of ||x||^2, in units of 1/ROW^2."""
    total = np.zeros(1, np.int64)
    for rows, _, _ in records.unit_rows(drawn):
        total += (rows * rows).sum(1).astype(np.int64).sum()
    return total


@everywhere(limit=of_norm(ROW * ROW), entries=lambda columns: columns**2.0)
def second_moment_sum(records: HeldRecords, drawn: Drawn) -> Integers:
    """Sum of x x^T, in units of 1/ROW^2: a chunk's products are integers below 2^53 in all."""
    total = np.zeros((records.columns, records.columns), np.int64)
    for rows, _, _ in records.unit_rows(drawn):
        total += (rows.T @ rows).astype(np.int64)
    return total


@everywhere(POSITIVE, limit=of_norm(ROW * LABEL))
def cross_moment_sum(records: HeldRecords, drawn: Drawn, bound: float) -> Integers:
    """Sum of x y, y within [-bound, bound], in units of bound/(ROW LABEL)."""
    total = np.zeros(records.columns, np.int64)
    for rows, labels, _ in records.unit_rows(drawn):
        share = np.minimum(np.maximum(labels.astype(np.float64) / bound, -1.0), 1.0)
        total += (rows * np.rint(share * LABEL)[:, None]).sum(0).astype(np.int64)
    return total


@everywhere(THETA, limit=between(-1, 1))
def right_less_wrong(records: HeldRecords, drawn: Drawn, theta: Floats) -> Integers:
    """Sum of 1 for a right answer and -1 for a wrong one; what is not finite is wrong."""
    count = 0
    for scores, labels, alive in records.scored(drawn, theta):
        right = scores.argmax(1) == labels if scores.ndim == 2 else (scores > 0) == (labels > 0)
        finite = np.isfinite(scores).reshape(len(alive), -1).all(1)
        count += int(np.where(right & alive & finite, 1, -1).sum())
    return np.array([count])


@everywhere(THETA, limit=between(-FINE, FINE))
def squared_errors(records: HeldRecords, drawn: Drawn, theta: Floats) -> Integers:
    """Sum of (clamp(score) - clamp(y))^2 / 4 - 1/2, both clamped to [-1, 1], in units of 1/(2 FINE); not finite: 1/2."""
    total = 0
    for scores, labels, alive in records.scored(drawn, theta):
        away = np.minimum(np.maximum(scores, -1), 1) - np.minimum(np.maximum(labels, -1), 1)
        share = np.where(alive & np.isfinite(scores), away * away / 4 - 0.5, 0.5)
        total += int(np.rint(share * (2 * FINE)).astype(np.int64).sum())
    return np.array([total])
