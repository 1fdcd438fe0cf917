"""Checks at the data holder's desk, before a curator exists: types, shapes, labels and classes.

Messages name the argument and what to pass instead, and never show a value of a record.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_array

from .desk import Refusal, our_words

Array = NDArray[Any]
CORRECT = "correct those labels or leave their records out before fit"
NOT_ROWS = (
    "the X argument must be rows of real numbers (a string is read as the number that it writes), all of one length; "
    "encode categories by a public list first. Complex data not supported"
)
NOT_LABELS = "y must be one label for each row: numbers, texts or booleans, all of one kind"
_ANY_SHAPE: dict[str, Any] = {
    "ensure_2d": False, "allow_nd": True, "ensure_all_finite": False, "ensure_min_samples": 0, "ensure_min_features": 0,
}  # fmt: skip


def rows_of(X: Any) -> Array:
    """Private rows as a matrix of doubles; NaN and infinity stay, they are the curator's matter."""
    if issparse(X):
        raise Refusal("X is a sparse matrix; pass a dense array, X.toarray()")
    with our_words(NOT_ROWS):
        rows: Array = check_array(X, dtype=np.float64, **_ANY_SHAPE)
    if rows.ndim != 2:
        raise Refusal(
            "X must have two dimensions, rows and columns. Reshape your data: X.reshape(-1, 1) if it is one column, "
            "X.reshape(1, -1) if it is one row"
        )
    if rows.shape[1] == 0:
        raise Refusal("X has no columns: 0 feature(s) (shape=(, 0)) while a minimum of 1 is required.")
    if len(rows) == 0:
        raise Refusal("X has no rows (0 samples); pass the records to train on or to predict")
    return rows


def names_of(X: Any) -> Any:
    """A table with the names of the columns of X and without any row, for a library that checks names; None if it has none."""
    with our_words("the names of the columns of X cannot be read; pass a DataFrame or an array"):
        names = getattr(X, "column_names", None)  # Arrow, whose columns are the cells
        names = getattr(X, "columns", None) if names is None else names
        return None if names is None else pd.DataFrame(columns=pd.Index(list(names), dtype=object, tupleize_cols=False))


def labels_of(y: Any, *, numeric: bool) -> Array:
    """Private labels as a vector; missing ones are refused. ``numeric``: as doubles where they are not numbers yet."""
    if y is None:
        raise Refusal("fit requires y to be passed, but the target y is None; pass one label for each row of X")
    with our_words(NOT_LABELS):
        labels: Array = check_array(y, dtype=None, **_ANY_SHAPE)
        column = labels.ndim == 2 and labels.shape[1] == 1
        if labels.ndim != 1 and not column:
            raise Refusal("y should be a 1d array; pass one label for each row of X")
        labels = np.ravel(labels)
        if labels.dtype.kind not in "biufOUT":
            raise Refusal(NOT_LABELS)
        if pd.isna(labels).any():
            raise Refusal(f"y contains NaN or None, which are missing labels; {CORRECT}")
        if numeric and labels.dtype.kind == "O":
            labels = labels.astype(np.float64)
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise Refusal(f"y contains infinity; {CORRECT}")
    if column:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; pass y.ravel()",
            DataConversionWarning,
            stacklevel=2,
        )
    return labels


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
    """Declared weights in the order of the classes, 1 where none is given."""
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
