"""Training methods, one file each. A file in this folder that defines a :class:`Method` with a name is registered."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from .base import Method
from .nonprivate import NonPrivate

RECOMMENDED = "descent"


@cache
def registry() -> dict[str, type[Method]]:
    """Every method by name, found by looking into this folder."""
    found: dict[str, type[Method]] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Method) and kind.__module__ == module.__name__ and kind.name:
                found[kind.name] = kind
    return dict(sorted(found.items()))


def method_named(method: str | Method) -> Method:
    """The method with that name and its defaults; a method object is returned as it is, if it may run at all."""
    if isinstance(method, Method):
        makes_a_promise(method)
        return method
    if method not in registry():
        raise ValueError(f"method is {method!r}; pass one of {', '.join(registry())}")
    return registry()[method]()


def makes_a_promise(method: Method) -> bool:
    """Whether a run of this method is private: always, but for exactly :class:`NonPrivate`, which is given the records.

    A method is a stranger's code, so it cannot free itself: one that says ``private = False`` is refused.
    """
    if type(method) is NonPrivate:
        return False
    if method.private is not True:
        raise TypeError(
            f"{type(method).__name__} says that it is not private, which only the library's own nonprivate may say: it "
            "would be handed the records; leave private as it is, or pass method='nonprivate'"
        )
    return True


__all__ = ["RECOMMENDED", "Method", "makes_a_promise", "method_named", "registry"]
