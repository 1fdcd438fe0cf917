"""Embeddings, norms and attention.

*Embeddings*: a record's gradient has b_t in the row of each of its ids, added up where an id comes twice. *Norms*: gradients of
scale and shift are sums over a record's own positions; layer norms, of which networks have many, have a rule, and in the others
scale and shift are repeated for every record. *Attention*: torch picks among its kernels without looking at what lies under a
level, so it is given all records at once; with dropout it is written out, and every record draws its own mask.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..books import Tracked
from ..entries import Direct, RowSums
from ..tape import Tape, rule
from ..torch_names import below, is_batched


def _entry(ids: Tensor, b: Tensor, key: Tracked, skipped: int | None, by_count: bool) -> RowSums:
    flat, slopes = ids.reshape(len(ids), -1).long(), b.reshape(len(ids), -1, b.shape[-1])
    if skipped is not None:
        slopes = slopes.masked_fill((flat == skipped).unsqueeze(2), 0)
    if by_count:
        slopes = slopes / (flat.unsqueeze(2) == flat.unsqueeze(1)).sum(2, keepdim=True)
    return RowSums(flat, slopes, key.shape)


@rule(F.embedding, both=True)
def embedding(
    tape: Tape, input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Any:  # fmt: skip
    if max_norm is not None:
        tape.refuse("an embedding with max_norm rewrites the rows that records look up; leave max_norm out")
    skipped = None if padding_idx is None else padding_idx % len(weight)
    key = tape.key(weight)
    if key is not None and torch.is_grad_enabled():
        return _trained(tape, input, weight, key, skipped, scale_grad_by_freq)
    input = tape.legal_of_one(input, 0, len(weight))
    if not is_batched(weight):
        return F.embedding(input, weight, padding_idx, None, norm_type, scale_grad_by_freq, sparse)
    if scale_grad_by_freq:
        tape.refuse(
            "an embedding with scale_grad_by_freq and a table of each record's own; leave scale_grad_by_freq out"
        )
    found = weight[input]  # torch's rule lays tables of single records end to end
    return found if skipped is None else torch.where((input == skipped).unsqueeze(-1), found.detach(), found)


def _trained(tape: Tape, input: Tensor, weight: Tensor, key: Tracked, skipped: int | None, by_count: bool) -> Any:
    if not tape.shared(weight):
        return NotImplemented

    def book(b: Tensor, ids: Tensor) -> None:
        tape.book(key, lambda: _entry(ids, b, key, skipped, by_count))

    ids = tape.physical(input)
    with below():
        # ids that every record shares are positions: the same for each
        own = input.expand(tape.batch, *input.shape) if ids is None else tape.legal(ids, 0, len(weight))
        found = tape.booked(F.embedding(own, weight.detach()), book, own)
    return tape.wrapped(found)


@rule(F.embedding_bag, both=True)
def embedding_bag(
    tape: Tape, input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> Any:  # fmt: skip
    if offsets is not None or input.dim() != 2:
        tape.refuse("an embedding bag with offsets lays records end to end; pass ids of shape (batch, length)")
    with tape:
        found = F.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
        if per_sample_weights is not None:
            found = found * per_sample_weights.unsqueeze(-1)
        gone = None if padding_idx is None else (input == padding_idx % len(weight)).unsqueeze(-1)
        if mode == "max":
            return (found if gone is None else found.masked_fill(gone, -torch.inf)).amax(1)
        total = (found if gone is None else found.masked_fill(gone, 0)).sum(1)
        if mode == "sum":
            return total
        return total / (input.shape[1] if gone is None else (~gone).sum(1).clamp(min=1))


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


@rule(F.scaled_dot_product_attention, both=True)
def attention(
    tape: Tape, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    parts = [None if tape.key(part) is not None else tape.physical(part) for part in (query, key, value)]
    usual = all(part is not None and part.dim() == 5 for part in parts) and not dropout_p
    if usual and (attn_mask is None or tape.key(attn_mask) is None):
        return _at_once(tape, parts, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
    with tape:
        if enable_gqa:
            key, value = (part.repeat_interleave(query.shape[-3] // part.shape[-3], -3) for part in (key, value))
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None:
            gone = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -math.inf) if gone else scores + attn_mask
        weights = scores.softmax(-1)
        return (F.dropout(weights, dropout_p) if dropout_p else weights) @ value


def _at_once(tape: Tape, parts: Any, mask: Tensor | None, **how: Any) -> Tensor:
    """(records, 1, heads, length, width) each; a mask is every record's own, or shared."""
    each = parts[0].shape[1]
    if mask is not None and (whole := tape.physical(mask)) is not None:
        while whole.dim() < 5:
            whole = whole.unsqueeze(1)
        mask = whole.expand(-1, each, *whole.shape[2:]).flatten(0, 1)
    elif mask is not None and mask.dim() == 4 and len(mask) > 1:
        mask = mask.repeat(len(parts[0]), 1, 1, 1)
    with below():
        query, key, value = (part.flatten(0, 1) for part in parts)
        found = F.scaled_dot_product_attention(query, key, value, mask, 0.0, **how)
        found = found.unflatten(0, (-1, each))
    return tape.wrapped(found)
