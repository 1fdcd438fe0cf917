"""Training methods, one file each. A file in this folder that defines a :class:`Method` with a name is registered.

Another package registers one of its own in its ``pyproject.toml``; it runs as a guest, in a process of its own::

    [project.entry-points."noisewise.methods"]
    mine = "my_package.mine:Mine"
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from dataclasses import fields
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from ..trusted.validate import did_you_mean
from .base import Method
from .nonprivate import NonPrivate

RECOMMENDED = "descent"
ENTRY_POINT_GROUP = "noisewise.methods"
LABORATORY = "noisewise-lab"
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")  # of a method of another package


@cache
def shipped() -> dict[str, type[Method]]:
    """The library's own methods by name, found by looking into this folder."""
    kinds: dict[str, type[Method]] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Method) and kind.__module__ == module.__name__ and kind.name:
                kinds[kind.name] = kind
    return kinds


@cache
def registry() -> dict[str, type[Method]]:
    """Every method that runs beside records, by name: ours, and those of our laboratory where that is installed."""
    kinds = dict(shipped())
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if _of_laboratory(point):
            kinds[point.name] = point.load()
    return dict(sorted(kinds.items()))


@cache
def registered_elsewhere() -> dict[str, str]:
    """Methods that other packages register, by name, as ``package.module:Class``; none of them is imported here."""
    found: dict[str, str] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if _of_laboratory(point):
            continue
        if point.name in registry() or found.get(point.name, point.value) != point.value:
            why = "there is a method of that name; rename it"
        elif not NAME.fullmatch(point.name):
            why = "a name is made of letters, digits, '_' and '-'"  # another's package.module:Class is none
        else:
            found[point.name] = point.value
            continue
        warnings.warn(f"the method {point.name!r} of another package is left out: {why}", stacklevel=2)
    return dict(sorted(found.items()))


def known_names() -> tuple[str, ...]:
    """The names of all methods, shipped or of other packages."""
    return (*registry(), *registered_elsewhere())


def _of_laboratory(point: EntryPoint) -> bool:
    """Whether it is a method of noisewise's own laboratory."""
    return point.dist is not None and point.dist.name == LABORATORY


def method_named(method: str | Method) -> Method:
    """The shipped method with that name and its defaults; a method object is returned as it is, if it may run at all.

    :func:`noisewise.guest.method_named` knows methods of other packages, too.
    """
    if isinstance(method, Method):
        makes_a_promise(method)
        return method
    if not isinstance(method, str):
        raise TypeError(f"method is a {type(method).__name__}; pass a name or a method object")
    if method not in registry():
        known = known_names()
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


def isolation_of(method: Method) -> str:
    """How the code of a method is kept apart from the records, as a statement says it."""
    if getattr(method, "elsewhere", False) and type(method).__module__ == "noisewise.guest.method":
        return str(cast(Any, method).isolation)
    kind = type(method)
    if registry().get(method.name) is not kind or not all(map(_ours, vars(method).values())):
        return "caller's own code"
    known = {one.name for one in fields(cast(Any, kind))}
    known |= {name for name, value in vars(kind).items() if isinstance(value, cached_property)}
    return "shipped" if {*vars(method)} <= known else "caller's own code"


def _ours(value: object) -> bool:
    """Whether a setting brings no code but noisewise's own."""
    if isinstance(value, tuple | list):
        return all(map(_ours, value))
    return _plain(value) or type(value).__module__.partition(".")[0] in ("noisewise", "noisewise_lab")


def _plain(value: object) -> bool:
    if type(value) is tuple:
        return all(_plain(part) for part in value)
    return value is None or type(value) in (bool, int, float, str)


__all__ = [
    "RECOMMENDED",
    "Method",
    "isolation_of",
    "made_anew",
    "makes_a_promise",
    "method_named",
    "registered_elsewhere",
    "registry",
    "shipped",
]
