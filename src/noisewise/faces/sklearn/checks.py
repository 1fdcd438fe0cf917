"""Checks of what estimators are given, before a curator exists: types, shapes, labels, other arguments, and pipelines around them.

Messages name the argument and what to pass instead, and never show a value of a record.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import DataConversionWarning
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_array

from ...tables.refusal import NOT_ROWS, Refusal, our_words
from ...tables.values import is_missing_word, key
from ...trusted.validate import did_you_mean

Array = NDArray[Any]
CORRECT = "correct those labels or leave their records out before fit"
NOT_LABELS = "y must be one label for each row: numbers, texts or booleans, all of one kind"
_ANY_SHAPE: dict[str, Any] = {
    "ensure_2d": False, "allow_nd": True, "ensure_all_finite": False, "ensure_min_samples": 0, "ensure_min_features": 0,
}  # fmt: skip
KNOWN = ("public", "purse", "ledger", "dataset")  # what fit takes beside X and y
MAX_FRAMES = 64  # of the call stack, that are searched for a pipeline
SCALE = "declare bounds= or schema=, by which the estimator scales itself"
PUBLIC = "fit it on public rows and pass sklearn.frozen.FrozenEstimator(it)"
CATEGORIES = "pass a DataFrame and schema=noisewise.Schema(...), which lists the categories"
MISSING = "leave missing values as they are, or say in a schema what they become"
CHOOSE = "choose columns by what you know, or on public rows"
INSTEAD = {
    "StandardScaler": SCALE, "MinMaxScaler": SCALE, "MaxAbsScaler": SCALE, "RobustScaler": SCALE,
    "PowerTransformer": 'declare scale = "log" in a schema', "QuantileTransformer": "leave it out: method='auto' buys ranks",
    "KBinsDiscretizer": "declare knots in a schema", "SplineTransformer": "declare knots in a schema",
    "OneHotEncoder": CATEGORIES, "OrdinalEncoder": CATEGORIES, "TargetEncoder": CATEGORIES, "LabelBinarizer": CATEGORIES,
    "SimpleImputer": MISSING, "KNNImputer": MISSING, "IterativeImputer": MISSING, "MissingIndicator": MISSING,
    "SelectKBest": CHOOSE, "SelectPercentile": CHOOSE, "SelectFromModel": CHOOSE, "VarianceThreshold": CHOOSE, "RFE": CHOOSE,
}  # fmt: skip
NOTHING = {
    "FrozenEstimator", "PolynomialFeatures", "RBFSampler", "PolynomialCountSketch", "SkewedChi2Sampler",
    "GaussianRandomProjection", "SparseRandomProjection", "OrientedGradients", "FeatureHasher", "HashingVectorizer",
}  # fmt: skip # they take from rows how many columns there are, at most


def private_rows(X: Any) -> Array:
    """Private rows as a matrix of doubles. NaN and infinity stay: the curator handles them."""
    if issparse(X):
        raise Refusal(
            "X is a sparse matrix; pass a dense array, X.toarray(), with few enough columns to fit into memory"
        )
    _refuse_categories(X)
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


def _refuse_categories(X: Any) -> None:
    """Refuse columns of a DataFrame with a category type: they are not numbers, whatever their categories are."""
    if not isinstance(X, pd.DataFrame):
        return
    for name, dtype in zip(X.columns, X.dtypes, strict=True):
        if isinstance(dtype, pd.CategoricalDtype):
            raise Refusal(
                f"column {str(name)!r} of X is a category; bounds are for numbers. Pass schema=noisewise.Schema("
                f"{{{str(name)!r}: ['one', 'another', ...], ...}}), which lists its categories, instead of bounds"
            )


def bare_table(X: Any) -> Any:
    """A table without rows that has the column names of X, for scikit-learn to check; None if X has no names."""
    with our_words("the names of the columns of X cannot be read; pass a DataFrame or an array"):
        names = getattr(X, "column_names", None)  # Arrow, whose columns are the cells
        names = getattr(X, "columns", None) if names is None else names
        return None if names is None else pd.DataFrame(columns=pd.Index(list(names), dtype=object, tupleize_cols=False))


def private_labels(y: Any, *, numeric: bool, dropped: bool = False) -> Array:
    """Private labels as a vector. ``numeric``: labels that are not numbers become doubles.

    Missing ones are refused, unless their records are ``dropped``: then they stay, as NaN or None.
    """
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
        missing = pd.isna(labels)
        if missing.any() and not dropped:
            raise Refusal(f"y contains NaN or None, which are missing labels; {CORRECT}")
        if numeric and labels.dtype.kind == "O":
            labels = np.where(missing, np.nan, labels).astype(np.float64)
        if labels.dtype.kind == "f" and np.isinf(labels).any():
            raise Refusal(f"y contains infinity; {CORRECT}")
    if column:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; pass y.ravel()",
            DataConversionWarning,
            stacklevel=2,
        )
    return labels


def with_label(y: Array, classes: Array | None) -> tuple[Array, NDArray[np.bool_]]:
    """Labels of one kind, and which records have one; the others get a placeholder. ``classes``: the declared ones.

    A text that stands for a missing value is none, unless it is a declared class.
    """
    with our_words(NOT_LABELS):
        there: NDArray[np.bool_] = ~pd.isna(y)
        if y.dtype.kind in "OUT":
            known = set() if classes is None else {key(label) for label in classes.tolist()}
            words = [isinstance(one, str) and is_missing_word(one) and key(one) not in known for one in y.tolist()]
            there &= ~np.array(words, dtype=np.bool_)
        some = np.array(y[there].tolist())
        labels = np.zeros(len(y), dtype=some.dtype)
        labels[there] = some
    return labels, there


def public_pair(public: Any, names: Sequence[str] | None, columns: int) -> tuple[Array, Array]:
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
    except (TypeError, ValueError, OverflowError):
        raise ValueError("public rows must be numbers, as the private rows are") from None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if rows.ndim != 2 or rows.shape[1] != columns or labels.shape != (len(rows),) or len(rows) == 0:
        raise ValueError(
            f"public must be rows with {columns} columns and one label each; got {rows.shape} and {labels.shape}"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("public labels must be finite; correct them or leave their rows out")
    return rows, labels


class PrivacyWarning(UserWarning):
    """Something outside of a private fit looks at private rows, and no budget pays for it."""


def warn_in_pipeline(estimator: Any) -> None:
    """Warn when the estimator is being fitted inside of a Pipeline, behind steps that learned from the same rows."""
    for pipeline in _pipelines():
        for step in (step for _, step in pipeline.steps[:-1]):
            for name in _learners(step):
                how = INSTEAD.get(name, PUBLIC)
                warnings.warn(
                    f"{name} stands before {type(estimator).__name__} in a Pipeline and learns from the private rows, which no "
                    f"budget pays for: what it learned is released with the pipeline. Instead, {how}",
                    PrivacyWarning,
                    stacklevel=4,
                )


def refuse_others(others: Mapping[str, Any], *, weighs: bool) -> None:
    """Refuse, by name, arguments that other estimators of scikit-learn take."""
    for name, value in others.items():
        if name == "sample_weight":
            if value is None:
                continue
            how = "pass class_weight={class: weight}, chosen without the private labels" if weighs else "leave it out"
            raise ValueError(
                "sample_weight is not supported: every record counts once, which is what a clip norm and its price are for; "
                f"{how}, or keep rows by a rule that looks at nobody else's"
            )
        raise TypeError(f"fit has no argument {name!r}{did_you_mean(name, KNOWN)}; pass X, y, {', '.join(KNOWN)}")


def _pipelines() -> Iterator[Pipeline]:
    """Pipelines that are being fitted, the innermost first."""
    frame, depth = sys._getframe(2), 0
    seen: set[int] = set()
    while frame is not None and depth < MAX_FRAMES:
        one = frame.f_locals.get("self")
        if isinstance(one, Pipeline) and id(one) not in seen:
            seen.add(id(one))
            yield one
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]


def _learners(step: Any) -> Iterator[str]:
    """The transformers of a step that learn from rows, by the names of their types."""
    if isinstance(step, Pipeline):
        for _, inner in step.steps:
            yield from _learners(inner)
    elif isinstance(step, FeatureUnion):
        for _, inner in step.transformer_list:
            yield from _learners(inner)
    elif isinstance(step, ColumnTransformer):
        for _, inner, _ in step.transformers:
            yield from _learners(inner)
    elif isinstance(step, BaseEstimator) and not _learns_nothing(step):
        yield type(step).__name__


def _learns_nothing(step: Any) -> bool:
    name = type(step).__name__
    if name in NOTHING or not get_tags(step).requires_fit:
        return True
    if name in ("OneHotEncoder", "OrdinalEncoder") and not isinstance(step.categories, str):
        return getattr(step, "min_frequency", None) is None and getattr(step, "max_categories", None) is None
    if name == "SimpleImputer":
        return bool(step.strategy == "constant" and step.fill_value is not None)
    return name == "FunctionTransformer"
