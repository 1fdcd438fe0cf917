"""The books of one pass: what every use of a parameter left behind, and the norms and clipped sums that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import entries as uses
from .entries import Entry, Persons
from .public_facts import Refused


@dataclass(frozen=True, slots=True)
class Tracked:
    """A parameter (``number``), some of its rows (``part``), its transpose (``turned``), or what is made of parameters (-1).

    ``made``: the function that made it, its arguments with such as these in place of parameters, and the place of this one
    among its results. So it can be made again of what parameters are for each record.
    """

    value: Tensor
    number: int
    shape: torch.Size  # of the whole parameter, also where this is its transpose or some of its rows
    part: slice | None = None
    turned: bool = False
    made: tuple[Any, Any, int] | None = None


class Books:
    """Gradients of each of the parameters for a batch of records."""

    def __init__(self, parameters: Sequence[Tensor], batch: int) -> None:
        self.parameters, self.batch, self.scale = parameters, batch, 1.0
        device = parameters[0].device if parameters else torch.device("cpu")
        self.token = torch.zeros((), device=device, requires_grad=True)  # what a backward pass leads to
        self.bad: Tensor | None = None  # records whose numbers a function cannot take; they count as zero
        self._entries: list[list[Entry]] = [[] for _ in parameters]
        self._joined: list[list[Entry]] | None = None
        self.on_end: Callable[[], None] | None = None  # what to do after a backward pass that booked something
        self._queued = False

    def leave_out(self, bad: Tensor) -> None:
        """Count these records as zero: (batch,) booleans."""
        self.bad = bad if self.bad is None else self.bad | bad

    def book(self, key: Tracked | None, entry: Callable[[], Entry]) -> None:
        """Keep what a backward pass found; ``entry`` is made only for what trains."""
        if key is None:
            return
        made = entry()
        if made.kind not in (torch.float32, torch.float64):
            raise Refused(
                f"a gradient is {made.kind}, too coarse for norms that a promise rests on; run the whole module in float32"
            )
        self._entries[key.number].append(made)
        if self.on_end is not None and not self._queued:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._ended)

    def _ended(self) -> None:
        self._queued = False
        if self.on_end is not None:
            self.on_end()

    def group(self, groups: Tensor) -> None:
        """Persons 0, 1, ... in place of records: ``groups`` has the person of each record, and each person has one."""
        persons, bad = Persons.of(groups), self.bad
        self._joined = [uses.together([entry.of_persons(persons) for entry in each]) for each in self.uses()]
        self.bad = None if bad is None else persons.laid(bad).view(-1, persons.most).any(1)
        self.batch = len(persons.there) // persons.most

    def uses(self) -> list[list[Entry]]:
        """All entries of each parameter."""
        if self._joined is None:
            self._joined = [uses.together(entries) for entries in self._entries]
        return self._joined

    def squared_norms(self) -> Tensor:
        """(parameters, batch): of every record's gradient; not finite where a gradient is not, or where a record is bad."""
        with torch.no_grad():
            found = [uses.squared_norms(entries) if entries else None for entries in self.uses()]
            some = next((value for value in found if value is not None), None)
            empty = torch.zeros(self.batch, device=self.token.device, dtype=None if some is None else some.dtype)
            squared = torch.stack([empty if value is None else value for value in found]) * self.scale**2
            return squared if self.bad is None else squared.masked_fill(self.bad, torch.inf)

    def term_norms(self) -> Tensor:
        """(batch,): a bound on the sum of the norms of all terms of a record's gradient, which may cancel each other."""
        with torch.no_grad():
            none = torch.zeros(self.batch, device=self.token.device)
            return sum((entry.term_norms() for entries in self.uses() for entry in entries), none) * self.scale

    def sums(self, factors: Tensor) -> list[Tensor]:
        """The sum of factor times gradient for each parameter; a factor of 0 leaves the record out, whatever its numbers."""
        with torch.no_grad():
            each = factors if factors.dim() == 2 else [factors] * len(self.parameters)
            masked = factors.device.type == "meta" or not bool(factors.all())
            return [
                uses.weighted(entries, factor * self.scale, factor == 0 if masked else None).view(parameter.shape)
                if entries
                else torch.zeros_like(parameter)
                for entries, factor, parameter in zip(self.uses(), each, self.parameters, strict=True)
            ]

    def free(self) -> None:
        """Forget the uses."""
        self._entries, self._joined = [[] for _ in self.parameters], None


def clip_factors(squared: Tensor, clip: float | Sequence[float]) -> Tensor:
    """What records are multiplied by so that norms are at most ``clip``, one for all or one for each parameter; not finite: 0.

    >>> clip_factors(torch.tensor([[9.0, 0.25, torch.inf], [16.0, 0.0, 1.0]]), 1.0)
    tensor([0.2000, 1.0000, 0.0000])
    """
    if isinstance(clip, int | float):
        norms = squared.sum(0).sqrt()
        factors = (float(clip) / norms).clamp(max=1)
        return torch.where(torch.isfinite(norms), factors, 0)
    bounds = torch.as_tensor(clip, dtype=squared.dtype, device=squared.device)[:, None]
    norms = squared.sqrt()
    factors = (bounds / norms).clamp(max=1)
    return torch.where(torch.isfinite(norms).all(0), factors, 0)
