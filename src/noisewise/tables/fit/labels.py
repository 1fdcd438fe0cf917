"""Labels: classes or a number between bounds, as numbers for a loss, and predicted from scores. Messages show no label."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...trusted.losses import loss_named
from ...trusted.stores.grid import NO_CLASS, NO_LABEL
from ..refusal import Refusal, our_words
from ..rows import interval

Array = NDArray[Any]


def same_length(X: Array, y: Array) -> None:
    """Refuse rows without labels and labels without rows, without saying how many there are."""
    if len(X) != len(y):
        raise Refusal("X and y have inconsistent numbers of samples; pass one label for each row")


def classes_in(y: Array) -> Array:
    """The distinct labels of ``y``, sorted; a ``y`` that cannot be classes is refused."""
    with our_words("y cannot be taken for classes; pass whole numbers, texts or booleans, all of one kind"):
        if y.dtype.kind == "f" and (y != np.floor(y)).any():
            raise Refusal(
                "Unknown label type: continuous. y holds numbers that are not whole; use PrivateRegressor, or pass them as texts"
            )
        if y.dtype.kind == "O" and not all(isinstance(label, str) for label in y):
            raise Refusal(
                "Unknown label type: y holds objects that are not all texts; pass y.astype(int) or y.astype(str)"
            )
        labels = np.unique(y)
        if labels.dtype.kind in "OUT" and any("\ud800" <= letter <= "\udfff" for text in labels for letter in text):
            raise Refusal("y holds half a character (a lone surrogate) in a label; write labels as UTF-8 can")
    return labels


def declared_classes(classes: Any) -> Array:
    """The declared class labels, sorted."""
    if isinstance(classes, str | bytes) or not isinstance(classes, Collection | np.ndarray):
        raise ValueError(f"classes is {classes!r}; pass a list of the labels, e.g. classes=['no', 'yes']")
    labels = np.unique(np.asarray(list(classes)))
    if len(labels) < len(classes):
        raise ValueError("classes names a label twice; pass each label once")
    if len(labels) < 2:
        raise ValueError(f"classes is {classes!r}; a classifier needs at least two, pass every label")
    return labels


def class_codes(classes: Array, y: Array, *, who: str = "y") -> Array:
    """Class numbers 0 .. K-1; a label that is not a class is an error at the data holder."""
    with our_words(f"{who} holds labels that cannot be compared with the classes; pass labels of the same kind"):
        labels = np.asarray(y)
        if not np.isin(labels, classes).all():
            raise Refusal(f"{who} holds a label that is not among the classes; declare every class")
        codes: Array = np.searchsorted(classes, labels)
    return codes


def class_weights(weights: Any, classes: Array) -> tuple[float, ...]:
    """Declared weights in the order of the classes, 1 where none is given, divided by the largest.

    Their scale changes no optimum, but a clip norm is meant for weights of at most 1: the gradients of a class with a
    weight above that are cut back to where the others are, and the weight is undone.
    """
    if not isinstance(weights, Mapping):
        raise ValueError(
            f"class_weight is {weights!r}; weights from private label counts would leak them: pass a dict "
            "{class: weight} that you chose without the private labels, or None"
        )
    labels = classes.tolist()
    if unknown := [label for label in weights if label not in labels]:
        raise ValueError(f"class_weight names {unknown[0]!r}, which is no class; name classes only")
    try:
        values = tuple(float(weights.get(label, 1.0)) for label in labels)
    except (TypeError, ValueError):
        raise ValueError(f"class_weight is {weights!r}; pass numbers as weights") from None
    if not all(np.isfinite(value) and value >= 0 for value in values) or max(values) == 0:
        raise ValueError(f"class_weight is {weights!r}; pass finite weights >= 0, not all zero")
    return tuple(value / max(values) for value in values)


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
    """A number between declared bounds, scaled to -1 to 1 for the loss."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Bounds may come from a server: an array of them could give each record bounds of its own."""
        ends = self.low, self.high
        if not all(isinstance(end, float | int) and math.isfinite(end) for end in ends) or not self.low < self.high:
            raise ValueError("bounds of a target are finite numbers, low below high")

    def numbers(self, y: Array, *, who: str = "y") -> Array:
        """Targets as the loss takes them, clamped to the bounds."""
        return 2 * (np.clip(np.asarray(y, dtype=float), self.low, self.high) - self.low) / (self.high - self.low) - 1

    def predictions(self, scores: Array) -> Array:
        """The predicted target of each row, within the bounds."""
        return self.low + (np.clip(scores, -1, 1) + 1) / 2 * (self.high - self.low)


ClassesOrTarget = Classes | Target


def numbers_with(labels: ClassesOrTarget, y: Array, there: NDArray[np.bool_] | None, *, coded: bool = False) -> Array:
    """Labels as the loss takes them; a record without a label gets the value that the curator leaves out.

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
    """The labels of a run folder. Where it does not say whether classes have probabilities, the loss decides."""
    if document["classes"] is None:
        return Target(*interval("target_bounds", document["preprocessing"]["target_bounds"]))
    values = np.asarray(document["classes"])
    if values.ndim != 1 or len(values) < 2 or outputs not in (1, len(values)) or (outputs == 1 and len(values) > 2):
        raise ValueError("its classes do not go with its model")
    likely = document.get("probabilities")
    if likely is None:
        likely = loss_named(document["model"]["loss"].replace(",", " ").split()[0]).has_probabilities
    return Classes(values, outputs > 1, bool(likely))
