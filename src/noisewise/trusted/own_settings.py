"""Settings of numpy and torch that are in force while rows are touched, whatever the caller has set."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from .late import torch

_lock = threading.Lock()
_inside: list[None] = []  # one for each that is in force, in whatever thread
_usual: list[Any] = []  # the caller's default, while there are any


class own_settings:  # noqa: N801 (a statement's word, as those of contextlib)
    """Whatever touches rows does so in here.

    An overflow neither warns nor raises, because that would tell that some record made it. Functions that a mode of torch
    replaces (``torch.set_default_device`` is one) are torch's own, and new tensors are float32, so that rows are always kept
    alike.
    """

    __slots__ = ("_plain", "_silent")

    def __enter__(self) -> None:
        self._silent, self._plain = np.errstate(all="ignore"), torch._C.DisableTorchFunction()
        self._silent.__enter__()
        self._plain.__enter__()
        with _lock:  # torch has one default for all threads: who comes first sets it, who leaves last gives it back
            if not _usual:
                _usual.append(torch.get_default_dtype())
                if _usual[0] is not torch.float32:
                    torch.set_default_dtype(torch.float32)
            _inside.append(None)

    def __exit__(self, *_: object) -> None:
        with _lock:
            _inside.pop()
            if not _inside and (usual := _usual.pop()) is not torch.float32:
                torch.set_default_dtype(usual)
        self._plain.__exit__(None, None, None)
        self._silent.__exit__(None, None, None)
