"""Attention: torch picks among its kernels without looking at what lies under a level, so it is told all records at once.

With dropout it is written out, and every record draws its own mask.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..tape import Tape, rule
from ..torch_names import below


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
