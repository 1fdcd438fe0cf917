"""A journal: every released answer of a run in a folder, so that a run that was killed goes on where it was.

    claim a block of the budget, durably -> charge -> draw -> write down the noisy answer -> use it

A run that is taken up again is answered from the journal as far as that reaches: nothing is drawn twice. What was charged
and has no answer stays charged: a plan has one step fewer then, a filter may ask again as a further event. The stream of
noise is never written down; a run that goes on has a fresh one.

*Blocks*. Lines are handed to the system one by one and forced to the disk once a block, a sixteenth of the budget, so that a
step waits for no disk. Whatever of a block has no line when the run is taken up may have been drawn nevertheless (the power
failed, or another process has a copy of the folder), so the rest of the last block is given up: a crash costs at most one
block. A run that ends in good order, by an exception too, gives back what it claimed and did not use.

*Guarantee*: whatever happens between two lines, every noise that was drawn is charged for, and no answer is given for other
noise than it was drawn with: a block is on the disk, and claimed in the purse that pays for the run, before any of it is
drawn, and what has an answer is not asked again. A claim says which one it follows, so of two copies of a folder that are
both taken up, a purse that outlives the process (a file, a ledger) lets one go on, and the other stops. Without such a purse,
that there is one folder is the user's word. So is that the data set is the one it was: contents are not compared. The folder
holds released answers and settings alone.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .atomic import write_atomically
from .budget import Budget, BudgetExhausted, Meter, MeterView, Terms
from .budget.account import Account
from .budget.purse import Part, Purse
from .budget.store import Claimed
from .curator import Answer, Asking, Curator, Facts
from .curator.oneshot import rebuilt_walk
from .curator.question import checked_noise, rebuilt
from .curator.questions.moments import Count
from .events import FULL, Event, Gaussian, Sampling, from_dict, plain_sampling, sampled, to_dict
from .late import Tensor, torch
from .prepare.features import Features
from .trace import Released

FORMAT = "noisewise-journal/2"
KINDS = ("float32", "float64", "int64")
LOST = "lost"  # how a trace names an answer that was paid for and not written down in time
BLOCK = 1 / 16  # of the budget: what a crash can cost
DURABLE = ("part", "block", "forfeited", "closed", "finished")  # lines that are on the disk before anything goes on


class Kept(NamedTuple):
    """What was charged, and the answer if it was written down."""

    question: str
    event: Event
    answer: Answer | None = None
    line: Mapping[str, Any] | None = None


class Forfeited(NamedTuple):
    """A share of the budget to which everything is given up."""

    share: float


class Journal:
    """The journal in a folder, held by one process at a time; ``settings`` say of which run it is, as plain JSON data."""

    def __init__(self, folder: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self._place = Path(folder)
        import fcntl  # not on every system, and needed only here

        self._place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(self._place / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise RuntimeError(f"{self._place}: another process is running this checkpoint; wait for it") from None
        self._process, self._files = os.getpid(), dict[str, int]()
        self._part: Part | None = None  # that pays for the run
        self.past, self.finished = deque[Kept | Forfeited](), False
        self.claim: int | None = None  # the number of that part
        self._claimed, self._closed, self._fresh = 0.0, True, True
        try:
            self._agree({"format": FORMAT, **settings})
            self._read()
        except BaseException:
            self._let_go()
            raise

    def close(self, spent: float | None = None) -> None:
        """Let another process have it; ``spent``: the share of the budget that was used, where that is known."""
        if self._lock < 0 or os.getpid() != self._process:
            return  # closed, or a forked copy, which knows nothing of what the run does
        try:
            if spent is not None and self._part is not None and not (self.finished or self._fresh):
                with suppress(OSError, ValueError, RuntimeError):  # it stays open, then: what it claimed is given up
                    self._sync()
                    if self._part.claimed != spent:
                        self._part.claim(spent)
                    self._append({"closed": spent}, durable=True)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        for descriptor in (*self._files.values(), self._lock):
            os.close(descriptor)
        self._files, self._lock = {}, -1

    def _agree(self, settings: Mapping[str, Any]) -> None:
        path, own = self._place / "settings.json", json.loads(json.dumps(settings, default=str))
        if not path.exists():
            if (self._place / "journal.jsonl").exists():
                raise ValueError(f"{self._place}: holds answers without settings; pass another folder")
            write_atomically(path, json.dumps(own, indent=1).encode(), durable=True)
            return
        try:
            there = json.loads(path.read_bytes())
        except ValueError:
            there = None
        if not isinstance(there, dict):
            raise ValueError(f"{self._place}: settings.json cannot be read; pass another folder")
        if odd := [name for name in sorted({*own, *there}) if own.get(name) != there.get(name)]:
            raise ValueError(
                f"{self._place} holds a run with another {', '.join(odd)}; pass the same settings, or another folder"
            )

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """What is there. After the last line that was forced to the disk, one that is torn ends it: it never happened."""
        path = self._place / "journal.jsonl"
        if not os.path.lexists(path):
            return
        content, good = self._content("journal.jsonl"), 0
        lines = content.split(b"\n")[:-1]
        sure = max((i + 1 for i, line in enumerate(lines) if self._forced(line)), default=0)
        if content and not sure:
            raise ValueError(f"{self._place}: its journal was changed; pass another folder")
        for i, line in enumerate(lines):
            try:
                self._take(json.loads(line))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                if i < sure:
                    raise ValueError(f"{self._place}: its journal was changed; pass another folder") from None
                break
            good += len(line) + 1
        if good < len(content):
            self._cut("journal.jsonl", good)

    @staticmethod
    def _forced(line: bytes) -> bool:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return False
        return isinstance(found, dict) and any(name in found for name in DURABLE)

    def _take(self, line: Mapping[str, Any]) -> None:
        """One line of the past."""
        self._closed = False
        if "part" in line:
            self.claim, self._closed = int(line["part"]), self._fresh
        elif "block" in line:
            self._claimed, self._fresh = _share(line["block"]), False
        elif "charged" in line:
            self.past.append(Kept(str(line["charged"]), from_dict(line["event"])))
        elif "refused" in line:
            self._pop()
        elif "answered" in line:
            found, shown = (
                self._answer(line),
                dict(line["answered"]),
            )  # before the charge is touched: it stays, whatever comes
            self.past.append(self._pop()._replace(answer=found, line=shown))
        elif "forfeited" in line:
            self.past.append(Forfeited(_share(line["forfeited"])))
        elif "closed" in line:
            self._claimed, self._closed = _share(line["closed"]), True
        elif line == {"finished": True}:
            self.finished = True
        else:
            raise ValueError("a line says nothing")

    def _pop(self) -> Kept:
        if not self.past or not isinstance(self.past[-1], Kept) or self.past[-1].answer is not None:
            raise ValueError("an answer to nothing")
        last = self.past.pop()
        assert isinstance(last, Kept)
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
        shaped = torch.from_numpy(value.reshape(line["shape"]).copy())
        return Answer(shaped, float(line["noise_std"]), None if below is None else float(below))

    # --- writing ------------------------------------------------------------------------------------------------------

    def _file(self, name: str) -> int:
        """A file of the folder, open for appending and never through a link."""
        if name not in self._files:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            self._files[name] = os.open(self._place / name, flags, 0o600)
        return self._files[name]

    def _length(self, name: str) -> int:
        return os.fstat(self._file(name)).st_size

    def _content(self, name: str) -> bytes:
        return os.pread(self._file(name), self._length(name), 0)

    def _cut(self, name: str, size: int) -> None:
        os.ftruncate(self._file(name), size)
        os.fsync(self._file(name))

    def _write(self, name: str, content: bytes) -> int:
        """Hand all of it to the system, which has it when this process is gone; where it begins in the file."""
        descriptor, at = self._file(name), self._length(name)
        done = 0
        while done < len(content):
            done += os.write(descriptor, content[done:])
        return at

    def _append(self, line: Mapping[str, Any], *, durable: bool = False) -> None:
        self._write("journal.jsonl", json.dumps(line).encode() + b"\n")
        if durable:
            self._sync()

    def _sync(self) -> None:
        for name in ("answers.bin", "journal.jsonl"):  # in this order: an answer is there before the line that names it
            if name in self._files:
                os.fsync(self._files[name])

    def paid_by(self, part: Part) -> None:
        """The part of a purse that pays for the run. What an earlier process claimed of it and left no line of is given up,
        unless it ended in good order and nobody went on since.
        """
        self._part = part
        if self.claim != part.number:
            self._append({"part": part.number}, durable=True)
            self.claim = part.number
        claimed = max(part.claimed, self._claimed)
        if claimed > 0 and not self.finished and not (self._closed and part.claimed in (0.0, self._claimed)):
            self._append({"forfeited": claimed}, durable=True)
            self.past.append(Forfeited(claimed))
        self._claimed, self._fresh = claimed, True

    def charged(self, question: str, event: Event, before: float, after: float) -> None:
        """Note what is about to be charged, and claim the next block where it is not within the last one of this process.

        ``before``, ``after``: the share of the budget that is spent without it, and with it.
        """
        if self._fresh or after > self._claimed:
            self._next_block(max(after, min(before + BLOCK, 1.0)))
        self._append({"charged": question, "event": to_dict(event)})

    def _next_block(self, share: float) -> None:
        if self._part is not None:
            if share <= self._part.claimed:  # a claim is another one: so small an event is not worth a block
                share = math.nextafter(self._part.claimed, 2.0)
            if share > 1:
                raise BudgetExhausted("nothing is left of this run's budget that could be claimed")
            self._part.claim(share)
        self._append({"block": share}, durable=True)
        self._claimed, self._fresh = share, False

    def refused(self) -> None:
        """What was about to be charged was not: the meter refused."""
        self._append({"refused": True})

    def answered(self, answer: Answer, line: Mapping[str, Any]) -> None:
        value = np.ascontiguousarray(answer.value.numpy())
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

    def finish(self) -> None:
        """All questions are asked."""
        if not self.finished:
            self._append({"finished": True}, durable=True)
            self.finished = True


def _share(value: Any) -> float:
    if type(value) is not float or not 0 <= value <= 1:
        raise ValueError("no share of a budget")
    return value


class Journalled(Asking):
    """A curator whose answers are written down before they are used, and come from the journal where they are there."""

    def __init__(self, curator: Curator, journal: Journal) -> None:
        self.__curator, self.__journal = curator, journal
        self.__pass_over_lost()

    @property
    def facts(self) -> Facts:
        return self.__curator.facts

    @property
    def meter(self) -> MeterView:
        return self.__curator.meter

    @property
    def trace(self) -> tuple[Released, ...]:
        return self.__curator.trace

    @property
    def simulation(self) -> bool:
        return self.__curator.simulation

    @property
    def features(self) -> Features | None:
        return self.__curator.features

    def change_basis(self, matrix: Tensor) -> None:
        self.__curator.change_basis(matrix)

    def prepare(self, features: Features) -> None:
        self.__curator.prepare(features)

    def centre(self, centre: Tensor, scale: float) -> None:
        self.__curator.centre(centre, scale)

    def in_first_basis(self, theta: Tensor) -> Tensor:
        return self.__curator.in_first_basis(theta)

    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        asked, plainly, multiplier = rebuilt(question), plain_sampling(sampling), checked_noise(noise)
        # what is written down is what is charged: plain numbers, once
        event = sampled(plainly, asked.event(multiplier))
        return self.__answer(
            asked.name, event, asked, lambda: self.__curator.ask(asked, noise=multiplier, sampling=plainly)
        )

    def last_iterate(self, walk: Any) -> Answer:
        return self.__whole(walk, self.__curator.last_iterate)

    def minimise(self, objective: Any) -> Answer:
        return self.__whole(objective, self.__curator.minimise)

    def __whole(self, asked: Any, ask: Callable[[Any], Answer]) -> Answer:
        own = rebuilt_walk(asked, self.facts.dimension)
        return self.__answer(type(own).__name__, own.event(), own, lambda: ask(own))

    def release_size(self, *, noise_multiplier: float) -> None:
        """Buy the number of records, or take it from the journal."""

        def bought() -> Answer:
            size = self.__curator.release_size(noise_multiplier=noise_multiplier)
            return Answer(torch.tensor(size, dtype=torch.float64), self.__curator.trace[-1].noise_std)

        self.__answer(Count.name, Gaussian(noise_multiplier), None, bought)

    def __answer(self, name: str, event: Event, asked: Any, ask: Callable[[], Answer]) -> Answer:
        """From the journal, or asked now; ``asked`` is None for the size."""
        return self.__again(name, event, asked) if self.__journal.past else self.__anew(name, event, ask)

    def __anew(self, name: str, event: Event, ask: Callable[[], Answer]) -> Answer:
        if self.__journal.finished:
            raise RuntimeError("the run in this checkpoint is finished and asks no more; pass another folder")
        before, after = self.meter.spent_fraction, self.meter.share_after(event)
        if after > 1:
            return ask()  # which refuses, by the meter's own words
        self.__journal.charged(name, event, before, after)
        try:
            answer = ask()
        except BudgetExhausted:
            self.__journal.refused()
            raise
        line = self.__curator.trace[-1]
        self.__journal.answered(answer, {"clip": line.clip, "noise_std": line.noise_std, "norm": line.norm})
        return answer

    def __again(self, name: str, event: Event, asked: Any) -> Answer:
        kept = self.__journal.past.popleft()
        assert isinstance(kept, Kept)  # what is given up was passed over
        if (kept.question, kept.event) != (name, event) or kept.answer is None or kept.line is None:
            raise ValueError("the checkpoint's answers are to other questions than this run asks; pass another folder")
        line = Released(name, event, spent=0.0, **kept.line)
        self.__curator.take_up(line, asked, float(kept.answer.value) if asked is None else None)
        self.__pass_over_lost()
        return kept.answer

    def __pass_over_lost(self) -> None:
        """Charge, in the meter of this process, for what was charged and never answered, and for what was given up."""
        past = self.__journal.past
        while past:
            first = past[0]
            if isinstance(first, Forfeited):
                self.__curator.forfeit(first.share)
            elif first.answer is None:
                self.__curator.take_up(Released(LOST, first.event, None, 0.0, None, 0.0))
            else:
                return
            past.popleft()


@contextmanager
def paid(source: Purse | Account, terms: Terms, budget: Budget, journal: Journal | None) -> Iterator[Meter]:
    """The meter of a run, settled at the end whatever that is; a run with a journal that did not end can be taken up."""
    if journal is None:
        with source.part(terms, budget, what="training") as part:
            yield part.meter
        return
    part = _part(source, terms, budget, journal)
    journal.paid_by(part)
    try:
        yield part.meter
    except Claimed:
        raise  # another process goes on: what this one knows is not how it stands
    except BaseException:
        journal.close(min(math.nextafter(part.meter.spent_fraction, 2.0), 1.0))
        raise
    journal.finish()
    part.settle()


def _part(source: Purse | Account, terms: Terms, budget: Budget, journal: Journal) -> Part:
    """The part that pays: the run's own, or a new one where the purse knows of none. A finished run draws nothing more, so one
    that was settled needs no purse.
    """
    try:
        return source.part(terms, budget, what="training", number=journal.claim)
    except (ValueError, BudgetExhausted):
        if not journal.finished:
            raise
        return Purse(budget).part(terms, budget, what="training")
