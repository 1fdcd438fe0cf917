"""Settings of numpy and torch that are in force while rows are touched, whatever the caller has set."""

from __future__ import annotations

import numpy as np

from .late import torch


class own_settings:  # noqa: N801 (a statement's word, as those of contextlib)
    """Whatever touches rows does so in here.

    An overflow neither warns nor raises, because that would tell that some record made it. Functions that a mode of torch
    replaces (``torch.set_default_device`` is one) are torch's own, and new tensors are float32, so that rows are always kept
    alike.
    """

    __slots__ = ("_plain", "_silent", "_usual")

    def __enter__(self) -> None:
        self._usual = torch.get_default_dtype()
        self._silent, self._plain = np.errstate(all="ignore"), torch._C.DisableTorchFunction()
        self._silent.__enter__()
        self._plain.__enter__()
        if self._usual is not torch.float32:
            torch.set_default_dtype(torch.float32)

    def __exit__(self, *_: object) -> None:
        if self._usual is not torch.float32:
            torch.set_default_dtype(self._usual)
        self._plain.__exit__(None, None, None)
        self._silent.__exit__(None, None, None)
