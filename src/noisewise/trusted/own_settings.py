"""Settings of numpy, and of torch where it is in use, that are in force while rows are touched, whatever the caller has set."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

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
