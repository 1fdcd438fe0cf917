"""Classes and labels at the data holder's desk: what they are, their numbers, their weights. Messages show no label."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .refusal import Refusal, our_words

Array = NDArray[Any]


def same_length(X: Array, y: Array) -> None:
    """Refuse rows without labels and labels without rows; how many there are is not said."""
    if len(X) != len(y):
        raise Refusal("X and y have inconsistent numbers of samples; pass one label for each row")


def classes_in(y: Array) -> Array:
    """The different labels, sorted, of a ``y`` that can be classes."""
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
