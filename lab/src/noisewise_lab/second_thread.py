"""What a second thread gains on one large full batch, beside what two processes gain that know nothing of each other.

By the clock on the wall. The two processes say how much of a second core is there to be had: they share the memory's
bandwidth and whatever else the machine is doing, and never wait for each other.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear

from .speed import Workload, line, private_step, timed
from .threads import threads

ROWS, COLUMNS, STEPS = 3_000_000, 50, 5
PATIENCE = 600.0  # seconds that a process may take to lay out its rows


def large() -> Workload:
    """A logistic regression on rows of its own, a full batch for each step."""
    return Workload("logistic-large", ROWS, None, Linear(COLUMNS, Logistic()), lambda: line(COLUMNS), STEPS)


def second_thread(*, rounds: int = 15) -> dict[str, Any]:
    """Seconds of a step with one thread and with two, in turns, and how much more two processes do than one."""
    work = large()
    step, taken = private_step(work), []
    with two_processes(work) as together:
        for _ in range(rounds + 1):
            alone = []
            for count in (1, 2):
                with threads(count):
                    alone.append(timed(step, work.steps, time.perf_counter))
            taken.append((*alone, together()))
    one, two, both = zip(*taken[1:], strict=True)  # the first round warms up
    return {
        "workload": work.name,
        "rows": work.rows,
        "columns": work.model.features,
        "one": statistics.median(one),
        "two": statistics.median(two),
        "faster": statistics.median(a / b for a, b in zip(one, two, strict=True)),
        "two processes": statistics.median(2 * a / b for a, b in zip(one, both, strict=True)),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


@contextmanager
def two_processes(work: Workload) -> Iterator[Any]:
    """What lets two processes take a step each, at the same time, and gives the seconds of the slower one."""
    context = get_context("spawn")
    ends = [context.Pipe() for _ in range(2)]
    workers = [
        context.Process(target=_worker, args=(end, work.rows, work.model.features), daemon=True) for _, end in ends
    ]
    for worker in workers:
        worker.start()

    def together() -> float:
        for mine, _ in ends:
            mine.send("step")
        return max(_told(mine) for mine, _ in ends)

    try:
        for mine, _ in ends:
            _told(mine)
        yield together
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _told(mine: Any) -> float:
    if not mine.poll(PATIENCE):
        raise RuntimeError("a process that was to be timed says nothing")
    return float(mine.recv())


def _worker(end: Any, rows: int, columns: int) -> None:
    work = Workload("", rows, None, Linear(columns, Logistic()), lambda: line(columns), STEPS)
    step = private_step(work)
    with threads(1):
        end.send(timed(step, 1))
        while end.recv():
            end.send(timed(step, work.steps, time.perf_counter))
