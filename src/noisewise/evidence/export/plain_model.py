"""What a run has fitted as plain data: tables to sum, layers, and what the scores mean. Every export is made of it.

docs/export.md says how to read it; the two programs there, and the three formats, are tested against ``predict``.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from ..._version import __version__
from ...tables.fit.fitted import Fitted
from ...tables.fit.labels import Classes
from ...tables.schema import Column
from ...tables.values import MISSING_WORDS, key
from ...trusted.features.scale import Floats
from .terms import feature_terms, rounded, scaled_terms

FORMAT = "noisewise-export/1"
KNOWN = {1: "logistic", 2: "softmax"}
BETWEEN = ("tanh", "relu", "sigmoid", "softplus")


def plain_model(fitted: Fitted) -> dict[str, Any]:
    """The model as docs/export.md describes it, with its statement; a model that it cannot describe is refused."""
    _check(fitted)
    columns = _columns(fitted)
    first, layers = _weights(fitted)
    if fitted.made is not None:
        terms, bias = feature_terms(columns, fitted.made, first * fitted.made.gains)
    else:
        terms, constant = scaled_terms(columns, fitted.scaling, first)
        bias = np.zeros(len(first)) if constant is None else constant
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
    """Refuse what has an arithmetic of its own."""
    loss = fitted.network.loss_name
    if fitted.likely and loss not in KNOWN.values():
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
    odd = [column for column in _columns(fitted) if column is not None and column.kind not in ("number", "category")]
    if odd:
        raise ValueError(f"column {odd[0].name!r} is neither number nor category, and cannot be exported")


def _columns(fitted: Fitted) -> tuple[Column | None, ...]:
    """The declared columns that the model reads; None for those of an array."""
    return (None,) * len(fitted.scaling.low) if fitted.encoder is None else fitted.encoder.schema.features


def _names(fitted: Fitted) -> tuple[str, ...]:
    if fitted.encoder is not None:
        return tuple(column.name for column in fitted.encoder.schema.features)
    return fitted.columns or tuple(f"x{i}" for i in range(len(fitted.scaling.low)))


def _about(name: str, column: Column | None) -> dict[str, Any]:
    """A number: its name. A category: also the text of each value, and what to do about another."""
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
    """What scores mean: a number between bounds, or classes; ``cut``: from where log-odds are not the score."""
    if not isinstance(fitted.labels, Classes):
        return {"low": fitted.labels.low, "high": fitted.labels.high}
    cut = fitted.cap if fitted.likely and fitted.cap < 1 else None
    assert cut is None or math.isfinite(cut)
    return {"classes": fitted.labels.values.tolist(), "probabilities": fitted.likely, "cut": cut}
