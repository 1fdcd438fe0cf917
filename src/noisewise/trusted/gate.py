"""Where every question is answered: spend, total, noise, log, in this order and nowhere else.

*A record without a label* keeps its place and is in no answer: batches are drawn, and shards dealt, of all places, and
it is taken out of what was drawn before a question sees it. Its part of every total is zero, of counts too. So losing a
label moves a total by the record's own part, as taking it out does, which no unit is below, and nobody else is drawn or
dealt otherwise. In whole walks it is a row of zeros, whose slope is zero, and takes its step.
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .events import Event, rebuilt, sampled
from .facts import Answer, Facts, Released
from .meter import AdditiveMeter, PlanMeter
from .noise import Stream
from .opening import MeterView
from .own_settings import own_settings
from .question import HowAsked
from .sampling import draw
from .stores.shards import Shards
from .stores.totals import Drawn

_sampled = lru_cache(maxsize=16)(sampled)  # most runs ask with few kinds of noise; both arguments are public


class Desk:
    """Records, the meter that pays for what is asked of them, the stream of noise, and what was released."""

    __slots__ = ("_lock", "_settings", "_within", "counted", "meter", "records", "stream", "trace", "view")

    def __init__(
        self, records: Any, meter: AdditiveMeter | PlanMeter, stream: Stream, counted: NDArray[np.bool_] | None = None
    ) -> None:
        self.records, self.meter, self.stream = records, meter, stream
        self.counted = counted  # None: every record
        self.view = MeterView(meter)
        self._lock, self._within, self._settings = threading.RLock(), 0, own_settings()
        self.trace: list[Released] = []

    def answer(
        self, asked: Any, how: HowAsked, facts: Facts | None, records: Any, shards: Shards | None = None
    ) -> Answer:
        """The answer to a question that was rebuilt and checked for these records. A refused charge touches nothing.

        ``shards``: how they are dealt, where they are asked shard by shard.
        """
        event = _sampled(how.sampling, asked.event(how.noise))
        with self:
            self.pay(event, records)
            drawn = Drawn(draw(how.sampling, records, self.stream), how.size).only(self.counted)
            totals = asked.totals(records if shards is None else shards.over(records, self.counted), drawn, how)
            answer: Answer = asked.answer(asked.noised(totals, how, self.stream), facts, how)
            self.log(asked.name, event, getattr(asked, "clip", None), answer, norm=asked.mean)
        return answer

    def pay(self, event: Event, records: Any) -> None:
        """Charge for what was checked for these records; refused if rows were made of other features since then."""
        if records is not self.records:
            raise RuntimeError("rows were made anew while a question was on its way; ask it again")
        self.meter.spend(event)

    def __enter__(self) -> None:
        """Close the desk while a question is answered: one at a time, with settings of its own."""
        me = threading.get_ident()
        if self._within == me:
            raise RuntimeError("a question is being answered; ask the next one when it is done")
        self._lock.acquire()  # before all else: who waits would be left with settings that the other gives back
        self._settings.__enter__()
        self._within = me

    def __exit__(self, *_: object) -> None:
        self._within = 0
        self._settings.__exit__()
        self._lock.release()

    def released(self) -> tuple[Released, ...]:
        """The trace with events of its own: whoever changes one changes nothing here."""
        return tuple(line._replace(event=rebuilt(line.event)) for line in self.trace)

    def log(self, question: str, event: Event, clip: float | None, answer: Answer, *, norm: bool) -> None:
        """A line of the trace, made of what was released."""
        length = None
        if norm:
            value = answer.value.numpy()
            length = float(value) if value.ndim == 0 else math.sqrt(float(np.dot(value, value)))
        self.trace.append(Released(question, event, clip, answer.noise_std, length, self.meter.spent_fraction))
