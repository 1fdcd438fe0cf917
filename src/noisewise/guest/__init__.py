"""Methods that noisewise does not ship run as guests: in a process of their own, where no record ever is.

The host starts ``python -m noisewise.guest`` in a sandbox (:mod:`.isolation`), sends it public facts and answers, and reads
questions and a theta from it, all as plain data over two pipes (:mod:`.wire`). What a guest sends is parsed, never executed.
"""

from __future__ import annotations

from .. import methods
from ..methods import Method, registered_elsewhere
from .method import GuestMethod, described


def method_named(method: str | Method, isolation: str = "sandbox") -> Method:
    """The method with that name and its defaults; a method object is returned as it is, if it may run at all.

    ``package.module:Class``, and what another package registers, names a guest; ``isolation`` is where it runs.
    """
    if isinstance(method, str) and (":" in method or method in registered_elsewhere()):
        return described(registered_elsewhere().get(method, method), isolation, method)
    return methods.method_named(method)


__all__ = ["GuestMethod", "described", "method_named"]
