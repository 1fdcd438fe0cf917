"""Convolutions in one to three dimensions, grouped, dilated and with strides.

A record's gradient of the weight is its output gradients times the windows of its picture, laid side by side; with groups it is
a convolution of its picture with its output gradients (stride and dilation change places). It is kept where that takes little
more room than what it is made of; else norms are found for a few records at a time, and the clipped sum is that of a usual
backward pass whose output gradients are reweighted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entries import ROOM, Direct, Entry, Outer, alive, at_least, by_record
from ..layout import Where
from ..tape import Tracked, Use, rule

DIRECT = 4.0  # gradients of single records may take so many times the room of what they are made of
LAID = 2**19  # numbers of windows that are laid out at a time
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
    channels_last: bool = False  # how pictures lie in memory from here on


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, token: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, how: Geometry, book: Any
    ) -> Tensor:
        if how.channels_last:
            x, weight = channels_last(x), channels_last(weight)
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


def channels_last(x: Tensor) -> Tensor:
    """The same numbers, those of one pixel side by side in memory; said by strides, as one channel lies both ways."""
    _, channels, height, width = x.shape
    x = x.contiguous(memory_format=torch.channels_last)
    return x.as_strided(x.shape, (channels * height * width, 1, channels * width, channels))


@dataclass(frozen=True)
class Windowed(Entry):
    """Gradients of the weight as pictures and output gradients: made a few records at a time whenever they are needed."""

    x: Tensor
    b: Tensor
    shape: torch.Size
    how: Geometry
    part: slice | None = None

    @property
    def batch(self) -> int:
        return len(self.x)

    @property
    def terms(self) -> int:
        return self.b.shape[2:].numel()

    def squared_norms(self) -> Tensor:
        """By pairs of positions where that is less work than multiplying out."""
        width, outputs = self.shape[1:].numel(), self.shape[0]
        by_pairs = self.how.groups == 1 and width * outputs > self.terms * (width + outputs)
        size = max(1, ROOM // (self.terms * max(width, self.terms) if by_pairs else width * outputs))
        found = []
        for start in range(0, self.batch, size):
            rows = slice(start, start + size)
            if by_pairs:
                seen = windows(self.x[rows], self.shape[2:], self.how)
                entry: Entry = Outer(seen, self.b[rows].flatten(2).transpose(1, 2), self.shape)
            else:
                entry = Direct(self.per_record(rows), self.shape)
            found.append(entry.squared_norms())
        return at_least(torch.cat(found), self.term_norms())

    def term_norms(self) -> Tensor:
        return term_norms(self.x, self.b, self.shape, self.how)

    def per_record(self, rows: slice) -> Tensor:
        return per_record_weights(self.x[rows], self.b[rows], self.shape, self.how)

    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        x, b = alive(self.x, dead), alive(self.b, dead)
        b, how, none = b * by_record(factors, b), self.how, (0,) * len(self.how.stride)
        like = b.new_empty(()).expand(self.shape)
        total: Tensor = torch.ops.aten.convolution_backward(
            b, x, like, None, how.stride, how.padding, how.dilation, False, none, how.groups, [False, True, False]
        )[1]
        return total

    def scaled(self, by: float) -> Entry:
        return replace(self, b=self.b * by)


def weight_entry(x: Tensor, b: Tensor, of: Tracked, how: Geometry) -> Entry:
    """The entry of a convolution's weight: gradients themselves where they are small, else what they are made of."""
    shape = of.value.shape
    if shape.numel() * len(x) > DIRECT * (x.numel() + b.numel()):
        return Windowed(x, b, shape, how)
    bound = term_norms(x, b, shape, how) if b.dtype == torch.float64 else None  # needed in double precision only
    return Direct(per_record_weights(x, b, shape, how), shape, None, b.shape[2:].numel(), bound)


def term_norms(x: Tensor, b: Tensor, shape: torch.Size, how: Geometry) -> Tensor:
    """Of every record, the sum over positions of the norm of a window times that of its output gradients."""
    squares = x.square().unflatten(1, (how.groups, -1)).sum(2)
    ones = x.new_ones(how.groups, 1, *shape[2:])
    run = CONVOLUTIONS[x.dim() - 2]
    seen = run(squares, ones, None, how.stride, how.padding, how.dilation, how.groups)
    given = torch.linalg.vector_norm(b.unflatten(1, (how.groups, -1)), dim=2)
    return (seen.sqrt() * given).flatten(1).sum(1)


def per_record_weights(x: Tensor, b: Tensor, shape: torch.Size, how: Geometry) -> Tensor:
    """(batch, *weight) gradients, each record's own."""
    if how.groups == 1:
        return _by_windows(x, b, shape, how)
    batch, channels, groups = len(x), x.shape[1], how.groups
    each = channels // groups
    turned = x.reshape(batch * groups, each, *x.shape[2:]).transpose(0, 1)
    filters = b.reshape(batch * b.shape[1], 1, *b.shape[2:])
    run = CONVOLUTIONS[x.dim() - 2]
    found = run(turned, filters, None, how.dilation, how.padding, how.stride, batch * groups)
    for dim, length in enumerate(shape[2:], 2):
        found = found.narrow(dim, 0, length)
    return found.transpose(0, 1).reshape(batch, *shape)


def _by_windows(x: Tensor, b: Tensor, shape: torch.Size, how: Geometry) -> Tensor:
    """Windows of a few records at a time, in room that is used again, times output gradients.

    They are copied in runs that are as long as can be: of channels and neighbours in a window, or of neighbouring windows.
    """
    edges = [length for padding in reversed(how.padding) for length in (padding, padding)]
    x = F.pad(x, edges) if any(edges) else x
    kernel, out, channels = shape[2:], b.shape[2:], shape[1]
    dims = len(kernel)
    last = max(how.stride) > 1 or channels * kernel[-1] >= out[-1]
    front = (0, *range(2, 2 + dims), 1)
    laid = (x.permute(front) if last else x).contiguous()
    first, *steps = laid.stride()
    pixels = steps[:-1] if last else steps[1:]
    moves = [length * by for length, by in zip(pixels, how.stride, strict=True)]
    inside = [length * by for length, by in zip(pixels, how.dilation, strict=True)]
    if last:
        seen = laid.as_strided((len(x), *out, *kernel, channels), (first, *moves, *inside, 1))
    else:
        seen = laid.as_strided((len(x), channels, *kernel, *out), (first, steps[0], *inside, *moves))
    given = b.permute(front).flatten(1, -2) if last else b.flatten(2).transpose(1, 2)  # (batch, positions, outputs)
    size = max(1, min(len(x), LAID // max(seen.shape[1:].numel(), 1)))
    room = x.new_empty(size, *seen.shape[1:])
    found = x.new_empty(len(x), *((shape[0], shape[1:].numel()) if last else (shape[1:].numel(), shape[0])))
    for start in range(0, len(x), size):
        rows = slice(start, min(start + size, len(x)))
        few = room[: rows.stop - start].copy_(seen[rows])
        if last:
            torch.bmm(given[rows].transpose(1, 2), few.view(len(few), out.numel(), -1), out=found[rows])
        else:
            torch.bmm(few.view(len(few), -1, out.numel()), given[rows], out=found[rows])
    if last:
        return found.view(len(x), shape[0], *kernel, channels).movedim(-1, 2)
    return found.view(len(x), *shape[1:], shape[0]).movedim(-1, 1)


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
    if use.tape.layout.channels_last and x.dim() == 4 and x.device.type == "cpu":
        how = replace(how, channels_last=True)

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
