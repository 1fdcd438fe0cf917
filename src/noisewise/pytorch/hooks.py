"""Hooks of a module in training: the forward pass is taped, and the end of the backward pass adds the clipped sum."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from ..engine import Layout, Refused, Tape
from ..late import Tensor, torch
from .probing import Probe
from .run import Run


class Hooks:
    """Both hooks of a module. A copy of the module has copies that do nothing: it is no part of the private run."""

    def __init__(self, module: nn.Module | None, run: Run | None, probe: Probe | None = None) -> None:
        self._module, self._run, self._probe = module, run, probe
        self._tape: Tape | None = None
        self._empty = False
        self._handles: list[Any] = []
        if module is not None:
            self._trains = [(each, each.requires_grad) for each in module.parameters()]
            self._handles = [
                module.register_forward_pre_hook(self.before, with_kwargs=True),
                module.register_forward_hook(self.after, with_kwargs=True, always_call=True),
            ]

    def __deepcopy__(self, memo: dict[int, Any]) -> Hooks:
        return Hooks(None, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hooks, (None, None)

    def remove(self) -> None:
        """Take the hooks off the module, which then trains as any other."""
        for handle in self._handles:
            handle.remove()

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._forget()
        run = self._run
        if run is None:
            return None
        rows = rows_of((args, kwargs))
        ticket = run.ticket()
        trains = module.training and torch.is_grad_enabled() and ticket is not None
        if rows == 0:
            self._empty = True
            if trains:
                run.passed_nothing()
            return tree_map(_one_row, (args, kwargs))
        if not trains:
            return None
        if rows is None:
            raise Refused("the module was called without a tensor of rows; call it with the batch, records first")
        self._same_parameters()
        tape = Tape(module, self._probed(args, kwargs), rows, seed=run.words(), parameters=run.parameters)
        tape.scale = rows if run.mean else 1
        kept = [(each.grad, None if each.grad is None else each.grad._version) for each in run.parameters]
        tape.on_end(lambda ended: self._ended(ended, rows, ticket, kept))
        tape.__enter__()
        self._tape = tape
        return None

    def after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if self._tape is not None:
            self._tape.__exit__(None, None, None)
            self._tape = None
        if self._empty:
            self._empty = False
            return tree_map(_no_row, output)
        return None

    def _forget(self) -> None:
        """A forward pass that raised left its tape open."""
        if self._tape is not None:
            self._tape.__exit__(None, None, None)
            self._tape.free()
        self._tape, self._empty = None, False

    def _probed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Layout:
        """What is known of such a call; one that looks new is probed before the module sees its rows."""
        assert self._probe is not None and self._run is not None
        layout = self._probe.of_call(args, kwargs)
        if layout.names != self._run.layout.names:
            raise Refused("the module trains other parameters in this call than in others; call it in one way")
        return layout

    def _same_parameters(self) -> None:
        if any(each.requires_grad != before for each, before in self._trains):
            raise Refused(
                "a parameter was frozen or set free after make_private, which fixed what trains; freeze first, then call "
                "make_private"
            )

    def _ended(self, tape: Tape, rows: int, ticket: object, kept: list[tuple[Tensor | None, int | None]]) -> None:
        """The backward pass is over; a parameter that got a gradient by another way has slipped by."""
        assert self._run is not None
        try:
            for each, (grad, version) in zip(self._run.parameters, kept, strict=True):
                if each.grad is not None and (each.grad is not grad or grad._version != version):
                    raise Refused("a parameter got a gradient that was not clipped: use it inside of the module alone")
            self._run.passed(tape, rows, ticket)
        finally:
            tape.free()


def take_off(module: nn.Module) -> None:
    """Take the hooks of an earlier run off a module: that run cannot step any more."""
    for hook in [*module._forward_pre_hooks.values()]:
        owner = getattr(hook, "__self__", None)
        if isinstance(owner, Hooks):
            owner.remove()


def rows_of(given: Any) -> int | None:
    """How many rows a call of the module has: the length of its first tensor."""
    args = given[0]
    if args and isinstance(args[0], Tensor) and args[0].dim():
        return int(args[0].shape[0])
    return next((int(leaf.shape[0]) for leaf in tree_leaves(given) if isinstance(leaf, Tensor) and leaf.dim()), None)


def _one_row(leaf: Any) -> Any:
    """Zeros in place of no row: a made-up record, of which nothing is kept. Modules that reshape cannot take an empty batch."""
    if isinstance(leaf, Tensor) and leaf.dim() and leaf.shape[0] == 0:
        return leaf.new_zeros((1, *leaf.shape[1:]))
    return leaf


def _no_row(leaf: Any) -> Any:
    return leaf[:0] if isinstance(leaf, Tensor) and leaf.dim() and leaf.shape[0] == 1 else leaf
