"""The state of a module between passes: nothing of a record, no buffer that changes, no hook that sees all records."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as of_torch

from .public_facts import Refused
from .tape import tensors_in
from .torch_names import is_batched

_EMPTY = {*nn.Module().__dict__}
BATCH_NORMS = nn.modules.batchnorm._BatchNorm


def refuse_layers(module: nn.Module) -> None:
    """Refuse parts that can never be private: batch norms in training, hooks on gradients, scripts."""
    hooked = of_torch._global_backward_hooks or of_torch._global_backward_pre_hooks
    for name, part in module.named_modules():
        where = name or "the module"
        if isinstance(part, BATCH_NORMS) and part.training:
            raise Refused(f"{where} is a batch norm, which mixes the records of a batch; use GroupNorm instead")
        if part._backward_hooks or part._backward_pre_hooks or hooked:
            raise Refused(f"{where} has a hook on gradients, which would see those of all records; remove it")
        if isinstance(part, torch.jit.ScriptModule):
            raise Refused(f"{where} is a script of torch.jit, whose functions cannot be seen; pass the plain module")
        if hasattr(part, "_orig_mod"):
            raise Refused(
                f"{where} is compiled (torch.compile), so its functions cannot be seen; pass the plain module"
            )
    for name, value in module.named_parameters():
        if value.requires_grad and (value._backward_hooks or value._post_accumulate_grad_hooks):
            raise Refused(f"{name} has a hook on its gradient, which would see that of all records; remove it")


class ModuleState:
    """The state of module and loss, which two calls on made-up rows must not change.

    An attribute that is set to another tensor does no harm: it is restored after each pass.
    """

    def __init__(self, *things: Any) -> None:
        self._things = things
        self._held = {name: (value, _written(value, name)) for name, value in _held(things)}

    def refuse_changes(self) -> None:
        for name, value in _held(self._things):
            before, written = self._held.get(name, (None, None))
            counted = isinstance(value, int | float | str) and isinstance(before, int | float | str)
            if (value is before or counted) and written != _written(value, name):
                raise Refused(
                    f"a forward pass changes {name}, which would store private values, or treat records by how many came before; "
                    "switch that off (in norms: track_running_stats=False), or leave it out"
                )


def _held(things: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for part, name in _parts(things):
        ahead = f"{name}." if name else ""
        for kind, values in (("the buffer ", "_buffers"), ("the parameter ", "_parameters")):
            for own, value in part.__dict__.get(values, {}).items():
                yield f"{kind}{ahead}{own}", value
        for attribute, value in part.__dict__.items():
            if attribute not in _EMPTY:
                yield f"{ahead}{attribute}", value


def _parts(things: Sequence[Any]) -> Iterator[tuple[Any, str]]:
    for thing in things:
        if isinstance(thing, nn.Module):
            yield from ((part, name) for name, part in thing.named_modules())
        elif hasattr(thing, "__dict__") and not isinstance(thing, FunctionType | type):
            yield thing, type(thing).__name__


def _written(value: Any, where: str) -> Any:
    """A value as bytes; one that cannot be pickled, by its identity."""
    if isinstance(value, Iterator):
        raise Refused(f"{where} is an iterator, so that records would be treated by how many came before; leave it out")
    try:
        return pickle.dumps(value.detach() if isinstance(value, Tensor) else value)
    except Exception:
        return id(value)


KeptState = list[tuple[Any, dict[str, Any], dict[str, Any]]]


def before_pass(*things: Any) -> KeptState:
    """The attributes of every part of module and loss."""
    return [(part, part.__dict__.copy(), {**getattr(part, "_buffers", {})}) for part, _ in _parts(things)]


def after_pass(kept: KeptState) -> None:
    """Restore the attributes, so that all passes begin alike; refuse a list or dict that now holds a tensor of a record."""
    for part, before, buffers in kept:
        own = part.__dict__
        if own.keys() != before.keys() or any(own[name] is not value for name, value in before.items()):
            own.clear()
            own.update(before)
        if buffers:
            part._buffers.update(buffers)
        for name, value in before.items():
            if name in _EMPTY or not isinstance(value, list | dict | set | deque):
                continue
            if any(is_batched(one) for one in tensors_in([*(value.values() if isinstance(value, dict) else value)])):
                raise Refused(f"the module keeps something of a record in {name}; return it, or leave that out")
