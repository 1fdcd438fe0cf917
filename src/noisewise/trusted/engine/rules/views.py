"""Views of parameters: what is booked of a transpose or of some rows is booked of the parameter itself.

Any other view (``expand``, ``view``, a slice) that meets records is taken again of the parameter that was repeated for them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..books import Tracked
from ..tape import Tape, rule, tensors_in
from ..torch_names import is_batched
from .linear import turned


@rule(Tensor.t, torch.t, Tensor.T.__get__, Tensor.mT.__get__)  # type: ignore[attr-defined]
def transpose_of(tape: Tape, input: Tensor) -> Any:
    return turned(tape, input) if input.dim() == 2 else NotImplemented


@rule(torch.transpose, Tensor.transpose, torch.swapaxes, Tensor.swapaxes)
def transpose(tape: Tape, input: Tensor, dim0: int, dim1: int) -> Any:
    if input.dim() != 2 or {dim0 % 2, dim1 % 2} != {0, 1}:
        return _again(tape, Tensor.transpose, input, dim0, dim1)
    return turned(tape, input)


def _cut(function: Any) -> Any:
    """Pieces of a parameter along its rows; along another dimension they are views like others."""

    def run(tape: Tape, whole: Tensor, *rest: Any, **more: Any) -> Any:
        key, pieces, start = tape.key(whole), function(whole, *rest, **more), 0
        if key is None:
            return NotImplemented
        rows = not more.get("dim", (*rest, 0)[1]) and key.number >= 0 and key.part is None and not key.turned
        for place, piece in enumerate(pieces):
            again = key, lambda value, place=place: function(value, *rest, **more)[place]
            part = slice(start, start := start + len(piece)) if rows else None
            tape.track(Tracked(piece, key.number if rows else -1, part, again=again))
        return pieces

    return run


for cutting in (Tensor.chunk, torch.chunk, Tensor.split, torch.split):
    rule(cutting)(_cut(cutting))
VIEWS = (
    Tensor.expand, Tensor.expand_as, Tensor.view, Tensor.reshape, torch.reshape, Tensor.unsqueeze, torch.unsqueeze,
    Tensor.squeeze, torch.squeeze, Tensor.flatten, torch.flatten, Tensor.permute, torch.permute, Tensor.select, torch.select,
    Tensor.narrow, torch.narrow, Tensor.movedim, torch.movedim, Tensor.unflatten, Tensor.repeat, Tensor.contiguous,
    Tensor.__getitem__,
)  # fmt: skip


def _view(function: Any) -> Any:
    def run(tape: Tape, input: Tensor, *rest: Any, **more: Any) -> Any:
        return _again(tape, function, input, *rest, **more)

    return run


def _again(tape: Tape, function: Any, input: Tensor, *rest: Any, **more: Any) -> Any:
    key = tape.key(input)
    if key is None or tensors_in((rest, more)):
        return NotImplemented
    found = function(input, *rest, **more)
    if found is input:
        return found
    return tape.track(Tracked(found, -1, again=(key, lambda value: function(value, *rest, **more))))


for one in VIEWS:
    rule(one)(_view(one))


@rule(Tensor.__iter__, always=True)
def each(tape: Tape, input: Tensor) -> Any:
    with tape:
        return iter(input.unbind(0))


@rule(Tensor.view, always=True)
def view(tape: Tape, input: Tensor, *shape: Any) -> Any:
    """Pictures may lie another way in memory than the module thinks."""
    if not tape.channels_last or not is_batched(input) or (shape and isinstance(shape[0], torch.dtype)):
        return NotImplemented
    return input.reshape(*shape)
