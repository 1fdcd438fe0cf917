"""How an exported model predicts with numpy alone: the text of this file, with the numbers of a model, is an export.

Nothing here imports noisewise. Where scikit-learn is installed, ``Model`` is one of its estimators, fitted already.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
except ImportError:  # without scikit-learn it predicts all the same

    class BaseEstimator:  # type: ignore[no-redef]
        pass

    class ClassifierMixin:  # type: ignore[no-redef]
        pass

    class RegressorMixin:  # type: ignore[no-redef]
        pass


MODEL: dict[str, Any] = json.loads("{}")  # an export has its numbers here

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf|infinity)")
PLAIN = re.compile(r"[+-]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]+)?")
WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)")
BETWEEN: dict[str, Any] = {
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0.0),
    "sigmoid": lambda z: 0.5 * np.tanh(0.5 * z) + 0.5,
    "softplus": lambda z: np.logaddexp(0.0, z),
}


def key(value: Any) -> str:
    """The text by which a category is compared: no space around it, numbers in their shortest form, true and false."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating | Decimal):
        single = isinstance(value, np.floating) and value.dtype != np.float64
        number = float(str(value)) if single else value  # 0.1 in single precision means 0.1
        return str(int(number)) if math.isfinite(number) and number == int(number) else repr(float(number))
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.lower()
    if WHOLE.fullmatch(text):
        return "0" if text.lstrip("+-") == "0" else text.removeprefix("+")
    written = any(digit in text for digit in "0123456789") and PLAIN.fullmatch(text) and NUMBER.fullmatch(text)
    return key(float(text)) if written and math.isfinite(float(text)) else text


def is_missing(value: Any, words: frozenset[str]) -> bool:
    """Whether a cell has no value, or a word for none."""
    if isinstance(value, str):
        return value.strip().lower() in words
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


class Scores:
    """The scores of a table's rows, by the numbers of a model."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        self.model, self.words = model, frozenset(model["missing"])

    def __call__(self, X: Any) -> np.ndarray:
        model, cells = self.model, [self.cells(X, place) for place in range(len(self.model["columns"]))]
        rows, width = len(cells[0]), len(model["bias"])
        sums, squares = np.zeros((rows, width)), np.zeros(rows)
        for term in model["terms"]:
            part = self.part(term, cells, rows)
            sums, squares = sums + part[:, :width], squares + part[:, -1] ** 2
        scores = sums / np.sqrt(squares)[:, None] if model["unit_length"] else sums
        scores = scores + np.array(model["bias"])
        for layer in model["layers"]:
            scores = BETWEEN[model["between"]](scores) @ np.array(layer["weights"]).T + np.array(layer["bias"])
        return scores

    def part(self, term: Mapping[str, Any], cells: list[np.ndarray], rows: int) -> np.ndarray:
        """What a term adds to each row: a table's row, or what lies between two or four of them."""
        table = np.array(term["table"], dtype=float)
        ways: list[tuple[tuple[np.ndarray, ...], np.ndarray]] = [((), np.ones(rows))]
        for axis, length in zip(term["axes"], table.shape, strict=False):
            sides = places(axis, cells[axis["column"]], length - 1)
            ways = [((*at, to), share * more) for at, share in ways for to, more in sides]
        return np.asarray(sum(share[:, None] * table[at] for at, share in ways))

    def cells(self, X: Any, place: int) -> np.ndarray:
        """A column as numbers, or as positions among the categories; NaN for what is missing."""
        about, column = self.model["columns"][place], self.column(X, place)
        categories = about.get("categories")
        if categories is None and column.dtype.kind in "biuf":
            return column.astype(float)
        known = {} if categories is None else {category: float(at) for at, category in enumerate(categories)}
        seen: dict[Any, float] = {}
        for value in column:
            if (type(value), str(value)) not in seen:
                read = self.number(value, about) if categories is None else self.code(value, about, known)
                seen[type(value), str(value)] = read
        return np.array([seen[type(value), str(value)] for value in column], dtype=float)

    def number(self, value: Any, about: Mapping[str, Any]) -> float:
        """A number, also one that a text writes; true and false are 1 and 0."""
        if is_missing(value, self.words):
            return math.nan
        text = value.strip().lower() if isinstance(value, str) else ""
        if text in ("true", "false"):
            return float(text == "true")
        if text and not NUMBER.fullmatch(text):
            raise ValueError(f"column {about['name']!r} holds text where numbers are needed; write numbers as 1.5")
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"column {about['name']!r} holds what is no number; write numbers as 1.5") from None

    def code(self, value: Any, about: Mapping[str, Any], known: Mapping[str, float]) -> float:
        """The position of a category; a declared one is never missing."""
        absent = is_missing(value, self.words)
        place = None if absent and not isinstance(value, str) else known.get(key(value))
        if place is not None:
            return place
        if about["unknown"] == "refuse" and not absent:
            raise ValueError(f"column {about['name']!r} has a value that is not among its categories; correct it")
        return math.nan

    def column(self, X: Any, place: int) -> np.ndarray:
        """A column of a table with names, or of an array."""
        name = self.model["columns"][place]["name"]
        if self.model["named"] and (isinstance(X, Mapping) or hasattr(X, "columns")):
            names = {str(column): column for column in getattr(X, "columns", X)}
            if name not in names:
                raise ValueError(f"the data lacks the column {name!r}; the model needs it")
            return array(X[names[name]]).ravel()
        values = array(X)
        if values.ndim != 2 or values.shape[1] != len(self.model["columns"]):
            raise ValueError(f"X has shape {values.shape}; pass a table with {len(self.model['columns'])} columns")
        return values[:, place]


def array(cells: Any) -> np.ndarray:
    """Cells as an array; what numpy cannot lay out is no table."""
    try:
        return np.asarray(cells)
    except ValueError:
        raise ValueError("X is no table: its rows differ in length; pass as many cells in each") from None


def places(axis: Mapping[str, Any], cells: np.ndarray, last: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows of a table along an axis, and the share of each: the last for what is missing."""
    missing, at = np.isnan(cells), np.array(axis["places"], dtype=float)
    if "points" not in axis:
        known = at[np.where(missing, 0, cells).astype(int)].astype(int)
        return [(np.where(missing, last, known), np.ones(len(cells)))]
    place = np.interp(np.where(missing, axis["points"][0], cells), axis["points"], at)
    first = np.minimum(place.astype(int), last - 2)
    share = place - first
    return [
        (np.where(missing, last, first), np.where(missing, 1.0, 1.0 - share)),
        (np.where(missing, last, first + 1), np.where(missing, 0.0, share)),
    ]


def log_odds(scores: np.ndarray, cut: float | None) -> np.ndarray:
    """From scores whose slopes were cut in training: from log(cut / (1 - cut)) on they are log(1 + e^|z|) + log(cut)."""
    if cut is None:
        return scores
    size = np.abs(scores)
    beyond = np.logaddexp(0.0, size) + math.log(cut)
    return np.sign(scores) * np.where(size > math.log(cut / (1 - cut)), beyond, size)


class Exported(BaseEstimator):
    """What both kinds of model share: they are fitted already, and cannot be fitted again."""

    def __init__(self) -> None:
        self.feature_names_in_ = np.array([column["name"] for column in MODEL["columns"]], dtype=object)
        self.n_features_in_, self.statement_ = len(self.feature_names_in_), MODEL["statement"]

    def fit(self, X: Any = None, y: Any = None) -> Exported:
        """Refused: what is promised is true of the model as it was trained."""
        raise NotImplementedError("an exported model is not trained again; train another one with noisewise")

    def __sklearn_is_fitted__(self) -> bool:
        return True


class Classifier(ClassifierMixin, Exported):
    """Classes, and their probabilities where the loss has them."""

    def __init__(self) -> None:
        super().__init__()
        self.classes_ = np.array(MODEL["output"]["classes"])

    def decision_function(self, X: Any) -> np.ndarray:
        """One score for two classes, positive for the second, or one for each class."""
        scores = Scores(MODEL)(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """The most likely class of each row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    @property
    def predict_proba(self) -> Any:
        """The probability of each class, in the order of ``classes_``."""
        if not MODEL["output"]["probabilities"]:
            raise AttributeError("this model has no probabilities: its loss has none")
        return self._probabilities

    def _probabilities(self, X: Any) -> np.ndarray:
        scores = Scores(MODEL)(X)
        if scores.shape[1] == 1:
            odds = log_odds(scores[:, 0], MODEL["output"]["cut"])
            scores = np.column_stack([np.zeros_like(odds), odds])
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)


class Regressor(RegressorMixin, Exported):
    """A number between declared bounds."""

    def predict(self, X: Any) -> np.ndarray:
        """The predicted number of each row."""
        low, high = MODEL["output"]["low"], MODEL["output"]["high"]
        return low + (np.clip(Scores(MODEL)(X)[:, 0], -1, 1) + 1) / 2 * (high - low)


Model = Regressor if "low" in MODEL.get("output", {}) else Classifier
