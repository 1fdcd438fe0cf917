"""A fitted model as plain data: tables to sum, layers, and the meaning of the scores. Every export is made of it.

docs/export.md says how to read it; the two programs there, and the three formats, are tested against ``predict``.

The first step of a model is a sum of rows of tables: the preparation of a row and everything up to the first nonlinearity. A
term has no axis, one or two, each a column. A number is located among the rows of the table by points and places, linearly
between them; a category has the place of its value. The last row along an axis is for missing values. The declared bounds,
scales, categories and fillers of missing values thereby become plain numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..._version import __version__
from ...tables.fit.fitted import Fitted
from ...tables.fit.labels import Classes
from ...tables.rows import Scaling
from ...tables.schema import Column
from ...tables.values import MISSING_WORDS, key
from ...trusted.features import Codes, Features, Floats, Hats, Product, positions

TABLE_DIGITS = 10  # of the numbers in a table: single precision has 8
FORMAT = "noisewise-export/1"
LOSSES = ("logistic", "softmax")  # whose probabilities an export computes
BETWEEN = ("tanh", "relu", "sigmoid", "softplus")


@dataclass(frozen=True, eq=False)
class TableAxis:
    """How the cells of a column are located along a table; ``points`` for a number, none for a category."""

    column: int
    places: Floats
    points: Floats | None = None

    def to_dict(self) -> dict[str, Any]:
        if self.points is None:
            return {"column": self.column, "places": [int(place) for place in self.places]}
        return {"column": self.column, "points": self.points.tolist(), "places": self.places.tolist()}


@dataclass(frozen=True, eq=False)
class Term:
    """A table with a dimension for each axis and one more, over what is summed."""

    axes: tuple[TableAxis, ...]
    table: Floats

    def to_dict(self) -> dict[str, Any]:
        return {"axes": [axis.to_dict() for axis in self.axes], "table": rounded(self.table)}


def rounded(numbers: Floats) -> Any:
    """The numbers as lists, rounded to ``TABLE_DIGITS``."""
    digits = np.array([float(f"{number:.{TABLE_DIGITS}g}") for number in np.ravel(numbers)])
    return digits.reshape(np.shape(numbers)).tolist()


def scaled_terms(columns: Sequence[Column | None], scaling: Scaling, weights: Floats) -> tuple[list[Term], Floats]:
    """Sums of the scaled entries of a row times weights, and the constant that the intercept adds to each.

    ``weights`` has a row for each sum, the intercept last; a column that is None is a number of an array. Where rows are
    divided by their own length, each table row ends with the entry itself, whose square counts towards that length, and the
    intercept is a term; elsewhere the division is in the tables.
    """
    divided, at, terms = 1.0 if scaling.unit_rows else float(np.sqrt(scaling.features)), 0, []
    for place, column in enumerate(columns):
        width = 1 if column is None or column.kind == "number" else len(column.categories)
        here = slice(at, at + width)
        made = _category if column is not None and column.kind == "category" else _number
        axis, entries, table = made(place, column, scaling, here, weights[:, here])
        terms.append(Term((axis,), _with_length(table / divided, entries, scaling.unit_rows)))
        at += width
    if not scaling.unit_rows:
        return terms, weights[:, -1] / divided
    return [*terms, Term((), _with_length(weights[:, -1], np.array(1.0), True))], np.zeros(len(weights))


def _number(
    place: int, column: Column | None, scaling: Scaling, here: slice, weights: Floats
) -> tuple[TableAxis, Floats, Floats]:
    """A number from bound to bound: its axis, its scaled entries at both and where it is missing, and their table."""
    low, high = float(scaling.low[here][0]), float(scaling.high[here][0])
    absent = np.nan if column is None or column.missing is None else float(column.missing)
    rows = np.tile(scaling.low, (3, 1))
    rows[:, here.start] = low, high, absent
    scaled = scaling(rows)
    entries = scaled[:, here.start] / scaled[:, -1]  # before rows were divided by their lengths
    return TableAxis(place, np.array([0.0, 1.0]), np.array([low, high])), entries, entries[:, None] * weights.T


def _category(
    place: int, column: Column | None, scaling: Scaling, here: slice, weights: Floats
) -> tuple[TableAxis, Floats, Floats]:
    """The same for a category, whose entry is 1 where it is the record's."""
    width, absent = weights.shape[1], _fill(column)
    last = np.zeros(len(weights)) if absent is None else weights[:, absent]
    entries = np.append(np.ones(width), 0.0 if absent is None else 1.0)
    return TableAxis(place, np.arange(float(width))), entries, np.concatenate([weights.T, last[None]])


def _with_length(table: Floats, own: Floats, wanted: bool) -> Floats:
    return np.concatenate([table, np.asarray(own)[..., None]], axis=-1) if wanted else table


def _fill(column: Column | None) -> int | None:
    """The position of the category that replaces a missing one."""
    if column is None or column.missing is None:
        return None
    return [key(value) for value in column.categories].index(key(column.missing))


def feature_terms(columns: Sequence[Column | None], made: Features, weights: Floats) -> tuple[list[Term], Floats]:
    """Effects of columns and of pairs, a row of weights for each sum, and the constant that the intercept adds.

    A column's fine and coarse hats become one table, over all values between which its effect is a straight line.
    """
    blocks = list(zip(made.blocks, made.spans, strict=True))
    alone = [(block, weights[:, span]) for block, span in blocks if not isinstance(block, Product)]
    terms = [
        _effect([part for part in alone if part[0].column == place], columns[place])
        for place in sorted({block.column for block, _ in alone})
    ]
    pairs = [_pair(block, columns, weights[:, span]) for block, span in blocks if isinstance(block, Product)]
    return [*terms, *pairs], weights[:, -1]


def _effect(parts: Sequence[tuple[Hats | Codes, Floats]], column: Column | None) -> Term:
    hats = [block for block, _ in parts if isinstance(block, Hats)]
    if not hats:
        block, values = parts[0]
        return Term((_axis(block),), _rows(block, column) @ values.T)
    bends = np.concatenate([np.asarray(ends) for block in hats for ends in (block.points, block.knot_values())])
    points = np.unique(bends)
    table = sum(
        np.concatenate([_hats(block, points), _missing(block, column)[None]]) @ values.T
        for block, values in parts
        if isinstance(block, Hats)
    )
    return Term((TableAxis(hats[0].column, np.arange(len(points), dtype=np.float64), points),), np.asarray(table))


def _pair(block: Product, columns: Sequence[Column | None], weights: Floats) -> Term:
    sides = [_rows(side, columns[side.column]) for side in (block.first, block.second)]
    cells = weights.reshape(len(weights), block.first.width, block.second.width)
    return Term((_axis(block.first), _axis(block.second)), np.einsum("ai,bj,kij->abk", *sides, cells))


def _axis(side: Hats | Codes) -> TableAxis:
    if isinstance(side, Codes):
        return TableAxis(side.column, np.asarray(side.groups, dtype=np.float64))
    return TableAxis(side.column, np.asarray(side.ranks) * (side.knots - 1), np.asarray(side.points))


def _rows(side: Hats | Codes, column: Column | None) -> Floats:
    """The coordinates of each row of a side's table; the last row is for a missing value."""
    return np.concatenate([np.eye(side.width)[:-1], _missing(side, column)[None]])


def _missing(side: Hats | Codes, column: Column | None) -> Floats:
    if column is None or column.missing is None:
        return np.eye(side.width)[-1]
    if isinstance(side, Codes):
        absent = _fill(column)
        assert absent is not None
        return np.eye(side.width)[side.groups[absent]]
    return _hats(side, np.array([float(column.missing)]))[0]


def _hats(side: Hats, values: Floats) -> Floats:
    """The coordinates of numbers, in double precision."""
    place = positions(values, np.asarray(side.points), np.asarray(side.ranks)) * (side.knots - 1)
    known = np.maximum(1 - np.abs(place[:, None] - np.arange(side.knots)), 0.0)
    return np.concatenate([known, np.zeros((len(values), 1))], axis=1)


def plain_model(fitted: Fitted) -> dict[str, Any]:
    """The model as docs/export.md describes it, with its statement; a model that it cannot describe is refused."""
    _check(fitted)
    columns = _columns(fitted)
    first, layers = _weights(fitted)
    if fitted.made is not None:
        terms, bias = feature_terms(columns, fitted.made, first * fitted.made.gains)
    else:
        terms, bias = scaled_terms(columns, fitted.scaling, first)
    if layers:
        bias = bias + layers[0][1]
    return {
        "format": FORMAT,
        "software": f"noisewise {__version__}",
        "target": fitted.target,
        "named": fitted.encoder is not None or fitted.columns is not None,
        "columns": [_about(name, column) for name, column in zip(_names(fitted), columns, strict=True)],
        "missing": sorted(MISSING_WORDS),
        "terms": [term.to_dict() for term in terms],
        "unit_length": fitted.made is None and fitted.scaling.unit_rows,
        "bias": rounded(bias),
        "between": fitted.network.between if layers else None,
        "layers": [{"weights": rounded(weights), "bias": rounded(added)} for weights, added in layers[1:]],
        "output": _output(fitted),
        "statement": fitted.statement.data,
    }


def _check(fitted: Fitted) -> None:
    """Refuse a model with arithmetic that the format does not describe."""
    loss = fitted.network.loss_name
    if fitted.likely and loss not in LOSSES:
        raise ValueError(
            f"the loss {loss!r} comes from another package and has probabilities of its own; train with the logistic or "
            "softmax loss to export a model with probabilities"
        )
    if fitted.network.between not in BETWEEN:
        raise ValueError(f"{fitted.network.between!r} between layers cannot be exported; use {', '.join(BETWEEN)}")
    if dated := [column for column in _columns(fitted) if column is not None and column.unit]:
        raise ValueError(
            f"column {dated[0].name!r} is a date or a time, of which noisewise makes a number ({dated[0].unit}), and an exported "
            "model reads plain numbers; predict with `noisewise predict`, or write the number into the files, declare it "
            "without a unit, and train anew"
        )
    for column in _columns(fitted):
        if column is not None and column.kind not in ("number", "category"):
            raise ValueError(f"column {column.name!r} is neither number nor category, and cannot be exported")


def _columns(fitted: Fitted) -> tuple[Column | None, ...]:
    """The declared columns that the model reads; None for those of an array."""
    return (None,) * len(fitted.scaling.low) if fitted.encoder is None else fitted.encoder.schema.features


def _names(fitted: Fitted) -> tuple[str, ...]:
    if fitted.encoder is not None:
        return tuple(column.name for column in fitted.encoder.schema.features)
    return fitted.columns or tuple(f"x{i}" for i in range(len(fitted.scaling.low)))


def _about(name: str, column: Column | None) -> dict[str, Any]:
    """The name of a column; for a category also the text of each value, and what to do about an unknown one."""
    if column is None or column.kind == "number":
        return {"name": str(name)}
    return {"name": name, "categories": [key(value) for value in column.categories], "unknown": column.unknown}


def _weights(fitted: Fitted) -> tuple[Floats, list[tuple[Floats, Floats]]]:
    """The first matrix, and all layers with their biases (none of a linear model); one score for two classes."""
    theta, network = fitted.theta.astype(np.float64), fitted.network
    two = isinstance(fitted.labels, Classes) and len(fitted.labels.values) == network.outputs == 2
    if network.linear:
        matrix = theta.reshape(network.outputs, network.features)
        return (matrix[1:] - matrix[:1] if two else matrix), []
    layers, at = [], 0
    for into, out in pairwise(network.sizes):
        weights, at = theta[at : at + out * into].reshape(out, into), at + out * into
        layers.append((weights, theta[at : at + out]))
        at += out
    if two:
        weights, bias = layers[-1]
        layers[-1] = weights[1:] - weights[:1], bias[1:] - bias[:1]
    return layers[0][0], layers


def _output(fitted: Fitted) -> dict[str, Any]:
    """The meaning of scores: a number between bounds, or classes; ``cut``: log-odds differ from the score beyond it."""
    if not isinstance(fitted.labels, Classes):
        return {"low": fitted.labels.low, "high": fitted.labels.high}
    cut = fitted.cap if fitted.likely and fitted.cap < 1 else None
    assert cut is None or math.isfinite(cut)
    return {"classes": fitted.labels.values.tolist(), "probabilities": fitted.likely, "cut": cut}
