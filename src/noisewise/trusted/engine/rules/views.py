"""Views of parameters: what is booked of a transpose or of some rows is booked of the parameter itself.

Any other view (``expand``, ``view``, a slice) is made of the parameter like all else.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..books import Tracked
from ..tape import Tape, rule
from ..torch_names import is_batched, under_level
from .linear import turned


@rule(
    Tensor.t, torch.t, Tensor.T.__get__, Tensor.mT.__get__, torch.transpose, Tensor.transpose, torch.swapaxes,  # type: ignore[attr-defined]
    Tensor.swapaxes,
)  # fmt: skip
def transpose(tape: Tape, input: Tensor, *dims: int, **named: int) -> Any:
    across = {dim % 2 for dim in (*dims, *named.values())} in (set(), {0, 1})
    return turned(tape, input) if input.dim() == 2 and across else NotImplemented


def _cut(function: Any) -> Any:
    """Pieces of a parameter along its rows; along another dimension they are made of it like all else."""

    def run(tape: Tape, whole: Tensor, *rest: Any, **more: Any) -> Any:
        key, start = tape.key(whole), 0
        if key is None or key.made is not None or more.get("dim", (*rest, 0)[1]):
            return NotImplemented
        pieces = function(whole, *rest, **more)
        for place, piece in enumerate(pieces):
            part = slice(start, start := start + len(piece))
            tape.tracked[id(piece)] = Tracked(
                piece, key.number, key.shape, part, made=(function, ((key, *rest), more), place)
            )
        return pieces

    return run


for cutting in (Tensor.chunk, torch.chunk, Tensor.split, torch.split):
    rule(cutting)(_cut(cutting))


@rule(Tensor.__iter__, both=True)
def each(tape: Tape, input: Tensor) -> Any:
    with tape:
        return iter(input.unbind(0))


@rule(Tensor.view, always=True)
def view(tape: Tape, input: Tensor, *shape: Any) -> Any:
    """Pictures may lie another way in memory than the module thinks."""
    if not tape.channels_last or not is_batched(input) or (shape and isinstance(shape[0], torch.dtype)):
        return NotImplemented
    return input.reshape(*shape)


def _strides(tape: Tape, value: Tensor) -> tuple[int, ...]:
    """How one record lies in memory: the same, however many records lie beside it."""
    whole, at = under_level(value, tape.level)
    if at is None:
        return whole.stride()
    *of_one, step = (*whole.stride()[:at], *whole.stride()[at + 1 :], whole.stride(at))
    return tuple(one // tape.batch if step and one >= step * tape.batch else one for one in of_one)


@rule(Tensor.stride, always=True)
def stride(tape: Tape, input: Tensor, dim: int | None = None) -> Any:
    return _strides(tape, input) if dim is None else _strides(tape, input)[dim]


@rule(Tensor.is_contiguous, always=True)
def is_contiguous(tape: Tape, input: Tensor, memory_format: Any = torch.contiguous_format) -> bool:
    return torch.empty_strided(input.shape, _strides(tape, input), device="meta").is_contiguous(
        memory_format=memory_format
    )
