"""How a model does on the records at one theta: sums of numbers between -1/2 and 1/2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..facts import Facts
from ..question import NORM_RANGE, HowAsked, Question, always, between, question, vector
from ..stores.linear import FINE
from ..stores.protocol import HeldRecords
from ..stores.sums import right_less_wrong, squared_errors
from ..stores.totals import Drawn, IntegerTotal


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
