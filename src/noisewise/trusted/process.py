"""Which process this is: what belongs to one process is of no use in a forked copy of it.

A forked copy of a meter would spend the same budget twice, and a forked stream would draw the same noise twice. The number of
a process is not enough to tell a fork: numbers are used again, and after some generations a child has its ancestor's.
So a fork is told by a counter *and* by the number, and either changed means forked.
"""

from __future__ import annotations

import ctypes
import os
import sys

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
