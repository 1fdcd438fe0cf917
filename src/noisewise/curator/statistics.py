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
        _plain_theta("NormAtMost.theta", self.theta)


@dataclass(frozen=True)
class Correct:
    """Sum over records of +1/2 where the model at theta picks the record's class, -1/2 where not: 1/2 for add_remove, 1
    for replace_one. The count jumps, so every row is scored by itself, in double precision: its company cannot change how
    it is rounded. A row that is not finite counts as wrong. Labels are class numbers, or -1 and +1."""

    theta: tuple[float, ...]

    def __post_init__(self) -> None:
        _plain_theta("Correct.theta", self.theta)


@dataclass(frozen=True)
class SquaredError:
    """Sum over records of (clamp(score, -1, 1) - clamp(y, -1, 1))^2 / 4 - 1/2, each in [-1/2, 1/2]: 1/2 for add_remove, 1
    for replace_one. Rows are scored by themselves as above; one that is not finite counts as the largest error."""

    theta: tuple[float, ...]

    def __post_init__(self) -> None:
        _plain_theta("SquaredError.theta", self.theta)


def _plain_theta(name: str, theta: object) -> None:
    if type(theta) is not tuple or any(type(entry) is not float for entry in theta):
        raise ValueError(f"{name} must be a tuple of plain floats, e.g. tuple(theta.tolist())")


def _finite(name: str, value: object) -> None:
    if type(value) not in (float, int) or not 0 < value < math.inf:  # type: ignore[operator]
        raise ValueError(f"{name} must be a plain finite number > 0")


AtTheta = NormAtMost | Correct | SquaredError
Statistic = Count | FirstMoment | SquaredLength | SecondMoment | CrossMoment | MinEigenvalue | AtTheta


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
        case NormAtMost() | Correct() | SquaredError():
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
    if isinstance(what, Correct) and model.loss.task == "regression":
        raise ValueError("Correct needs a classifier; ask SquaredError of a regression")
    if isinstance(what, SquaredError) and model.outputs > 1:
        raise ValueError("SquaredError needs a model with one output; ask Correct of a classifier")
    return not isinstance(what, AtTheta) or len(what.theta) == model.dimension


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
        case Correct(theta):
            return in_chunks(batch, lambda part: _correct(part, model, theta).sum()[None])
        case SquaredError(theta):
            return in_chunks(batch, lambda part: _squared_errors(part, model, theta).sum()[None])


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


def _correct(batch: Batch, model: Model, theta: tuple[float, ...]) -> Tensor:
    scores = model.scores_by_row(torch.tensor(theta, dtype=torch.float64), model.rows(batch))
    right = scores.argmax(1) == batch.y if scores.ndim == 2 else (scores > 0) == (batch.y > 0)
    return torch.where(right & _alive(batch, scores), 0.5, -0.5).double()


def _squared_errors(batch: Batch, model: Model, theta: tuple[float, ...]) -> Tensor:
    scores = model.scores_by_row(torch.tensor(theta, dtype=torch.float64), model.rows(batch))
    errors = (scores.clamp(-1, 1) - batch.y.double().clamp(-1, 1)).square() / 4 - 0.5
    return torch.where(_alive(batch, scores), errors.clamp(-0.5, 0.5), 0.5)


def _alive(batch: Batch, scores: Tensor) -> Tensor:
    """Records whose score is a number and that were not masked when they were laid out."""
    finite = torch.isfinite(scores)
    alive = finite.all(1) if scores.ndim == 2 else finite
    return alive if batch.valid is None else alive & batch.valid
