"""The line between the processes (ranks) of one run: whole messages, from rank 0 and to it, through torch.distributed.

Messages are plain data of ours: numbers, texts, arrays of numpy and frozen objects of noisewise. Nothing else is read from the
line. They go through a gloo group of their own, also where the run has a group on GPUs: what is sent is made of integers in
main memory. All ranks are the data holder's, and so is the network: nothing is encrypted here.
"""

from __future__ import annotations

import atexit
import io
import os
import pickle
from datetime import timedelta
from typing import Any, NoReturn, Protocol

import numpy as np

from .._version import __version__
from ..late import torch
from ..torchrun import restarts

PATIENCE = 1800.0  # seconds that a rank waits for another
ASKED = "NOISEWISE_RANK_TIMEOUT"
PLAIN = {
    *(("numpy", name) for name in ("ndarray", "dtype")),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    *(("builtins", name) for name in ("slice", "set", "frozenset", "complex")),
    *((module, name) for module in ("pathlib", "pathlib._local") for name in ("PosixPath", "WindowsPath", "Path")),
}


class RankLost(ConnectionError):
    """A rank is gone, or did not answer as it should: nothing more is asked, and what was reserved stays charged."""


class Line(Protocol):
    """Between rank 0 and all others; a message that cannot be sent or received is a :class:`RankLost`."""

    rank: int
    ranks: int

    def send(self, to: int, message: Any) -> None: ...
    def receive(self, of: int) -> Any: ...
    def close(self) -> None: ...


class GlooLine:
    """A line through a gloo group that all ranks of a run make together, at the same place of their programs."""

    def __init__(self, wait: float | None = None) -> None:
        distributed = torch.distributed
        limit = timedelta(seconds=patience() if wait is None else wait)
        self._own, self._closed = not distributed.is_initialized(), False
        try:
            if self._own:
                store, rank, ranks = next(distributed.rendezvous("env://", timeout=limit))
                store = distributed.PrefixStore(
                    f"noisewise-{restarts()}", store
                )  # which may be that of an attempt before
                distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
                self._group = distributed.group.WORLD
            else:
                self._group = distributed.new_group(backend="gloo", timeout=limit)
            self.rank, self.ranks = distributed.get_rank(), distributed.get_world_size()
        except (RuntimeError, ValueError):
            raise RankLost("the ranks did not find each other; check MASTER_ADDR and MASTER_PORT") from None
        self._alike()

    def _alike(self) -> None:
        """Refuse ranks with other versions, whose sums may be others."""
        if self.rank:
            self.send(0, __version__)
        else:
            for rank in range(1, self.ranks):
                if self.receive(rank) != __version__:
                    raise RankLost(f"rank {rank} has another version of noisewise; install the same everywhere")

    def _check(self, other: int) -> None:
        if self._closed:
            _gone(other)

    def send(self, to: int, message: Any) -> None:
        """One message, whole when this returns."""
        body = torch.from_numpy(np.frombuffer(bytearray(packed(message)), np.uint8))
        self._check(to)
        try:
            torch.distributed.send(torch.tensor([len(body)]), dst=to, group=self._group)
            torch.distributed.send(body, dst=to, group=self._group)
        except RuntimeError:
            _gone(to)

    def receive(self, of: int) -> Any:
        """The next message of a rank."""
        length = torch.zeros(1, dtype=torch.int64)
        self._check(of)
        try:
            torch.distributed.recv(length, src=of, group=self._group)
            body = torch.empty(int(length), dtype=torch.uint8)
            torch.distributed.recv(body, src=of, group=self._group)
        except RuntimeError:
            _gone(of)
        return unpacked(body.numpy().data)

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


def packed(message: Any) -> bytes:
    """A message as bytes."""
    return pickle.dumps(message, protocol=5)


def unpacked(body: bytes | memoryview) -> Any:
    """The message that bytes of somebody trusted stand for; whatever is not plain data in them is refused."""
    return _Plain(io.BytesIO(body)).load()


class _Plain(pickle.Unpickler):
    """Reads what messages are made of and refuses everything else by name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in PLAIN:
            return super().find_class(module, name)
        if module.startswith("noisewise.") and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a message between ranks")


def patience() -> float:
    """Seconds that a rank waits for another."""
    text = os.environ.get(ASKED, "")
    try:
        seconds = float(text) if text else PATIENCE
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise ValueError(f"{ASKED} is {text!r}; set it to seconds above 0 that a rank waits for another")
    return seconds


def _gone(rank: int) -> NoReturn:
    raise RankLost(f"rank {rank} is gone or did not answer in time; this run stops") from None
