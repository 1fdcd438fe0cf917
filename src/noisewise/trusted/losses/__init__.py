"""Losses, one file each: a :class:`Loss` with a name in a file of this folder is registered, with all its facts.

Another package brings one by :func:`register`, or by an entry point, whose value is a loss or its class::

    [project.entry-points."noisewise.losses"]
    smooth_hinge = "package.module:SmoothHinge"

A loss runs on private records, so it is trusted code: a statement names it and the module that it comes from.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from types import MappingProxyType

from .base import Loss
from .hinge import Hinge
from .huber_hinge import HuberHinge
from .logistic import Logistic
from .softmax import Softmax
from .squared import Squared
from .weighted import MAX_WEIGHT, ClassWeighted, check_weights

_known: dict[str, Loss] = {}
LOSSES: Mapping[str, Loss] = MappingProxyType(_known)
USUAL = {"binary": "logistic", "classes": "softmax", "regression": "squared"}  # the loss of a task unless one is named


def register(loss: Loss) -> Loss:
    """Make a loss known by its name; one that is taken is refused.

    A loss from outside has no compiled kernel: its sums come from the reference arithmetic.
    """
    name = loss.name if isinstance(loss, Loss) else ""
    if type(name) is not str or not name:
        raise TypeError(f"{loss!r} is not a loss with a name; pass an object of a subclass of noisewise.losses.Loss")
    if type(_known.setdefault(name, loss)) is not type(loss):
        raise ValueError(f"a loss named {name!r} exists; give yours another name")
    return _known[name]  # the first one of a type stays


def _fill() -> None:
    losses: list[Loss] = []
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Loss)]
        losses += [
            kind() for kind in kinds if kind.__module__ == module.__name__ and isinstance(kind.name, str) and kind.name
        ]
    for loss in sorted(losses, key=lambda loss: (loss.kernel is None, loss.kernel, loss.name)):
        register(loss)


@cache
def _installed() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group="noisewise.losses")}


def loss_names() -> tuple[str, ...]:
    """Every loss by name: ours, then those that were registered or that installed packages bring."""
    return tuple(dict.fromkeys((*LOSSES, *_installed())))


def loss_named(loss: str | Loss) -> Loss:
    """The loss with that name; a loss object is returned as it is.

    >>> loss_named("logistic").smoothness
    0.25
    """
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str) or loss not in loss_names():
        raise ValueError(f"loss is {loss!r}; pass one of {', '.join(loss_names())}")
    if loss not in LOSSES:
        brought = _installed()[loss].load()
        brought = register(brought() if isinstance(brought, type) else brought)
        if brought.name != loss:
            raise ValueError(f"the entry point {loss!r} brings a loss named {brought.name!r}; name both alike")
    return LOSSES[loss]


_fill()

__all__ = ["ClassWeighted", "Hinge", "HuberHinge", "Logistic", "Loss", "Softmax", "Squared"]
__all__ += ["LOSSES", "MAX_WEIGHT", "USUAL", "check_weights", "loss_named", "loss_names", "register"]
