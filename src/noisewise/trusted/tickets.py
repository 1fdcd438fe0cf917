"""A user's own training loop: a meter without a cap that counts its events, and a batch of it, which the gate draws."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .counts import NotCopied
from .events import Event, Leaf, leaves
from .noise import Stream
from .question import released
from .stores.totals import Floats, IntegerTotal


class Tally(NotCopied):
    """Counts events and accepts all of them."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        super().__init__()
        self._events: Counter[Leaf] = Counter()

    @property
    def events(self) -> Counter[Leaf]:
        return Counter(self._events)

    def spend(self, event: Event) -> None:
        self._check_process()
        with self._lock:
            self._events.update(leaves(event))


class Ticket:
    """A batch of a user's own loop, paid for and drawn (``rows``). Its noise is made once.

    *Guarantee*: every record's part of the totals has norm at most ``norm`` in whole numbers, which the code that clips them
    proves (:func:`~.stores.modules.margin`); so with noise of deviation noise * norm they are the event that was paid for.
    """

    __slots__ = ("_lock", "_noise", "_stream", "rows")

    def __init__(self, stream: Stream, noise: float, rows: NDArray[np.int64]) -> None:
        self._stream: Stream | None = stream
        self._lock = threading.Lock()
        self._noise, self.rows = noise, rows

    def release(self, totals: Iterable[tuple[IntegerTotal, Any]], *, over: float) -> Iterator[Floats]:
        """Totals with noise, over a public number, each in a kind of floats; all with one ``one``, the batch's clip."""
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is None:
            raise RuntimeError("this batch has had its noise; draw the next one")
        return self._noised(totals, stream, over)

    def _noised(self, totals: Iterable[tuple[IntegerTotal, Any]], stream: Stream, over: float) -> Iterator[Floats]:
        for total, kind in totals:
            if self._noise:
                yield released(total, self._noise, total.one, stream, over=over, dtype=kind)
            else:
                yield (total.values * (total.worth / over)).astype(kind)
