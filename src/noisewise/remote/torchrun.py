"""Whether torchrun started this process, from the environment alone: asked by commands before anything else is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping

NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells every process


def started_by_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is one of several of the same run; read from the environment alone."""
    return all(name in environment for name in NAMES) and environment["WORLD_SIZE"] not in ("", "0", "1")


def restarts(environment: Mapping[str, str] = os.environ) -> int:
    """How often torchrun has started this run anew."""
    count = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(count) if count.isdigit() else 0
