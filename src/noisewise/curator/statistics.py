"""Statistics of the rows, and of how a model does on them: sums over records, each with its unit and its proof.

Rows are cut to norm 1 first; a row that is not finite counts as zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..records.linear import FINE, LABEL, ROW
from ..records.totals import Drawn, Floats, Integers, IntegerTotal
from .facts import Answer, Facts
from .questions import LEAST_NORM, MOST_NORM, HowAsked, Records, Sum, fits, positive, question, vector


@question
@dataclass(frozen=True)
class Count(Sum):
    """How many records there are. *Sensitivity*: 1 added or removed; 0 replaced (charged as if it were 1)."""

    words: ClassVar[str] = "number of records"

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return 1.0, 1.0

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        return IntegerTotal(np.array([drawn.count(len(records))]), 1, 1.0)

    @classmethod
    def cases(cls, dimension: int) -> list[Count]:
        return [cls()]


@question
@dataclass(frozen=True)
class FirstMoment(Sum):
    """Sum of x, rows cut to norm 1. *Sensitivity*: ||x|| <= 1, so 1 for add_remove and 2 for replace_one."""

    words: ClassVar[str] = "sum of the rows"

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return 1.0, 2.0

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        parts = [rows.sum(0) for rows, _, _ in records.unit_rows(drawn)]  # integers below 2^53: exact
        return IntegerTotal(_added(parts, records.columns), ROW, 1.0)

    def answer(self, noisy: Sequence[Floats], facts: Facts, terms: HowAsked) -> Answer:
        return Answer(torch.from_numpy(noisy[0]), self.noise_std(terms))

    @classmethod
    def cases(cls, dimension: int) -> list[FirstMoment]:
        return [cls()]


@question
@dataclass(frozen=True)
class SquaredLength(Sum):
    """Sum of ||x||^2, rows cut to norm 1. *Sensitivity*: each term lies in [0, 1], so 1 for both relations."""

    words: ClassVar[str] = "sum of squared lengths of the rows"

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return 1.0, 1.0

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        parts = [(rows * rows).sum(1).astype(np.int64).sum()[None] for rows, _, _ in records.unit_rows(drawn)]
        return IntegerTotal(_added(parts, 1), ROW * ROW, 1.0)

    @classmethod
    def cases(cls, dimension: int) -> list[SquaredLength]:
        return [cls()]


@question
@dataclass(frozen=True)
class SecondMoment(Sum):
    """Sum of x x^T, rows cut to norm 1. *Sensitivity*: ||x x^T||_F = ||x||^2 <= 1, so 1 for add_remove; for two unit rows
    u, v ||u u^T - v v^T||_F^2 = 2 - 2 (u.v)^2 <= 2, so sqrt(2) for replace_one. The upper triangle is what is noised and
    then mirrored; its norm is at most the Frobenius norm."""

    words: ClassVar[str] = "second moment of the rows"

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return 1.0, math.nextafter(math.sqrt(2), 2)

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        upper = np.triu_indices(records.columns)
        return IntegerTotal(_second_moment(records, drawn)[upper], ROW * ROW, 1.0)

    def answer(self, noisy: Sequence[Floats], facts: Facts, terms: HowAsked) -> Answer:
        matrix = np.zeros((facts.features, facts.features))
        matrix[np.triu_indices(facts.features)] = noisy[0]
        return Answer(torch.from_numpy(matrix + np.triu(matrix, 1).T), self.noise_std(terms))

    def flat(self, answer: Answer, facts: Facts, terms: HowAsked) -> Floats:
        return np.asarray(answer.value.numpy()[np.triu_indices(facts.features)])

    @classmethod
    def cases(cls, dimension: int) -> list[SecondMoment]:
        return [cls()]


@question
@dataclass(frozen=True)
class CrossMoment(Sum):
    """Sum of x y, rows cut to norm 1 and y to [-bound, bound]. *Sensitivity*: ||x y|| <= bound, so bound and 2 bound."""

    bound: float = 1.0
    words: ClassVar[str] = "sum of the rows times their labels"

    def __post_init__(self) -> None:
        positive("CrossMoment.bound", self.bound, 1e-12, 1e12)

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return self.bound, 2 * self.bound

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        parts = []
        for rows, labels, _ in records.unit_rows(drawn):
            share = np.minimum(np.maximum(labels.astype(np.float64) / self.bound, -1.0), 1.0)
            parts.append((rows * np.rint(share * LABEL)[:, None]).sum(0))
        return IntegerTotal(_added(parts, records.columns), ROW * LABEL, self.bound)

    def answer(self, noisy: Sequence[Floats], facts: Facts, terms: HowAsked) -> Answer:
        return Answer(torch.from_numpy(noisy[0]), self.noise_std(terms))

    @classmethod
    def cases(cls, dimension: int) -> list[CrossMoment]:
        return [cls(), cls(0.25), cls(30.0)]


EIGENVALUE = 1 << 30


@question
@dataclass(frozen=True)
class MinEigenvalue(Sum):
    """Smallest eigenvalue of the sum of x x^T, rows cut to norm 1.

    *Sensitivity*: adding a row adds a positive semi-definite matrix of norm <= 1, which moves every eigenvalue by 0 to 1
    (Weyl). Replacing moves it by the difference of two such: at most 1. The matrix is exact, its eigenvalue comes from a
    solver that is off by at most e, which is charged: the unit is 1 + 2e, with e = columns 2^-22 for at most 2^27 rows
    (a backward-stable solver is off by about u columns times the norm, which is at most the number of rows)."""

    words: ClassVar[str] = "smallest eigenvalue of the second moment"
    bounded: ClassVar[str] = "eigenvalues come from a floating-point solver whose error is charged"

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return 1.0 + 2 * self._error(terms), 1.0 + 2 * self._error(terms)

    @staticmethod
    def _error(terms: HowAsked) -> float:
        return terms.features * 2.0**-22

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        moment = _second_moment(records, drawn) / float(ROW * ROW)
        smallest = float(np.linalg.eigvalsh(moment)[0])
        ones = math.ceil(EIGENVALUE * (1.0 + 2 * self._error(terms)))
        return IntegerTotal(np.array([math.floor(smallest * EIGENVALUE)]), ones, self.moves(terms)[0], 1 / EIGENVALUE)

    @classmethod
    def cases(cls, dimension: int) -> list[MinEigenvalue]:
        return [cls()]


@question
@dataclass(frozen=True)
class NormAtMost(Sum):
    """Sum over records of a ramp in the gradient norm at theta: +1/2 below 0.9 thresholds, -1/2 above 1.1. *Sensitivity*:
    each term lies in [-1/2, 1/2]: 1/2 for add_remove, 1 for replace_one. A gradient that is not finite counts as above the
    threshold. ``theta`` is a tuple of floats."""

    threshold: float
    theta: tuple[float, ...]
    words: ClassVar[str] = "how many gradients are short"

    def __post_init__(self) -> None:
        positive("NormAtMost.threshold", self.threshold, LEAST_NORM, MOST_NORM)
        vector("NormAtMost.theta", self.theta)

    def check(self, facts: Facts) -> None:
        fits(self.name, self.theta, facts)

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return 0.5, 1.0

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        return records.short(drawn, np.array(self.theta), self.threshold)

    @classmethod
    def cases(cls, dimension: int) -> list[NormAtMost]:
        return [cls(0.3, (0.1,) * dimension), cls(1e-3, (0.0,) * dimension), cls(1.0, (1e20,) * dimension)]


@question
@dataclass(frozen=True)
class Correct(Sum):
    """Sum over records of +1/2 where the model at theta picks the record's class, -1/2 where not. *Sensitivity*: 1/2 for
    add_remove, 1 for replace_one. The count jumps, so scores are exact or do not depend on a row's company. A row that is
    not finite counts as wrong. Labels are class numbers, or -1 and +1."""

    theta: tuple[float, ...]
    words: ClassVar[str] = "number of right answers"

    def __post_init__(self) -> None:
        vector("Correct.theta", self.theta)

    def check(self, facts: Facts) -> None:
        if facts.task == "regression":
            raise ValueError("Correct needs a classifier; ask SquaredError of a regression")
        fits(self.name, self.theta, facts)

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return 0.5, 1.0

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        count = 0
        for scores, labels, alive in records.scored(drawn, np.array(self.theta)):
            right = scores.argmax(1) == labels if scores.ndim == 2 else (scores > 0) == (labels > 0)
            finite = np.isfinite(scores).reshape(len(alive), -1).all(1)
            count += int(np.where(right & alive & finite, 1, -1).sum())
        return IntegerTotal(np.array([count]), 1, 0.5)

    @classmethod
    def cases(cls, dimension: int) -> list[Correct]:
        return [cls((0.3,) * dimension), cls((-1e20,) * dimension)]


@question
@dataclass(frozen=True)
class SquaredError(Sum):
    """Sum over records of (clamp(score, -1, 1) - clamp(y, -1, 1))^2 / 4 - 1/2, each in [-1/2, 1/2]. *Sensitivity*: 1/2 for
    add_remove, 1 for replace_one. A row that is not finite counts as the largest error."""

    theta: tuple[float, ...]
    words: ClassVar[str] = "sum of squared errors"

    def __post_init__(self) -> None:
        vector("SquaredError.theta", self.theta)

    def check(self, facts: Facts) -> None:
        if facts.outputs > 1:
            raise ValueError("SquaredError needs a model with one output; ask Correct of a classifier")
        fits(self.name, self.theta, facts)

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return 0.5, 1.0

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        total = 0
        for scores, labels, alive in records.scored(drawn, np.array(self.theta)):
            away = np.minimum(np.maximum(scores, -1), 1) - np.minimum(np.maximum(labels, -1), 1)
            share = np.where(alive & np.isfinite(scores), away * away / 4 - 0.5, 0.5)
            total += int(np.rint(share * (2 * FINE)).astype(np.int64).sum())
        return IntegerTotal(np.array([total]), FINE, 0.5)

    @classmethod
    def cases(cls, dimension: int) -> list[SquaredError]:
        return [cls((0.3,) * dimension)]


def _added(parts: Sequence[NDArray[Any]], length: int) -> Integers:
    total = np.zeros(length, np.int64)
    for part in parts:
        total += part.astype(np.int64)
    return total


def _second_moment(records: Records, drawn: Drawn) -> Integers:
    """Exact: a chunk's products are integers below 2^53 in all."""
    total = np.zeros((records.columns, records.columns), np.int64)
    for rows, _, _ in records.unit_rows(drawn):
        total += (rows.T @ rows).astype(np.int64)
    return total
