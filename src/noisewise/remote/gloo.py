"""A line through torch.distributed: the processes that torchrun started.

Messages go through a gloo group of their own, also where the run has a group on GPUs: what is sent is made of integers in
main memory.
"""

from __future__ import annotations

import atexit
from datetime import timedelta
from typing import Any

import numpy as np

from .._version import __version__
from ..trusted.torch_extra import torch
from .forms import packed, unpacked
from .messages import BadMessage
from .torchrun import restarts
from .transport import MAX_BYTES, RankLost, gone, patience


class GlooLine:
    """A line through a gloo group that all ranks of a run make together, at the same place of their programs."""

    def __init__(self, wait: float | None = None) -> None:
        distributed = torch.distributed
        limit = timedelta(seconds=patience() if wait is None else wait)
        self._own, self._closed = not distributed.is_initialized(), False
        try:
            if self._own:
                store, rank, size = next(distributed.rendezvous("env://", timeout=limit))
                store = distributed.PrefixStore(
                    f"noisewise-{restarts()}", store
                )  # which may be that of an attempt before
                distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
                self._group = distributed.group.WORLD
            else:
                self._group = distributed.new_group(backend="gloo", timeout=limit)
            self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
        except (RuntimeError, ValueError):
            raise RankLost("the ranks did not find each other; check MASTER_ADDR and MASTER_PORT") from None
        self._alike()

    def _alike(self) -> None:
        """Refuse ranks with other versions, whose sums may be others."""
        if self.rank:
            self.send(0, __version__)
        else:
            for rank in range(1, self.world_size):
                if self.receive(rank) != __version__:
                    raise RankLost(f"rank {rank} has another version of noisewise; install the same everywhere")

    def _check(self, other: int) -> None:
        if self._closed:
            gone(other)

    def send(self, to: int, message: Any) -> None:
        """One message, whole when this returns."""
        body = torch.from_numpy(np.frombuffer(bytearray(packed(message)), np.uint8))
        self._check(to)
        try:
            torch.distributed.send(torch.tensor([len(body)]), dst=to, group=self._group)
            torch.distributed.send(body, dst=to, group=self._group)
        except RuntimeError:
            gone(to)

    def receive(self, of: int) -> Any:
        """The next message of a rank."""
        length = torch.zeros(1, dtype=torch.int64)
        self._check(of)
        try:
            torch.distributed.recv(length, src=of, group=self._group)
            if not 0 < int(length) <= MAX_BYTES:
                gone(of)
            body = torch.empty(int(length), dtype=torch.uint8)
            torch.distributed.recv(body, src=of, group=self._group)
        except RuntimeError:
            gone(of)
        try:
            return unpacked(body.numpy().data, MAX_BYTES)
        except BadMessage:
            gone(of)

    def close(self) -> None:
        """Leave the group, which was made here unless the program had one; whoever waits for this rank sees it gone."""
        if not self._closed:
            self._closed = True
            torch.distributed.destroy_process_group(None if self._own else self._group)


_lines: list[GlooLine] = []


def common_line() -> GlooLine:
    """The line of this process, which all runs of it share: ranks meet once."""
    if not _lines:
        _lines.append(GlooLine())
        atexit.register(_lines[0].close)
    return _lines[0]
