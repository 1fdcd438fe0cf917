"""The face for the shell. Heavy imports happen inside the commands, so that ``noisewise --help`` is quick."""

from __future__ import annotations

from . import apply, audit, compare, l2p_bench, large_bench, plan, report, studies, tables, train
from .main import main

__all__ = [
    "apply",
    "audit",
    "compare",
    "l2p_bench",
    "large_bench",
    "main",
    "plan",
    "report",
    "studies",
    "tables",
    "train",
]
