"""Made-up calls of a module: what a batch of the data loader looks like decides how it is probed, before it is trained.

Only shapes and kinds of numbers are read. Whatever a loop does to a batch before the module gets it is unknown here; so a
first call that looks other than the one that was probed is probed, too, before the module sees its rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..engine import Layout, Refused, Spec, probed
from ..late import Tensor, torch

Look = tuple[Any, ...]


class Probe:
    """Probes calls of one module, each kind of them once."""

    def __init__(self, module: nn.Module, loss: Callable[..., Any] | None, reduction: str) -> None:
        self._module, self._loss, self._reduction = module, loss, reduction
        self._known: dict[Look, Layout] = {}
        self.loss_probed = False

    def of_batch(self, empty: Any) -> Layout | None:
        """Probe the call that batches of a data loader suggest; None when they do not fit the module as they are."""
        split = split_of(self._module, empty)
        if split is None:
            return None
        args, kwargs, targets = split
        for with_targets in [targets, ()] if targets and self._loss is not None else [()]:
            try:
                return self._probed(args, kwargs, with_targets)
            except Refused as error:
                if error.__cause__ is None:
                    raise  # else the call failed by itself: the loop prepares batches first, and its own call is probed then
        return None

    def of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Layout:
        """What was found of calls that look like this one; it is probed if there was none."""
        return self._known.get(look_of((args, kwargs))) or self._probed(args, kwargs, None)

    def _probed(self, args: Sequence[Any], kwargs: Mapping[str, Any], targets: Sequence[Tensor] | None) -> Layout:
        leaves, shape = tree_flatten((tuple(args), dict(kwargs)))
        rows = next((int(leaf.shape[0]) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()), 0)
        given = [isinstance(leaf, Tensor) for leaf in leaves]
        if any(isinstance(leaf, Tensor) and (leaf.dim() == 0 or leaf.shape[0] != rows) for leaf in leaves):
            raise Refused(
                "the module is called with tensors that do not have a row for each record; pass such tensors (states, "
                "masks, positions) with the batch dimension first, or make them inside of the module"
            )
        inputs = [_spec(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
        loss = self._loss if targets else None
        wanted = [_spec(target) for target in targets or ()] if loss is not None else []
        plain = not kwargs and all(given) and shape == tree_flatten((tuple(leaves), {}))[1]
        module = self._module if plain else _Call(self._module, leaves, given, shape)
        layout = probed(module, inputs, wanted, loss, loss_reduction=self._reduction)
        if not plain:
            layout = replace(layout, names=_own(layout.names), frozen=_own(layout.frozen))
        self._known[look_of((tuple(args), dict(kwargs)))] = layout
        self.loss_probed = self.loss_probed or loss is not None
        return layout


class _Call(nn.Module):
    """A module called with tensors alone, which stand where they stood in the call that is probed."""

    def __init__(self, module: nn.Module, leaves: list[Any], given: list[bool], shape: Any) -> None:
        super().__init__()
        self.module, self._shape = module, shape
        self._rest = [None if own else leaf for leaf, own in zip(leaves, given, strict=True)]
        self._given = given
        self.train(module.training)

    def forward(self, *tensors: Tensor) -> Any:
        made = iter(tensors)
        leaves = [next(made) if own else rest for own, rest in zip(self._given, self._rest, strict=True)]
        args, kwargs = tree_unflatten(leaves, self._shape)
        return self.module(*args, **kwargs)


def _own(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.removeprefix("module.") for name in names)


def _spec(tensor: Tensor) -> Spec:
    return Spec(tuple(tensor.shape[1:]), tensor.dtype)


def look_of(call: Any) -> Look:
    """What a call looks like: its structure, and the kinds and shapes of its tensors but for the number of rows."""
    leaves, shape = tree_flatten(call)
    kinds = tuple((leaf.dtype, tuple(leaf.shape[1:])) if isinstance(leaf, Tensor) else type(leaf) for leaf in leaves)
    return str(shape), kinds


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


def trainable(module: nn.Module, layout: Layout) -> list[Tensor]:
    """The parameters that train, in the order of a layout."""
    named = dict(module.named_parameters(remove_duplicate=False))
    return [named[name] for name in layout.names]


def plain_layout(module: nn.Module) -> Layout:
    """What trains, before anything is probed: the order of parameters, and nothing about what they do."""
    named = [(name, one) for name, one in module.named_parameters() if one.requires_grad]
    frozen = tuple(name for name, one in module.named_parameters() if not one.requires_grad)
    return Layout(
        names=tuple(name for name, _ in named),
        shapes=tuple(torch.Size(one.shape) for _, one in named),
        frozen=frozen,
        plain_linear=False,
        terms=1,
    )
