"""How a model does on the records at one theta: norms, right answers, errors, and where its scores lie for which labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..facts import Facts
from ..question import NORM_RANGE, AnswerLine, HowAsked, Question, always, between, question, vector
from ..stores.linear import FINE
from ..stores.protocol import HeldRecords
from ..stores.sums import MOMENTS, error_moments, places, right_less_wrong, score_counts, squared_errors
from ..stores.totals import Drawn, IntegerTotal
from .columns import moved


class AtTheta:
    """A question about one theta of the model, a tuple of floats, to which a record adds between -1/2 and 1/2."""

    theta: tuple[float, ...]
    moves = always(0.5, 1.0)

    def __post_init__(self) -> None:
        vector(f"{type(self).__name__}.theta", self.theta)


@question
@dataclass(frozen=True)
class NormAtMost(AtTheta, Question):
    """Sum over records of a ramp in the gradient norm at theta: +1/2 below 0.9 thresholds, -1/2 above 1.1. *Sensitivity*:
    each term lies in [-1/2, 1/2]: 1/2 for add_remove, 1 for replace_one. A gradient that is not finite counts as above the
    threshold."""

    threshold: float
    theta: tuple[float, ...]
    words: ClassVar[str] = "how many gradients are short"
    of_tensors: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        between("NormAtMost.threshold", self.threshold, *NORM_RANGE)

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return records.short(drawn, np.array(self.theta), self.threshold)

    @classmethod
    def cases(cls, dimension: int) -> list[NormAtMost]:
        return [cls(0.3, (0.1,) * dimension), cls(1e-3, (0.0,) * dimension), cls(1.0, (1e20,) * dimension)]


@question
@dataclass(frozen=True)
class Correct(AtTheta, Question):
    """Sum over records of +1/2 where the model at theta picks the record's class, -1/2 where not. *Sensitivity*: 1/2 for
    add_remove, 1 for replace_one. The count jumps, so scores are exact or do not depend on a row's company. A row that is
    not finite counts as wrong. Labels are class numbers, or -1 and +1."""

    theta: tuple[float, ...]
    words: ClassVar[str] = "the number of right answers"

    @classmethod
    def of_model(cls, facts: Facts) -> None:
        if facts.task == "regression":
            raise ValueError("Correct needs a classifier; ask SquaredError of a regression")
        super().of_model(facts)

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return IntegerTotal(right_less_wrong(records, drawn, np.array(self.theta)), 1, 0.5)

    @classmethod
    def cases(cls, dimension: int) -> list[Correct]:
        return [cls((0.3,) * dimension), cls((-1e20,) * dimension)]


@question
@dataclass(frozen=True)
class SquaredError(AtTheta, Question):
    """Sum over records of (clamp(score, -1, 1) - clamp(y, -1, 1))^2 / 4 - 1/2, each in [-1/2, 1/2]. *Sensitivity*: 1/2 for
    add_remove, 1 for replace_one. A row that is not finite counts as the largest error."""

    theta: tuple[float, ...]
    words: ClassVar[str] = "the sum of squared errors"

    @classmethod
    def of_model(cls, facts: Facts) -> None:
        if facts.outputs > 1:
            raise ValueError("SquaredError needs a model with one output; ask Correct of a classifier")
        super().of_model(facts)

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return IntegerTotal(squared_errors(records, drawn, np.array(self.theta)), FINE, 0.5)

    @classmethod
    def cases(cls, dimension: int) -> list[SquaredError]:
        return [cls((0.3,) * dimension)]


# --- how good a finished model is ---


@question
@dataclass(frozen=True)
class ScoreHistogram(Question):
    """How many records have a score of the model at theta between which edges, and which label.

    *Sensitivity*: edges are given beforehand. With two classes a record is in one cell, (bin of its score, label), with 1
    in it: 1 for add_remove, and sqrt(2) for replace_one, where it leaves one cell for another. With K > 2 it is in K + 2
    cells of as many histograms, with 1 in each (:func:`~noisewise.trusted.stores.sums.score_counts`): all counts together move
    by sqrt(K + 2), and by at most sqrt(2 (K + 2)). However many cells there are. Cells jump, so scores are exact or do
    not depend on a row's company. A row that is not finite counts as surely wrong."""

    theta: tuple[float, ...]
    edges: tuple[float, ...]
    classes: float = 2.0
    words: ClassVar[str] = "a histogram of scores and labels"
    shape: ClassVar[tuple[int, ...]] = (-1,)

    def __post_init__(self) -> None:
        vector("ScoreHistogram.theta", self.theta)
        vector("ScoreHistogram.edges", self.edges)
        between("ScoreHistogram.classes", self.classes, 2, 1 << 12)
        if not self.edges or not (np.diff(self.edges) > 0).all() or self.classes != int(self.classes):
            raise ValueError("ScoreHistogram needs growing edges and a whole number of classes; pass them so")

    @classmethod
    def like(cls, line: AnswerLine) -> list[ScoreHistogram]:
        return [cls((0.0,), (0.0,), float(max(line.facts.outputs, 2)))]

    def check(self, facts: Facts) -> None:
        if facts.task == "regression" or self.classes != max(facts.outputs, 2):
            raise ValueError("ScoreHistogram needs a classifier of so many classes; ask ErrorMoments of a regression")
        super().check(facts)

    def moves(self, how: HowAsked) -> tuple[float, float]:
        return moved(places(self.classes))

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        edges = np.array(self.edges)
        return IntegerTotal(score_counts(records, drawn, np.array(self.theta), edges, int(self.classes)), 1, 1.0)

    @classmethod
    def cases(cls, dimension: int) -> list[ScoreHistogram]:
        two = [cls((0.3,) * dimension, (-1.0, 0.0, 1.0)), cls((-1e20,) * dimension, (0.0,))]
        return two + [cls(tuple(range(dimension)), (0.2, 0.5, 0.9), classes) for classes in (3.0, 4.0)]


@question
@dataclass(frozen=True)
class ErrorMoments(Question):
    """Sums over records of a, a^2, a^4, (y + 1)/2 and y^2, each less 1/2, for a = |score - y|/2, score and y clamped to
    [-1, 1]. *Sensitivity*: each of the five terms lies in [-1/2, 1/2], so a record's part has norm at most sqrt(5)/2, and
    two differ by at most sqrt(5). A row that is not finite counts as the largest error."""

    theta: tuple[float, ...]
    words: ClassVar[str] = "sums of powers of errors and targets"
    shape: ClassVar[tuple[int, ...]] = (-1,)
    moves = always(math.nextafter(math.sqrt(MOMENTS) / 2, 2), math.nextafter(math.sqrt(MOMENTS), 3))

    def __post_init__(self) -> None:
        vector("ErrorMoments.theta", self.theta)

    @classmethod
    def of_model(cls, facts: Facts) -> None:
        if facts.outputs > 1:
            raise ValueError("ErrorMoments needs a model with one output; ask ScoreHistogram of a classifier")
        super().of_model(facts)

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        sums, ones = error_moments(records, drawn, np.array(self.theta)), math.isqrt(MOMENTS * FINE * FINE) + 1
        return IntegerTotal(sums, ones, self.moves(how)[0], 0.5 / FINE)

    @classmethod
    def cases(cls, dimension: int) -> list[ErrorMoments]:
        return [cls((0.3,) * dimension), cls((-1e20,) * dimension)]
