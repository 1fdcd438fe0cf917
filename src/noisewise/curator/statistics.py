"""Statistics a curator answers: frozen data, never a function, because a function run on records could keep them.

Each statistic is a sum over records whose change is bounded for one record added or removed and for one replaced
(``sensitivity``). Noise has standard deviation ``noise_multiplier * unit(...)`` with unit the sensitivity under
add_remove and half of it under replace_one, which is what a ``Gaussian(noise_multiplier)`` event promises. A Poisson
batch may hold the record or not, whatever the relation, so there a record's own contribution must not exceed the unit
either.
Rows are clipped to norm 1 first; a row that is not finite counts as zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..events import FULL, Adjacency, Sampling
from ..gradients import Batch, Model
from ..gradients.batches import in_chunks
from ..gradients.transformed import soft_count


@dataclass(frozen=True)
class Count:
    """How many records there are. Sensitivity: 1 added or removed; 0 replaced (charged as if it were 1)."""


@dataclass(frozen=True)
class FirstMoment:
    """Sum of x: ||x|| <= 1, so 1 for add_remove and 2 for replace_one."""


@dataclass(frozen=True)
class SquaredLength:
    """Sum of ||x||^2: each term lies in [0, 1], so 1 for add_remove and 1 for replace_one."""


@dataclass(frozen=True)
class SecondMoment:
    """Sum of x x^T. ||x x^T||_F = ||x||^2 <= 1, so 1 for add_remove; for two unit rows u, v
    ||u u^T - v v^T||_F^2 = 2 - 2 (u.v)^2 <= 2, so sqrt(2) for replace_one. The upper triangle is what is noised and
    then mirrored; its norm is at most the Frobenius norm."""


@dataclass(frozen=True)
class CrossMoment:
    """Sum of x * y with y clamped to [-bound, bound]: ||x y|| <= bound, so bound and 2 * bound."""

    bound: float = 1.0

    def __post_init__(self) -> None:
        _finite("CrossMoment.bound", self.bound)


@dataclass(frozen=True)
class MinEigenvalue:
    """Smallest eigenvalue of the sum of x x^T. Adding a row adds a positive semi-definite matrix of norm <= 1, which
    moves every eigenvalue by 0 to 1 (Weyl). Replacing moves it by the difference of two such: at most 1."""


@dataclass(frozen=True)
class NormAtMost:
    """Sum over records of a ramp in the gradient norm at theta: +1/2 below 0.9 thresholds, -1/2 above 1.1. Each term lies
    in [-1/2, 1/2]: 1/2 for add_remove, 1 for replace_one. (A count that jumps at the threshold would not keep that: one
    record more can change how others are rounded.) A gradient that is not finite counts as above the threshold.
    ``theta`` is a tuple of floats."""

    threshold: float
    theta: tuple[float, ...]

    def __post_init__(self) -> None:
        _finite("NormAtMost.threshold", self.threshold)
        if type(self.theta) is not tuple or any(type(entry) is not float for entry in self.theta):
            raise ValueError("NormAtMost.theta must be a tuple of plain floats, e.g. tuple(theta.tolist())")


def _finite(name: str, value: object) -> None:
    if type(value) not in (float, int) or not 0 < value < math.inf:  # type: ignore[operator]
        raise ValueError(f"{name} must be a plain finite number > 0")


Statistic = Count | FirstMoment | SquaredLength | SecondMoment | CrossMoment | MinEigenvalue | NormAtMost


def sensitivity(what: Statistic, adjacency: Adjacency) -> float:
    """Largest change, in Euclidean norm, that one record can make to the statistic."""
    replaced = adjacency == "replace_one"
    match what:
        case Count() | MinEigenvalue() | SquaredLength():
            return 1.0
        case FirstMoment():
            return 2.0 if replaced else 1.0
        case SecondMoment():
            return math.sqrt(2) if replaced else 1.0
        case CrossMoment(bound):
            return 2 * bound if replaced else bound
        case NormAtMost():
            return 1.0 if replaced else 0.5


def unit(what: Statistic, adjacency: Adjacency, sampling: Sampling = FULL) -> float:
    """The C of the event ``Gaussian(noise std / C)`` under the relation in force and on the batch that is drawn."""
    added = sensitivity(what, "add_remove")
    if adjacency == "add_remove":
        return added
    replaced = sensitivity(what, "replace_one") / 2
    return max(added, replaced) if sampling[0] == "poisson" else replaced


def fits(what: Statistic, model: Model) -> bool:
    """Whether the question is one that can be asked of this model."""
    return not isinstance(what, NormAtMost) or len(what.theta) == model.dimension


def evaluate(what: Statistic, batch: Batch, model: Model) -> Tensor:
    """The exact statistic as a flat double-precision vector (upper triangle for a matrix). Private: never leaves."""
    match what:
        case Count():
            return torch.tensor([float(len(batch))], dtype=torch.float64)
        case FirstMoment():
            return in_chunks(batch, lambda part: _clipped_rows(part, model).sum(0))
        case SquaredLength():
            return in_chunks(batch, lambda part: _clipped_rows(part, model).square().sum()[None])
        case SecondMoment():
            moment = _second_moment(batch, model)
            return torch.masked_select(moment, torch.ones_like(moment, dtype=torch.bool).triu())
        case CrossMoment(bound):
            return in_chunks(batch, lambda part: _cross_moment(part, model, bound))
        case MinEigenvalue():
            eigenvalues: Tensor = torch.linalg.eigvalsh(_second_moment(batch, model))
            return eigenvalues[:1]
        case NormAtMost(threshold, theta):
            norms = model.norms(torch.tensor(theta, dtype=torch.float32), batch)
            alive = torch.isfinite(norms) if batch.valid is None else torch.isfinite(norms) & batch.valid
            return soft_count(norms, alive, threshold)[None]


def shaped(what: Statistic, noisy: Tensor, features: int) -> Tensor:
    """A released flat vector in the statistic's own shape: symmetric matrix, vector or number."""
    match what:
        case SecondMoment():
            upper = torch.ones(features, features, dtype=torch.bool).triu()
            matrix = torch.zeros(features, features, dtype=torch.float64).masked_scatter(upper, noisy)
            return matrix + matrix.triu(1).T
        case CrossMoment() | FirstMoment():
            return noisy
        case _:
            return noisy[0]


def _clipped_rows(batch: Batch, model: Model) -> Tensor:
    """Rows of norm at most 1, in double precision."""
    rows = model.rows(batch)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / norms.clamp_(min=1)


def _second_moment(batch: Batch, model: Model) -> Tensor:
    def moment(part: Batch) -> Tensor:
        rows = _clipped_rows(part, model)
        return rows.T.mm(rows)

    return in_chunks(batch, moment)


def _cross_moment(batch: Batch, model: Model, bound: float) -> Tensor:
    labels = torch.nan_to_num(batch.y.double(), nan=0.0).clamp_(-bound, bound)
    return (_clipped_rows(batch, model) * labels[:, None]).sum(0)
