"""Writing a file completely or not at all, and never through a symbolic link; reading without following one."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def write_atomically(
    path: Path, content: bytes, *, durable: bool = False, private: bool = False, drafts: Path | None = None
) -> None:
    """Write to a fresh file beside ``path``, then give it the name.

    ``durable``: it outlives a loss of power. ``private``: nobody else may read it (mode 0600). ``drafts``: another folder
    of the same disk for that fresh file, which a process that is killed leaves there.
    """
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=drafts or path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
            if not private and hasattr(os, "fchmod"):
                os.fchmod(
                    stream.fileno(), 0o666 & ~umask()
                )  # by its handle, so that a link at its name is not followed
        os.replace(draft, path)
        if durable:
            force_to_disk(path.parent)
    finally:
        Path(draft).unlink(missing_ok=True)


def is_there(path: Path) -> bool:
    """Whether there is such a file; False for a name that the system cannot have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_plain(path: Path) -> bytes:
    """The content of a plain file: no link is followed, and a pipe is not waited for."""
    with os.fdopen(os.open(path, os.O_RDONLY | PLAIN), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(f"{path} is not a plain file")
        return stream.read()


def force_to_disk(path: Path) -> None:
    """Sync a file or a folder to the disk, so that it outlives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Hold the lock of a file, then close it. The system releases the lock when its holder dies."""
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
