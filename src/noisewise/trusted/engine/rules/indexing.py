"""Functions that take integers as indices or labels: each record's integers are checked first.

An integer out of range raises for the whole batch, and a module that caught that could treat all records differently.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..tape import Tape, rule
from ..torch_names import below, is_batched

MASKED = (
    "a mask picks as many entries as it has, another number in each record; multiply by the mask, or use torch.where"
)


def _checked(function: Any, low_too: bool = False) -> Any:
    """function(input, dim, index, ...) with an index that is legal along dim."""

    def run(tape: Tape, input: Tensor, dim: Any, index: Any = None, *rest: Any, **more: Any) -> Any:
        if not isinstance(index, Tensor):
            return NotImplemented
        size = input.shape[dim] if input.dim() else 1
        return function(input, dim, tape.legal_of_one(index, -size if low_too else 0, size), *rest, **more)

    return run


for one in (
    torch.gather, Tensor.gather, torch.index_select, Tensor.index_select, torch.scatter, Tensor.scatter, Tensor.scatter_,
    torch.scatter_add, Tensor.scatter_add, Tensor.scatter_add_, torch.scatter_reduce, Tensor.scatter_reduce,
    Tensor.scatter_reduce_, torch.index_add, Tensor.index_add, Tensor.index_add_, torch.index_copy, Tensor.index_copy,
    Tensor.index_copy_, torch.index_reduce, Tensor.index_reduce, Tensor.index_reduce_,
):  # fmt: skip
    rule(one, always=True)(_checked(one))


@rule(torch.take_along_dim, Tensor.take_along_dim, always=True)
def take_along_dim(tape: Tape, input: Tensor, indices: Tensor, dim: int | None = None) -> Any:
    size = input.numel() if dim is None else input.shape[dim]
    return torch.take_along_dim(input, tape.legal_of_one(indices, -size, size) % max(size, 1), dim)


@rule(torch.take, Tensor.take, always=True)
def take(tape: Tape, input: Tensor, index: Tensor) -> Any:
    size = input.numel()
    return input.reshape(-1)[tape.legal_of_one(index, -size, size)]


@rule(F.one_hot, always=True)
def one_hot(tape: Tape, tensor: Tensor, num_classes: int = -1) -> Any:
    if num_classes < 0:
        tape.refuse("one_hot counts the classes in the data; pass num_classes")
    return F.one_hot(tape.legal_of_one(tensor, 0, num_classes), num_classes)


def _places(tape: Tape, input: Tensor, where: Any) -> Any:
    """An index whose integers are legal; None where it has a mask of a record's own."""
    parts, dim, found = where if isinstance(where, tuple) else (where,), 0, []
    taken = sum(one.dim() if isinstance(one, Tensor) and one.dtype == torch.bool else one is not None and one is not ... for one in parts)  # fmt: skip
    for part in parts:
        if isinstance(part, list) and any(isinstance(one, Tensor) and is_batched(one) for one in part):
            part = torch.stack([torch.as_tensor(one) for one in part])
        if isinstance(part, Tensor) and is_batched(part) and part.dtype in (torch.bool, torch.uint8):
            return None
        if isinstance(part, Tensor) and part.dtype not in (torch.bool, torch.uint8):
            size = input.shape[dim]
            part = tape.legal_of_one(part, -size, size)
        found.append(part)
        if part is ...:
            dim += input.dim() - taken
        elif isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8):
            dim += part.dim()
        elif part is not None:
            dim += 1
    return tuple(found) if isinstance(where, tuple) else found[0]


@rule(Tensor.__getitem__, always=True)
def picked(tape: Tape, input: Tensor, where: Any) -> Any:
    if not isinstance(where, Tensor | tuple | list):
        return NotImplemented
    places = _places(tape, input, where)
    if places is None:
        tape.refuse(f"x[mask]: {MASKED}")
    return input[places]


@rule(Tensor.__setitem__, always=True)
def put(tape: Tape, input: Tensor, where: Any, value: Any) -> Any:
    if not isinstance(where, Tensor | tuple | list):
        return NotImplemented
    places = _places(tape, input, where)
    if places is not None:
        input[places] = value
        return None
    single = where[0] if isinstance(where, tuple) and len(where) == 1 else where
    if not isinstance(single, Tensor) or (isinstance(value, Tensor) and value.numel() != 1) or not is_batched(input):
        tape.refuse(f"x[mask] = values: {MASKED}")
    mask = single.bool().reshape(*single.shape, *[1] * (input.dim() - single.dim()))
    filled = torch.where(mask, torch.as_tensor(value, dtype=input.dtype, device=input.device), input)
    input.copy_(filled)
    return None


def _put(function: Any) -> Any:
    """function(input, places, values): places count through the input, or are one for each of its dimensions."""

    def run(tape: Tape, input: Tensor, where: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(where, Tensor):
            return function(input, tape.legal_of_one(where, -input.numel(), input.numel()), *rest, **more)
        places = _places(tape, input, tuple(where))
        if places is None:
            tape.refuse(f"index_put: {MASKED}")
        return function(input, places, *rest, **more)

    return run


for putting in (
    torch.put, Tensor.put, Tensor.put_, torch.index_put, Tensor.index_put, torch.index_put_, Tensor.index_put_,
):  # fmt: skip
    rule(putting, always=True)(_put(putting))


def _of_classes(
    tape: Tape, function: Any, x: Tensor, target: Tensor, weight: Any, ignored: int, how: str, **more: Any
) -> Any:
    """``function`` of one record, (1, classes, ...) scores and (1, ...) labels, by its entries; torch has no rule."""
    if target.is_floating_point() or how not in ("mean", "sum", "none"):
        return NotImplemented
    if weight is not None and is_batched(weight):
        tape.refuse("weights of classes that are a record's own; multiply the losses with reduction='none' instead")
    if x.dim() == 1:
        x, target = x.unsqueeze(0), target.unsqueeze(0)
        how = "sum" if how == "none" else how
    scores, labels = tape.physical(x), tape.physical(target)
    scores = x.expand(tape.batch, *x.shape) if scores is None else scores
    labels = target.expand(tape.batch, *target.shape) if labels is None else labels
    with below():
        labels = tape.legal(labels, 0, scores.shape[2], also=ignored)
        each = function(
            scores.flatten(0, 1), labels.flatten(0, 1), weight, ignore_index=ignored, reduction="none", **more
        ).view(labels.shape)
        if how == "none":
            return tape.wrapped(each)
        total = each.flatten(1).sum(1)
        if how == "mean":
            used = labels != ignored
            by = used.to(each.dtype) if weight is None else torch.where(used, weight[labels.masked_fill(~used, 0)], 0)
            total = total / by.flatten(1).sum(1)
    return tape.wrapped(total)


def _loss(function: Any) -> Any:
    def run(
        tape: Tape, input: Tensor, target: Tensor, weight: Any = None, size_average: Any = None,
        ignore_index: int = -100, reduce: Any = None, reduction: str = "mean", *rest: Any, **more: Any,
    ) -> Any:  # fmt: skip
        if size_average is not None or reduce is not None:
            tape.refuse("size_average and reduce are old names; pass reduction=")
        more |= {"label_smoothing": rest[0]} if rest else {}
        return _of_classes(tape, function, input, target, weight, ignore_index, reduction, **more)

    return run


for loss in (F.cross_entropy, F.nll_loss):
    rule(loss, always=True)(_loss(loss))


@rule(F.multi_margin_loss, always=True)
def multi_margin_loss(tape: Tape, input: Tensor, target: Tensor, *rest: Any, **more: Any) -> Any:
    return F.multi_margin_loss(input, tape.legal_of_one(target, 0, input.shape[-1]), *rest, **more)
