"""Where private rows live: on an integer grid, behind exact integer totals. Only the curator opens this room."""

from __future__ import annotations

from typing import Any, cast

from ..late import Tensor
from ..models import MLP, Model, RowSource
from .grid import Store, in_memory, lay_out
from .linear import LinearRecords
from .perceptron import PerceptronRecords
from .tables import table_records


def records_of(model: Model, X: Tensor | RowSource, y: Tensor, store: Store = in_memory) -> Any:
    """Private rows of a model, laid out for exact totals."""
    if model.table:
        return table_records(cast(Tensor, X), y, model.loss, model.outputs, model.classes, store)
    rows = lay_out(X, y, columns=model.features, classes=model.classes, store=store)
    if model.linear:
        return LinearRecords(rows, model.loss, model.outputs)
    return PerceptronRecords(rows, cast(MLP, model))
