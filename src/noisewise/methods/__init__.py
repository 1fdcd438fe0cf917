"""Training methods, one file each. A file in this folder that defines a :class:`Method` with a name is registered.

Another package registers one of its own in its ``pyproject.toml``; it asks the curator like every other::

    [project.entry-points."noisewise.methods"]
    mine = "my_package.mine:Mine"
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from dataclasses import fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from ..spelling import did_you_mean
from .base import Method
from .nonprivate import NonPrivate

RECOMMENDED = "descent"
GROUP = "noisewise.methods"


@cache
def registry() -> dict[str, type[Method]]:
    """Every method by name, found by looking into this folder and at what other packages register."""
    kinds: dict[str, type[Method]] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Method) and kind.__module__ == module.__name__ and kind.name:
                kinds[kind.name] = kind
    for point in entry_points(group=GROUP):
        try:
            kinds[point.name] = _of_other_package(point, kinds)
        except Exception as error:  # a stranger's mistake should not take the other methods away
            message = (
                f"the method {point.name!r} of another package is left out: {error}; mend or uninstall the package"
            )
            warnings.warn(message, stacklevel=2)
    return dict(sorted(kinds.items()))


def _of_other_package(point: EntryPoint, known: dict[str, type[Method]]) -> type[Method]:
    kind = point.load()
    if not (isinstance(kind, type) and issubclass(kind, Method)) or kind.name != point.name:
        raise TypeError(f"{point.value} is not a Method whose name is {point.name!r}")
    if point.name in known:
        raise TypeError("there is a method of that name")
    return kind


def method_named(method: str | Method) -> Method:
    """The method with that name and its defaults; a method object is returned as it is, if it may run at all."""
    if isinstance(method, Method):
        makes_a_promise(method)
        return method
    if not isinstance(method, str):
        raise TypeError(f"method is a {type(method).__name__}; pass a name or a method object")
    if method not in registry():
        known = registry()
        raise ValueError(f"method is {method!r}; pass one of {', '.join(known)}{did_you_mean(method, known)}")
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


def made_anew(method: Method) -> Method | None:
    """The same method made of plain settings, if it is one of the library's own; None for a stranger's, or one with objects.

    The copy has nothing that the given object was given besides: no step of its own, nothing that it could remember with.
    """
    kind = type(method)
    if kind.__module__.rpartition(".")[0] != __name__ or registry().get(kind.name) is not kind:
        return None
    settings = {field.name: getattr(method, field.name) for field in fields(cast(Any, kind)) if field.init}
    return kind(**settings) if all(_plain(value) for value in settings.values()) else None


def _plain(value: object) -> bool:
    if type(value) is tuple:
        return all(_plain(part) for part in value)
    return value is None or type(value) in (bool, int, float, str)


__all__ = ["RECOMMENDED", "Method", "made_anew", "makes_a_promise", "method_named", "registry"]
