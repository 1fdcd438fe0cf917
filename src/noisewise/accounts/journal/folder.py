"""The folder of a journal: its lock, its settings, reading its lines and answers, and appending to them."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...asking import Answer
from ...trusted.events import Event, from_dict, to_dict
from ...trusted.process import this_process
from .. import BudgetExhausted
from ..atomic import force_to_disk, read_plain, write_atomically
from ..purse import PurseShare
from ..spending_file import CLAIM_SHARE as CLAIM_SHARE
from ..spending_file import UNUSED, Closed
from .chain import LINES, Chain

SETTINGS = "settings.json"
FORMAT = "noisewise-journal/3"
NOBODY = -1  # instead of the number of a share
KINDS = ("float32", "float64", "int64")
DURABLE = (
    "part",
    "block",
    "forfeited",
    "closed",
    "finished",
)  # lines that are synced to the disk before the run continues


class KeptAnswer(NamedTuple):
    """A charge, and its answer if that was written down."""

    question: str
    event: Event
    answer: Answer | None = None
    line: Mapping[str, Any] | None = None


class Forfeited(NamedTuple):
    """Everything up to this share of the budget is given up; ``known``: the journal should have every line up to there."""

    share: float
    known: bool = False


class Running(RuntimeError):
    """Another process holds the folder, which means that the run is running."""


class Journal:
    """The journal in a folder, held by one process at a time; ``settings`` identify the run, as plain JSON data."""

    def __init__(self, folder: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self._place = Path(folder)
        import fcntl  # not on every system, and needed only here

        self._place.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._lock = os.open(self._place / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ValueError(f"{self._place}: cannot be locked ({error.strerror}); pass another folder") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise Running(f"{self._place}: another process is running this run; wait for it") from None
        self._process, self._files, self._torn = this_process(), dict[str, int](), False
        self._part: PurseShare | None = None  # pays for the run
        self.past, self.finished = deque[KeptAnswer | Forfeited](), False
        self.claim: int | None = None  # the number of that share
        self.digest = ""  # of the settings, for which alone a share is reserved
        self._claimed, self._closed, self._fresh, self.touched = 0.0, True, True, False
        self._chain = Chain()
        try:
            self._agree({"format": FORMAT, **settings})
            self._read()
        except BaseException:
            self._let_go()
            raise

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a journal is not copied or pickled: the copy would not know what this one writes")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def stopped(self, spent: float) -> None:
        """End an orderly stop with this share of the budget used: what the run claimed beyond it is given back."""
        if self._lock < 0 or this_process() != self._process or self._part is None or self.finished or self._fresh:
            return
        with suppress(OSError, ValueError, RuntimeError):  # otherwise the journal stays open, and the claim is given up
            self._sync()
            if self._part.claimed != spent:
                self._part.claim(spent)
            self._append({"closed": spent}, durable=True)

    def close(self) -> None:
        """Release the folder to other processes."""
        if self._lock >= 0 and this_process() == self._process:  # a forked copy does not hold the run
            self._let_go()

    def _let_go(self) -> None:
        for descriptor in (*self._files.values(), self._lock):
            os.close(descriptor)
        self._files, self._lock = {}, -1

    def _agree(self, settings: Mapping[str, Any]) -> None:
        own, there = json.loads(json.dumps(settings, default=str)), settings_in(self._place)
        self.digest = sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()
        if there is None:
            if (self._place / LINES).exists():
                raise ValueError(f"{self._place}: holds answers without settings; pass another folder")
            write_atomically(self._place / SETTINGS, json.dumps(own, indent=1).encode(), durable=True, private=True)
            return
        if odd := [name for name in sorted({*own, *there}) if own.get(name) != there.get(name)]:
            raise ValueError(
                f"{self._place} holds a run with another {', '.join(odd)}; pass the same settings, or another folder"
            )

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read the lines. A torn line after the last synced one ends the journal, as if it had never been written."""
        path = self._place / LINES
        if not os.path.lexists(path):
            return
        content, good = self._content(LINES), 0
        lines = content.split(b"\n")[:-1]
        sure = max((i + 1 for i, line in enumerate(lines) if self._forced(line)), default=0)
        if content and not sure:
            raise ValueError(f"{self._place}: its journal was changed; pass another folder")
        for i, line in enumerate(lines):
            try:
                told, head = self._chain.read(line)
                self._take(told)
                self._chain.move(told, head)
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError, OSError):
                if i < sure:
                    raise ValueError(f"{self._place}: its journal was changed; pass another folder") from None
                break
            good += len(line) + 1
        if good < len(content):
            self._cut(LINES, good)

    @staticmethod
    def _forced(line: bytes) -> bool:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return False
        return isinstance(found, dict) and any(name in found for name in DURABLE)

    def _take(self, line: Mapping[str, Any]) -> None:
        """Take in one line of an earlier process."""
        self._closed = False
        if "part" in line:
            if line["settings"] != self.digest:
                raise ValueError("the settings are not those that were paid for")
            self.claim, self._closed = int(line["part"]), self._fresh
        elif "block" in line:
            self._claimed, self._fresh, self.touched = _share(line["block"]), False, True
        elif "charged" in line:
            self.past.append(KeptAnswer(str(line["charged"]), from_dict(line["event"])))
        elif "refused" in line:
            self._pop()
        elif "answered" in line:
            # read before the charge is removed, which stays if the answer cannot be read
            found, shown = self._answer(line), dict(line["answered"])
            self.past.append(self._pop()._replace(answer=found, line=shown))
        elif "forfeited" in line:
            self.past.append(Forfeited(_share(line["forfeited"])))
        elif "closed" in line:
            self._claimed, self._closed = _share(line["closed"]), True
            # this much was used: lines that were removed stay paid for
            self.past.append(Forfeited(self._claimed, known=True))
        elif line == {"finished": True}:
            self.finished = True
        else:
            raise ValueError("a line says nothing")

    def _pop(self) -> KeptAnswer:
        if not self.past or not isinstance(self.past[-1], KeptAnswer) or self.past[-1].answer is not None:
            raise ValueError("an answer to nothing")
        last = self.past.pop()
        assert isinstance(last, KeptAnswer)
        return last

    def _answer(self, line: Mapping[str, Any]) -> Answer:
        kind, count, at = line["dtype"], int(line["count"]), int(line["at"])
        if kind not in KINDS or count < 0 or at < 0:
            raise ValueError("an answer is of an unknown kind")
        size = count * np.dtype(kind).itemsize
        found = os.pread(self._file("answers.bin"), size, at) if size <= self._length("answers.bin") else b""
        if len(found) != size or zlib.crc32(found) != line["crc"]:
            raise ValueError("an answer is missing")
        value, below = np.frombuffer(found, dtype=kind), line["below"]
        return Answer(
            value.reshape(line["shape"]).copy(), float(line["noise_std"]), None if below is None else float(below)
        )

    # --- writing ------------------------------------------------------------------------------------------------------

    def _file(self, name: str) -> int:
        """A file of the folder, open for appending and never through a link."""
        if name not in self._files:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            new = not os.path.lexists(self._place / name)
            self._files[name] = os.open(self._place / name, flags, 0o600)
            if new:
                force_to_disk(self._place)  # so that the new file outlives a loss of power
        return self._files[name]

    def _length(self, name: str) -> int:
        return os.fstat(self._file(name)).st_size

    def _content(self, name: str) -> bytes:
        return os.pread(self._file(name), self._length(name), 0)

    def _cut(self, name: str, size: int) -> None:
        os.ftruncate(self._file(name), size)
        os.fsync(self._file(name))

    def _write(self, name: str, content: bytes) -> int:
        """Hand all of it to the system, which has it when this process is gone; where it begins in the file.

        After half a line there is no other: what came next would be part of it, and a block that nobody reads.
        """
        if self._torn or this_process() != self._process:
            raise OSError("the journal cannot be written by this process any more; stop, and go on from it")
        descriptor, at = self._file(name), self._length(name)
        done, self._torn = 0, True
        while done < len(content):
            done += os.write(descriptor, content[done:])
        self._torn = False
        return at

    def _append(self, line: Mapping[str, Any], *, durable: bool = False) -> None:
        self._write(LINES, self._chain.written(line))
        if durable:
            self._sync()

    def _sync(self) -> None:
        for name in ("answers.bin", LINES):  # an answer is on the disk before the line that names it
            if name in self._files:
                os.fsync(self._files[name])

    def adopt(self, number: int) -> None:
        """Record which share pays, for a process that was killed after reserving it."""
        self._append({"part": number, "settings": self.digest}, durable=True)
        self.claim = number

    def give_back(self) -> bool:
        """Give the share back whole if nothing was ever drawn; whether that was done."""
        part = self._part
        if part is None or part.meter.used or self.touched or part.claimed:
            return False
        part.claim(UNUSED)  # so that no other process resumes it
        part.settle("failed")
        self.adopt(NOBODY)
        return True

    def paid_by(self, part: PurseShare) -> None:
        """Set the share that pays for the run. What an earlier process claimed of it without leaving a line is given up,
        unless it ended in good order and nobody went on since.
        """
        self._part = part
        if self.claim != part.number:
            self.adopt(part.number)
        part.known()
        claimed = max(part.claimed, self._claimed)
        if self.finished and part.claimed > 0:  # in another purse it may be the share of another run
            self.past.append(Forfeited(part.claimed))
        elif not self.finished and claimed > 0 and not (self._closed and part.claimed in (0.0, self._claimed)):
            self._append({"forfeited": claimed}, durable=True)
            self.past.append(Forfeited(claimed))
        self._claimed, self._fresh = claimed, True

    def charged(self, question: str, event: Event, before: float, after: float) -> None:
        """Record an event that is about to be charged, and claim the next block if it is not within the last one of this process.

        ``before``, ``after``: the share of the budget that is spent without it, and with it.
        """
        if self._fresh or after > self._claimed:
            self._next_block(max(after, min(before + CLAIM_SHARE, 1.0)))
        self._append({"charged": question, "event": to_dict(event)})

    def _next_block(self, share: float) -> None:
        if self._part is not None:
            if share <= self._part.claimed:  # each claim must differ from the last, however small the event
                share = math.nextafter(self._part.claimed, 2.0)
            if share > 1:
                raise BudgetExhausted("nothing is left of this run's budget that could be claimed")
            self._part.claim(share)
        self._append({"block": share}, durable=True)
        self._claimed, self._fresh, self.touched = share, False, True

    def refused(self) -> None:
        """Record that the meter refused the last charge."""
        self._append({"refused": True})

    def answered(self, answer: Answer, line: Mapping[str, Any]) -> None:
        value = np.asarray(answer.value, order="C")
        content = value.tobytes()
        self._append(
            {
                "answered": dict(line),
                "at": self._write("answers.bin", content),
                "count": value.size,
                "dtype": str(value.dtype),
                "shape": list(value.shape),
                "noise_std": answer.noise_std,
                "below": answer.below,
                "crc": zlib.crc32(content),
            }
        )

    def finish(self) -> Closed | None:
        """Finish the journal; the end of it, with everything that was charged."""
        if not self.finished:
            self._append({"finished": True}, durable=True)
            self.finished = True
        return self._chain.closed


def settings_in(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The settings of the run in a folder; None if there is no run yet."""
    path = Path(folder) / SETTINGS
    try:
        there = json.loads(read_plain(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError):
        there = None
    if not isinstance(there, dict):
        raise ValueError(f"{folder}: settings.json cannot be read; pass another folder")
    return there


def _share(value: Any) -> float:
    if type(value) is not float or not 0 <= value <= 1:
        raise ValueError("no share of a budget")
    return value
