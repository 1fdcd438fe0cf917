"""Where private rows live: on an integer grid, behind exact integer totals. Only the curator opens this room."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..gradients import Linear, Model
from .grid import Source, Store, in_memory, lay_out
from .linear import LinearRecords


def records_of(model: Model, X: Tensor | Source, y: Tensor, store: Store = in_memory) -> Any:
    """Private rows of a model, laid out for exact totals."""
    classes = model.outputs if model.loss.task == "classes" else None
    rows = lay_out(X, y, columns=model.features, classes=classes, store=store)
    if isinstance(model, Linear):
        return LinearRecords(rows, model.loss, model.outputs)
    from .perceptron import PerceptronRecords

    return PerceptronRecords(rows, model, store)
