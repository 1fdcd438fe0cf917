"""The lines of a journal, each of which follows from the one before it, and all that a closed journal says was charged."""

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
from ..store import Closed

LINES = "journal.jsonl"
START = "0" * 64  # what the first line follows
BAD = (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError)


class Chain:
    """How far a journal has come: the hash of its last line, and every event that was charged, answered or not."""

    def __init__(self) -> None:
        self._head, self._events = START, Counter[Leaf]()
        self._last, self._finished = Counter[Leaf](), False

    @property
    def closed(self) -> Closed | None:
        """What the journal says in the end; None unless its last line is that the run is finished."""
        return Closed(self._head, Counter(self._events)) if self._finished else None

    def written(self, line: Mapping[str, Any]) -> bytes:
        """The line as it is written, with its hash; from now on it is the last one."""
        self.move(line, head := _hashed(self._head, line))
        return json.dumps({**line, "chain": head}).encode() + b"\n"

    def read(self, written: bytes) -> tuple[dict[str, Any], str]:
        """A line and its hash, refused where it does not follow from the last one."""
        line = json.loads(written)
        head = line.pop("chain")
        if head != _hashed(self._head, line):
            raise ValueError("a line does not follow from the one before it")
        return line, str(head)

    def move(self, line: Mapping[str, Any], head: str) -> None:
        """Take this line for the last one."""
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
    """What the closed journal in a folder says was charged; ValueError where it is none, is open, or was changed."""
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
