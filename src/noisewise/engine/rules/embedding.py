"""Embeddings: a record's gradient has b_t in the row of each of its ids, added up where an id comes twice."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entries import Rows
from ..layout import to_front
from ..tape import Tracked, Use, rule


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, ids: Tensor, weight: Tensor, book: Any) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.book = book
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        ctx.book(ctx.saved_tensors[0], outputs[0])
        return None, None, None, None


def _found(use: Use, ids: Tensor, weight: Tensor, padding_idx: int | None) -> Any:
    key, where = use.tracked(weight), use.where(ids)
    if key is None or where is None:
        return use.tape.otherwise(use)
    skipped = None if padding_idx is None else padding_idx % len(weight)

    def front(value: Tensor) -> Tensor:
        return to_front(value, where, use.tape.batch)

    def book(ids: Tensor, b: Tensor) -> None:
        use.book(key, lambda: _entry(front(ids), front(b), key, skipped))

    return _Embedding.apply(use.tape.token, ids, weight.detach(), book)


def _entry(ids: Tensor, b: Tensor, of: Tracked, skipped: int | None) -> Rows:
    flat, slopes = ids.reshape(len(ids), -1).long(), b.reshape(len(ids), -1, b.shape[-1])
    if skipped is not None:
        slopes = slopes.masked_fill((flat == skipped).unsqueeze(2), 0)
    return Rows(flat, slopes, of.value.shape)


@rule(F.embedding)
def embedding(use: Use) -> Any:
    return _embedding(use, *use.args, **use.kwargs)


def _embedding(
    use: Use,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    if max_norm is not None:
        use.tape.refuse("an embedding with max_norm rewrites the rows that records look up; leave max_norm out")
    if scale_grad_by_freq:
        use.tape.refuse("an embedding with scale_grad_by_freq counts ids over the whole batch; leave it out")
    return _found(use, input, weight, padding_idx)


@rule(F.embedding_bag)
def embedding_bag(use: Use) -> Any:
    return _bag(use, *use.args, **use.kwargs)


def _bag(use: Use, input: Tensor, weight: Tensor, offsets: Tensor | None = None, *rest: Any, **options: Any) -> Any:
    names = (
        "max_norm",
        "norm_type",
        "scale_grad_by_freq",
        "mode",
        "sparse",
        "per_sample_weights",
        "include_last_offset",
        "padding_idx",
    )
    asked = dict(zip(names, rest, strict=False)) | options
    mode = asked.get("mode", "mean")
    usual = offsets is None and input.dim() == 2 and mode in ("mean", "sum")
    odd = [
        name
        for name in ("max_norm", "scale_grad_by_freq", "per_sample_weights", "padding_idx")
        if asked.get(name) not in (None, False)
    ]
    if not usual or odd:
        use.tape.refuse(
            "an embedding bag is trained with ids of shape (batch, length), mode 'mean' or 'sum', and no other options"
        )
    found = _found(use, input, weight, None)
    return found.mean(1) if mode == "mean" else found.sum(1)
