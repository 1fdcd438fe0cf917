"""Callers who hold torch tensors: what they hand over becomes plain arrays, and their answers become tensors again.

torch is never imported here: who holds a tensor has imported it. *Guarantee*: none is needed. This runs before a question is
made and after its answer has been released.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_tensor(value: object) -> bool:
    kind = getattr(sys.modules.get("torch"), "Tensor", None)  # None while another thread imports it: there are none yet
    return isinstance(kind, type) and isinstance(value, kind)


def array(value: Any) -> Any:
    """A tensor as an array that shares no memory with it; everything else as it is."""
    return entries(value) if is_tensor(value) else value


def entries(value: Any) -> np.ndarray[Any, Any]:
    """A copy of a tensor's entries. Nothing of a stranger's runs: no subclass, method of its own or mode of torch."""
    torch = sys.modules["torch"]
    kind, refusal = torch.Tensor, TypeError("pass a plain, real torch.Tensor, not a subclass")
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        if kind.layout.__get__(value) is not torch.strided or kind.is_nested.__get__(value):
            raise refusal  # no storage to see as a plain tensor
        own = kind.as_subclass(kind.detach(value), kind)
        last = own.storage_offset() + sum((n - 1) * step for n, step in zip(own.shape, own.stride(), strict=True)) + 1
        held = own.untyped_storage().nbytes() >= last * own.element_size() and own.data_ptr()
        if type(own) is not kind or own.is_complex() or (own.numel() and not held):
            raise refusal  # beyond its storage numpy would show whatever lay in memory before
        plain = own.float() if own.dtype in (torch.bfloat16, torch.float16) else own
        return np.array(plain.cpu().numpy())


def in_kind(like: object, value: Any) -> Any:
    """An array as a tensor where ``like`` is one; everything else as it is."""
    if is_tensor(like) and isinstance(value, np.ndarray):
        return sys.modules["torch"].from_numpy(value.copy())  # which takes no reversed or read-only array
    return value
