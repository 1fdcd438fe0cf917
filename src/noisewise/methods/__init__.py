"""Training methods, one file each. A file in this folder that defines a :class:`Method` with a name is registered."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from .base import Method

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
    """The method with that name and its defaults; a method object is returned as it is."""
    if isinstance(method, Method):
        return method
    if method not in registry():
        raise ValueError(f"method is {method!r}; pass one of {', '.join(registry())}")
    return registry()[method]()


__all__ = ["RECOMMENDED", "Method", "method_named", "registry"]
