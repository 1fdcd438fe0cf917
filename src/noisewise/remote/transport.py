"""How the processes (ranks) of one run reach each other: what a line between them is, and whether torchrun started this process.

Messages go from rank 0 and to it, whole: plain data and a short list of noisewise's own frozen objects (:mod:`.forms`). All ranks belong
to the data holder, and so does the network: nothing is encrypted here. :mod:`.gloo` is the line between processes of torchrun,
:mod:`.workers` the one to workers of a cluster. Commands import this file before they import anything that takes long.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

RANK_SECONDS = 1800.0  # that a rank waits for another
SECONDS_VARIABLE = "NOISEWISE_RANK_TIMEOUT"
MAX_BYTES = 1 << 36  # of a message between ranks, which may be all rows of one
TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells every process
STAYS = "; this run stops, and what was reserved stays charged"


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
    text = os.environ.get(SECONDS_VARIABLE, "")
    try:
        seconds = float(text) if text else RANK_SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise ValueError(f"{SECONDS_VARIABLE} is {text!r}; set it to seconds above 0 that a rank waits for another")
    return seconds


def gone(rank: int) -> NoReturn:
    raise RankLost(f"rank {rank} is gone or did not answer in time; this run stops") from None


def started_by_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun started this process as one of several, by its environment."""
    return all(name in environment for name in TORCHRUN_VARIABLES) and environment["WORLD_SIZE"] not in ("", "0", "1")


def restarts(environment: Mapping[str, str] = os.environ) -> int:
    """How often torchrun has restarted this run."""
    count = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(count) if count.isdigit() else 0
