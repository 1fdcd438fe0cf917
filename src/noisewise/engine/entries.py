"""What one use of a parameter leaves behind: every record's gradient of it, in factors, not multiplied out.

    Direct   the gradients themselves, where they are small (biases, norms, small windows)
    Outer    sum over positions t of b_t a_t^T: a dense layer, or a convolution as windows
    Rows     sum over positions t of b_t in row id_t: an embedding

Squared norms come from inner products of such sums, sum over (t, s) of (a_t . a_s)(b_t . b_s), and the clipped sum is one
product of reweighted factors. A parameter that is used several times has several entries, whose inner products are the
cross terms: a tied or reused weight is one gradient, not several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

ROOM = 2**24  # numbers that gradients of single records may take at a time, where there is no way around them


class Entry(ABC):
    """Gradients of a parameter, or of some of its rows (``part``), one for each record of a batch."""

    shape: torch.Size
    part: slice | None

    @property
    @abstractmethod
    def batch(self) -> int: ...

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
        """Gradients of some records, multiplied out, in the whole parameter's shape."""

    @abstractmethod
    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        """The sum of factor times gradient; a ``dead`` record is left out, whatever its numbers."""

    @abstractmethod
    def scaled(self, by: float) -> Entry:
        """The same gradients times a number."""

    def _placed(self, gradients: Tensor) -> Tensor:
        """Gradients of some rows of the parameter as gradients of all of it."""
        if self.part is None:
            return gradients
        ahead = gradients.dim() - len(self.shape)
        whole = gradients.new_zeros(*gradients.shape[:ahead], *self.shape)
        whole.narrow(ahead, self.part.start, self.part.stop - self.part.start).copy_(gradients)
        return whole


def alive(values: Tensor, dead: Tensor | None) -> Tensor:
    """Values with those of dead records as zeros; records come first."""
    return values if dead is None else values.masked_fill(dead.view(-1, *[1] * (values.dim() - 1)), 0)


def by_record(factors: Tensor, like: Tensor) -> Tensor:
    """Factors shaped so that they multiply a tensor whose first dimension is records."""
    return factors.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


@dataclass(frozen=True)
class Direct(Entry):
    """Gradients as they are, records first."""

    gradients: Tensor
    shape: torch.Size
    part: slice | None = None
    terms: int = 1
    bound: Tensor | None = None  # on the sums of norms of the terms they were added up from

    @property
    def batch(self) -> int:
        return len(self.gradients)

    @property
    def order(self) -> tuple[int, ...]:
        """Dimensions as they lie in memory, records first."""
        return 0, *sorted(range(1, self.gradients.dim()), key=self.gradients.stride, reverse=True)

    def squared_norms(self) -> Tensor:
        return torch.linalg.vector_norm(self.gradients.permute(self.order).flatten(1), dim=1).square()

    def term_norms(self) -> Tensor:
        return self.squared_norms().sqrt() if self.bound is None else self.bound

    def per_record(self, rows: slice) -> Tensor:
        return self._placed(self.gradients[rows])

    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        order = self.order
        laid = alive(self.gradients.permute(order), dead)
        flat = laid.flatten(1)
        total = torch.mm(factors.to(flat.dtype).view(1, -1), flat).view(laid.shape[1:])
        return self._placed(total.permute(sorted(range(total.dim()), key=lambda dim: order[dim + 1])))

    def scaled(self, by: float) -> Entry:
        return replace(self, gradients=self.gradients * by, bound=None if self.bound is None else self.bound * by)


@dataclass(frozen=True)
class Outer(Entry):
    """sum over t of b_t a_t^T; ``a`` (batch, inputs) or (batch, positions, inputs), ``b`` likewise with outputs."""

    a: Tensor
    b: Tensor
    shape: torch.Size
    part: slice | None = None

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

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Squared norms by pairs of positions, and the sums of the norms of terms, which stand on the diagonals."""
        a, b = (torch.bmm(value, value.transpose(1, 2)) for value in self.positions)
        least = (_diagonal(a, self.a.shape[-1]) * _diagonal(b, self.b.shape[-1])).sqrt().sum(1)
        return (a * b).sum((1, 2)), least

    def squared_norms(self) -> Tensor:
        if self.a.dim() == 2:
            return squares(self.a) * squares(self.b)
        return inner(self, self).clamp(min=0)

    def term_norms(self) -> Tensor:
        a, b = self.positions
        return (squares(a) * squares(b)).sqrt().sum(1)

    def per_record(self, rows: slice) -> Tensor:
        a, b = self.positions
        product = torch.bmm(b[rows].transpose(1, 2), a[rows])
        height = self.shape[0] if self.part is None else self.part.stop - self.part.start
        return self._placed(product.view(-1, height, *self.shape[1:]))

    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        a, b = alive(self.a, dead), alive(self.b, dead)
        if a.shape[-1] < b.shape[-1]:
            a = a * by_record(factors, a)
        else:
            b = b * by_record(factors, b)
        product = b.flatten(0, -2).T @ a.flatten(0, -2)
        height = self.shape[0] if self.part is None else self.part.stop - self.part.start
        return self._placed(product.view(height, *self.shape[1:]))

    def scaled(self, by: float) -> Entry:
        return replace(self, b=self.b * by)


@dataclass(frozen=True)
class Rows(Entry):
    """sum over t of b_t in row id_t of the parameter."""

    ids: Tensor  # (batch, positions)
    b: Tensor  # (batch, positions, width)
    shape: torch.Size
    part: slice | None = None

    @property
    def batch(self) -> int:
        return len(self.ids)

    @property
    def terms(self) -> int:
        return self.ids.shape[1]

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Squared norms by pairs of positions, and the sums of the norms of terms, which stand on the diagonal."""
        b = torch.bmm(self.b, self.b.transpose(1, 2))
        least = _diagonal(b, self.b.shape[-1]).sqrt().sum(1)
        same = self.ids.unsqueeze(2) == self.ids.unsqueeze(1)
        return torch.where(same, b, 0).sum((1, 2)), least

    def squared_norms(self) -> Tensor:
        return squares(self.b[:, 0]) if self.terms == 1 else inner(self, self).clamp(min=0)

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

    def scaled(self, by: float) -> Entry:
        return replace(self, b=self.b * by)


def squares(values: Tensor) -> Tensor:
    """Squared lengths along the last dimension, and what squares that are too small for floats could have added."""
    return torch.linalg.vecdot(values, values) + values.shape[-1] * torch.finfo(values.dtype).tiny


def _diagonal(products: Tensor, width: int) -> Tensor:
    """:func:`squares` of vectors of this width, from all their inner products."""
    return products.diagonal(dim1=1, dim2=2) + width * torch.finfo(products.dtype).tiny


def inner(one: Entry, other: Entry) -> Tensor:
    """Inner products of the two gradients of each record."""
    if one.part != other.part:
        if _apart(one.part, other.part):
            return one_per_record(one).new_zeros(one.batch)
        return multiplied_out([one], [other])
    if isinstance(one, Outer) and isinstance(other, Outer):
        (a, b), (c, d) = one.positions, other.positions
        return (torch.bmm(a, c.transpose(1, 2)) * torch.bmm(b, d.transpose(1, 2))).sum((1, 2))
    if isinstance(one, Rows) and isinstance(other, Rows):
        same = one.ids.unsqueeze(2) == other.ids.unsqueeze(1)
        return torch.where(same, torch.bmm(one.b, other.b.transpose(1, 2)), 0).sum((1, 2))
    if isinstance(one, Outer) and isinstance(other, Rows):
        a, b = one.positions
        places = other.ids.unsqueeze(1).expand(-1, a.shape[1], -1)
        return (torch.gather(b, 2, places) * torch.bmm(a, other.b.transpose(1, 2))).sum((1, 2))
    if isinstance(one, Rows) and isinstance(other, Outer):
        return inner(other, one)
    if isinstance(one, Direct) and isinstance(other, Direct):
        return (one.gradients * other.gradients).flatten(1).sum(1)
    return multiplied_out([one], [other])


def one_per_record(entry: Entry) -> Tensor:
    """A tensor of the entry's kind and device."""
    if isinstance(entry, Direct):
        return entry.gradients
    assert isinstance(entry, Outer | Rows)
    return entry.b


def _apart(one: slice | None, other: slice | None) -> bool:
    return one is not None and other is not None and (one.stop <= other.start or other.stop <= one.start)


def multiplied_out(one: Sequence[Entry], other: Sequence[Entry] | None = None) -> Tensor:
    """Inner products by gradients of single records, few at a time; of the first with itself unless another is given."""
    batch, step = one[0].batch, max(1, ROOM // max(one[0].shape.numel(), 1))
    parts = []
    for start in range(0, batch, step):
        rows = slice(start, min(start + step, batch))
        left = _together(one, rows)
        parts.append((left * (left if other is None else _together(other, rows))).sum(1))
    return torch.cat(parts)


def _together(entries: Sequence[Entry], rows: slice) -> Tensor:
    first, *others = (entry.per_record(rows).flatten(1) for entry in entries)
    for more in others:
        first = first + more
    return first


def squared_norms(entries: Sequence[Entry]) -> Tensor:
    """Of the gradient that several uses of one parameter add up to.

    Terms that cancel leave a norm of which rounding may have taken everything, while the product that is summed keeps what
    rounding left there. So no norm is taken to be smaller than sqrt(u) times the sum of the norms of its terms, which is
    as far as inner products can tell.
    """
    if len(entries) == 1:
        (entry,) = entries
        if isinstance(entry, Outer | Rows) and entry.terms > 1:
            return at_least(*entry.pairs())
        return entry.squared_norms()
    if not all(isinstance(entry, Direct | Outer | Rows) for entry in entries):
        return multiplied_out(entries)
    total, least = entries[0].squared_norms(), entries[0].term_norms()
    for at, entry in enumerate(entries[1:], 1):
        total, least = total + entry.squared_norms(), least + entry.term_norms()
        for before in entries[:at]:
            total = total + 2 * inner(before, entry)
    return at_least(total, least)


def at_least(squared: Tensor, terms: Tensor) -> Tensor:
    """Squared norms as far as rounding can tell, from the sums of the norms of their terms."""
    return torch.maximum(squared, terms.square() * torch.finfo(terms.dtype).eps)


def weighted(entries: Sequence[Entry], factors: Tensor, dead: Tensor | None) -> Tensor:
    """The sum over records of factor times the gradient that the entries add up to."""
    first, *others = (entry.weighted(factors, dead) for entry in entries)
    for other in others:
        first = first + other
    return first
