"""Compiled kernels, and which arithmetic is in use: the compiled one or the reference in numpy, with the same bits.

``NOISEWISE_KERNELS=reference`` or ``compiled`` chooses; without it the kernels are compiled where numba can be
imported. Numba is imported by :func:`compiled` and :func:`jit` only, so that modules which need neither stay light:
a kernel lives in a module of its own that is imported when it is first used.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

VARIABLE = "NOISEWISE_KERNELS"
SOURCES = ("fast/*.py", "noise/*.py", "stores/*.py", "elementwise.py")  # of kernels, and of the constants in them
F = TypeVar("F", bound=Callable[..., Any])


def choice() -> str | None:
    """Which arithmetic ``NOISEWISE_KERNELS`` asks for; None leaves it to noisewise."""
    value = os.environ.get(VARIABLE)
    if value not in (None, "reference", "compiled"):
        raise ValueError(f"{VARIABLE} is 'reference' or 'compiled', not {value!r}; unset it to let noisewise choose")
    return value


def in_use() -> str:
    """The name of the arithmetic in use, "compiled" or "reference", found out without importing numba."""
    chosen, there = choice(), importlib.util.find_spec("numba") is not None
    if chosen == "compiled" and not there:
        raise ValueError(f"{VARIABLE}=compiled needs numba, which is not installed: install numba, or unset {VARIABLE}")
    return chosen or ("compiled" if there else "reference")


def compiled() -> bool:
    """Whether compiled kernels are in use."""
    chosen = choice()
    if chosen == "reference":
        return False
    if sys.modules.get("numba") is not None:  # asked at every step
        return True
    try:
        importlib.import_module("numba")
    except ImportError as error:
        if chosen is None:
            return False
        raise ImportError(
            f"{VARIABLE}=compiled needs numba, which cannot be imported ({error}): install numba, or unset {VARIABLE}"
        ) from error
    return True


def jit(function: F) -> F:
    """``function`` compiled at its first call, without the lock of the interpreter, and kept on disk where possible.

    No fast-math and no fused products: every operation rounds as IEEE 754 says, as it does in numpy. What is kept is
    for one state of all sources of kernels: a kernel may use constants and kernels of its neighbours.
    """
    numba: Any = importlib.import_module("numba")
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        kernel: F = _kept_with_care(numba.njit(cache=True, **options)(function))
    except (RuntimeError, OSError, AttributeError):  # no folder can be written: compiled anew in every process
        kernel = numba.njit(**options)(function)
    return kernel


def _kept_with_care(kernel: Any) -> Any:
    """``kernel`` with a cache that knows all sources (numba looks at one file) and may fail: a full disk, a bad file."""
    cache = kernel._cache
    cache._cache_file._source_stamp = (cache._cache_file._source_stamp, _sources())
    for name in ("load_overload", "save_overload"):
        setattr(cache, name, _or_nothing(getattr(cache, name)))
    return kernel


@functools.cache
def _sources() -> bytes:
    """A digest of all sources that kernels are made of, constants included."""
    digest, package = hashlib.sha256(), Path(__file__).parents[1]
    for pattern in SOURCES:
        for path in sorted(package.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.digest()


def _or_nothing(attempt: Callable[..., Any]) -> Callable[..., Any]:
    def attempted(*arguments: Any) -> Any:
        try:
            return attempt(*arguments)
        except Exception:  # whatever a damaged file makes of unpickling
            return None

    return attempted
