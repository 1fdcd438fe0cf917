"""The settings of libraries that are in force while rows are touched: our own, whatever a stranger left behind."""

from __future__ import annotations

import gc

import numpy as np

from ..late import torch

GLOBAL_HOOKS = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
)


def refuse_observers() -> None:
    """Refuse to touch rows while torch would tell somebody about them."""
    if torch._C._len_torch_dispatch_stack():
        raise RuntimeError("a dispatch mode of torch is on, which would see private rows; leave it before asking")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise RuntimeError("hooks on saved tensors are on, which would see private rows; leave them before asking")
    if any(getattr(torch.nn.modules.module, name) for name in GLOBAL_HOOKS):
        raise RuntimeError("hooks on all modules are on, which would see private rows; remove them before asking")
    if torch._C._autograd._profiler_enabled():
        raise RuntimeError("a profiler of torch is on, which would see how many records there are; stop it first")


class unobserved:  # noqa: N801 (a statement's word, as those of contextlib)
    """Whatever touches rows does so in here: no setting of a library that a stranger left behind is in force.

    An overflow that warns, raises or calls back would tell whether some record made it; a mode of torch would be
    handed the rows, and a profiler the shapes of batches; another default precision would change how rows are kept.
    Rubbish of a stranger's is not collected meanwhile: its last words (``__del__``) could put all that back in force.
    """

    __slots__ = ("_collecting", "_silent", "_unasked", "_usual")

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        gc.disable()
        self._usual = torch.get_default_dtype()
        self._silent, self._unasked = np.errstate(all="ignore"), torch._C.DisableTorchFunction()
        self._silent.__enter__()
        self._unasked.__enter__()
        try:
            refuse_observers()
            if self._usual is not torch.float32:
                torch.set_default_dtype(torch.float32)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._usual is not torch.float32:
            torch.set_default_dtype(self._usual)
        self._unasked.__exit__(None, None, None)
        self._silent.__exit__(None, None, None)
        if self._collecting:
            gc.enable()
