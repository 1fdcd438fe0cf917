"""Which process this is: what belongs to one process is of no use in a forked copy of it.

A forked copy of a meter would spend the same budget twice, and a forked stream would draw the same noise twice. The number of
a process is not enough to tell a fork: numbers are used again, and after some generations a child has its ancestor's.
So a fork is told by a counter *and* by the number, and either changed means forked.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import Any

import numpy as np

Process = tuple[int, int, int]

PR_SET_DUMPABLE = 4

_forks = 0
_born = int.from_bytes(
    os.urandom(6), "big"
)  # tells processes of several machines apart, which may have the same number


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


def this_process() -> Process:
    """What tells this process from every other, its forks and its parent included."""
    return os.getpid(), _forks, _born


def hide_memory() -> None:
    """Let no other process of this user read the memory of this one, and let no crash write it to a file.

    Called wherever rows come to be held, after the process's own exec, which would undo it. Root reads it all the same.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


# Settings of numpy, and of torch where it is in use, that are in force while rows are touched, whatever the caller has set.


_lock = threading.Lock()
_inside: list[None] = []  # one for each that is in force, in whatever thread
_usual: list[Any] = []  # the caller's default type of torch, while there are any


class own_settings:  # noqa: N801 (a statement's word, as those of contextlib)
    """Whatever touches rows does so in here.

    An overflow neither warns nor raises, because that would tell that some record made it. Where torch has been imported,
    functions that one of its modes replaces (``torch.set_default_device`` is one) are its own, and new tensors are float32,
    so that rows are always kept alike; a torch that is imported in here has had no time for other settings.
    """

    __slots__ = ("_plain", "_silent", "_torch")

    def __enter__(self) -> None:
        self._torch = torch = _whole_torch()
        if torch is not None:
            self._plain = torch._C.DisableTorchFunction()
            self._plain.__enter__()
            with _lock:  # torch has one default for all threads: who comes first sets it, who leaves last gives it back
                if not _usual:
                    _usual.append(torch.get_default_dtype())
                    if _usual[0] is not torch.float32:
                        torch.set_default_dtype(torch.float32)
                _inside.append(None)
        self._silent = np.errstate(all="ignore")
        self._silent.__enter__()

    def __exit__(self, *_: object) -> None:
        self._silent.__exit__(None, None, None)
        torch = self._torch  # that of the beginning, whatever was imported or taken away since
        if torch is None:
            return
        try:
            with _lock:
                _inside.pop()
                if not _inside and (usual := _usual.pop()) is not torch.float32:
                    torch.set_default_dtype(usual)
        finally:
            self._plain.__exit__(None, None, None)


def _whole_torch() -> Any:
    """The torch that this library computes with, or will; None while another thread imports it, or for something else of
    its name: neither has settings that rows could meet."""
    own = getattr(sys.modules.get(f"{__package__}.torch_extra"), "torch", None)
    if own is not None:
        return own
    torch = sys.modules.get("torch")
    importing = getattr(getattr(torch, "__spec__", None), "_initializing", False)
    return None if importing or not hasattr(torch, "_C") else torch
