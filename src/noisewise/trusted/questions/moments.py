"""Sums over the rows: how many, how long, which way. Rows are cut to norm 1 first; one that is not finite counts as zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..facts import Answer, Facts
from ..question import AnswerLine, HowAsked, Question, always, between, itself, question
from ..stores.linear import LABEL, ROW
from ..stores.protocol import SUMS, HeldRecords
from ..stores.sums import cross_moment_sum, second_moment_sum, squared_length_sum
from ..stores.totals import Drawn, Floats, IntegerTotal


@question
@dataclass(frozen=True)
class Count(Question):
    """How many records there are. *Sensitivity*: 1 added or removed, and 1 replaced, by one without a label or of one."""

    words: ClassVar[str] = "the number of records"
    of_tensors: ClassVar[bool] = True
    moves = always(1.0, 1.0)
    cases = classmethod(itself)

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return IntegerTotal(np.array([drawn.count(len(records))]), 1, 1.0)


@question
@dataclass(frozen=True)
class FirstMoment(Question):
    """Sum of x, rows cut to norm 1. *Sensitivity*: ||x|| <= 1, so 1 for add_remove and 2 for replace_one."""

    words: ClassVar[str] = "the sum of the rows"
    shape: ClassVar[tuple[int, ...]] = (-1,)
    moves = always(1.0, 2.0)
    cases = classmethod(itself)

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return records.row_sum(drawn)


@question
@dataclass(frozen=True)
class SquaredLength(Question):
    """Sum of ||x||^2, rows cut to norm 1. *Sensitivity*: each term lies in [0, 1], so 1 for both relations."""

    words: ClassVar[str] = "the sum of the squared lengths of the rows"
    moves = always(1.0, 1.0)
    cases = classmethod(itself)

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return IntegerTotal(squared_length_sum(records, drawn), ROW * ROW, 1.0)


@question
@dataclass(frozen=True)
class SecondMoment(Question):
    """Sum of x x^T, rows cut to norm 1. *Sensitivity*: ||x x^T||_F = ||x||^2 <= 1, so 1 for add_remove; for two unit rows
    u, v ||u u^T - v v^T||_F^2 = 2 - 2 (u.v)^2 <= 2, so sqrt(2) for replace_one. The upper triangle is what is noised and
    then mirrored; its norm is at most the Frobenius norm."""

    words: ClassVar[str] = "the sum of squares and products of the columns"
    cases = classmethod(itself)

    def moves(self, how: HowAsked) -> tuple[float, float]:
        return 1.0, math.nextafter(math.sqrt(2), 2)

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        upper = np.triu_indices(records.columns)
        return IntegerTotal(second_moment_sum(records, drawn)[upper], ROW * ROW, 1.0)

    def numbers(self, facts: Facts) -> float:
        return SUMS["second_moment_sum"].entries(facts.features)

    def answer(self, noisy: Sequence[Floats], facts: Facts, how: HowAsked) -> Answer:
        matrix = np.zeros((facts.features, facts.features))
        matrix[np.triu_indices(facts.features)] = noisy[0]
        return Answer(matrix + np.triu(matrix, 1).T, self.noise_std(how))

    def flat(self, answer: Answer, facts: Facts, how: HowAsked) -> Floats:
        return np.asarray(answer.value, np.float64)[np.triu_indices(facts.features)]


LABEL_RANGE = 1e-12, 1e12  # of a label


@question
@dataclass(frozen=True)
class CrossMoment(Question):
    """Sum of x y, rows cut to norm 1 and y to [-bound, bound]. *Sensitivity*: ||x y|| <= bound, so bound and 2 bound."""

    bound: float = 1.0
    words: ClassVar[str] = "the sum of rows times labels"
    shape: ClassVar[tuple[int, ...]] = (-1,)

    def __post_init__(self) -> None:
        between("CrossMoment.bound", self.bound, *LABEL_RANGE)

    @classmethod
    def ranges(cls, how: HowAsked, line: AnswerLine) -> list[tuple[float, float]]:
        """A trace does not tell the bound."""
        low, high = (cls(bound).noise_std(how) for bound in LABEL_RANGE)
        return [(low, high)]

    def moves(self, how: HowAsked) -> tuple[float, float]:
        return self.bound, 2 * self.bound

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return IntegerTotal(cross_moment_sum(records, drawn, self.bound), ROW * LABEL, self.bound)

    @classmethod
    def cases(cls, dimension: int) -> list[CrossMoment]:
        return [cls(), cls(0.25), cls(30.0)]


EIGENVALUE = 1 << 30


@question
@dataclass(frozen=True)
class MinEigenvalue(Question):
    """Smallest eigenvalue of the sum of x x^T, rows cut to norm 1.

    *Sensitivity*: adding a row adds a positive semi-definite matrix of norm <= 1, which moves every eigenvalue by 0 to 1
    (Weyl). Replacing moves it by the difference of two such: at most 1. The matrix is exact, its eigenvalue comes from a
    solver that is off by at most e, which is charged: the unit is 1 + 2e, with e = columns 2^-22 for at most 2^27 rows
    (a backward-stable solver is off by about u columns times the norm, which is at most the number of rows)."""

    words: ClassVar[str] = "the smallest eigenvalue of the second moment"
    bounded: ClassVar[str] = "eigenvalues come from a floating-point solver whose error is charged"
    cases = classmethod(itself)

    def moves(self, how: HowAsked) -> tuple[float, float]:
        return 1.0 + 2 * self._error(how), 1.0 + 2 * self._error(how)

    def numbers(self, facts: Facts) -> float:
        return SUMS["second_moment_sum"].entries(facts.features)

    @staticmethod
    def _error(how: HowAsked) -> float:
        return how.features * 2.0**-22

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        moment = second_moment_sum(records, drawn) / float(ROW * ROW)
        smallest = float(np.linalg.eigvalsh(moment)[0])
        ones = math.ceil(EIGENVALUE * (1.0 + 2 * self._error(how)))
        return IntegerTotal(np.array([math.floor(smallest * EIGENVALUE)]), ones, self.moves(how)[0], 1 / EIGENVALUE)
