"""Where inputs that are files are laid out: one folder of the process, in memory where the system has that."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def folder(process: int = 0) -> Path:
    """This process's own folder, gone at its end."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="noisewise-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def laid(name: str, content: bytes) -> Path:
    """A file with this content."""
    path = folder(os.getpid()) / name
    path.write_bytes(content)
    return path


def emptied(name: str) -> Path:
    """An empty folder."""
    place = folder(os.getpid()) / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place
