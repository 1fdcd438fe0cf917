"""Threads that are kept for sums over many records: starting one anew takes as long as a good part of such a sum."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import cache
from typing import TypeVar

MAX_THREADS = 256  # as many are started as were ever needed at once
P = TypeVar("P")
R = TypeVar("R")


@cache
def _crew() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="noisewise")


os.register_at_fork(after_in_child=_crew.cache_clear)  # a child has none of its parent's threads


def threads() -> int:
    """How many threads a sum may use: as many as ``OMP_NUM_THREADS`` says, as for other libraries, or as there are cores."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(
        max(int(said[:9]) if said.isdecimal() else cores or 1, 1), MAX_THREADS
    )  # int refuses thousands of digits


def together(share: Callable[[P], R], parts: Sequence[P]) -> list[R]:
    """``share`` of every part, in order: the first on this thread, each other on one of the crew.

    They see this thread's settings of numpy, and none of them works on when this returns, however that is.
    """
    others = [_crew().submit(copy_context().run, share, part) for part in parts[1:]]
    try:
        first = share(parts[0])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]
