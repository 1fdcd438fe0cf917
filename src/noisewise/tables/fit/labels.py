"""Labels as people have them, as a loss takes them, and back from scores: classes, or a number between bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...trusted.losses import loss_named
from ...trusted.stores.grid import NO_CLASS, NO_LABEL
from ..classes import class_codes
from ..preprocess import interval

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of a classifier, sorted. ``numbered``: a loss with one score per class takes 0 .. K-1, others -1 and 1.

    ``likely``: whether the loss gives them probabilities.
    """

    values: Array
    numbered: bool
    likely: bool

    def numbers(self, y: Array, *, who: str = "y") -> Array:
        """Labels as the loss takes them; one that is no class is refused."""
        return self.coded(class_codes(self.values, y, who=who))

    def coded(self, positions: Array) -> Array:
        """Positions among the classes as the loss takes them."""
        return positions if self.numbered else 2 * positions - 1

    def decisions(self, scores: Array) -> Array:
        """One score for two classes (positive: the second), or a column per class."""
        return scores[:, 1] - scores[:, 0] if scores.ndim == 2 and len(self.values) == 2 else scores

    def predictions(self, scores: Array) -> Array:
        """The most likely class of each row."""
        scores = self.decisions(scores)
        return self.values[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


@dataclass(frozen=True)
class Target:
    """A number between declared bounds, which is -1 to 1 for the loss."""

    low: float
    high: float

    def numbers(self, y: Array, *, who: str = "y") -> Array:
        """Targets as the loss takes them, clamped to the bounds."""
        return 2 * (np.clip(np.asarray(y, dtype=float), self.low, self.high) - self.low) / (self.high - self.low) - 1

    def predictions(self, scores: Array) -> Array:
        """The predicted target of each row, within the bounds."""
        return self.low + (np.clip(scores, -1, 1) + 1) / 2 * (self.high - self.low)


ClassesOrTarget = Classes | Target


def numbers_with(labels: ClassesOrTarget, y: Array, there: NDArray[np.bool_] | None, *, coded: bool = False) -> Array:
    """Labels as the loss takes them, where not all records have one: who has none gets what the curator leaves out.

    ``there``: who has a label, None for all. ``coded``: they are positions among the classes.
    """

    def numbers(some: Array) -> Array:
        return labels.coded(some) if coded and isinstance(labels, Classes) else labels.numbers(some)

    if there is None or there.all():
        return numbers(y)
    whole = isinstance(labels, Classes) and labels.numbered
    found = np.full(len(there), NO_CLASS if whole else NO_LABEL, dtype=np.int64 if whole else np.float64)
    found[there] = numbers(y[there])
    return found


def numbers_of_files(
    labels: ClassesOrTarget, classes: Array | None, y: Array, there: NDArray[np.bool_] | None = None
) -> Array:
    """Labels of a file, which are positions among the schema's ``classes`` or numbers, as the loss takes them.

    ``there``: as in :func:`numbers_with`.
    """
    if classes is None or not isinstance(labels, Classes):
        return numbers_with(labels, y, there)
    if np.array_equal(classes, labels.values):
        return numbers_with(labels, y, there, coded=True)
    return numbers_with(labels, classes[y], there)


def labels_from(document: Mapping[str, Any], outputs: int) -> ClassesOrTarget:
    """The labels that a run folder describes; a folder that does not say whether classes are likely goes by the loss."""
    if document["classes"] is None:
        return Target(*interval("target_bounds", document["preprocessing"]["target_bounds"]))
    values = np.asarray(document["classes"])
    if values.ndim != 1 or len(values) < 2 or outputs not in (1, len(values)) or (outputs == 1 and len(values) > 2):
        raise ValueError("its classes do not go with its model")
    likely = document.get("probabilities")
    if likely is None:
        likely = loss_named(document["model"]["loss"].replace(",", " ").split()[0]).has_probabilities
    return Classes(values, outputs > 1, bool(likely))
