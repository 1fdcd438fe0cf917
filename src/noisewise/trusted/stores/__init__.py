"""Where private rows are stored: on an integer grid, behind exact integer totals. Only the curator imports this package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models import Model
from ..process import hide_memory
from .grid import Allocator, in_memory, labelled, lay_out
from .protocol import Elsewhere, HeldRecords
from .totals import Integers

Coins = Callable[[int], Integers]


def records_of(model: Model, X: Any, y: Any, store: Allocator = in_memory, coins: Coins | None = None) -> HeldRecords:
    """Private rows of a model, laid out for exact totals by the module of this package that the model names.

    ``X``: a matrix, a source of rows, rows that are held elsewhere, or tensors for a model of tensors.
    ``coins(n)``: n secret words, for a model that draws at random in its passes.
    """
    if isinstance(X, Elsewhere):
        return X.held(model, store, coins)
    hide_memory()
    module = import_module(f"{__name__}.{model.records}")
    held: HeldRecords
    if model.tensors:
        held = module.held_tensors(X, y, model, coins)
    elif model.table:
        held = module.held_table(X, y, model, store)
    else:
        held = module.held(lay_out(X, y, columns=model.features, classes=model.classes, store=store), model, store)
    return held


def counted_of(model: Model, X: Any, y: Any) -> NDArray[np.bool_] | None:
    """Which records have a label, in the order of their places; None where all have one, as all records of tensors do."""
    if model.tensors:
        return None
    return X.counted(model.classes) if isinstance(X, Elsewhere) else labelled(y, model.classes)
