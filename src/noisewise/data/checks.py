"""Checks at the data holder's desk, before a curator exists: types, shapes, labels and classes.

Messages name the argument and what to pass instead, and never show a value of a record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def without_values(error: Exception) -> ValueError:
    """The same complaint without any value that a library has put into it."""
    message = str(error).split("array=")[0].strip().rstrip(":")
    if "could not convert" in message or ("dtype" in message.lower() and "y contains" not in message):
        message = "X or y holds text where numbers are needed; encode categories by a public list first"
    if message.startswith("Input y contains"):
        message = f"{message} Correct those labels or leave their records out before fit."
    return ValueError(message)


def no_missing_labels(y: Any) -> None:
    """Refuse None among labels, which would fail later with a message about comparing."""
    if y is None:
        return  # refused by the validation that follows
    labels = np.ravel(np.asarray(y, dtype=object)) if isinstance(y, list | tuple) else np.ravel(np.asarray(y))
    if labels.dtype.hasobject and any(label is None for label in labels):
        raise ValueError("y holds missing labels (None); correct them or leave their records out before fit")


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
    labels = np.asarray(y)
    known = np.isin(labels, classes)
    if not known.all():
        raise ValueError(f"{who} holds a label that is not among the {len(classes)} classes; declare every class")
    return np.searchsorted(classes, labels)


def class_weights(weights: Any, classes: Array) -> tuple[float, ...]:
    """Declared weights in the order of the classes, 1 where none is given."""
    if not isinstance(weights, Mapping):
        raise ValueError(
            f"class_weight is {weights!r}; weights from private label counts would leak them: pass a dict "
            "{class: weight} that you chose without the private labels, or None"
        )
    labels = classes.tolist()
    if unknown := [label for label in weights if label not in labels]:
        raise ValueError(f"class_weight names {unknown[0]!r}, which is no class; the classes are {labels}")
    try:
        values = tuple(float(weights.get(label, 1.0)) for label in labels)
    except (TypeError, ValueError):
        raise ValueError(f"class_weight is {weights!r}; pass numbers as weights") from None
    if not all(np.isfinite(value) and value >= 0 for value in values) or max(values) == 0:
        raise ValueError(f"class_weight is {weights!r}; pass finite weights >= 0, not all zero")
    return values


def public_pair(public: Any, names: Array | None, columns: int) -> tuple[Array, Array]:
    """Public rows and labels as arrays, columns in the order of the private ones."""
    if not (isinstance(public, tuple | list) and len(public) == 2):
        raise ValueError("public must be a pair (X, y) of public rows and their labels")
    X, y = public
    if names is not None and hasattr(X, "columns"):
        if missing := [name for name in names if name not in X.columns]:
            raise ValueError(f"public rows lack the column {missing[0]!r}; pass the columns of the private rows")
        X = X[list(names)]
    try:
        rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    except (TypeError, ValueError):
        raise ValueError("public rows must be numbers, as the private rows are") from None
    if rows.ndim != 2 or rows.shape[1] != columns or len(rows) != len(labels) or len(rows) == 0:
        raise ValueError(
            f"public must be rows with {columns} columns and one label each; got {rows.shape} and {labels.shape}"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("public labels must be finite; correct them or leave their rows out")
    return rows, labels
