"""Where every question is answered: spend, total, noise, log, in this order and nowhere else."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from ..budget import AdditiveMeter, MeterView, PlanMeter
from ..events import Event, rebuilt, sampled
from ..facts import Answer, Facts, Released
from ..late import torch
from ..noise import Stream
from ..records.totals import Drawn
from .question import HowAsked
from .sampling import draw

_sampled = lru_cache(maxsize=16)(sampled)  # most runs ask with few kinds of noise; both arguments are public


def refuse_observers() -> None:
    """Refuse to touch rows while torch would tell somebody about them."""
    if torch._C._len_torch_dispatch_stack():
        raise RuntimeError("a dispatch mode of torch is on, which would see private rows; leave it before asking")
    if torch._C._autograd._profiler_enabled():
        raise RuntimeError("a profiler of torch is on, which would see how many records there are; stop it first")


@contextmanager
def unobserved() -> Iterator[None]:
    """Whatever touches rows does so in here: no setting of a library that a stranger left behind is in force.

    An overflow that warns, raises or calls back would tell whether some record made it; a mode of torch would be
    handed the rows, and a profiler the shapes of batches; another default precision would change how rows are kept.
    Rubbish of a stranger's is not collected meanwhile: its last words (``__del__``) could put all that back in force.
    """
    collecting, usual = gc.isenabled(), torch.float32
    gc.disable()
    try:
        refuse_observers()
        with np.errstate(all="ignore"), torch._C.DisableTorchFunction():
            if (usual := torch.get_default_dtype()) is not torch.float32:
                torch.set_default_dtype(torch.float32)
            yield
    finally:
        if usual is not torch.float32:
            torch.set_default_dtype(usual)
        if collecting:
            gc.enable()


class Desk:
    """Records, the meter that pays for what is asked of them, the stream of noise, and what was released."""

    __slots__ = ("_lock", "_within", "meter", "records", "stream", "trace", "view")

    def __init__(self, records: Any, meter: AdditiveMeter | PlanMeter, stream: Stream) -> None:
        self.records, self.meter, self.stream = records, meter, stream
        self.view = MeterView(meter)
        self._lock, self._within = threading.RLock(), 0
        self.trace: list[Released] = []

    def answer(self, asked: Any, how: HowAsked, facts: Facts | None) -> Answer:
        """The answer to a question that was rebuilt and checked. A refused charge touches nothing."""
        event = _sampled(how.sampling, asked.event(how.noise))
        with self.closed():
            self.meter.spend(event)
            drawn = Drawn(draw(how.sampling, self.records, self.stream), how.size)
            totals = asked.totals(self.records, drawn, how)
            answer: Answer = asked.answer(asked.noised(totals, how, self.stream), facts, how)
            self.log(asked.name, event, getattr(asked, "clip", None), answer, norm=asked.mean)
        return answer

    @contextmanager
    def closed(self) -> Iterator[None]:
        """The desk while a question is answered: one at a time, and nobody looks on (:func:`unobserved`)."""
        me = threading.get_ident()
        if self._within == me:
            raise RuntimeError("a question is being answered; ask the next one when it is done")
        with self._lock, unobserved():  # in this order: who waits would be left with settings that the other gives back
            self._within = me
            try:
                yield
            finally:
                self._within = 0

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
