"""The face for the shell. Heavy imports happen inside the commands, so that ``noisewise --help`` is quick."""

from __future__ import annotations

from . import l2p_bench, studies, tables
from .main import main

__all__ = ["l2p_bench", "main", "studies", "tables"]
