"""Norms: gradients of scale and shift are sums over a record's own positions.

Layer norms, of which networks have many, have a rule; in the others scale and shift are repeated for every record.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..entries import Direct
from ..tape import Tape, rule
from ..torch_names import below


@rule(torch.layer_norm)
def layer_norm(
    tape: Tape, input: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    x, scale, shift = tape.physical(input), tape.key(weight), tape.key(bias)
    if x is None or not tape.shared(weight, bias):
        return NotImplemented

    def entry(values: Tensor) -> Direct:
        summed = values.reshape(len(values), -1, *shape).sum(1)
        return Direct(summed, summed.shape[1:])

    def book(b: Tensor, x: Tensor, mean: Tensor, rate: Tensor) -> None:
        tape.book(scale, lambda: entry((x - mean).mul_(rate).mul_(b)))
        tape.book(shift, lambda: entry(b))

    with below():
        weight, bias = (None if value is None else value.detach() for value in (weight, bias))
        found, mean, rate = torch.native_layer_norm(x.contiguous(), [*shape], weight, bias, eps)
        found = tape.booked(found, book, x, mean, rate)
    return tape.wrapped(found)


@rule(torch._weight_norm, both=True)
def weight_norm(tape: Tape, v: Tensor, g: Tensor, dim: int = 0) -> Any:
    """torch's kernel does not look at the shape of ``g``: one that is too short lets it read on into the next record."""
    with tape:
        return v * (g / torch.norm_except_dim(v, 2, dim))


@rule(torch.batch_norm, both=True)
def batch_norm(
    tape: Tape, input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, *rest: Any
) -> Any:
    if training or running_mean is None:
        tape.refuse("batch norm mixes the records of a batch; use GroupNorm or LayerNorm (ModuleValidator.fix does)")
    with tape:
        around = (-1, *[1] * (input.dim() - 2))
        found = (input - running_mean.view(around)) * (running_var + rest[1]).rsqrt().view(around)
        found = found if weight is None else found * weight.view(around)
        return found if bias is None else found + bias.view(around)
