"""What runs in place of torch functions that are given parameters: one file for each kind of layer, found by looking here."""

from __future__ import annotations

import importlib
import pkgutil

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
