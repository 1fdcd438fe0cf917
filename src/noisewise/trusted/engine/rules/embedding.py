"""Embeddings: a record's gradient has b_t in the row of each of its ids, added up where an id comes twice."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..books import Tracked
from ..entries import RowSums
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
