"""The line between processes of torchrun: messages through a group of torch.distributed.

The group is one of gloo, also where the program has another on GPUs: what is sent is integers in main memory.
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
from .transport import MAX_BYTES, RankLost, gone, patience, restarts


class GlooLine:
    """A line through a gloo group, which all ranks make at the same place of their programs."""

    def __init__(self, wait: float | None = None) -> None:
        distributed = torch.distributed
        limit = timedelta(seconds=patience() if wait is None else wait)
        self._own, self._closed = not distributed.is_initialized(), False
        try:
            if self._own:
                store, rank, size = next(distributed.rendezvous("env://", timeout=limit))
                store = distributed.PrefixStore(f"noisewise-{restarts()}", store)  # which may be that of an earlier try
                distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
                self._group = distributed.group.WORLD
            else:
                self._group = distributed.new_group(backend="gloo", timeout=limit)
            self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
        except (RuntimeError, ValueError):
            raise RankLost("the ranks did not find each other; check MASTER_ADDR and MASTER_PORT") from None
        self._compare_versions()

    def _compare_versions(self) -> None:
        """Refuse ranks with another version, which may add up otherwise."""
        if self.rank:
            self.send(0, __version__)
        else:
            for rank in range(1, self.world_size):
                if self.receive(rank) != __version__:
                    raise RankLost(f"rank {rank} has another version of noisewise; install the same everywhere")

    def send(self, to: int, message: Any) -> None:
        """Send a whole message."""
        body = torch.from_numpy(np.frombuffer(bytearray(packed(message)), np.uint8))
        if self._closed:
            gone(to)
        try:
            torch.distributed.send(torch.tensor([len(body)]), dst=to, group=self._group)
            torch.distributed.send(body, dst=to, group=self._group)
        except RuntimeError:
            gone(to)

    def receive(self, of: int) -> Any:
        """The next message of a rank."""
        length = torch.zeros(1, dtype=torch.int64)
        if self._closed:
            gone(of)
        try:
            torch.distributed.recv(length, src=of, group=self._group)
            if not 0 < int(length) <= MAX_BYTES:
                gone(of)
            body = torch.empty(int(length), dtype=torch.uint8)
            torch.distributed.recv(body, src=of, group=self._group)
            return unpacked(body.numpy().data, MAX_BYTES)
        except (RuntimeError, BadMessage):
            gone(of)

    def close(self) -> None:
        """Leave the group, and end it unless it is the program's own; ranks that wait for this one see it gone."""
        if not self._closed:
            self._closed = True
            torch.distributed.destroy_process_group(None if self._own else self._group)


_lines: list[GlooLine] = []


def common_line() -> GlooLine:
    """The line of this process, which all its runs share: ranks meet once."""
    if not _lines:
        _lines.append(GlooLine())
        atexit.register(_lines[0].close)
    return _lines[0]
