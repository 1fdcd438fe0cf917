"""The line between the processes (ranks) of one run: whole messages, from rank 0 and to it.

Messages are plain data and a short list of noisewise's own frozen objects (:mod:`.forms`); nothing else is read from the line.
All ranks are the data holder's, and so is the network: nothing is encrypted here. :mod:`.gloo` is the line that torchrun's
processes have.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn, Protocol

PATIENCE_SECONDS = 1800.0  # that a rank waits for another
ASKED = "NOISEWISE_RANK_TIMEOUT"
MAX_BYTES = 1 << 36  # of a message between ranks, which may be all rows of one


class RankLost(ConnectionError):
    """A rank is gone, or did not answer as it should: nothing more is asked, and what was reserved stays charged."""


class Transport(Protocol):
    """Between rank 0 and all others; a message that cannot be sent or received is a :class:`RankLost`."""

    rank: int
    world_size: int

    def send(self, to: int, message: Any) -> None: ...
    def receive(self, of: int) -> Any: ...
    def close(self) -> None: ...


def patience() -> float:
    """Seconds that a rank waits for another."""
    text = os.environ.get(ASKED, "")
    try:
        seconds = float(text) if text else PATIENCE_SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise ValueError(f"{ASKED} is {text!r}; set it to seconds above 0 that a rank waits for another")
    return seconds


def gone(rank: int) -> NoReturn:
    raise RankLost(f"rank {rank} is gone or did not answer in time; this run stops") from None
