"""What is public about a module before it sees a private row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


class Refused(ValueError):
    """The module or its loss cannot be trained privately; the message says why, and what to do instead."""


@dataclass(frozen=True)
class Spec:
    """What is public about a tensor of one record; whole numbers lie in 0 .. high - 1."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    high: int | None = None


@dataclass(frozen=True)
class Layout:
    """A module as the rehearsal on made-up rows has found it.

    ``names``: what trains, each tensor once; ``frozen``: what does not; ``terms``: the most positions of one record that a
    parameter sees; ``plain_linear``: dense layers without a sequence only; ``channels_last``: convolutions lay pictures out
    by pixel, which makes pooling on a CPU quicker; ``writes``: the module writes into its inputs, so it gets a copy;
    ``spread``: how many numbers each record adds where a parameter has no rule and is repeated for every record.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    frozen: tuple[str, ...]
    terms: int = 1
    plain_linear: bool = False
    channels_last: bool = False
    writes: bool = False
    spread: int = 0

    @property
    def dimension(self) -> int:
        return sum(shape.numel() for shape in self.shapes)

    def parameters(self, module: nn.Module) -> list[nn.Parameter]:
        """The trained parameters, in order; refused if they are no longer those of the rehearsal."""
        named = trainable(module)
        if tuple(named) != self.names or tuple(value.shape for value in named.values()) != self.shapes:
            raise Refused(
                "other parameters train now than were rehearsed; set requires_grad before the module is handed over"
            )
        return [*named.values()]


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters that train, by name, each tensor once."""
    return {name: value for name, value in module.named_parameters() if value.requires_grad}


def layout_of(module: nn.Module) -> Layout:
    """The parameters of a module, before the rehearsal."""
    named = trainable(module)
    frozen = tuple(name for name, value in module.named_parameters() if not value.requires_grad)
    return Layout(tuple(named), tuple(value.shape for value in named.values()), frozen)
