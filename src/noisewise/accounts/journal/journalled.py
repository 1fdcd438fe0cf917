"""A curator whose answers are written to a journal, and the meter of a run that can be resumed."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from ...asking import Answer, Curator, CuratorWrapper
from ...trusted.events import FULL, Event, Gaussian, Sampling, plain_sampling, sampled
from ...trusted.question import checked_noise, rebuilt
from ...trusted.questions.moments import Count
from ...trusted.units import LOST, Released
from ...trusted.walks.oneshot import rebuilt_walk
from .. import Budget, BudgetExhausted, Meter, MeterView, Terms, open_meter
from ..account import Account
from ..purse import Purse, PurseShare
from ..spending_file import Claimed
from .folder import Forfeited, Journal, KeptAnswer

WHAT = "training"  # how a purse names runs with a journal, which claim what they draw


class Journalled(CuratorWrapper):
    """A curator whose answers are written down before they are used; answers that the journal has come from there."""

    def __init__(self, curator: Curator, journal: Journal) -> None:
        super().__init__(curator)
        self.__journal = journal
        self.__lock = threading.RLock()  # one question at a time, because a charge and its answer are two lines
        self.__pass_over_lost()

    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        asked, plainly, multiplier = rebuilt(question), plain_sampling(sampling), checked_noise(noise)
        # rebuilt once, so that what is written down is what is charged
        event = sampled(plainly, asked.event(multiplier))
        return self.__answer(
            asked.name, event, asked, lambda: self._asked.ask(asked, noise=multiplier, sampling=plainly)
        )

    def last_iterate(self, walk: Any) -> Answer:
        return self.__whole(walk, super().last_iterate)

    def minimise(self, objective: Any) -> Answer:
        return self.__whole(objective, super().minimise)

    def __whole(self, asked: Any, ask: Callable[[Any], Answer]) -> Answer:
        own = rebuilt_walk(asked, self.facts.dimension)
        return self.__answer(type(own).__name__, own.event(), own, lambda: ask(own))

    def release_size(self, *, noise_multiplier: float) -> None:
        """Buy the number of records, or take it from the journal."""

        def bought() -> Answer:
            size = self._asked.release_size(noise_multiplier=noise_multiplier)
            return Answer(np.array(size, np.float64), self.trace[-1].noise_std)

        self.__answer(Count.name, Gaussian(noise_multiplier), None, bought)

    def __answer(self, name: str, event: Event, asked: Any, ask: Callable[[], Answer]) -> Answer:
        """The answer from the journal, or a new one; ``asked`` is None for the size."""
        with self.__lock:
            return self.__again(name, event, asked) if self.__journal.past else self.__anew(name, event, ask)

    def __anew(self, name: str, event: Event, ask: Callable[[], Answer]) -> Answer:
        before, after = self.meter.spent_fraction, self.meter.share_after(event)
        if after > 1:
            return ask()  # the meter refuses, as it did when the run was finished
        if self.__journal.finished:
            raise RuntimeError("the run in this checkpoint is finished and asks no more; pass another folder")
        self.__journal.charged(name, event, before, after)
        try:
            answer = ask()
        except BudgetExhausted:
            self.__journal.refused()
            raise
        line = self.trace[-1]
        self.__journal.answered(answer, {"clip": line.clip, "noise_std": line.noise_std, "norm": line.norm})
        return answer

    def __again(self, name: str, event: Event, asked: Any) -> Answer:
        kept = self.__journal.past[0]  # it stays there until it is charged, also if that is refused
        same = isinstance(kept, KeptAnswer) and (kept.question, kept.event) == (name, event)
        if not isinstance(kept, KeptAnswer) or not same or kept.answer is None or kept.line is None:
            raise ValueError("the checkpoint's answers are to other questions than this run asks; pass another folder")
        line = Released(name, event, spent=0.0, **kept.line)
        self._asked.take_up(line, asked, kept.answer.value.item() if asked is None else None)
        self.__journal.past.popleft()
        self.__pass_over_lost()
        return kept.answer

    def __pass_over_lost(self) -> None:
        """Charge the meter of this process for events that were never answered, and for what was given up."""
        past = self.__journal.past
        while past:
            first = past[0]
            if isinstance(first, Forfeited):
                if not first.known or used(self.meter) < first.share:
                    self._asked.forfeit(first.share)
            elif first.answer is None:
                self._asked.take_up(Released(LOST, first.event, None, 0.0, None, 0.0))
            else:
                return
            past.popleft()


@contextmanager
def paid(source: Purse | Account, terms: Terms, budget: Budget, journal: Journal) -> Iterator[Meter]:
    """The meter of a run with a journal, settled when the run is complete; a stopped run can be resumed."""
    own = _part(source, terms, budget, journal)
    if own is None:
        yield open_meter(budget, terms)
        return
    yield from _claiming(own, journal)


def _claiming(part: PurseShare, journal: Journal) -> Iterator[Meter]:
    """A share that is claimed block by block, given back if nothing was drawn, and settled when the run is complete."""
    journal.paid_by(part)
    try:
        yield part.meter
    except Claimed:
        raise  # another process has taken up the run, and settles it
    except BaseException:
        given_back = False
        with suppress(OSError, ValueError, RuntimeError):  # otherwise it stays reserved
            given_back = journal.give_back()
        if not given_back:
            journal.stopped(used(part.meter))
        raise
    part.settle(journal=journal.finish())


def used(meter: Meter | MeterView) -> float:
    """The used share of a meter, rounded up."""
    return min(math.nextafter(meter.spent_fraction, 2.0), 1.0)


def _part(source: Purse | Account, terms: Terms, budget: Budget, journal: Journal) -> PurseShare | None:
    """The share that pays: the one of this run, or a new one if the purse has none. A finished run draws nothing more, so one
    that was settled needs none.
    """
    try:
        return source.part(terms, budget, what=WHAT, number=journal.claim)
    except (ValueError, BudgetExhausted):
        if not journal.finished:
            raise
        return None
