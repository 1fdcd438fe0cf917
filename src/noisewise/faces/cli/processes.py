"""Records in other processes: with workers on Ray (``--records ray``), or at the ranks of torchrun.

Under ``torchrun -m noisewise train ...`` rank 0 runs the command; the other ranks hold pieces of the records and serve it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...remote.transport import restarts, started_by_torchrun
from .main import lead, leads, say

if TYPE_CHECKING:
    from ...remote.processes import Lead

RecordsOption = Annotated[
    str | None,
    typer.Option(help="ray: workers on Ray hold the records, each its pieces.", show_default="this process"),
]
RayWorkers = Annotated[
    int | None, typer.Option(min=1, help="How many workers.", show_default="one for each processor of the cluster")
]
RayAddress = Annotated[
    str | None, typer.Option(help="A Ray cluster that is there.", show_default="a new one on this machine")
]
COMMAND = "train"  # the only command that ranks share; rank 0 runs any other alone
SECONDS_TO_MEET = 15.0  # after which missing ranks are reported


@contextmanager
def torchrun_ranks() -> Iterator[bool]:
    """Whether the command runs in this process: always, unless torchrun started several and this is not rank 0.

    The others serve rank 0 in here until it is done; it lets them go whatever happens to it.
    """
    if not started_by_torchrun():
        yield True
        return
    shared = sys.argv[1:2] == [COMMAND]
    if not shared:
        yield os.environ["RANK"] == "0"
        return
    from ...remote.gloo import common_line
    from ...tables.fit.across_processes import lead_files, serve_files

    with _missed():
        line = common_line()
    try:
        if line.rank:
            serve_files(line)
            yield False
            return
        with _leading(lead_files(line), "torchrun"):
            yield True
    finally:
        line.close()


@contextmanager
def _missed() -> Iterator[None]:
    """Reports a long wait for other ranks: another program may have left these variables."""
    world_size, address, port = (os.environ[name] for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    message = (
        f"waiting for the others of {world_size} ranks at {address}:{port}, as RANK, WORLD_SIZE and MASTER_ADDR say; unset these "
        "if torchrun did not start this"
    )
    missing = threading.Timer(SECONDS_TO_MEET, say, [message])
    missing.start()
    try:
        yield
    finally:
        missing.cancel()


def refuse_restart(out: Path) -> None:
    """Refuse a restart by torchrun, which would spend again what an earlier attempt has spent."""
    if count := restarts():
        raise ValueError(
            f"torchrun has started this run anew (restart {count}); what the attempt before it spent, if anything, is in "
            f"{out.name}.spending.json beside --out or in its account, and stays charged. Nothing is spent again; train --resume {out} goes on"
        )


def refuse_records(records: str | None, workers: int | None, address: str | None) -> None:
    """Refuse, before anything is read, options of --records that do not go together."""
    if records is None:
        if workers is not None or address is not None:
            raise ValueError("--ray-workers and --ray-address say where records on Ray lie; add --records ray")
        return
    if records != "ray":
        raise ValueError(f"--records is {records!r}; pass ray, or leave it out for one process")
    if started_by_torchrun():
        raise ValueError("torchrun and --records ray are two ways to several processes; leave one of them out")
    from ...remote.workers import refuse_address, refuse_without_ray

    refuse_without_ray()
    refuse_address(address)


@contextmanager
def holders(records: str | None, workers: int | None, address: str | None) -> Iterator[Lead | None]:
    """The workers on Ray or the ranks of torchrun that hold the records; None where this process holds them."""
    if records is None:
        yield lead()
        return
    from ...tables.fit.across_processes import elsewhere

    with elsewhere(records, workers, address) as leader:
        assert leader is not None
        with _leading(leader, "a signal"):
            yield leader


@contextmanager
def _leading(leader: Lead, who: str) -> Iterator[None]:
    def terminated(*_: Any) -> None:
        """Ends this rank: torchrun terminates all ranks when one is lost. A rank that noticed before is ending already."""
        if not leader.broken:
            from ...remote.transport import RankLost

            raise RankLost(f"{who} ended this run; what was reserved stays charged")

    before = signal.signal(signal.SIGTERM, terminated)
    leads.append(leader)
    try:
        yield
    finally:
        leads.remove(leader)
        leader.stop()
        signal.signal(signal.SIGTERM, before)
