"""Exact sums over a batch, chunk by chunk: integers on the grid of the rows, so that no order of adding matters.

Counts of scores jump at the edges of their cells. What decides on a cell is a record's own: exact scores, or scores that do not
depend on a record's company, and single operations of IEEE 754 on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import elementwise as plain
from .linear import FINE, LABEL, ROW
from .protocol import CLASSES, POSITIVE, THETA, VECTOR, HeldRecords, between, counts, everywhere, of_norm
from .totals import Drawn, Floats, Integers

Flags = NDArray[np.bool_]
MOMENTS = 5


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


# --- how a finished model does, record by record ---


def cells(bins: int, classes: int) -> int:
    """How many cells there are: (bin, label) of two classes; of more see :func:`score_counts`."""
    return 2 * bins if classes == 2 else (classes + 1) * bins * 2 + classes * classes


def places(classes: float) -> float:
    """In how many of them a record is."""
    return 1 if classes == 2 else classes + 2


@everywhere(
    *(THETA, VECTOR, CLASSES),
    limit=counts(lambda theta, edges, classes: places(classes)),
    entries=lambda _, theta, edges, classes: 2.0 * (classes + 1) * (len(edges) + 1 + classes),
)
def score_counts(records: HeldRecords, drawn: Drawn, theta: Floats, edges: Floats, classes: int) -> Integers:
    """How many records are in each cell; bin b has the scores above edge b - 1, up to edge b and with it.

    Two classes: a record is in one cell, (bin of its score, label). More classes: in classes + 2 of them: for every
    class (bin of its probability, whether it is the label), then (bin of the largest probability, whether that is right),
    then (label, prediction). A record whose scores are not finite counts as surely wrong.
    """
    total = np.zeros(cells(len(edges) + 1, classes), np.int64)
    for scores, labels, alive in records.scored(drawn, theta):
        usable = alive & np.isfinite(scores).reshape(len(alive), -1).all(1)
        of_records = _of_two if classes == 2 else _of_several
        for place in of_records(scores, labels, usable, edges):
            total += np.bincount(place, minlength=len(total))
    return total


def _of_two(scores: Floats, labels: NDArray[Any], usable: Flags, edges: Floats) -> Iterator[Integers]:
    odds, second = scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0], labels > 0
    yield _placed(odds, second, usable, edges)


def _of_several(scores: Floats, labels: NDArray[Any], usable: Flags, edges: Floats) -> Iterator[Integers]:
    classes, bins = scores.shape[1], len(edges) + 1
    finite = np.where(usable[:, None], scores, 0.0)
    odds = plain.exp(finite - finite.max(1)[:, None])
    whole = odds[:, 0].copy()
    for k in range(1, classes):
        whole += odds[:, k]
    for k in range(classes):
        yield k * bins * 2 + _placed(odds[:, k] / whole, labels == k, usable, edges)
    best = finite.argmax(1)
    right = (labels == best) & usable
    yield classes * bins * 2 + _placed(1.0 / whole, right, usable, edges)  # exp of the largest less itself is 1
    yield (classes + 1) * bins * 2 + labels * classes + np.where(usable, best, (labels + 1) % classes)


def _placed(values: Floats, true: Flags, usable: Flags, edges: Floats) -> Integers:
    """2 bin + 1 where it is true; what is not usable goes as far as there are bins to the wrong side."""
    bins = np.where(usable, np.searchsorted(edges, values, side="left"), np.where(true, 0, len(edges)))
    return 2 * bins + true


@everywhere(THETA, limit=between(-FINE, FINE))
def error_moments(records: HeldRecords, drawn: Drawn, theta: Floats) -> Integers:
    """Sums of a, a^2, a^4, (y + 1)/2 and y^2, each less 1/2, in units of 1/(2 FINE); a = |score - y| / 2.

    Score and y are clamped to [-1, 1], so all five are in [0, 1]; a record that is not finite has a = 1 and y = 0.
    """
    total = np.zeros(MOMENTS, np.int64)
    for scores, labels, alive in records.scored(drawn, theta):
        usable = alive & np.isfinite(scores)
        y = np.where(usable, np.minimum(np.maximum(labels, -1.0), 1.0), 0.0)
        a = np.where(usable, np.abs(np.minimum(np.maximum(scores, -1.0), 1.0) - y) / 2, 1.0)
        square = a * a
        for i, share in enumerate((a, square, square * square, (y + 1) / 2, y * y)):
            total[i] += np.rint((share - 0.5) * (2 * FINE)).astype(np.int64).sum()
    return total
