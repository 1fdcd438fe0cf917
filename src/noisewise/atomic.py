"""Writing a file as a whole or not at all, and never through a link that somebody has laid out."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a fresh file beside ``path``, then give it the name."""
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(draft, 0o666 & ~umask())
        os.replace(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)


def umask() -> int:
    """The permissions that new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
