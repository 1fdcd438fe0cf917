"""scipy's functions when they are first used: what is refused before it has a price never waits for scipy."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    globals()[name] = found = getattr(import_module("scipy.special"), name)
    return found
