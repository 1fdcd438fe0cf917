"""Dense layers, with or without a sequence: x W^T + bias, products x @ W, and bilinear forms.

A record's gradient of W is the sum over its positions of b_t a_t^T, of its bias the sum of b_t, with inputs a_t and output
gradients b_t. Without a sequence its squared norm is ||a||^2 ||b||^2; with one it is a sum over pairs of positions, or, where
multiplied out it is no larger than the inputs and output gradients it is made of, that of the product itself.

*Views*: what is booked of a transpose or of some rows is booked of the parameter itself. Any other view (``expand``, ``view``, a
slice) is made of the parameter like all else.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..books import Tracked
from ..entries import Direct, Entry, Outer
from ..tape import Tape, rule
from ..torch_names import below, is_batched, under_level

DIRECT = 1.0  # a product may take that many times the memory of what it is made of


def product_entry(a: Tensor, b: Tensor, key: Tracked) -> Entry:
    """The entry of a weight from its inputs and output gradients, (batch, width) or (batch, positions, width)."""
    a, b, shape = (b, a, key.shape) if key.turned else (a, b, key.shape)
    b = in_whole(b, key)
    if a.dim() == 2 or a.shape[2] * b.shape[2] > DIRECT * a.shape[1] * (a.shape[2] + b.shape[2]):
        return Outer(a, b, shape)
    return Direct(torch.bmm(b.transpose(1, 2), a).view(len(a), *shape), shape, a.shape[1])


def bias_entry(b: Tensor, key: Tracked) -> Entry:
    """The entry of what is added at every position."""
    if b.dim() == 2:
        return Direct(in_whole(b, key), key.shape)
    return Direct(in_whole(b.sum(1), key), key.shape, b.shape[1])


def in_whole(b: Tensor, key: Tracked) -> Tensor:
    """Output gradients of some rows of a parameter as those of all, zeros for the others."""
    return b if key.part is None else F.pad(b, (key.part.start, key.shape[0] - key.part.stop))


def dense(tape: Tape, x: Tensor, weight: Tensor, bias: Tensor | None, key: Tracked | None) -> Any:
    """x weight^T + bias of all records (under the level); the key says what the weight is of."""
    shape, positions, of_bias = x.shape[:-1], x.shape[1:-1].numel(), tape.key(bias)

    def book(b: Tensor, a: Tensor) -> None:
        if positions != 1:
            a, b = (value.reshape(shape[0], positions, value.shape[-1]) for value in (a, b))
        tape.book(key, lambda: product_entry(a, b, key))  # type: ignore[arg-type]
        tape.book(of_bias, lambda: bias_entry(b, of_bias))  # type: ignore[arg-type]

    flat = x.flatten(0, -2)
    found = tape.booked(F.linear(flat, weight.detach(), None if bias is None else bias.detach()), book, flat)
    # no view: nn.ReLU(inplace=True) may write to it
    return found if x.dim() == 2 else torch.ops.aten._unsafe_view(found, (*shape, len(weight)))


@rule(F.linear)
def linear(tape: Tape, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    x = tape.physical(input)
    keys = tape.key(weight), tape.key(bias)
    if x is None or x.dim() < 2 or weight.dim() != 2 or is_batched(weight) or (bias is not None and is_batched(bias)):
        return NotImplemented
    if any(key is not None and key.number < 0 for key in keys):
        return NotImplemented
    with below():
        found = dense(tape, x, weight, bias, keys[0])
    return tape.wrapped(found)


@rule(torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm)
def matmul(tape: Tape, input: Tensor, other: Tensor) -> Any:
    return _times(tape, None, input, other)


@rule(torch.addmm, Tensor.addmm)
def addmm(tape: Tape, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """bias + x @ weight, as written by those who keep weights transposed."""
    if beta != 1 or alpha != 1 or input.dim() != 1 or is_batched(input):
        return NotImplemented
    return _times(tape, input, mat1, mat2)


def _times(tape: Tape, bias: Tensor | None, x: Tensor, weight: Tensor) -> Any:
    if not isinstance(x, Tensor) or not is_batched(x) or tape.key(weight) is None or weight.dim() != 2:
        return NotImplemented
    return linear(tape, x, turned(tape, weight), bias)


def turned(tape: Tape, weight: Tensor) -> Tensor:
    """The transpose of a matrix that trains, booked as what it is the transpose of."""
    key = tape.key(weight)
    assert key is not None
    known = {"number": key.number, "shape": key.shape, "part": key.part, "turned": not key.turned}
    transpose: Tensor = tape.made(weight.t(), Tensor.t, (weight,), {}, **known if key.number >= 0 else {})
    return transpose


# --- views ---


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
