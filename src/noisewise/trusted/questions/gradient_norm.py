"""How long the mean of clipped gradients is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from ..facts import Answer, Facts
from ..question import CLIP_RANGE, AnswerLine, HowAsked, Question, between, flat, question
from ..stores.protocol import HeldRecords
from ..stores.totals import Drawn, Floats, IntegerTotal


@question
@dataclass(frozen=True, eq=False)
class GradientNorm(Question):
    """The norm of the mean clipped gradient at theta, or its square.

    *Sensitivity* of the norm of the sum: by the triangle inequality at most that of the sum, clip for add_remove
    and 2 clip for replace_one; the sum is in integers and its norm rounded down, so it moves by at most the whole number
    that stands for clip. It draws its own batch: choosing the noise of a gradient from a norm measured on
    the same batch has no known price.

    ``squared``: min(s, m C)^2 / m^2 is released, with s the norm of the sum and m the expected batch size.
    *Sensitivity*: t -> min(t, m C)^2 has slope at most 2 m C, so its value moves by at most 2 m C times what s
    moves, however many records there really are. (Hong et al. 2021 take (2 m - 1) C^2, which needs m to be the
    realised number of records; that is not public here, so the cap does the work.)
    """

    theta: Floats
    clip: float
    squared: bool = False
    name: ClassVar[str] = "gradient_norm"
    words: ClassVar[str] = "the norm of the mean gradient"
    of_tensors: ClassVar[bool] = True
    mean: ClassVar[bool] = True

    def __post_init__(self) -> None:
        flat("theta", self.theta)
        between("clip", self.clip, *CLIP_RANGE)
        if type(self.squared) is not bool:
            raise ValueError("squared is neither True nor False; pass one of them")

    def moves(self, how: HowAsked) -> tuple[float, float]:
        clip = how.row(self.clip)
        unit = 2 * how.size * clip * clip if self.squared else clip
        return unit, 2 * unit

    def noise_std(self, how: HowAsked) -> float:
        return how.noise * self.unit(how) / (how.size**2 if self.squared else how.size)

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        total = records.gradients(drawn, self.theta, how.row(self.clip))
        norm = math.isqrt(sum(int(value) ** 2 for value in total.values))
        if not self.squared:
            return IntegerTotal(np.array([norm]), total.ones, total.one)
        cap = math.ceil(Fraction(how.size) * total.ones)
        # so that squares fit into 64 bits, and what stands for the unit into 31; rounding down keeps whole bounds
        coarse = max(1, cap * cap >> 56, 2 * cap * total.ones >> 30)
        square, ones = min(norm, cap) ** 2 // coarse, -(-2 * cap * total.ones // coarse)
        return IntegerTotal(np.array([square]), ones, self.moves(how)[0], coarse * total.worth**2)

    def answer(self, noisy: Sequence[Floats], facts: Facts, how: HowAsked) -> Answer:
        value = float(noisy[0][0]) / (how.size**2 if self.squared else how.size)
        return Answer(np.asarray(value, np.float32), self.noise_std(how))

    def flat(self, answer: Answer, facts: Facts, how: HowAsked) -> Floats:
        return np.array([float(answer.value) * (how.size**2 if self.squared else how.size)])

    @classmethod
    def like(cls, line: AnswerLine) -> list[GradientNorm]:
        return [] if line.clip is None else [cls(np.zeros(1), line.clip, squared) for squared in (False, True)]

    @classmethod
    def cases(cls, dimension: int) -> list[GradientNorm]:
        near, far = np.full(dimension, 0.1), np.full(dimension, -1e20)
        return [cls(near, 0.5), cls(far, 0.5, True), cls(near, 2.0, True)]
