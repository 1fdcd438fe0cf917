"""The identity of this process: a meter or a stream of one process must not be used in a forked copy of it.

A forked copy of a meter would spend the same budget twice, and a forked stream would draw the same noise twice. A process id is
not enough to detect a fork, because ids are reused: after some generations a child may have the id of its ancestor. So a fork is
detected by a counter *and* by the id: if either has changed, the process was forked.
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
_born = int.from_bytes(os.urandom(6), "big")  # processes of several machines may have the same id


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


def this_process() -> Process:
    """Distinguishes this process from all others, including its forks and its parent."""
    return os.getpid(), _forks, _born


def hide_memory() -> None:
    """Let no other process of this user read the memory of this one, and let no crash write it to a file.

    Called wherever rows come to be held, after the process's own exec, which would undo it. Root reads it all the same.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


# --- settings of numpy and torch ---

_lock = threading.Lock()
_inside: list[None] = []  # one for each ``own_settings`` in force, in any thread
_usual: list[Any] = []  # the caller's default dtype of torch, while any is in force


class own_settings:  # noqa: N801 (a statement's word, as those of contextlib)
    """Settings in which rows are processed, whatever the caller has set.

    An overflow neither warns nor raises, because that would show that some record caused it. Where torch has been imported, no
    mode of the caller replaces its functions (as ``torch.set_default_device`` does), and new tensors are float32, so that rows are
    always stored alike; a torch that is first imported in here has no other settings yet.
    """

    __slots__ = ("_plain", "_silent", "_torch")

    def __enter__(self) -> None:
        self._torch = torch = _whole_torch()
        if torch is not None:
            self._plain = torch._C.DisableTorchFunction()
            self._plain.__enter__()
            with (
                _lock
            ):  # torch has one default for all threads: the first to enter sets it, the last to leave restores it
                if not _usual:
                    _usual.append(torch.get_default_dtype())
                    if _usual[0] is not torch.float32:
                        torch.set_default_dtype(torch.float32)
                _inside.append(None)
        self._silent = np.errstate(all="ignore")
        self._silent.__enter__()

    def __exit__(self, *_: object) -> None:
        self._silent.__exit__(None, None, None)
        torch = self._torch  # as it was on entry
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
