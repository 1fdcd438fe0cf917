"""Whether a module's passes over chunks of one height leave a record's bits alone: tried on made-up rows, before private ones.

Evidence, not proof: a product that sums in another order at another place gives other bits for almost any rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ..engine.entries import Entry
from ..torch_extra import Tensor, torch

if TYPE_CHECKING:
    from .module import ModuleModel, TensorRows

# How far rows are moved on, None for turned round, and what is put in place of every second row from the given one on.
TRIALS: tuple[tuple[int | None, float | None, int], ...] = (
    (1, None, 0),
    (7, None, 0),
    (None, None, 0),
    (3, 0.0, 0),
    (5, 1e30, 1),
    (2, math.nan, 1),
)


def steady(model: ModuleModel, rows: TensorRows) -> bool:
    """Whether these made-up rows, a whole chunk, have the same losses and books at every place and in any company."""
    height, at = len(rows), torch.arange(len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = _bits(model, rows)
        for shift, company, begin in TRIALS:
            order = at.flip(0) if shift is None else at.roll(shift)
            placed, judged = rows.take(order), torch.ones(height, dtype=torch.bool)
            if company is not None:
                judged[begin::2] = False
                for part in placed.inputs:
                    if part.is_floating_point():
                        part[begin::2] = company
            moved = _bits(model, placed)
            if len(moved) != len(right):
                return False
            for one, other in zip(moved, right, strict=True):
                if not torch.equal(one[judged], other[order][judged]):
                    return False
    return True


def _bits(model: ModuleModel, rows: TensorRows) -> list[Tensor]:
    """The loss of each record and all that is booked of it."""
    tape, losses = model.booked(rows, 1)
    found = [losses, *(part for entries in tape.uses() for entry in entries for part in _tensors(entry, len(rows)))]
    tape.free()
    return [part.detach().cpu().clone() for part in found]


def _tensors(entry: Any, rows: int) -> Iterator[Tensor]:
    for field in fields(entry):
        value = getattr(entry, field.name)
        if isinstance(value, Entry):  # of a tensor that is made of the parameter
            yield from _tensors(value, rows)
        elif isinstance(value, Tensor) and value.ndim and len(value) == rows:
            yield value
