"""Convolutions in one to three dimensions, grouped, dilated, with strides and transposed.

A record's gradient of the weight is its output gradients times the windows of its picture, laid side by side; with groups it is
a convolution of its picture with its output gradients (stride and dilation change places). It is kept where that takes little
more room than what it is made of; else norms are found for a few records at a time, and the clipped sum is that of a usual
backward pass whose output gradients are reweighted. A transposed convolution is the backward pass of a convolution: its inputs
and output gradients change places.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entries import MAX_GRADIENT_NUMBERS, Direct, Entry, Outer, Persons, alive, at_least, by_record
from ..tape import Tape, rule
from ..torch_names import below

DIRECT = 4.0  # gradients of single records may take that many times the memory of what they are made of
WINDOW_NUMBERS_AT_ONCE = 2**19  # that are laid out
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """How windows move."""

    stride: Numbers
    padding: Numbers
    dilation: Numbers
    groups: int


@dataclass(frozen=True)
class Windowed(Entry):
    """Gradients of the weight as pictures and output gradients: made a few records at a time whenever they are needed.

    ``each`` pictures belong to one record, one after the other.
    """

    x: Tensor
    b: Tensor
    shape: torch.Size
    how: Geometry
    each: int = 1

    @property
    def batch(self) -> int:
        return len(self.x) // self.each

    @property
    def terms(self) -> int:
        return self.b.shape[2:].numel() * self.each

    def _few(self, rows: slice) -> tuple[Tensor, Tensor]:
        pictures = slice(rows.start * self.each, rows.stop * self.each)
        return self.x[pictures], self.b[pictures]

    def squared_norms(self) -> Tensor:
        """By pairs of positions where that is less work than multiplying out."""
        width, outputs = self.shape[1:].numel(), self.shape[0]
        by_pairs = self.how.groups == 1 and width * outputs > self.terms * (width + outputs)
        size = max(
            1,
            MAX_GRADIENT_NUMBERS // (self.terms * max(width, self.terms) if by_pairs else width * outputs * self.each),
        )
        found = []
        for start in range(0, self.batch, size):
            rows = slice(start, min(start + size, self.batch))
            entry: Entry = self._as_outer(rows) if by_pairs else Direct(self.per_record(rows), self.shape)
            found.append(entry.squared_norms())
        return at_least(torch.cat(found), self.term_norms())

    def _as_outer(self, rows: slice) -> Outer:
        x, b = self._few(rows)
        seen = windows(x, self.shape, b.shape[2:], self.how).reshape(-1, self.terms, self.shape[1:].numel())
        return Outer(seen, b.flatten(2).transpose(1, 2).reshape(-1, self.terms, self.shape[0]), self.shape)

    def term_norms(self) -> Tensor:
        return term_norms(self.x, self.b, self.shape, self.how).view(-1, self.each).sum(1)

    def per_record(self, rows: slice) -> Tensor:
        found = per_record_weights(*self._few(rows), self.shape, self.how)
        return found if self.each == 1 else found.unflatten(0, (-1, self.each)).sum(1)

    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        factors = factors.repeat_interleave(self.each)
        dead = None if dead is None else dead.repeat_interleave(self.each)
        x, b, how = alive(self.x, dead), alive(self.b, dead), self.how
        like = b.new_empty(()).expand(self.shape)
        total: Tensor = torch.ops.aten.convolution_backward(
            b * by_record(factors, b), x, like, None, how.stride, how.padding, how.dilation, False,
            [0] * len(how.stride), how.groups, [False, True, False],
        )[1]  # fmt: skip
        return total

    def of_persons(self, persons: Persons) -> Entry:
        x, b = (persons.laid(value.unflatten(0, (-1, self.each))).flatten(0, 1) for value in (self.x, self.b))
        return replace(self, x=x, b=b, each=self.each * persons.most)


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
    batch, groups = len(x), how.groups
    turned = x.reshape(batch * groups, -1, *x.shape[2:]).transpose(0, 1)
    filters = b.reshape(batch * b.shape[1], 1, *b.shape[2:])
    run = CONVOLUTIONS[x.dim() - 2]
    found = run(turned, filters, None, how.dilation, how.padding, how.stride, batch * groups)
    for dim, length in enumerate(shape[2:], 2):
        found = found.narrow(dim, 0, length)
    return found.transpose(0, 1).reshape(batch, *shape)


def windows(x: Tensor, shape: torch.Size, out: torch.Size, how: Geometry, *, last: bool = True) -> Tensor:
    """What positions see, (batch, *positions, *window, channels); in memory channels come last, or first."""
    edges = [length for padding in reversed(how.padding) for length in (padding, padding)]
    x = F.pad(x, edges) if any(edges) else x
    front = (0, *range(2, x.dim()), 1)
    laid = x.permute(front).contiguous() if last else x.contiguous().permute(front)
    first, *pixels, channel = laid.stride()
    moves = [length * by for length, by in zip(pixels, how.stride, strict=True)]
    inside = [length * by for length, by in zip(pixels, how.dilation, strict=True)]
    return laid.as_strided((len(x), *out, *shape[2:], shape[1]), (first, *moves, *inside, channel))


def _by_windows(x: Tensor, b: Tensor, shape: torch.Size, how: Geometry) -> Tensor:
    """Windows of a few records at a time, in room that is used again, times output gradients.

    They are copied in runs that are as long as can be: of channels and neighbours in a window, or of neighbouring windows.
    """
    dims, out, width = len(how.stride), b.shape[2:], shape[1:].numel()
    last = max(how.stride) > 1 or shape[1] * shape[-1] >= out[-1]
    seen = windows(x, shape, out, how, last=last)
    seen = seen if last else seen.permute(0, -1, *range(1 + dims, 1 + 2 * dims), *range(1, 1 + dims))
    given = b.flatten(2).mT  # (batch, positions, outputs)
    size = max(1, min(len(x), WINDOW_NUMBERS_AT_ONCE // max(width * out.numel(), 1)))
    room, found = x.new_empty(size, *seen.shape[1:]), x.new_empty(len(x), width, shape[0])
    for start in range(0, len(x), size):
        rows = slice(start, min(start + size, len(x)))
        few = room[: rows.stop - start].copy_(seen[rows])
        few = few.view(len(few), out.numel(), width).mT if last else few.view(len(few), width, out.numel())
        torch.bmm(few, given[rows], out=found[rows])
    if last:
        return found.view(len(x), *shape[2:], *shape[1::-1]).movedim((-1, -2), (1, 2))
    return found.view(len(x), *shape[1:], shape[0]).movedim(-1, 1)


@rule(F.conv1d, F.conv2d, F.conv3d, both=True)
def convolution(
    tape: Tape, input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Any:  # fmt: skip
    if padding == "same":
        apart = _each(dilation, weight.dim() - 2)
        more = [(length - 1) * by for length, by in zip(weight.shape[2:], apart, strict=True)]
        input = F.pad(input, [length for one in reversed(more) for length in (one // 2, one - one // 2)])
    padding = 0 if isinstance(padding, str) else padding
    return _convolved(tape, input, weight, bias, stride, padding, dilation, groups)


@rule(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d, both=True)
def transposed(
    tape: Tape, input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    return _convolved(tape, input, weight, bias, stride, padding, dilation, groups, output_padding)


def _convolved(
    tape: Tape, input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int,
    more: Any = None,
) -> Any:  # fmt: skip
    """``more``: what is added to the outputs of a transposed one."""
    if bias is not None and bias.dim() != 1:  # torch adds whatever a record's own bias is
        tape.refuse("a convolution whose bias has not one dimension")
    if input.dim() < weight.dim():
        found = _convolved(tape, input.unsqueeze(0), weight, bias, stride, padding, dilation, groups, more)
        return found if found is NotImplemented else found.squeeze(0)
    x, dims, of_weight, of_bias = tape.physical(input), weight.dim() - 2, tape.key(weight), tape.key(bias)
    if x is None or not tape.shared(weight, bias):
        return NotImplemented
    how, each = Geometry(_each(stride, dims), _each(padding, dims), _each(dilation, dims), groups), x.shape[1]
    shape, turned = weight.shape, more is not None

    def weight_entry(x: Tensor, b: Tensor) -> Entry:
        """Gradients themselves where they are small, else what they are made of."""
        entry = Windowed(x, b, shape, how, each)
        if shape.numel() * len(x) > DIRECT * (x.numel() + b.numel()):
            return entry
        return Direct(entry.per_record(slice(0, entry.batch)), shape, entry.terms)

    def bias_entry(b: Tensor) -> Entry:
        total = b.flatten(2).sum(2).unflatten(0, (-1, each)).sum(1)
        return Direct(total, total.shape[1:], b.shape[2:].numel() * each)

    def book(b: Tensor, x: Tensor) -> None:
        tape.book(of_weight, lambda: weight_entry(b, x) if turned else weight_entry(x, b))
        tape.book(of_bias, lambda: bias_entry(b))

    with below():
        x, weight = x.flatten(0, 1), weight.detach()
        if tape.channels_last and dims == 2 and not turned and x.device.type == "cpu":
            x, weight = x.contiguous(memory_format=torch.channels_last), _by_pixel(weight)
        bias = None if bias is None else bias.detach()
        found = torch.convolution(
            x, weight, bias, how.stride, how.padding, how.dilation, turned, _each(more or 0, dims), groups
        )
        found = tape.booked(found, book, x).unflatten(0, (-1, each))
    return tape.wrapped(found)


def _by_pixel(weight: Tensor) -> Tensor:
    """The same numbers with those of one pixel side by side in memory; by strides, as one channel lies both ways."""
    _, channels, height, width = weight.shape
    weight = weight.contiguous(memory_format=torch.channels_last)
    return weight.as_strided(weight.shape, (channels * height * width, 1, channels * width, channels))


def _each(value: Any, dims: int) -> Numbers:
    numbers = (value,) if isinstance(value, int) else tuple(int(one) for one in value)
    return numbers * dims if len(numbers) == 1 else numbers


@rule(F.max_pool2d, torch.max_pool2d, always=True)
def max_pool2d(tape: Tape, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Of all records at once: torch's own rule takes a slower kernel."""
    x = tape.physical(input)
    if x is None or input.dim() != 4 or kwargs.pop("return_indices", False) or len(args) > 5:
        return NotImplemented
    tape.pooled = True
    with below():
        found = torch.max_pool2d(x.flatten(0, 1), *args, **kwargs).unflatten(0, (-1, x.shape[1]))
    return tape.wrapped(found)
