"""Any other function of parameters and records: differentiated record by record, in this one place.

The function runs as it is; its backward pass computes gradients of what holds records. A record's gradient of a parameter is
that of the same function on a batch of this record alone (``vmap``, or one after the other where a function does not let itself
be mapped), computed a few records at a time and never kept; the clipped sum is one backward pass of the whole function with
reweighted output gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
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
    results: tuple[Where, ...]

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        flat = [*self.rest]
        for place, tensor in zip(self.at, tensors, strict=True):
            flat[place] = tensor
        args, kwargs = pytree.tree_unflatten(flat, self.spec)
        result = self.function(*args, **kwargs)
        return (result,) if isinstance(result, Tensor) else tuple(result)


@dataclass(frozen=True)
class Local(Entry):
    """Gradients of one argument of a function."""

    called: Called
    tensors: tuple[Tensor, ...]
    b: tuple[Tensor, ...]
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
        return max(sum(b.numel() for b in self.b) // max(self.count, 1), 1)

    def _records_first(self, value: Tensor, where: Where) -> Tensor:
        """(batch, ... each record as a batch of one ...)."""
        value = value.unflatten(where.dim, (self.count, -1))
        return value.movedim(where.dim, 0)

    def per_record(self, rows: slice) -> Tensor:
        moving = [number for number, where in enumerate(self.called.places) if where is not None]
        firsts = [self._records_first(self.tensors[n], self.called.places[n])[rows] for n in moving]  # type: ignore[arg-type]
        given = [self._records_first(b, where)[rows] for b, where in zip(self.b, self.called.results, strict=True)]

        def one(b: tuple[Tensor, ...], *own: Tensor) -> Tensor:
            tensors = [*self.tensors]
            for number, value in zip(moving, own, strict=True):
                tensors[number] = value
            return self._gradient(tensors, b)

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some functions are slow to run record by record, and say so
                gradients: Tensor = vmap(one)(tuple(given), *firsts)
        except RuntimeError:  # a function that does not let itself be mapped; which one, does not depend on records
            singly = zip(*given, strict=True), zip(*firsts, strict=True)
            gradients = torch.stack([one(b, *own) for b, own in zip(*singly, strict=True)])
        return gradients

    def _gradient(self, tensors: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
        def of(parameter: Tensor) -> tuple[Tensor, ...]:
            return self.called(*tensors[: self.number], parameter, *tensors[self.number + 1 :])

        with torch.enable_grad():
            back: Any = vjp(of, tensors[self.number])[1]
        gradient: Tensor = back(tuple(b))[0]
        return gradient

    def squared_norms(self) -> Tensor:
        step = max(1, ROOM // max(self.shape.numel(), 1))
        starts = range(0, self.count, step)
        return torch.cat([self.per_record(slice(at, at + step)).flatten(1).square().sum(1) for at in starts])

    def term_norms(self) -> Tensor:
        raise TypeError("terms of this function are not known, so their norms have no bound")

    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        tensors = [
            value if place is None or dead is None else _back(alive(self._records_first(value, place), dead), place)
            for value, place in zip(self.tensors, self.called.places, strict=True)
        ]
        firsts = [
            alive(self._records_first(b, where), dead) for b, where in zip(self.b, self.called.results, strict=True)
        ]
        pairs = zip(firsts, self.called.results, strict=True)
        return self._gradient(tensors, [_back(first * by_record(factors, first), where) for first, where in pairs])

    def scaled(self, by: float) -> Entry:
        return replace(self, b=tuple(b * by for b in self.b))


def _back(first: Tensor, where: Where) -> Tensor:
    """Records from the front back to where they lie."""
    return first.movedim(0, where.dim).flatten(where.dim, where.dim + 1)


class _Other(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, called: Called, book: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.called, ctx.book = called, book
        ctx.save_for_backward(*tensors)
        return called(*tensors)

    @staticmethod
    def backward(ctx: Any, *b: Tensor) -> Any:
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[3:]
        ctx.book(tensors, b)
        gradients: list[Tensor | None] = [None] * len(tensors)
        if any(wanted):
            with torch.enable_grad():
                own = [value.detach().requires_grad_(want) for value, want in zip(tensors, wanted, strict=True)]
                results = ctx.called(*own)
                asked = [value for value, want in zip(own, wanted, strict=True) if want]
                found = iter(torch.autograd.grad(results, asked, b, allow_unused=True))
            gradients = [next(found) if want else None for want in wanted]
        return None, None, None, *gradients


@rule(None)
def other(use: Use) -> Any:
    """What no other rule knows: one result or several, all of which hold records."""
    flat, spec = pytree.tree_flatten((use.args, use.kwargs))
    at = tuple(place for place, value in enumerate(flat) if isinstance(value, Tensor))
    tensors = tuple(flat[place] for place in at)
    results = tuple(where for where in use.call.results if where is not None)
    if not results or len(results) != len(use.call.results):
        use.tape.refuse(f"{_name(use.function)} has parameters, and a result that belongs to no record")
    rest = tuple(None if isinstance(value, Tensor) else value for value in flat)
    called = Called(use.function, spec, rest, at, use.call.tensors, results)
    keys: list[Tracked | None] = [use.tracked(value) for value in tensors]
    if any(key is not None and place is not None for key, place in zip(keys, use.call.tensors, strict=True)):
        use.tape.refuse(f"{_name(use.function)} is given a parameter that was made as long as the batch")

    def book(tensors: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> None:
        for number, key in enumerate(keys):
            if key is not None:
                use.book(key, lambda number=number: Local(called, tensors, b, number, use.tape.batch))  # type: ignore[misc]

    given = [value.detach() if key is not None else value for value, key in zip(tensors, keys, strict=True)]
    answers = _Other.apply(use.tape.token, called, book, *given)
    return answers[0] if len(answers) == 1 else answers


def _name(function: Any) -> str:
    return getattr(function, "__name__", str(function))
