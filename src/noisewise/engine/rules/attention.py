"""Attention with several heads: its projections are dense layers, between them is nothing that trains.

What nn.MultiheadAttention calls is one function, taken apart here so that its projections can be booked. Self-attention has one
product for queries, keys and values; otherwise each has its own rows of the packed weight.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..layout import Where
from ..tape import Use, rule
from .linear import bias_entry, booked_linear

_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


@rule(F.multi_head_attention_forward)
def attention(use: Use) -> Any:
    given = _SIGNATURE.bind(*use.args, **use.kwargs)
    given.apply_defaults()
    asked = given.arguments
    query, key, value = asked["query"], asked["key"], asked["value"]
    if query.dim() != 3 or use.where(query) != Where(1):
        use.tape.refuse("attention needs batches of sequences, (batch, length, width) with batch_first=True")
    if (
        asked["bias_k"] is not None
        or asked["static_k"] is not None
        or asked["static_v"] is not None
        or asked["add_zero_attn"]
    ):
        use.tape.refuse("attention with add_bias_kv, add_zero_attn or static keys is not supported; leave them out")
    length, batch, width = query.shape
    heads, each = asked["num_heads"], width // asked["num_heads"]
    q, k, v = (_split(part, batch, heads) for part in _projected(use, asked, query, key, value))
    mask = _mask(asked, batch, heads, q.dtype)
    dropout = asked["dropout_p"] if asked["training"] else 0.0
    weights = None
    if asked["need_weights"]:
        scores = (q / math.sqrt(each)) @ k.transpose(-2, -1)
        weights = torch.softmax(scores if mask is None else scores + mask, -1)
        weights = F.dropout(weights, dropout) if dropout else weights
        mixed = weights @ v
        weights = weights.mean(1) if asked["average_attn_weights"] else weights
    else:
        causal = bool(asked["is_causal"]) and mask is None
        mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=causal)
    joined = mixed.permute(2, 0, 1, 3).reshape(length, batch, width)
    weight, bias = asked["out_proj_weight"], asked["out_proj_bias"]
    keys = use.tracked(weight), use.tracked(bias)
    return booked_linear(use, joined, weight, bias, keys=keys, where=Where(1)), weights


def _projected(use: Use, asked: Any, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Queries, keys and values as (length, batch, width)."""
    width, bias = query.shape[2], asked["in_proj_bias"]
    bias_key = use.tracked(bias)
    if asked["use_separate_proj_weight"]:
        weights = [asked[f"{name}_proj_weight"] for name in "qkv"]
        keys, parts = [use.tracked(weight) for weight in weights], [None] * 3
    else:
        weight = asked["in_proj_weight"]
        if query is key and key is value:
            both = use.tracked(weight), bias_key
            return [*booked_linear(use, query, weight, bias, keys=both, where=Where(1)).chunk(3, -1)]
        parts = [slice(at * width, at * width + width) for at in range(3)]  # type: ignore[misc]
        weights, keys = [weight[part] for part in parts], [use.tracked(weight)] * 3
    found = []
    for at, x in enumerate((query, key, value)):
        rows = slice(at * width, at * width + width)
        found.append(booked_linear(use, x, weights[at], None, keys=(keys[at], None), where=Where(1), part=parts[at]))
        if bias is not None:
            found[-1] = _shifted(use, found[-1], bias[rows], bias_key, rows)
    return found


class _Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, x: Tensor, bias: Tensor, book: Any) -> Tensor:
        ctx.book = book
        return x + bias

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        ctx.book(outputs[0])
        return None, outputs[0], None, None


def _shifted(use: Use, x: Tensor, bias: Tensor, key: Any, rows: slice) -> Tensor:
    def book(b: Tensor) -> None:
        if key is not None:
            use.book(key, lambda: bias_entry(b.transpose(0, 1), key, rows))

    result: Tensor = _Shift.apply(use.tape.token, x, bias.detach(), book)
    return result


def _split(part: Tensor, batch: int, heads: int) -> Tensor:
    """(length, batch, width) to (batch, heads, length, width of a head)."""
    return part.reshape(len(part), batch, heads, -1).permute(1, 2, 0, 3)


def _mask(asked: Any, batch: int, heads: int, dtype: torch.dtype) -> Tensor | None:
    """What is added to scores, (batch, heads, length, length) or fewer dimensions that broadcast."""
    mask, padding = asked["attn_mask"], asked["key_padding_mask"]
    if mask is not None:
        mask = _added(mask, dtype)
        mask = mask.view(batch, heads, *mask.shape[1:]) if mask.dim() == 3 else mask
    if padding is not None:
        padding = _added(padding, dtype).view(batch, 1, 1, -1)
        mask = padding if mask is None else mask + padding
    return mask


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)
