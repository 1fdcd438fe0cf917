"""Any other function of parameters and records: differentiated record by record, in this one place.

The function runs as it is; its backward pass computes gradients of what holds records. A record's gradient of a parameter is
that of the same function on a batch of this record alone (``vmap``), computed a few records at a time and never kept; the
clipped sum is one backward pass of the whole function with reweighted output gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp, vmap
from torch.utils import _pytree as pytree

from ..entries import ROOM, Entry, alive, by_record
from ..layout import Where
from ..tape import Tracked, Use, rule


@dataclass(frozen=True)
class Called:
    """A function with everything but its tensors: flat arguments, which of them hold records, and where."""

    function: Any
    spec: Any
    rest: tuple[Any, ...]  # arguments with None in the places of tensors
    at: tuple[int, ...]  # places of tensors that are given anew
    places: tuple[Where | None, ...]  # where records lie in them
    result: Where

    def __call__(self, *tensors: Tensor) -> Tensor:
        flat = [*self.rest]
        for place, tensor in zip(self.at, tensors, strict=True):
            flat[place] = tensor
        args, kwargs = pytree.tree_unflatten(flat, self.spec)
        result: Tensor = self.function(*args, **kwargs)
        return result


@dataclass(frozen=True)
class Local(Entry):
    """Gradients of one argument of a function."""

    called: Called
    tensors: tuple[Tensor, ...]
    b: Tensor
    number: int  # of the tensor that it is the gradient of
    count: int
    part: slice | None = None

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        return self.tensors[self.number].shape

    @property
    def batch(self) -> int:
        return self.count

    @property
    def terms(self) -> int:
        return max(self.b.numel() // max(self.count, 1), 1)

    def _records_first(self, value: Tensor, where: Where) -> Tensor:
        """(batch, ... each record as a batch of one ...)."""
        value = value.unflatten(where.dim, (self.count, -1))
        return value.movedim(where.dim, 0)

    def per_record(self, rows: slice) -> Tensor:
        moving = [number for number, where in enumerate(self.called.places) if where is not None]
        firsts = [self._records_first(self.tensors[n], self.called.places[n])[rows] for n in moving]  # type: ignore[arg-type]
        given = self._records_first(self.b, self.called.result)[rows]

        def one(b: Tensor, *own: Tensor) -> Tensor:
            tensors = [*self.tensors]
            for number, value in zip(moving, own, strict=True):
                tensors[number] = value

            def of(parameter: Tensor) -> Tensor:
                return self.called(*[*tensors[: self.number], parameter, *tensors[self.number + 1 :]])

            back: Any = vjp(of, tensors[self.number])[1]
            gradient: Tensor = back(b)[0]
            return gradient

        gradients: Tensor = vmap(one)(given, *firsts)
        return gradients

    def squared_norms(self) -> Tensor:
        step = max(1, ROOM // max(self.shape.numel(), 1))
        starts = range(0, self.count, step)
        return torch.cat([self.per_record(slice(at, at + step)).flatten(1).square().sum(1) for at in starts])

    def term_norms(self) -> Tensor:
        raise TypeError("terms of this function are not known, so their norms have no bound")

    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        where, places = self.called.result, self.called.places
        tensors = [
            value if place is None or dead is None else _back(alive(self._records_first(value, place), dead), place)
            for value, place in zip(self.tensors, places, strict=True)
        ]
        first = alive(self._records_first(self.b, where), dead)
        first = first * by_record(factors, first)

        def of(parameter: Tensor) -> Tensor:
            return self.called(*[*tensors[: self.number], parameter, *tensors[self.number + 1 :]])

        with torch.enable_grad():
            back: Any = vjp(of, tensors[self.number])[1]
        total: Tensor = back(_back(first, where))[0]
        return total

    def scaled(self, by: float) -> Entry:
        return replace(self, b=self.b * by)


def _back(first: Tensor, where: Where) -> Tensor:
    """Records from the front back to where they lie."""
    return first.movedim(0, where.dim).flatten(where.dim, where.dim + 1)


class _Other(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, called: Called, book: Any, *tensors: Tensor) -> Tensor:
        ctx.called, ctx.book = called, book
        ctx.save_for_backward(*tensors)
        return called(*tensors)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        (b,) = outputs
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[3:]
        ctx.book(tensors, b)
        gradients: list[Tensor | None] = [None] * len(tensors)
        if any(wanted):
            with torch.enable_grad():
                own = [value.detach().requires_grad_(want) for value, want in zip(tensors, wanted, strict=True)]
                result = ctx.called(*own)
                asked = [value for value, want in zip(own, wanted, strict=True) if want]
                found = iter(torch.autograd.grad(result, asked, b, allow_unused=True))
            gradients = [next(found) if want else None for want in wanted]
        return None, None, None, *gradients


@rule(None)
def other(use: Use) -> Any:
    """What no other rule knows; a function with several results is refused by the probe if they need gradients."""
    flat, spec = pytree.tree_flatten((use.args, use.kwargs))
    at = tuple(place for place, value in enumerate(flat) if isinstance(value, Tensor))
    tensors = tuple(flat[place] for place in at)
    results = use.call.results
    if len(results) != 1:
        use.tape.refuse(f"{_name(use.function)} has several results and parameters of its own")
    result = results[0] or Where(0)
    rest = tuple(None if isinstance(value, Tensor) else value for value in flat)
    called = Called(use.function, spec, rest, at, use.call.tensors, result)
    keys: list[Tracked | None] = [use.tracked(value) for value in tensors]
    if any(key is not None and place is not None for key, place in zip(keys, use.call.tensors, strict=True)):
        use.tape.refuse(f"{_name(use.function)} is given a parameter that was made as long as the batch")

    def book(tensors: tuple[Tensor, ...], b: Tensor) -> None:
        for number, key in enumerate(keys):
            if key is not None:
                use.book(key, lambda number=number: Local(called, tensors, b, number, use.tape.batch))  # type: ignore[misc]

    given = [value.detach() if key is not None else value for value, key in zip(tensors, keys, strict=True)]
    answer: Tensor = _Other.apply(use.tape.token, called, book, *given)
    return answer


def _name(function: Any) -> str:
    return getattr(function, "__name__", str(function))
