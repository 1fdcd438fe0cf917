"""The face for the shell. Every module here adds its commands by being imported, so a new command is one file.

Heavy imports happen inside the commands, so that ``noisewise --help`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

from .main import main  # noqa: E402  the function, which importing the module of this name has hidden

__all__ = ["main"]
