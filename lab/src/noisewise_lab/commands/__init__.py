"""The commands of ``noisewise bench``, which noisewise finds through the entry point of this package."""

from __future__ import annotations

from . import (
    app,
    beginners,
    expected,
    federated,
    figures,
    guests,
    large,
    machines,
    pictures,
    private_tables,
    protector_share,
    studies,
    tables,
    tuning,
)
from .app import bench

__all__ = [
    "app",
    "beginners",
    "bench",
    "expected",
    "federated",
    "figures",
    "guests",
    "large",
    "machines",
    "pictures",
    "private_tables",
    "protector_share",
    "studies",
    "tables",
    "tuning",
]
