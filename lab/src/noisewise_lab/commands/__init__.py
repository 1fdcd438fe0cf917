"""The commands of ``noisewise bench``, which noisewise finds through the entry point of this package."""

from __future__ import annotations

from . import app, expected, figures, large, pictures, private_tables, protector_share, studies, tables, tuning
from .app import bench

__all__ = [
    "app",
    "bench",
    "expected",
    "figures",
    "large",
    "pictures",
    "private_tables",
    "protector_share",
    "studies",
    "tables",
    "tuning",
]
