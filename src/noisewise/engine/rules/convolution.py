"""Convolutions in one to three dimensions, grouped, dilated and with strides.

A record's gradient of the weight is itself a convolution, of its picture with its output gradients (stride and dilation change
places), so one grouped convolution gives the gradients of all records. Where they would take more room than the pictures and
output gradients they are made of, windows of the picture are laid side by side and the layer is a dense one over positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entries import Direct, Entry, Outer
from ..layout import Where
from ..tape import Tracked, Use, rule

DIRECT = 2.0  # gradients of single records may take so many times the room of what they are made of
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """How windows move; ``padded``: what is added before the first and after the last pixel, when that is not the same."""

    stride: Numbers
    padding: Numbers
    dilation: Numbers
    groups: int
    padded: Numbers | None = None


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, token: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, how: Geometry, book: Any
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.how, ctx.book = how, book
        run = CONVOLUTIONS[x.dim() - 2]
        return run(x, weight, bias, how.stride, how.padding, how.dilation, how.groups)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        (b,) = outputs
        x, weight = ctx.saved_tensors
        how: Geometry = ctx.how
        ctx.book(x, b)
        gradient = None
        if ctx.needs_input_grad[1]:
            none = (0,) * len(how.stride)
            gradient, _, _ = torch.ops.aten.convolution_backward(
                b, x, weight, None, how.stride, how.padding, how.dilation, False, none, how.groups, [True, False, False]
            )
        return None, gradient, None, None, None, None


def weight_entry(x: Tensor, b: Tensor, of: Tracked, how: Geometry) -> Entry:
    """The entry of a convolution's weight: gradients themselves where they are small, else windows."""
    weight = of.value
    small = weight.numel() * len(x) <= DIRECT * (x.numel() + b.numel())
    if how.groups > 1 or small:
        return Direct(
            per_record_weights(x, b, weight.shape, how), weight.shape, None, b[0, 0].numel(), _bound(x, b, weight, how)
        )
    return Outer(windows(x, weight.shape[2:], how), b.flatten(2).transpose(1, 2), weight.shape)


def _bound(x: Tensor, b: Tensor, weight: Tensor, how: Geometry) -> Tensor | None:
    """On the sum of norms of the terms, needed in double precision only."""
    if b.dtype != torch.float64:
        return None
    if how.groups > 1:
        norms = torch.linalg.vector_norm
        return norms(b.flatten(2), dim=1).sum(1) * norms(x.flatten(1), dim=1)
    return Outer(windows(x, weight.shape[2:], how), b.flatten(2).transpose(1, 2), weight.shape).term_norms()


def per_record_weights(x: Tensor, b: Tensor, shape: torch.Size, how: Geometry) -> Tensor:
    """(batch, *weight) gradients, each record's own."""
    if how.groups == 1 and max(how.stride) > 1:
        seen = windows(x, shape[2:], how)
        return torch.bmm(b.flatten(2), seen).view(len(x), *shape)
    batch, channels, groups = len(x), x.shape[1], how.groups
    each = channels // groups
    turned = x.view(batch * groups, each, *x.shape[2:]).transpose(0, 1)
    filters = b.reshape(batch * b.shape[1], 1, *b.shape[2:])
    run = CONVOLUTIONS[x.dim() - 2]
    found = run(turned, filters, None, how.dilation, how.padding, how.stride, batch * groups)
    for dim, length in enumerate(shape[2:], 2):
        found = found.narrow(dim, 0, length)
    return found.transpose(0, 1).reshape(batch, *shape)


def windows(x: Tensor, kernel: torch.Size, how: Geometry) -> Tensor:
    """(batch, positions, channels * kernel): what each output position sees."""
    edges = [length for padding in reversed(how.padding) for length in (padding, padding)]
    seen = F.pad(x, edges) if any(edges) else x
    dims = len(kernel)
    for dim, (length, step, apart) in enumerate(zip(kernel, how.stride, how.dilation, strict=True), 2):
        seen = seen.unfold(dim, (length - 1) * apart + 1, step)
        if apart > 1:
            seen = seen[..., ::apart]
    order = (0, *range(2, 2 + dims), 1, *range(2 + dims, 2 + 2 * dims))
    seen = seen.permute(order)
    return seen.reshape(len(x), seen.shape[1 : 1 + dims].numel(), -1)


@rule(F.conv1d, F.conv2d, F.conv3d)
def convolution(use: Use) -> Any:
    x, weight, bias, how = _arguments(*use.args, **use.kwargs)
    keys = use.tracked(weight), use.tracked(bias)
    if use.where(x) != Where(0) or x.dim() != weight.dim():
        return use.tape.otherwise(use)
    if how.padded is not None:
        x = F.pad(x, how.padded)

    def book(x: Tensor, b: Tensor) -> None:
        if keys[0] is not None:
            use.book(keys[0], lambda: weight_entry(x, b, keys[0], how))  # type: ignore[arg-type]
        if keys[1] is not None:
            use.book(keys[1], lambda: _bias_entry(b, keys[1]))  # type: ignore[arg-type]

    plain = weight.detach(), None if bias is None else bias.detach()
    return _Convolution.apply(use.tape.token, x, *plain, how, book)


def _bias_entry(b: Tensor, of: Tracked) -> Entry:
    flat = b.flatten(2)
    bound = torch.linalg.vector_norm(flat, dim=1).sum(1) if b.dtype == torch.float64 else None
    return Direct(flat.sum(2), of.value.shape, None, flat.shape[2], bound)


def _arguments(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[Tensor, Tensor, Tensor | None, Geometry]:
    dims = weight.dim() - 2
    steps, apart = _each(stride, dims), _each(dilation, dims)
    if not isinstance(padding, str):
        return input, weight, bias, Geometry(steps, _each(padding, dims), apart, groups)
    none = (0,) * dims
    if padding == "valid":
        return input, weight, bias, Geometry(steps, none, apart, groups)
    more = [(length - 1) * by for length, by in zip(weight.shape[2:], apart, strict=True)]
    padded = tuple(length for one in reversed(more) for length in (one // 2, one - one // 2))
    return input, weight, bias, Geometry(steps, none, apart, groups, padded)


def _each(value: Any, dims: int) -> Numbers:
    numbers = (value,) if isinstance(value, int) else tuple(int(one) for one in value)
    return numbers * dims if len(numbers) == 1 else numbers
