"""Dense layers, with or without a sequence: x W^T + bias, products x @ W, and bilinear forms.

A record's gradient of W is the sum over its positions of b_t a_t^T, of its bias the sum of b_t, with inputs a_t and output
gradients b_t. Without a sequence its squared norm is ||a||^2 ||b||^2; with one it is a sum over pairs of positions, or, where
multiplied out it is no larger than the inputs and output gradients it is made of, that of the product itself.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..books import Tracked
from ..entries import Direct, Entry, Outer
from ..tape import Tape, rule
from ..torch_names import below, is_batched

DIRECT = 1.0  # a product may take so many times the room of what it is made of


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
