"""Dense layers, with or without a sequence: x W^T + bias, and products x @ W.

A record's gradient of W is the sum over its positions of b_t a_t^T, of its bias the sum of b_t, with inputs a_t and output
gradients b_t. Without a sequence its squared norm is ||a||^2 ||b||^2; with one it is a sum over pairs of positions, or, where
multiplied out it is no larger than the inputs and output gradients it is made of, that of the product itself.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entries import Direct, Entry, Outer
from ..layout import Where, to_front
from ..tape import Tracked, Use, rule

DIRECT = 1.0  # a product may take so many times the room of what it is made of


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, book: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.book = book
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        (b,) = outputs
        x, weight = ctx.saved_tensors
        ctx.book(x, b)
        return None, b @ weight if ctx.needs_input_grad[1] else None, None, None, None


def booked_linear(
    use: Use,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    keys: tuple[Tracked | None, Tracked | None],
    where: Where,
    part: slice | None = None,
    turned: bool = False,
) -> Tensor:
    """x weight^T + bias. ``part``: the weight is these rows of what is tracked; ``turned``: it is its transpose."""

    def flat(value: Tensor) -> Tensor:
        front = to_front(value, where, use.tape.batch)
        return front if front.dim() <= 3 else front.flatten(1, -2)

    def book(x: Tensor, b: Tensor) -> None:
        if keys[0] is not None:
            use.book(keys[0], lambda: product_entry(flat(x), flat(b), keys[0], part, turned))  # type: ignore[arg-type]
        if keys[1] is not None:
            use.book(keys[1], lambda: bias_entry(flat(b), keys[1], part))  # type: ignore[arg-type]

    plain = (weight.detach(), None if bias is None else bias.detach())
    result: Tensor = _Linear.apply(use.tape.token, x, *plain, book)
    return result


def product_entry(a: Tensor, b: Tensor, of: Tracked, part: slice | None, turned: bool) -> Entry:
    """The entry of a weight from its inputs and output gradients."""
    shape = of.value.shape
    entry = Outer(b, a, shape, part) if turned else Outer(a, b, shape, part)
    if a.dim() == 2 or a.shape[2] * b.shape[2] > DIRECT * a.shape[1] * (a.shape[2] + b.shape[2]):
        return entry
    left, right = entry.b, entry.a
    product = torch.bmm(left.transpose(1, 2), right)
    return Direct(product, shape, part, a.shape[1], entry.term_norms() if a.dtype == torch.float64 else None)


def bias_entry(b: Tensor, of: Tracked, part: slice | None) -> Entry:
    """The entry of what is added at every position."""
    if b.dim() == 2:
        return Direct(b, of.value.shape, part)
    bound = torch.linalg.vector_norm(b, dim=-1).sum(1) if b.dtype == torch.float64 else None
    return Direct(b.sum(1), of.value.shape, part, b.shape[1], bound)


@rule(F.linear)
def linear(use: Use) -> Any:
    x, weight, bias = _linear_arguments(*use.args, **use.kwargs)
    where, keys = use.where(x), (use.tracked(weight), use.tracked(bias))
    if where is None or use.where(weight) is not None or where.dim == x.dim() - 1 or weight.dim() != 2:
        return use.tape.otherwise(use)
    return booked_linear(use, x, weight, bias, keys=keys, where=where)


def _linear_arguments(
    input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    return input, weight, bias


@rule(torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm)
def matmul(use: Use) -> Any:
    if len(use.args) != 2 or use.kwargs:
        return use.tape.otherwise(use)
    x, weight = use.args
    where, key = use.where(x), use.tracked(weight)
    if key is None or where is None or weight.dim() != 2 or x.dim() < 2 or where.dim == x.dim() - 1:
        return use.tape.otherwise(use)
    return booked_linear(use, x, weight.T, None, keys=(key, None), where=where, turned=True)


@rule(torch.addmm, Tensor.addmm)
def addmm(use: Use) -> Any:
    """bias + x @ weight, as written by those who keep weights transposed."""
    if len(use.args) != 3 or use.kwargs or use.function is not torch.addmm:
        return use.tape.otherwise(use)
    bias, x, weight = use.args
    where, keys = use.where(x), (use.tracked(weight), use.tracked(bias))
    usual = where == Where(0) and use.where(weight) is None and use.where(bias) is None and bias.dim() == 1
    if not usual or where is None or x.dim() != 2 or weight.dim() != 2:
        return use.tape.otherwise(use)
    return booked_linear(use, x, weight.T, bias, keys=keys, where=where, turned=True)
