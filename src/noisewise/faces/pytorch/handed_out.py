"""Rows that a private loader hands out carry the mark of their piece, and so does what torch functions make of them.

So rows of an earlier piece, or a batch into which another one's rows were written, are recognised when they come to the module.
What is read into numpy or kept outside of tensors is not followed. In a batch of a class of its own, with no tensor that can be
marked, rows are known by their number alone.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from torch.overrides import get_default_nowrap_functions

from ...trusted.engine.tape import map_tensors, tensors_in
from ...trusted.torch_extra import Tensor, torch

MIXED = object()  # the mark of what is made of rows of several pieces


class Handed(Tensor):
    """A tensor of rows that were handed out; ``piece`` says when."""

    piece: object

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        if not isinstance(found, Tensor | tuple | list | None) or func in get_default_nowrap_functions():
            return found
        marks = {id(one.piece): one.piece for one in tensors_in((args, kwargs)) if isinstance(one, Handed)}
        piece = next(iter(marks.values())) if len(marks) == 1 else MIXED
        written = (kwargs or {}).get("out", args[0] if args and (found is None or found is args[0]) else None)
        if isinstance(written, Tensor):  # memory[0] = x[0], memory.copy_(x)
            written.__class__ = Handed
            written.piece = piece  # type: ignore[attr-defined]
        return map_tensors(lambda one: marked(one, piece), found)


def marked(tensor: Tensor, piece: object) -> Tensor:
    """The same tensor with the mark of a piece."""
    own = tensor if type(tensor) is Handed else tensor.as_subclass(Handed)
    own.piece = piece
    return own


def with_mark(batch: Any, piece: object) -> Any:
    """A batch whose tensors carry the mark, whatever it is made of."""
    if isinstance(batch, Tensor):
        return marked(batch, piece)
    if isinstance(batch, MutableMapping):
        for name in batch:
            batch[name] = with_mark(batch[name], piece)
        return batch
    if isinstance(batch, Mapping):
        return {name: with_mark(one, piece) for name, one in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(with_mark(one, piece) for one in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(with_mark(one, piece) for one in batch)
    return batch


def unmarked(values: Any) -> tuple[Any, list[object]]:
    """Arguments with ordinary tensors in place of marked ones, and the marks that these carried."""
    marks: list[object] = []

    def one(value: Tensor) -> Tensor:
        if not isinstance(value, Handed):
            return value
        marks.append(value.piece)
        with torch._C.DisableTorchFunctionSubclass():
            return value.as_subclass(Tensor)

    return map_tensors(one, values), marks
