"""Norms: gradients of scale and shift are sums over a record's own positions.

Layer norms, of which networks have many, are run as torch does; in the others numbers are normed first, and then scaled.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..entries import Direct
from ..tape import Tape, rule
from ..torch_names import below


def _scaled(normed: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Channels times their scales, plus their shifts."""
    around = [-1, *[1] * (normed.dim() - 2)]
    normed = normed if weight is None else normed * weight.view(around)
    return normed if bias is None else normed + bias.view(around)


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


@rule(torch.rms_norm)
def rms_norm(tape: Tape, input: Tensor, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    with tape:
        normed = torch.rms_norm(input, shape, None, eps)
        return normed if weight is None else normed * weight


@rule(torch.group_norm)
def group_norm(
    tape: Tape, input: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    with tape:
        return _scaled(torch.group_norm(input, groups, None, None, eps), weight, bias)


@rule(torch.instance_norm, both=True)
def instance_norm(
    tape: Tape, input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool,
    momentum: float, eps: float, *_: Any,
) -> Any:  # fmt: skip
    if running_mean is not None and use_input_stats:
        tape.refuse("an instance norm that keeps running means stores private values; pass track_running_stats=False")
    if running_mean is not None:
        return NotImplemented
    with tape:
        return torch.group_norm(input, input.shape[1], weight, bias, eps)


@rule(torch.batch_norm, both=True)
def batch_norm(
    tape: Tape, input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, *rest: Any
) -> Any:
    if training or running_mean is None:
        tape.refuse("batch norm mixes the records of a batch; use GroupNorm or LayerNorm (ModuleValidator.fix does)")
    with tape:
        around = [1, -1, *[1] * (input.dim() - 2)]
        rate = (running_var + rest[1]).rsqrt()
        return _scaled((input - running_mean.view(around)) * rate.view(around), weight, bias)
