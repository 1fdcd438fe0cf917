"""What a run released, and its tape: released answers in order, from which standard errors are computed.

*Guarantee*: nothing here spends anything, and a tape holds released answers and where they were asked, no record.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..asking import Answer, Curator, Facts, Wrapping, array
from ..trusted.arithmetic import Arithmetic
from ..trusted.events import FULL, Sampling
from ..trusted.features import Features
from ..trusted.models import Model
from ..trusted.units import Released
from . import AdditiveMeter, PlanMeter

Array = NDArray[Any]
MAX_RECORDED_NUMBERS = 20_000_000  # a longer run has no standard errors


class TapeEntry(NamedTuple):
    """One released answer: what was asked, where, and how noisy the answer is."""

    question: str
    value: Any
    noise_std: float
    below: float | None
    noise_multiplier: float
    spent: float
    theta: Array | None
    scale: Array | None
    basis: Array | None


@dataclass(frozen=True)
class RecordedAnswers:
    """Everything a run was answered, in order, and what was public when it began."""

    model: Model
    start: Array
    facts: Facts
    spent: float
    entries: tuple[TapeEntry, ...]


@dataclass(frozen=True)
class Trained:
    """What a run released: the parameters, the trace, and everything a statement needs."""

    theta: Array
    trace: tuple[Released, ...]
    facts: Facts
    meter: AdditiveMeter | PlanMeter | None
    simulation: bool
    steps: int
    arithmetic: Arithmetic | None = None  # how exact sums and noise were; None when nothing is promised
    tape: RecordedAnswers | None = (
        None  # released answers, from which standard errors are computed; None when there are none
    )
    features: Features | None = None  # what rows of a table were made of at the end
    spread: Array | None = None  # the deviation of the noise on theta, where the method knows it
    shares: Array | None = None  # of the records that have each coordinate of the features, as released
    protector: Any = None  # one that was trained on the records, from released answers (protect.learned.zoo.Learned)


class Recording(Wrapping):
    """A curator that also keeps what it released; whoever asks it notices nothing.

    ``most``: how many numbers are kept; a run that releases more has no tape.
    """

    def __init__(self, curator: Curator, *, most: int = MAX_RECORDED_NUMBERS) -> None:
        super().__init__(curator)
        self._most, self._kept = most, 0
        self._entries: list[TapeEntry] = []
        self._facts, self._spent = curator.facts, curator.meter.spent_fraction

    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        answer = self._asked.ask(question, noise=noise, sampling=sampling)
        given = [getattr(question, name, None) for name in ("theta", "scale", "basis")]
        at = [part.astype(np.float32) if isinstance(part, np.ndarray) else None for part in given]
        return self._keep(kind_of(question), answer, float(noise), *at)

    def last_iterate(self, walk: Any) -> Answer:
        return self._keep("last_iterate", self._asked.last_iterate(walk))

    def minimise(self, objective: Any) -> Answer:
        return self._keep("minimise", self._asked.minimise(objective))

    def change_basis(self, matrix: Any) -> None:
        self._asked.change_basis(matrix)
        self._keep("change_basis", Answer(np.asarray(array(matrix), np.float64), 0.0))

    def prepare(self, features: Features) -> None:
        self._asked.prepare(features)
        self._keep("prepare", Answer(np.zeros(0), 0.0))

    def _keep(
        self,
        question: str,
        answer: Answer,
        noise: float = 0.0,
        theta: Array | None = None,
        scale: Array | None = None,
        basis: Array | None = None,
    ) -> Answer:
        self._kept += sum(part.size for part in (answer.value, theta, scale, basis) if part is not None)
        if self._kept > self._most:
            self._entries.clear()
            return answer
        value, spent = answer.value.copy(), self._asked.meter.spent_fraction
        self._entries.append(
            TapeEntry(question, value, answer.noise_std, answer.below, noise, spent, theta, scale, basis)
        )
        return answer

    def tape(self, model: Model, start: Array) -> RecordedAnswers | None:
        """What was kept, or None when it was too much."""
        if self._kept > self._most:
            return None
        return RecordedAnswers(deepcopy(model), start, self._facts, self._spent, tuple(self._entries))


def kind_of(question: Any) -> str:
    """How a tape names a question: all statistics are alike to a replay."""
    return question.name if question.name in ("gradient", "gradient_norm", "choose") else "statistic"
