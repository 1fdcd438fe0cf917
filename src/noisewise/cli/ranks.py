"""``torchrun -m noisewise train ...``: rank 0 is the command, the other ranks hold their pieces of the records and serve it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..torchrun import restarts, started_by_torchrun

if TYPE_CHECKING:
    from ..records.ranks import Lead

COMMAND = "train"  # the one that several processes share; of any other rank 0 does all
_leads: list[Lead] = []


def lead() -> Lead | None:
    """The ranks that this command has; None when it is one process."""
    return _leads[-1] if _leads else None


@contextmanager
def ranks() -> Iterator[bool]:
    """Whether the command runs in this process: always, unless torchrun started several and this is not rank 0.

    The others serve rank 0 in here until it is done; it lets them go whatever happens to it.
    """
    if not started_by_torchrun():
        yield True
        return
    shared = sys.argv[1:2] == [COMMAND]
    if not shared:
        yield _first()
        return
    from ..fitting.of_ranks import lead_files, serve_files
    from ..records.line import common_line

    line = common_line()
    try:
        if line.rank:
            serve_files(line)
            yield False
            return
        with _leading(lead_files(line)):
            yield True
    finally:
        line.close()


def refuse_restart(out: Path, *, private: bool) -> None:
    """Refuse to train anew what torchrun restarts: what an earlier attempt spent stays spent, and would be spent again."""
    if private and (count := restarts()):
        raise ValueError(
            f"torchrun has started this run anew (restart {count}); what the attempt before it spent, if anything, is in "
            f"{out.name}.spending.json beside --out or in its account, and stays charged. Nothing is spent again; train --resume {out} goes on"
        )


def _first() -> bool:
    import os

    return os.environ["RANK"] == "0"


@contextmanager
def _leading(leader: Lead) -> Iterator[None]:
    def terminated(*_: Any) -> None:
        """torchrun ends all ranks when one is gone; one that knows already is on its way."""
        if not leader.broken:
            from ..records.line import RankLost

            raise RankLost("torchrun ended this run; what was reserved stays charged")

    before = signal.signal(signal.SIGTERM, terminated)
    _leads.append(leader)
    try:
        yield
    finally:
        _leads.remove(leader)
        leader.stop()
        signal.signal(signal.SIGTERM, before)
