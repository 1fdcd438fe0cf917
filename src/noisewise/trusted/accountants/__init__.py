"""What an event costs, by every accountant the library knows.

There is one object per accountant (:class:`base.Accountant`), in a module of this package: to add one, add a file. They are found
here, once, and looked up by name (:func:`base.accountant_named`). ``calibrate`` turns a budget into noise, ``choose`` picks the
accountant of a run, ``plan`` shows what a budget buys. Nothing here sees a record or imports torch: an epsilon can be computed,
and audited, from a list of events alone.
"""

from importlib import import_module
from pkgutil import iter_modules

from . import base
from .common import Unpriceable

__all__ = ["Unpriceable"]

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
base.close()
