"""How many threads a measured process uses: those of noisewise, of PyTorch and of linear algebra alike."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


def use_threads(count: int) -> None:
    """So many from now on."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    threadpool_limits(count)
    torch.set_num_threads(count)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads inside, as many as before afterwards."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    said, before = os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads()
    with threadpool_limits(count):
        use_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)
            os.environ.pop("OMP_NUM_THREADS") if said is None else os.environ.update(OMP_NUM_THREADS=said)
