"""Compiled kernels, and which arithmetic is in use: the compiled one or the reference in numpy, with the same bits.

``NOISEWISE_KERNELS=reference`` or ``compiled`` chooses; without it the kernels are compiled where numba can be
imported. Numba is imported by :func:`compiled` and :func:`jit` only, so that modules which need neither stay light:
a kernel lives in a module of its own that is imported when it is first used.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

VARIABLE = "NOISEWISE_KERNELS"
F = TypeVar("F", bound=Callable[..., Any])


def compiled() -> bool:
    """Whether compiled kernels are in use."""
    choice = os.environ.get(VARIABLE)
    if choice not in (None, "reference", "compiled"):
        raise ValueError(f"{VARIABLE} is 'reference' or 'compiled', not {choice!r}; unset it to let noisewise choose")
    if choice == "reference":
        return False
    try:
        importlib.import_module("numba")
    except ImportError as error:
        if choice is None:
            return False
        raise ImportError(
            f"{VARIABLE}=compiled needs numba, which cannot be imported ({error}): install numba, or unset {VARIABLE}"
        ) from error
    return True


def jit(function: F) -> F:
    """``function`` compiled at its first call, without the lock of the interpreter, and kept on disk where possible.

    No fast-math and no fused products: every operation rounds as IEEE 754 says, as it does in numpy. Numba notices
    changes in a kernel's own file only, so a kernel calls no compiled function of another file.
    """
    numba: Any = importlib.import_module("numba")
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        kernel: F = _forgiving(numba.njit(cache=True, **options)(function))
    except (RuntimeError, OSError):  # no folder can be written: compiled anew in every process
        kernel = numba.njit(**options)(function)
    return kernel


def _forgiving(kernel: Any) -> Any:
    """``kernel`` with a cache on disk that may fail (a full disk, a damaged file): it is compiled anew then."""
    cache = kernel._cache
    for name in ("load_overload", "save_overload"):
        setattr(cache, name, _or_nothing(getattr(cache, name)))
    return kernel


def _or_nothing(attempt: Callable[..., Any]) -> Callable[..., Any]:
    def attempted(*arguments: Any) -> Any:
        try:
            return attempt(*arguments)
        except Exception:  # whatever a damaged file makes of unpickling
            return None

    return attempted
