"""Rehearsals of a module on made-up rows, of the shapes that a batch of the data loader has, before it is trained.

Only shapes and kinds of numbers are read. What a loop does to a batch before the module gets it is unknown here; so a
call that looks different from those rehearsed is rehearsed first, before the module sees its rows.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ...trusted.engine import Layout, Refused, Spec, rehearsed
from ...trusted.torch_extra import Tensor

Look = tuple[Any, ...]


class Rehearsals:
    def __init__(self, module: nn.Module, loss: Callable[..., Any] | None) -> None:
        self._module, self._loss = module, loss
        self._known: dict[Look, Layout] = {}

    def of_batch(self, empty: Any) -> Layout | None:
        """Rehearse the call that batches of a data loader suggest; None when they do not fit the module as they are."""
        split = split_of(self._module, empty)
        if split is None:
            return None
        args, kwargs, targets = split
        for with_targets in [targets, ()] if targets and self._loss is not None else [()]:
            try:
                return self._rehearsed(args, kwargs, with_targets)
            except Refused as error:
                if error.__cause__ is None:
                    raise  # else the call itself failed: the loop prepares batches first, and its own call is rehearsed then
        return None

    def of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Layout:
        """The layout of calls like this one, rehearsed now if there was none."""
        return self._known.get(look_of((args, kwargs))) or self._rehearsed(args, kwargs, None)

    def _rehearsed(self, args: Sequence[Any], kwargs: Mapping[str, Any], targets: Sequence[Tensor] | None) -> Layout:
        leaves, shape = tree_flatten((tuple(args), dict(kwargs)))
        rows = next((int(leaf.shape[0]) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()), 0)
        given = [isinstance(leaf, Tensor) for leaf in leaves]
        if any(isinstance(leaf, Tensor) and (leaf.dim() == 0 or leaf.shape[0] != rows) for leaf in leaves):
            raise Refused(
                "the module is called with tensors that do not have a row for each record; pass such tensors (states, "
                "masks, positions) with the batch dimension first, or make them inside the module"
            )
        loss = self._loss if targets else None
        inputs, wanted = (
            [Spec(tuple(leaf.shape[1:]), leaf.dtype) for leaf in some if isinstance(leaf, Tensor)]
            for some in (leaves, () if loss is None else targets or ())
        )
        module = _Call(copy.deepcopy(self._module), leaves, given, shape)
        layout = rehearsed(module, inputs, wanted, loss)
        names, frozen = (tuple(name.removeprefix("module.") for name in own) for own in (layout.names, layout.frozen))
        layout = replace(layout, names=names, frozen=frozen)
        self._known[look_of((tuple(args), dict(kwargs)))] = layout
        return layout


class _Call(nn.Module):
    """A module called with tensors alone, in their places of the rehearsed call."""

    def __init__(self, module: nn.Module, leaves: list[Any], given: list[bool], shape: Any) -> None:
        super().__init__()
        self.module, self._arguments = module, lambda leaves: tree_unflatten(leaves, shape)  # which is not copied
        self._rest = [None if own else leaf for leaf, own in zip(leaves, given, strict=True)]
        self._given = given
        self.train(module.training)

    def forward(self, *tensors: Tensor) -> Any:
        made = iter(tensors)
        leaves = [next(made) if own else rest for own, rest in zip(self._given, self._rest, strict=True)]
        args, kwargs = self._arguments(leaves)
        return self.module(*args, **kwargs)


def look_of(call: Any) -> Look:
    """The structure of a call, kinds and shapes of its tensors without the number of rows, words and flags."""
    leaves, shape = tree_flatten(call)
    return str(shape), tuple(_look(leaf) for leaf in leaves)


def _look(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.dtype, tuple(leaf.shape[1:])
    return (type(leaf), leaf) if isinstance(leaf, bool | str) else type(leaf)


def split_of(module: nn.Module, empty: Any) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Tensor, ...]] | None:
    """(arguments, keyword arguments, targets) that an ordinary loop would make of a batch; None where that is not plain.

    A tuple: as many tensors as ``forward`` needs, at least one, the rest are targets. A dict: what ``forward`` has names for.
    """
    needed, names, any_many = _signature(module)
    if isinstance(empty, Tensor):
        return (empty,), {}, ()
    if isinstance(empty, Mapping):
        kwargs = {name: value for name, value in empty.items() if name in names and isinstance(value, Tensor)}
        rest = tuple(value for name, value in empty.items() if name not in names and isinstance(value, Tensor))
        return ((), kwargs, rest) if kwargs else None
    if not isinstance(empty, tuple | list) or not empty or not all(isinstance(part, Tensor) for part in empty):
        return None
    if any(part.dim() == 0 for part in empty):
        return None
    most = max(1, len(empty) - 1)
    taken = most if any_many else min(max(needed, 1), most)
    return tuple(empty[:taken]), {}, tuple(empty[taken:])


def _signature(module: nn.Module) -> tuple[int, set[str], bool]:
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return 1, set(), False
    ordinary = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = sum(one.default is one.empty for one in ordinary)
    many = any(one.kind is one.VAR_POSITIONAL for one in parameters) and not ordinary
    return needed, {one.name for one in parameters if one.kind is not one.VAR_POSITIONAL}, many
