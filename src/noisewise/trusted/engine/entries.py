"""What one use of a parameter books: every record's gradient of it, in factors that are not multiplied out.

    Direct   the gradients themselves, where they are small (biases, norms, small windows)
    Outer    sum over positions t of b_t a_t^T: a dense layer, or a convolution as windows
    Rows     sum over positions t of b_t in row id_t: an embedding

Squared norms come from inner products of such sums, sum over (t, s) of (a_t . a_s)(b_t . b_s), and the clipped sum is one
product of reweighted factors. A tied or reused weight has several entries, whose inner products are the cross terms. Where the
unit of privacy is a person, the books of its records are joined as one longer sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

import torch
from torch import Tensor

MAX_GRADIENT_NUMBERS = 2**24  # of gradients of single records that are held at a time


@dataclass(frozen=True)
class Persons:
    """Which records are whose: ``places`` (persons * most,) names records, and ``there`` says which of them exist."""

    most: int
    places: Tensor | None  # None: records lie in this order already
    there: Tensor

    @classmethod
    def of(cls, groups: Tensor) -> Persons:
        """Persons 0, 1, ... of records, in any order and number; ``groups`` has the person of each record.

        >>> Persons.of(torch.tensor([1, 0, 1])).places
        tensor([1, 0, 0, 2])
        """
        counts = torch.bincount(groups)
        most, order = int(counts.max()), torch.argsort(groups, stable=True)
        every = torch.arange(len(order), device=order.device)
        if bool((counts == most).all()) and torch.equal(order, every):
            return cls(most, None, torch.ones_like(groups, dtype=torch.bool))
        own = groups[order]
        at = own * most + every - (counts.cumsum(0) - counts)[own]
        places = torch.zeros(len(counts) * most, dtype=torch.int64, device=order.device)
        there = torch.zeros_like(places, dtype=torch.bool)
        places[at], there[at] = order, True
        return cls(most, places, there)

    def laid(self, values: Tensor) -> Tensor:
        """Records in the order of persons, with zeros for those that do not exist."""
        return values if self.places is None else alive(values[self.places], ~self.there)

    def joined(self, values: Tensor) -> Tensor:
        """(records, positions, ...) as (persons, positions of all their records, ...)."""
        return self.laid(values).unflatten(0, (-1, self.most)).flatten(1, 2)


class Entry(ABC):
    """Gradients of a parameter, one for each record of a batch."""

    shape: torch.Size
    factored: ClassVar[bool] = False  # whether inner products with others are found without multiplying out

    @property
    @abstractmethod
    def batch(self) -> int: ...

    @property
    def kind(self) -> torch.dtype:
        """The type of the numbers; the coarser one where there are two."""
        parts = [getattr(self, name).dtype for name in ("gradients", "a", "b", "x") if hasattr(self, name)]
        return min(parts, key=lambda kind: torch.finfo(kind).bits)

    @property
    @abstractmethod
    def terms(self) -> int:
        """Positions in one record."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Of every record."""

    @abstractmethod
    def term_norms(self) -> Tensor:
        """Of every record, a bound on the sum of the norms of its terms, which may cancel."""

    @abstractmethod
    def per_record(self, rows: slice) -> Tensor:
        """Gradients of some records, multiplied out."""

    @abstractmethod
    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        """The sum of factor times gradient; a ``dead`` record is left out, whatever its numbers."""

    @abstractmethod
    def of_persons(self, persons: Persons) -> Entry:
        """The gradients of persons, each the sum of its records' own."""


def alive(values: Tensor, dead: Tensor | None) -> Tensor:
    """Values with those of dead records as zeros; records come first."""
    return values if dead is None else values.masked_fill(dead.view(-1, *[1] * (values.dim() - 1)), 0)


def by_record(factors: Tensor, like: Tensor) -> Tensor:
    """Factors shaped so that they multiply a tensor whose first dimension is records."""
    return factors.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


@dataclass(frozen=True)
class Direct(Entry):
    """Gradients as they are, records first: norms and sums are of the same numbers."""

    gradients: Tensor
    shape: torch.Size
    terms: int = 1  # positions that they were added up from
    factored: ClassVar[bool] = True

    @property
    def batch(self) -> int:
        return len(self.gradients)

    @property
    def order(self) -> tuple[int, ...]:
        """Dimensions as they lie in memory, records first."""
        return 0, *sorted(range(1, self.gradients.dim()), key=self.gradients.stride, reverse=True)

    def squared_norms(self) -> Tensor:
        laid = self.gradients.permute(self.order).reshape(self.batch, -1)
        return torch.linalg.vector_norm(laid, dim=1).square()

    def term_norms(self) -> Tensor:
        return self.squared_norms().sqrt()

    def per_record(self, rows: slice) -> Tensor:
        return self.gradients[rows]

    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        order = self.order
        laid = alive(self.gradients.permute(order), dead)
        flat = laid.reshape(self.batch, -1)
        total = torch.mm(factors.to(flat.dtype).view(1, -1), flat).view(laid.shape[1:])
        return total.permute(sorted(range(total.dim()), key=lambda dim: order[dim + 1]))

    def of_persons(self, persons: Persons) -> Entry:
        return replace(self, gradients=persons.laid(self.gradients).unflatten(0, (-1, persons.most)).sum(1))


@dataclass(frozen=True)
class Outer(Entry):
    """sum over t of b_t a_t^T; ``a`` (batch, inputs) or (batch, positions, inputs), ``b`` likewise with outputs."""

    a: Tensor
    b: Tensor
    shape: torch.Size
    factored: ClassVar[bool] = True

    @property
    def batch(self) -> int:
        return len(self.a)

    @property
    def terms(self) -> int:
        return 1 if self.a.dim() == 2 else self.a.shape[1]

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """Both with a dimension of positions."""
        return (self.a.unsqueeze(1), self.b.unsqueeze(1)) if self.a.dim() == 2 else (self.a, self.b)

    def squared_norms(self) -> Tensor:
        """By pairs of positions; a position with itself gives the norm of its term."""
        if self.a.dim() == 2:
            return squares(self.a) * squares(self.b)
        by_a, by_b = (torch.bmm(part, part.transpose(1, 2)) for part in (self.a, self.b))
        own_a = by_a.diagonal(dim1=1, dim2=2) + too_small(self.a)
        own_b = by_b.diagonal(dim1=1, dim2=2) + too_small(self.b)
        return at_least(torch.linalg.vecdot(by_a.flatten(1), by_b.flatten(1)), (own_a * own_b).sqrt().sum(1))

    def term_norms(self) -> Tensor:
        a, b = self.positions
        return (squares(a) * squares(b)).sqrt().sum(1)

    def per_record(self, rows: slice) -> Tensor:
        a, b = self.positions
        return torch.bmm(b[rows].transpose(1, 2), a[rows]).view(-1, *self.shape)

    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        a, b = alive(self.a, dead), alive(self.b, dead)
        if a.shape[-1] < b.shape[-1]:
            a = a * by_record(factors, a)
        else:
            b = b * by_record(factors, b)
        return (b.flatten(0, -2).T @ a.flatten(0, -2)).view(self.shape)

    def of_persons(self, persons: Persons) -> Entry:
        return replace(self, a=persons.joined(self.positions[0]), b=persons.joined(self.positions[1]))


@dataclass(frozen=True)
class RowSums(Entry):
    """sum over t of b_t in row id_t of the parameter."""

    ids: Tensor  # (batch, positions)
    b: Tensor  # (batch, positions, width)
    shape: torch.Size
    factored: ClassVar[bool] = True

    @property
    def batch(self) -> int:
        return len(self.ids)

    @property
    def terms(self) -> int:
        return self.ids.shape[1]

    def squared_norms(self) -> Tensor:
        return squares(self.b[:, 0]) if self.terms == 1 else at_least(inner(self, self), self.term_norms())

    def term_norms(self) -> Tensor:
        return squares(self.b).sqrt().sum(1)

    def per_record(self, rows: slice) -> Tensor:
        ids, b = self.ids[rows], self.b[rows]
        whole = b.new_zeros(len(ids), *self.shape)
        return whole.scatter_add_(1, ids.unsqueeze(2).expand_as(b), b)

    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        b = alive(self.b, dead)
        b = b * by_record(factors, b)
        total: Tensor = torch.ops.aten.embedding_dense_backward(b, self.ids, self.shape[0], -1, False)
        return total

    def of_persons(self, persons: Persons) -> Entry:
        return replace(self, ids=persons.joined(self.ids), b=persons.joined(self.b))


def squares(values: Tensor) -> Tensor:
    """Squared lengths along the last dimension, and what squares that are too small for floats could have added."""
    return torch.linalg.vecdot(values, values) + too_small(values)


def too_small(values: Tensor) -> float:
    """What squares that are too small for floats could have added to a squared length."""
    return float(values.shape[-1] * torch.finfo(values.dtype).tiny)


def at_least(squared: Tensor, terms: Tensor) -> Tensor:
    """Squared norms as far as rounding can tell, from the sums of the norms of their terms.

    Terms that cancel leave a norm of which rounding may have taken everything, while the product that is summed keeps what
    rounding left there. So no norm is taken to be smaller than sqrt(u) times the sum of the norms of its terms, which is
    as far as inner products can tell.
    """
    return torch.maximum(squared, terms.square() * torch.finfo(terms.dtype).eps)


def inner(one: Entry, other: Entry) -> Tensor:
    """Inner products of the two gradients of each record."""
    if isinstance(one, Outer) and isinstance(other, Outer):
        (a, b), (c, d) = one.positions, other.positions
        return (torch.bmm(a, c.transpose(1, 2)) * torch.bmm(b, d.transpose(1, 2))).sum((1, 2))
    if isinstance(one, RowSums) and isinstance(other, RowSums):
        same = one.ids.unsqueeze(2) == other.ids.unsqueeze(1)
        return torch.where(same, torch.bmm(one.b, other.b.transpose(1, 2)), 0).sum((1, 2))
    if isinstance(one, Outer) and isinstance(other, RowSums):
        a, b = one.positions
        places = other.ids.unsqueeze(1).expand(-1, a.shape[1], -1)
        return (torch.gather(b, 2, places) * torch.bmm(a, other.b.transpose(1, 2))).sum((1, 2))
    if isinstance(one, RowSums) and isinstance(other, Outer):
        return inner(other, one)
    return multiplied_out([one], [other])


def multiplied_out(one: Sequence[Entry], other: Sequence[Entry] | None = None) -> Tensor:
    """Inner products by gradients of single records, few at a time; of the first with itself unless another is given."""
    parts = []
    for rows in _few(one[0]):
        left = _together(one, rows)
        parts.append((left * (left if other is None else _together(other, rows))).sum(1))
    return torch.cat(parts)


def added_up(entries: Sequence[Entry], factors: Tensor, dead: Tensor | None) -> Tensor:
    """The sum of factor times gradient, of the very numbers that :func:`multiplied_out` has found the norms of.

    A product over the whole batch rounds otherwise than one record's does; where terms cancel, what is left of a record would
    be longer than its norm by any factor.
    """
    parts = []
    for rows in _few(entries[0]):
        own = alive(_together(entries, rows), None if dead is None else dead[rows])
        parts.append(torch.mv(own.T, factors[rows].to(own.dtype)))
    return reduce(torch.add, parts).view(entries[0].shape)


def _few(entry: Entry) -> Iterator[slice]:
    """Records whose gradients have room at a time."""
    step = max(1, MAX_GRADIENT_NUMBERS // max(entry.shape.numel(), 1))
    for start in range(0, entry.batch, step):
        yield slice(start, min(start + step, entry.batch))


def _together(entries: Sequence[Entry], rows: slice) -> Tensor:
    return reduce(torch.add, (entry.per_record(rows).flatten(1) for entry in entries))


def together(entries: Sequence[Entry]) -> list[Entry]:
    """The same uses, with those that are kept as gradients added up record by record."""
    kept = [entry for entry in entries if isinstance(entry, Direct)]
    if len(kept) < 2:
        return [*entries]
    total = reduce(torch.add, (entry.gradients for entry in kept))
    return [Direct(total, kept[0].shape), *(entry for entry in entries if not isinstance(entry, Direct))]


def squared_norms(entries: Sequence[Entry]) -> Tensor:
    """Of the gradient that several uses of one parameter add up to."""
    if len(entries) == 1:
        return entries[0].squared_norms()
    if not all(entry.factored for entry in entries):
        return multiplied_out(entries)
    total = reduce(torch.add, (entry.squared_norms() for entry in entries))
    for at, entry in enumerate(entries):
        for before in entries[:at]:
            total = total + 2 * inner(before, entry)
    return at_least(total, reduce(torch.add, (entry.term_norms() for entry in entries)))


def weighted(entries: Sequence[Entry], factors: Tensor, dead: Tensor | None) -> Tensor:
    """The sum over records of factor times the gradient that the entries add up to."""
    if len(entries) > 1 and not all(entry.factored for entry in entries):
        return added_up(entries, factors, dead)
    return reduce(torch.add, (entry.weighted(factors, dead) for entry in entries))
