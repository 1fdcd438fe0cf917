"""Parameters that are added to records or multiplied with them, and those that are repeated for every record.

The gradient of x + p in p is the output gradient added up over the dimensions in which p is repeated; of x p it is that of
the output gradient times x.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..entries import Direct
from ..layout import Where, to_front
from ..tape import Tracked, Use, rule


def _summed(b: Tensor, where: Where, of: Tracked, batch: int) -> Tensor:
    """Output gradients of each record, added up to the shape of what was broadcast against it; records first."""
    front, dims = to_front(b, where, batch), b.dim()
    shape = of.value.shape
    padded = (1,) * (dims - 1 - len(shape)) + tuple(shape)
    if len(padded) == dims:  # a dimension of length one stands where the records are
        padded = padded[: where.dim] + padded[where.dim + 1 :]
    if front.dim() > dims:
        padded = (*padded[: where.dim], 1, *padded[where.dim :])
    return front.sum_to_size(len(front), *padded).reshape(len(front), *shape)


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, x: Tensor, p: Tensor, book: Any) -> Tensor:
        ctx.book, ctx.shape = book, x.shape
        return x + p

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        (b,) = outputs
        ctx.book(None, b)
        return None, b.sum_to_size(ctx.shape), None, None


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, x: Tensor, p: Tensor, book: Any) -> Tensor:
        ctx.save_for_backward(x, p)
        ctx.book = book
        return x * p

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        (b,) = outputs
        x, p = ctx.saved_tensors
        ctx.book(x, b)
        return None, (b * p).sum_to_size(x.shape) if ctx.needs_input_grad[1] else None, None, None


def _pair(use: Use, function: Any) -> Any:
    """A record tensor and a parameter without a dimension of records, in either order; else None."""
    if len(use.args) != 2 or use.kwargs or not all(isinstance(value, Tensor) for value in use.args):
        return None
    x, p = use.args
    if use.tracked(x) is not None:
        x, p = p, x
    key, where = use.tracked(p), use.where(x)
    if key is None or where is None or use.tracked(x) is not None or not _fits(use, x, p, where):
        return None
    return _booked(use, function, x, key, where)


def _fits(use: Use, x: Tensor, p: Tensor, where: Where) -> bool:
    """Whether p is broadcast over records, and x keeps its place in the result."""
    if use.where(p) is not None or where != use.call.results[0] or not x.is_floating_point() or x.dtype != p.dtype:
        return False
    if p.dim() == x.dim():
        return p.shape[where.dim] == 1
    return p.dim() < x.dim() - where.dim


def _booked(use: Use, function: Any, x: Tensor, key: Tracked, where: Where) -> Any:
    def book(x: Tensor | None, b: Tensor) -> None:
        slopes = b if x is None else b * x
        use.book(key, lambda: Direct(_summed(slopes, where, key, use.tape.batch), key.value.shape))

    return function.apply(use.tape.token, x, key.value.detach(), book)


@rule(torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__)
def add(use: Use) -> Any:
    done = _pair(use, _Add)
    return use.tape.otherwise(use) if done is None else done


@rule(torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
def multiply(use: Use) -> Any:
    done = _pair(use, _Multiply)
    return use.tape.otherwise(use) if done is None else done


class _Repeat(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, p: Tensor, function: Any, book: Any) -> Tensor:
        ctx.book = book
        result: Tensor = function(p).clone()
        return result

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        ctx.book(outputs[0])
        return None, None, None, None


@rule("repeated")
def repeated(use: Use) -> Any:
    """A parameter that becomes as long as the batch: only by ``expand`` or ``repeat`` along a new or single dimension 0."""
    p, *_ = use.args
    key, name = use.tracked(p), getattr(use.function, "__name__", "")
    where = use.call.results[0]
    plain = name in ("expand", "repeat", "expand_as") and where == Where(0)
    if not plain or key is None or isinstance(p, list | tuple):
        use.tape.refuse(f"{name} makes a tensor as long as the batch of parameters alone; use expand(batch, ...)")
    assert key is not None

    def book(b: Tensor) -> None:
        use.book(key, lambda: Direct(_back_to(b, key.value.shape), key.value.shape))

    return _Repeat.apply(use.tape.token, p.detach(), lambda p: use.function(p, *use.args[1:], **use.kwargs), book)


def _back_to(b: Tensor, shape: torch.Size) -> Tensor:
    """Output gradients of each record added up to the shape of what was repeated."""
    own = tuple(shape) if len(shape) < b.dim() else tuple(shape)[1:]
    own = (1,) * (b.dim() - 1 - len(own)) + own
    rest = b
    for dim, length in enumerate(own, 1):
        if rest.shape[dim] != length:
            rest = rest.unflatten(dim, (-1, length)).sum(dim)
    return rest.reshape(len(b), *shape)
