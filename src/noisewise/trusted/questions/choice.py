"""Which of several candidates has a small loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from ..events import BoundedRange, Mechanism
from ..facts import Answer, Facts
from ..noise import Stream
from ..question import CLIP_RANGE, AnswerLine, HowAsked, Question, between, flat, question
from ..stores.protocol import HeldRecords
from ..stores.totals import Drawn, Floats, IntegerTotal

ROWS_AT_ONCE = 1 << 14  # that candidates are scored on side by side


@question
@dataclass(frozen=True, eq=False)
class Choice(Question):
    """The index of a candidate with a small loss: the exponential mechanism on sums of clipped losses, drawn exactly.

    Candidate i is chosen with probability proportional to exp(-S_i epsilon / B) under add_remove and
    exp(-S_i epsilon / (2B)) under replace_one, S_i the sum over the batch of min(loss, B) in integers; a loss that is not
    finite counts as B.
    *Sensitivity*: losses lie in [0, B]. Adding a record raises every candidate's sum by 0 to B, all in one
    direction, so the log-odds of two candidates move within an interval of length epsilon at scale B/epsilon.
    Replacing one moves them by up to B in either direction, which needs twice the scale. Both are BoundedRange.
    """

    thetas: tuple[Floats, ...]
    clip: float
    name: ClassVar[str] = "choose"
    words: ClassVar[str] = "the best of several candidates"
    mechanism: ClassVar[type[Mechanism]] = BoundedRange
    of_tensors: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if type(self.thetas) is not tuple or not self.thetas:
            raise ValueError("thetas is no tuple or empty; pass at least one candidate")
        for theta in self.thetas:
            flat("theta", theta)
        between("loss_bound", self.clip, *CLIP_RANGE)

    def check(self, facts: Facts) -> None:
        if any(len(theta) != facts.dimension for theta in self.thetas):
            raise ValueError(f"thetas has candidates of other lengths; pass flat arrays of {facts.dimension}")

    def event(self, noise: float) -> Mechanism:
        return BoundedRange(noise)

    def moves(self, how: HowAsked) -> tuple[float, float]:
        return self.clip, 2 * self.clip

    def noise_std(self, how: HowAsked) -> float:
        """The scale of the Gumbel noise that would choose alike."""
        return how.rows * self.clip / how.noise * (2 if how.adjacency == "replace_one" else 1)

    def numbers(self, facts: Facts) -> float:
        return len(self.thetas) * ROWS_AT_ONCE

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return records.losses(drawn, self.thetas, self.clip)

    def noised(self, totals: Sequence[IntegerTotal], how: HowAsked, stream: Stream) -> Sequence[Floats]:
        scale = Fraction(how.noise) / (totals[0].ones * how.rows * (2 if how.adjacency == "replace_one" else 1))
        return [np.array([float(stream.choose(totals[0].values, scale))])]

    def answer(self, noisy: Sequence[Floats], facts: Facts, how: HowAsked) -> Answer:
        return Answer(np.asarray(int(noisy[0][0])), self.noise_std(how))

    @classmethod
    def like(cls, line: AnswerLine) -> list[Choice]:
        return [] if line.clip is None else [cls((np.zeros(1),), line.clip)]

    @classmethod
    def cases(cls, dimension: int) -> list[Choice]:
        return [cls((np.zeros(dimension), np.full(dimension, 0.2)), 1.0)]
