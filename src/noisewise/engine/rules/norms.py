"""Layer, group and instance norms: gradients of scale and shift are sums over a record's own positions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entries import Direct
from ..layout import Where, to_front
from ..tape import Use, rule


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        token: Tensor,
        x: Tensor,
        shape: Any,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        book: Any,
    ) -> Tensor:
        result, mean, rate = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rate)
        ctx.shape, ctx.book = shape, book
        return result

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        b = outputs[0].contiguous()
        x, weight, mean, rate = ctx.saved_tensors
        ctx.book(x, mean, rate, b)
        gradient = None
        if ctx.needs_input_grad[1]:
            gradient, _, _ = torch.ops.aten.native_layer_norm_backward(
                b, x, ctx.shape, mean, rate, weight, None, [True, False, False]
            )
        return None, gradient, None, None, None, None, None


@rule(F.layer_norm)
def layer_norm(use: Use) -> Any:
    return _layer_norm(use, *use.args, **use.kwargs)


def _layer_norm(
    use: Use,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    where, keys = use.where(input), (use.tracked(weight), use.tracked(bias))
    if where is None or where.dim >= input.dim() - len(normalized_shape):
        return use.tape.otherwise(use)
    width = len(normalized_shape)

    def summed(values: Tensor) -> Tensor:
        front = to_front(values, where, use.tape.batch)
        return front if front.dim() == 1 + width else front.flatten(1, front.dim() - width - 1).sum(1)

    def book(x: Tensor, mean: Tensor, rate: Tensor, b: Tensor) -> None:
        if keys[0] is not None:
            shape = keys[0].value.shape
            use.book(keys[0], lambda: Direct(summed((x - mean).mul_(rate).mul_(b)), shape))
        if keys[1] is not None:
            shape = keys[1].value.shape
            use.book(keys[1], lambda: Direct(summed(b), shape))

    plain = [None if value is None else value.detach() for value in (weight, bias)]
    return _LayerNorm.apply(use.tape.token, input.contiguous(), [*normalized_shape], *plain, eps, book)


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        token: Tensor,
        x: Tensor,
        groups: int,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        book: Any,
    ) -> Tensor:
        sizes = len(x), x.shape[1], x[0, 0].numel()
        result, mean, rate = torch.native_group_norm(x, weight, bias, *sizes, groups, eps)
        ctx.save_for_backward(x, weight, mean, rate)
        ctx.sizes, ctx.groups, ctx.book = sizes, groups, book
        return result

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        b = outputs[0].contiguous()
        x, weight, mean, rate = ctx.saved_tensors
        ctx.book(x, mean, rate, b)
        gradient = None
        if ctx.needs_input_grad[1]:
            gradient, _, _ = torch.ops.aten.native_group_norm_backward(
                b, x, mean, rate, weight, *ctx.sizes, ctx.groups, [True, False, False]
            )
        return None, gradient, None, None, None, None, None


def _grouped(use: Use, x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    keys = use.tracked(weight), use.tracked(bias)
    if use.where(x) != Where(0):
        return use.tape.otherwise(use)

    def book(x: Tensor, mean: Tensor, rate: Tensor, b: Tensor) -> None:
        slopes = b.flatten(2).sum(2)
        if keys[0] is not None:
            each = x.shape[1] // groups
            middle, scale = (value.repeat_interleave(each, 1) for value in (mean, rate))
            tilted = (b * x).flatten(2).sum(2)
            shape = keys[0].value.shape
            use.book(keys[0], lambda: Direct((tilted - slopes * middle) * scale, shape))
        if keys[1] is not None:
            shape = keys[1].value.shape
            use.book(keys[1], lambda: Direct(slopes, shape))

    plain = [None if value is None else value.detach() for value in (weight, bias)]
    return _GroupNorm.apply(use.tape.token, x.contiguous(), groups, *plain, eps, book)


@rule(F.group_norm)
def group_norm(use: Use) -> Any:
    return _group_norm(use, *use.args, **use.kwargs)


def _group_norm(
    use: Use,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    return _grouped(use, input, num_groups, weight, bias, eps)


@rule(F.instance_norm)
def instance_norm(use: Use) -> Any:
    return _instance_norm(use, *use.args, **use.kwargs)


def _instance_norm(
    use: Use,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if running_mean is not None or not use_input_stats:
        use.tape.refuse(
            "an instance norm that keeps running means stores private values; pass track_running_stats=False"
        )
    return _grouped(use, input, input.shape[1], weight, bias, eps)


@rule(F.batch_norm)
def batch_norm(use: Use) -> Any:
    use.tape.refuse("batch norm mixes the records of a batch; use GroupNorm or LayerNorm (ModuleValidator.fix does)")
