"""How good a finished model is: where its scores lie for which labels, or how far off its numbers are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..facts import Facts
from ..question import AnswerLine, HowAsked, Question, always, between, question, vector
from ..stores.linear import FINE
from ..stores.protocol import HeldRecords
from ..stores.scores import MOMENTS, error_moments, places, score_counts
from ..stores.totals import Drawn, IntegerTotal
from .levels import moved


@question
@dataclass(frozen=True)
class ScoreHistogram(Question):
    """How many records have a score of the model at theta between which edges, and which label.

    *Sensitivity*: edges are given beforehand. With two classes a record is in one cell, (bin of its score, label), with 1
    in it: 1 for add_remove, and sqrt(2) for replace_one, where it leaves one cell for another. With K > 2 it is in K + 2
    cells of as many histograms, with 1 in each (:func:`~noisewise.trusted.stores.scores.score_counts`): all counts together move
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
