"""What is public about a module before private rows run through it: its parameters, and where records lie in its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Refused(ValueError):
    """The module or its loss cannot be trained privately; the message says why, and what to do instead."""


class Where(NamedTuple):
    """Where records lie in a tensor: the dimension. Where that is longer than the batch, entries of a record stand side by side."""

    dim: int


@dataclass(frozen=True)
class Call:
    """One call of a torch function: where records lie in its tensors, in order, and in its results."""

    function: Any
    tensors: tuple[Where | None, ...]
    results: tuple[Where | None, ...]


@dataclass(frozen=True)
class Spec:
    """What is public about a tensor of one record; whole numbers lie in 0 .. high - 1."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    high: int | None = None


@dataclass(frozen=True)
class Layout:
    """A module as a probe on made-up rows has found it.

    ``names``: what trains, each tensor once; ``frozen``: what does not; ``calls``: the torch functions of a
    pass, in order, None for those without tensors;
    ``terms``: the most positions of one record that a parameter sees; ``plain_linear``: dense layers without a sequence only;
    ``channels_last``: convolutions lay pictures out by pixel, with which pooling on a CPU is quicker.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    frozen: tuple[str, ...]
    calls: tuple[Call | None, ...] = ()
    terms: int = 1
    plain_linear: bool = False
    channels_last: bool = False

    @property
    def dimension(self) -> int:
        return sum(shape.numel() for shape in self.shapes)

    def parameters(self, module: nn.Module) -> list[nn.Parameter]:
        """What trains, in order; refused if that is no longer what was probed."""
        named = trainable(module)
        if tuple(named) != self.names or tuple(value.shape for value in named.values()) != self.shapes:
            raise Refused(
                "other parameters train now than were probed; set requires_grad before the module is handed over"
            )
        return [*named.values()]


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters that train, by name, each tensor once."""
    return {name: value for name, value in module.named_parameters() if value.requires_grad}


def where_records_lie(few: tuple[int, ...], more: tuple[int, ...], counts: tuple[int, int]) -> Where | None:
    """From the shapes of one tensor in batches of ``counts`` rows; None if it holds no records.

    >>> where_records_lie((3, 7), (5, 7), (3, 5)), where_records_lie((7, 12), (7, 20), (3, 5))
    (Where(dim=0), Where(dim=1))
    """
    if len(few) != len(more):
        raise Refused("a tensor has another number of dimensions in a larger batch; treat every record by itself")
    moved = [dim for dim, (one, other) in enumerate(zip(few, more, strict=True)) if one != other]
    if not moved:
        return None
    each, rest = divmod(few[moved[0]], counts[0])
    if len(moved) > 1 or rest or each * counts[1] != more[moved[0]]:
        raise Refused("the batch lies in several dimensions of a tensor, or grows in no proportion to its records")
    return Where(moved[0])


def to_front(value: Tensor, where: Where, batch: int) -> Tensor:
    """The tensor with records as its first dimension, and what belongs to each of them behind it."""
    if value.shape[where.dim] != batch:
        value = value.unflatten(where.dim, (batch, -1))
    return value.movedim(where.dim, 0) if where.dim else value
