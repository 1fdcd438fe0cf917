"""Clipped sums of gradients seen in other coordinates, and how many of them are short.

``scale`` divides each coordinate of a record's gradient before it is clipped (Pichapati et al. 2019), ``basis``
replaces the gradient by its coordinates in a subspace (Zhou, Wu & Banerjee 2020), ``threshold`` asks for a count of
short gradients (Andrew et al. 2021). Sums are returned in the coordinates in which records were clipped. The plain
question does not come this way.

With x = r u and coefficients c, a linear model's gradient c u^T has the scaled squared norm
sum_k c_k^2 ||u / scale_k||^2: no per-record gradient is stored. Its projection is sum_k c_k B_k^T u, as many numbers
per record as the basis has columns.

*Rounding.* Dividing by ``scale`` commutes with rounding, coordinate by coordinate. A projection may cancel: it is
computed in double precision from gradients first clipped to ``FAR`` clips, so that what it rounds away stays far below
a clip. A count that jumps would let one record more flip others whose norms are within rounding of the threshold, so
the count is a ramp.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .batches import Batch, in_chunks, weighted_sum
from .layers import MLP
from .linear import Linear

FAR = 2.0**20
RAMP = 0.1  # a norm counts as short below 0.9, as long above 1.1 thresholds, and in proportion between


def clipped_sum_and_count(
    model: Linear | MLP,
    theta: Tensor,
    batch: Batch,
    clip: float,
    *,
    scale: Tensor | None = None,
    basis: Tensor | None = None,
    threshold: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The clipped sum in the coordinates asked for, and the centred count of short gradients in those coordinates.

    Each record adds a vector of norm at most ``clip`` to the sum and a number in [-1/2, 1/2] to the count; one whose
    gradient is not finite adds zero and -1/2. A perceptron has no closed form for ``scale`` and ``basis``.
    """

    def chunk_sum(chunk: Batch) -> Tensor:
        if isinstance(model, Linear):
            total, norms, alive = _linear(model, theta, chunk, clip, scale, basis)
        else:
            total, norms, alive = _perceptron(model, theta, chunk, clip)
        count = total.new_zeros(1) if threshold is None else soft_count(norms, alive, threshold)[None]
        return torch.cat([total, count])

    with torch.inference_mode():
        both = in_chunks(batch, chunk_sum)
        return both[:-1], None if threshold is None else both[-1:]


def _linear(
    model: Linear, theta: Tensor, batch: Batch, clip: float, scale: Tensor | None, basis: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    c = model.slopes(theta, batch).view(len(batch), model.outputs)
    alive = _alive(torch.isfinite(c).all(1), batch)
    c = c.masked_fill(~alive[:, None], 0.0)
    bound = clip
    if basis is not None:
        near = c.double().mul_(_factors(torch.linalg.vector_norm(c, dim=1, dtype=torch.float64), FAR * bound))
        rows, blocks = batch.X.double(), basis.double().view(model.outputs, model.features, -1)
        inside = sum((near[:, k, None] * (rows @ block) for k, block in enumerate(blocks)), start=torch.zeros(()))
        norms = torch.linalg.vector_norm(inside, dim=1)
        return (inside * _factors(norms, bound)).sum(0), norms, alive
    if scale is None:
        norms = torch.linalg.vector_norm(c, dim=1)
        return weighted_sum(c * _factors(norms, bound), batch.X).flatten(), norms, alive
    per_output = scale.float().view(model.outputs, model.features)
    lengths = torch.stack([torch.linalg.vector_norm(batch.X / row, dim=1) for row in per_output], dim=1)
    norms = torch.linalg.vector_norm(c * lengths, dim=1)
    total = weighted_sum(c * _factors(norms, bound), batch.X).flatten()
    return total / per_output.flatten().double(), norms, alive


def _perceptron(model: MLP, theta: Tensor, batch: Batch, clip: float) -> tuple[Tensor, Tensor, Tensor]:
    book = model._book(theta, batch)
    alive = _alive(torch.isfinite(book[2]), batch)
    return model._weighted_sum(book, batch, clip), book[2], alive


def _alive(finite: Tensor, batch: Batch) -> Tensor:
    return finite if batch.valid is None else finite & batch.valid


def _factors(norms: Tensor, bound: float) -> Tensor:
    """What each record is multiplied by so that its norm is at most ``bound``, as a column."""
    return torch.ones_like(norms)[:, None] if math.isinf(bound) else (bound / norms.clamp(min=bound))[:, None]


def soft_count(norms: Tensor, alive: Tensor, threshold: float) -> Tensor:
    """Sum of a ramp from +1/2 for short to -1/2 for long norms: a count that would jump could jump for many by rounding."""
    ramp = ((threshold - norms.double()) / (2 * RAMP * threshold)).clamp_(-0.5, 0.5)
    return torch.where(alive, ramp, -0.5).sum()


def per_record(model: Linear | MLP, theta: Tensor, batch: Batch) -> Tensor:
    """Every record's gradient as a row, in double precision: for public records only. One that is not finite is 0."""
    if isinstance(model, Linear):
        c = model.slopes(theta, batch).view(len(batch), model.outputs, 1)
        parts = [(c * batch.X[:, None, :]).flatten(1)]
    else:
        inputs, gradients, _ = model._book(theta, batch)
        parts = []
        for a, b in zip(inputs, gradients, strict=True):
            parts += [(b[:, :, None] * a[:, None, :]).flatten(1), b]
    rows = torch.cat(parts, dim=1).double()
    return rows.masked_fill(~_alive(torch.isfinite(rows).all(1), batch)[:, None], 0.0)


def leading_subspace(rows: Tensor, rank: int) -> Tensor:
    """An orthonormal basis, as columns, of the ``rank`` directions in which rows are largest (fewer if there are)."""
    n, d = rows.shape
    rank = min(rank, n, d)
    if n >= d:
        return torch.linalg.eigh(rows.T @ rows)[1][:, -rank:].flip(1)
    left = torch.linalg.eigh(rows @ rows.T)[1][:, -rank:].flip(1)
    return torch.linalg.qr(rows.T @ left)[0]
