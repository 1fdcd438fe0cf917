"""The lines of a journal as a hash chain, and the charges that a closed journal lists."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...trusted.events import Leaf, from_dict, leaves
from ..atomic import read_plain
from ..spending_file import Closed

LINES = "journal.jsonl"
START = "0" * 64  # the hash before the first line
BAD = (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError)


class Chain:
    """The state of a journal: the hash of its last line, and every event that was charged, answered or not."""

    def __init__(self) -> None:
        self._head, self._events = START, Counter[Leaf]()
        self._last, self._finished = Counter[Leaf](), False

    @property
    def closed(self) -> Closed | None:
        """The end of the journal; None unless its last line says that the run is finished."""
        return Closed(self._head, Counter(self._events)) if self._finished else None

    def written(self, line: Mapping[str, Any]) -> bytes:
        """The line with its hash, as bytes; it becomes the last line."""
        self.move(line, head := _hashed(self._head, line))
        return json.dumps({**line, "chain": head}).encode() + b"\n"

    def read(self, written: bytes) -> tuple[dict[str, Any], str]:
        """A line and its hash, refused unless it follows from the last line."""
        line = json.loads(written)
        head = line.pop("chain")
        if head != _hashed(self._head, line):
            raise ValueError("a line does not follow from the one before it")
        return line, str(head)

    def move(self, line: Mapping[str, Any], head: str) -> None:
        """Make this the last line."""
        if "charged" in line:
            self._last = leaves(from_dict(line["event"]))
            self._events.update(self._last)
        elif "answered" in line:
            self._last = Counter()
        elif "refused" in line:  # by the meter, before anything was drawn
            if not self._last:
                raise ValueError("nothing was charged that could have been refused")
            self._events.subtract(self._last)
            self._last = Counter()
        self._head, self._finished = head, line == {"finished": True}


def closed_journal(folder: str | os.PathLike[str]) -> Closed:
    """The end of the closed journal in a folder; ValueError if there is none, it is open, or it was changed."""
    path, chain = Path(folder) / LINES, Chain()
    try:
        for line in read_plain(path).splitlines():
            chain.move(*chain.read(line))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except BAD:
        raise ValueError(f"{path}: no journal, or one that was changed") from None
    if (closed := chain.closed) is None:
        raise ValueError(f"{path}: the journal of a run that is not finished")
    return closed


def _hashed(head: str, line: Mapping[str, Any]) -> str:
    return sha256(f"{head}\n{json.dumps(line)}".encode()).hexdigest()
