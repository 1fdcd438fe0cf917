"""The gate: the one place that charges, draws, makes noise and logs, in this order (a curator's answers alone are logged).

Every access to private records passes through here: a curator's questions, whole walks, the choice among finished models, counts of
columns, searches (runs charged as a whole, rows dealt by coins, secret draws of candidates) and both interfaces for PyTorch. No
other file charges a meter or makes a private stream (``tests/test_house.py``), except to replay a statement, which releases
nothing, and for public rows.

*A record without a label* keeps its place and is in no answer: batches are drawn, and shards dealt, from all places, and the
record is removed from the draw before a question sees it. Its part of every total is zero, also of counts. So losing a label
moves a total by the record's own part, as removing the record does, which is never more than replacing it does (a law checks
that), and the draws of all other records stay. In whole walks it is a row of zeros, whose slope is zero, and takes its step.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence, Sized
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .events import BoundedRange, Event, Gaussian, Sampling, plain_sampling, rebuilt, sampled
from .facts import Answer, Facts, Released
from .meter import Meter
from .models import Model
from .noise import Stream
from .opening import MeterView, checked_meter
from .process import own_settings
from .question import HowAsked, Proved, Question, WholeRun, checked_noise
from .stores.protocol import HeldRecords
from .stores.shards import Shards
from .stores.totals import Drawn, fixed_size
from .tickets import Tally, Ticket
from .units import LOST

_sampled = lru_cache(maxsize=16)(sampled)  # most runs ask with few kinds of noise; both arguments are public


def secret(seed: int | None, use: str = "") -> Stream:
    """A new source of secret randomness; with a seed, a simulation. Each ``use`` has its own key."""
    return Stream(seed, use)


def draw(sampling: Sampling, records: Sized, stream: Stream) -> NDArray[np.int64] | None:
    """Secret row numbers of a fresh batch; None means every record.

    Poisson: each record joins independently. Fixed: rate * records rows, rounded down, every subset equally likely.
    The same value builds the event (:func:`~.events.sampled`), so they cannot disagree.
    """
    match sampling:
        case ("poisson", rate):
            return stream.each_with_probability(rate, len(records))
        case ("fixed", rate):
            return stream.subset(fixed_size(rate, len(records)), len(records))
    return None


class Gate:
    """A meter, a stream of noise, and a lock: one question is answered at a time.

    ``meter``: a :class:`~.tickets.Tally` counts a loop without a cap; None is for a loop without noise, which promises nothing.
    """

    __slots__ = ("_lock", "_settings", "_within", "meter", "stream")

    def __init__(self, meter: Meter | Tally | None, seed: int | None = None) -> None:
        self.meter = meter if meter is None or type(meter) is Tally else checked_meter(meter)
        self.stream = secret(seed)
        self._lock, self._within, self._settings = threading.RLock(), 0, own_settings()

    def charge(self, event: Event) -> None:
        """Charge in advance for something that is charged as a whole: a search, or what was spent before a checkpoint."""
        own = rebuilt(event)
        with self:
            self._pay(own)

    def choose(self, epsilon: float, scores: Callable[[], Sequence[Fraction]], scale: Fraction) -> int:
        """i with probability proportional to exp(-scores[i] scale), for one ``BoundedRange(epsilon)``, which the caller proves."""
        with self:
            self._pay(BoundedRange(epsilon))
            return self.stream.choose_rational(scores(), scale)

    def open(self, noise: float, sampling: Sampling, records: Sized) -> Ticket:
        """A batch for a user's own loop: paid for, then drawn. Its noise is made once, when the ticket is used."""
        plainly, own = plain_sampling(sampling), 0.0 if self.meter is None else checked_noise(noise)
        with self:
            if own:
                self._pay(_sampled(plainly, Gaussian(own)))
            rows = draw(plainly, records, self.stream)
        return Ticket(self.stream, own, np.arange(len(records)) if rows is None else rows)

    def word(self) -> int:
        """A fresh secret number, for random draws inside a module."""
        return int(self.stream.words(1)[0])

    def _pay(self, event: Event) -> None:
        meter = self.meter
        assert meter is not None
        meter.spend(event)

    def __enter__(self) -> None:
        """Lock the gate while a question is answered, with the settings of :class:`own_settings`."""
        me = threading.get_ident()
        if self._within == me:
            raise RuntimeError("a question is being answered; ask the next one when it is done")
        self._lock.acquire()  # first: a waiting thread would be left with settings that the other one restores
        try:
            self._settings.__enter__()
        except BaseException:
            self._lock.release()
            raise
        self._within = me

    def __exit__(self, *_: object) -> None:
        self._within = 0
        try:
            self._settings.__exit__()
        finally:
            self._lock.release()


class Desk(Gate):
    """A curator's gate: the records that questions are about, and the trace of what was released.

    ``counted``: which records have a label; None: all of them.
    """

    __slots__ = ("arithmetic", "counted", "records", "trace", "view")
    meter: Meter

    def __init__(
        self, meter: Meter, seed: int | None, records: HeldRecords, counted: NDArray[np.bool_] | None = None
    ) -> None:
        super().__init__(checked_meter(meter), seed)
        self.view, self.records, self.counted = MeterView(meter), records, counted
        self.arithmetic = records.arithmetic  # of all that was released
        self.trace: list[Released] = []

    def release(
        self, asked: Question, how: HowAsked, facts: Facts, records: HeldRecords, shards: Shards | None = None
    ) -> Answer:
        """The answer to a question that was rebuilt and checked for these records. A refused charge touches nothing.

        ``shards``: how they are dealt, where they are asked shard by shard.
        """
        event = _sampled(how.sampling, asked.event(how.noise))
        with self:
            self._pay_for(records, event)
            drawn = Drawn(draw(how.sampling, records, self.stream), how.size).only(self.counted)
            totals = asked.totals(records if shards is None else shards.over(records, self.counted), drawn, how)
            answer = asked.answer(asked.noised(totals, how, self.stream), facts, how)
            self._log(asked, event, getattr(asked, "clip", None), answer, norm=asked.mean)
        return answer

    def end(self, whole: WholeRun, model: Model, facts: Facts, size: float, records: HeldRecords) -> Answer:
        """The end of a whole run at the data, which was rebuilt and checked; its class has the proof."""
        with self:
            event, std = whole.event(), whole.noise_std(facts, size)
            self._pay_for(records, event)
            answer = Answer(whole.end(model, records.float_rows(), facts, size, self.stream), std)
            self._log(whole, event, None, answer, norm=True)
        return answer

    def take_up(self, line: Released, kind: type[Proved] | None) -> None:
        """Charge for an answer that an earlier process of this run requested, and add it to the trace; no record is touched."""
        own = Released._make(line)._replace(event=rebuilt(line.event))
        with self:
            self._pay(own.event)
            self.arithmetic = self.arithmetic if kind is None else kind.graded(self.arithmetic)
            self.trace.append(own._replace(spent=self.meter.spent_fraction))

    def forfeit(self, share: float) -> None:
        """Give up the budget up to this share: an earlier process of this run may have spent it on answers that are lost."""
        with self:
            for event in self.meter.forfeit(share).elements():
                self.trace.append(Released(LOST, event, None, 0.0, None, self.meter.spent_fraction))

    def _pay_for(self, records: HeldRecords, event: Event) -> None:
        """Charge for a question that was checked for these records; refused if the rows were made anew since."""
        if records is not self.records:
            raise RuntimeError("rows were made anew while a question was on its way; ask it again")
        self._pay(event)

    def _log(self, asked: Proved, event: Event, clip: float | None, answer: Answer, *, norm: bool) -> None:
        """Update the grade of the run and add a line to its trace, from released values only."""
        self.arithmetic, length = asked.graded(self.arithmetic), None
        if norm:
            value = answer.value
            length = float(value) if value.ndim == 0 else math.sqrt(float(np.dot(value, value)))
        self.trace.append(Released(asked.name, event, clip, answer.noise_std, length, self.meter.spent_fraction))
