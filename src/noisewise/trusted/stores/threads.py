"""A pool of threads for sums over many records: starting a thread takes as long as a good part of such a sum."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import cache
from typing import TypeVar

MAX_THREADS = 256  # the pool grows up to that
P = TypeVar("P")
R = TypeVar("R")


@cache
def _crew() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="noisewise")


os.register_at_fork(after_in_child=_crew.cache_clear)  # a child has none of its parent's threads


def threads() -> int:
    """How many threads a sum may use: ``OMP_NUM_THREADS``, as in other libraries, or the number of cores."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = int(wanted[:9]) if wanted.isdecimal() else cores or 1  # int refuses thousands of digits
    return min(max(count, 1), MAX_THREADS)


def together(share: Callable[[P], R], parts: Sequence[P]) -> list[R]:
    """``share`` of every part, in order: the first on this thread, the others on the pool, with this thread's settings of numpy.

    None of them is still running when this returns or raises.
    """
    others = [_crew().submit(copy_context().run, share, part) for part in parts[1:]]
    try:
        first = share(parts[0])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]
