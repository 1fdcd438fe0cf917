"""How a finished model does, record by record: in which cells of a histogram a record is, or what its error adds.

Cells jump, so whatever decides on one is a record's own: exact scores, or scores that do not depend on a record's company,
and single operations of IEEE 754 on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import elementwise as plain
from .linear import FINE
from .protocol import CLASSES, THETA, VECTOR, HeldRecords, between, counts, everywhere
from .totals import Drawn, Floats, Integers

Flags = NDArray[np.bool_]


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


MOMENTS = 5


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
