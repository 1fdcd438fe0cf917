"""Writing a file as a whole or not at all, and never through a link that somebody has laid out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, durable: bool = False, drafts: Path | None = None) -> None:
    """Write to a fresh file beside ``path``, then give it the name; ``durable``: it outlives a loss of power.

    ``drafts``: another folder of the same disk for that fresh file, which a process that is killed leaves there.
    """
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=drafts or path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.chmod(draft, 0o666 & ~umask())
        os.replace(draft, path)
        if durable:
            force_to_disk(path.parent)
    finally:
        Path(draft).unlink(missing_ok=True)


def force_to_disk(path: Path) -> None:
    """What a file or the list of a folder says now outlives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Nobody else holds this file meanwhile; then it is closed. The system opens the lock when its holder dies."""
    import fcntl  # not on every system, and needed only here

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def umask() -> int:
    """The permissions that new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
