"""Layers between dense ones, one file each; a file in this folder that defines a :func:`layer` is found."""

from __future__ import annotations

import importlib
import pkgutil

from .base import LAYERS, Layer, close, layer

for _info in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_info.name}")
close()

__all__ = ["LAYERS", "Layer", "layer"]
