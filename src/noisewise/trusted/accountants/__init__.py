"""What an event costs, by every accountant the library knows.

One object per accountant (:class:`base.Accountant`), each in a module of this room: adding one is adding a file. They are
found here, once, and asked for by name (:func:`base.accountant_named`); ``calibrate`` turns a budget into noise, ``choose``
says which accountant a run gets, ``plan`` what a budget buys. Nothing here sees a record or imports torch: an epsilon can
be computed, and audited, from an event list alone.
"""

from importlib import import_module
from pkgutil import iter_modules

from . import base
from .common import Unpriceable

__all__ = ["Unpriceable"]

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
base.close()
