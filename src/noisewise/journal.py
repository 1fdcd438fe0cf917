"""A journal: every released answer of a run in a folder, so that a run that was killed goes on where it was.

    write down what is about to be charged -> charge -> draw -> write down the noisy answer -> use it

A run that is taken up again is answered from the journal as far as that reaches: nothing is drawn twice. What was charged
and has no answer stays charged: a plan has one step fewer then, a filter may ask again as a further event. The stream of
noise is never written down; a run that goes on has a fresh one.

*Guarantee*: whatever happens between two lines, every noise that was drawn is charged for, and no answer is given for other
noise than it was drawn with: a line of a charge is on the disk before the records are touched, and what has an answer on the
disk is not asked again. The folder holds released answers and settings alone. That the data set is the one it was is the
user's word: contents are not compared. So is that there is one folder: of two copies that are both taken up, a purse pays for one.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .atomic import PLAIN, open_private, read_plain, write_atomically
from .budget import Budget, BudgetExhausted, Meter, MeterView, Terms
from .budget.account import Account
from .budget.purse import Purse
from .curator import Answer, Asking, Curator, Facts
from .curator.question import checked_noise, rebuilt
from .events import FULL, Event, Gaussian, Sampling, from_dict, plain_sampling, sampled, to_dict
from .late import Tensor, torch
from .trace import Released

FORMAT = "noisewise-journal/1"
KINDS = ("float32", "float64", "int64")
LOST = "lost"  # how a trace names an answer that was paid for and not written down in time


class Kept(NamedTuple):
    """What was charged, and the answer if it was written down."""

    question: str
    event: Event
    answer: Answer | None = None
    line: Mapping[str, Any] | None = None


class Journal:
    """The journal in a folder, held by one process at a time; ``settings`` say of which run it is, as plain JSON data."""

    def __init__(self, folder: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self._place = Path(folder)
        import fcntl  # not on every system, and needed only here

        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._lock = os.open(self._place / "lock", os.O_RDWR | os.O_CREAT | PLAIN, 0o600)
        except OSError as error:
            raise ValueError(f"{self._place}: cannot be locked ({error.strerror}); pass another folder") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise RuntimeError(f"{self._place}: another process is running this checkpoint; wait for it") from None
        try:
            self._agree({"format": FORMAT, **settings})
            self.past, self.claim, self.finished = self._read()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Let another process have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _agree(self, settings: Mapping[str, Any]) -> None:
        path, own = self._place / "settings.json", json.loads(json.dumps(settings, default=str))
        if not path.exists():
            if (self._place / "journal.jsonl").exists():
                raise ValueError(f"{self._place}: holds answers without settings; pass another folder")
            write_atomically(path, json.dumps(own, indent=1).encode(), durable=True, private=True)
            return
        try:
            there = json.loads(read_plain(path))
        except (ValueError, RecursionError, OSError):
            there = None
        if not isinstance(there, dict):
            raise ValueError(f"{self._place}: settings.json cannot be read; pass another folder")
        if odd := [name for name in sorted({*own, *there}) if own.get(name) != there.get(name)]:
            raise ValueError(
                f"{self._place} holds a run with another {', '.join(odd)}; pass the same settings, or another folder"
            )

    def _read(self) -> tuple[deque[Kept], int | None, bool]:
        """What is there; a last line that was not written to its end never happened."""
        path, past = self._place / "journal.jsonl", deque[Kept]()
        claim, finished = None, False
        if not path.exists():
            return past, None, False
        try:
            content = read_plain(path)
        except OSError:
            raise ValueError(f"{self._place}: its journal is not a plain file; pass another folder") from None
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with open_private(path, append=False) as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
        try:
            for line in map(json.loads, whole.splitlines()):
                if "claimed" in line:
                    claim = int(line["claimed"])
                elif "charged" in line:
                    past.append(Kept(str(line["charged"]), from_dict(line["event"])))
                elif "refused" in line:
                    past.pop()
                elif "answered" in line:
                    past.append(past.pop()._replace(answer=self._answer(line), line=line["answered"]))
                elif line == {"finished": True}:
                    finished = True
                else:
                    raise ValueError("a line says nothing")
        except (ValueError, LookupError, TypeError, ArithmeticError, OSError, RecursionError):
            raise ValueError(f"{self._place}: its journal was changed; pass another folder") from None
        return past, claim, finished

    def _answer(self, line: Mapping[str, Any]) -> Answer:
        kind, count = line["dtype"], int(line["count"])
        if kind not in KINDS:
            raise ValueError("an answer is of an unknown kind")
        with open_private(self._place / "answers.bin", append=False) as file:
            if not 0 <= count <= os.fstat(file.fileno()).st_size:
                raise ValueError("an answer is missing")
            file.seek(int(line["at"]))
            value = np.frombuffer(file.read(count * np.dtype(kind).itemsize), dtype=kind)
        if len(value) != count:
            raise ValueError("an answer is missing")
        below = line["below"]
        shaped = torch.from_numpy(value.reshape(line["shape"]).copy())
        return Answer(shaped, float(line["noise_std"]), None if below is None else float(below))

    # --- writing ------------------------------------------------------------------------------------------------------

    def _append(self, line: Mapping[str, Any]) -> None:
        with open_private(self._place / "journal.jsonl", append=True) as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def claimed(self, number: int) -> None:
        """Which part of a purse pays for the run."""
        if self.claim != number:
            self._append({"claimed": number})
            self.claim = number

    def charged(self, question: str, event: Event) -> None:
        self._append({"charged": question, "event": to_dict(event)})

    def refused(self) -> None:
        """What was about to be charged was not: the meter refused."""
        self._append({"refused": True})

    def answered(self, answer: Answer, line: Mapping[str, Any]) -> None:
        value = np.ascontiguousarray(answer.value.numpy())
        with open_private(self._place / "answers.bin", append=True) as file:
            at = file.seek(0, os.SEEK_END)
            file.write(value.tobytes())
            file.flush()
            os.fsync(file.fileno())
        self._append(
            {
                "answered": dict(line),
                "at": at,
                "count": value.size,
                "dtype": str(value.dtype),
                "shape": list(value.shape),
                "noise_std": answer.noise_std,
                "below": answer.below,
            }
        )

    def finish(self) -> None:
        """All questions are asked."""
        if not self.finished:
            self._append({"finished": True})
            self.finished = True


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

    def in_first_basis(self, theta: Tensor) -> Tensor:
        return self.__curator.in_first_basis(theta)

    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        asked, plainly, multiplier = rebuilt(question), plain_sampling(sampling), checked_noise(noise)
        event = sampled(
            plainly, asked.event(multiplier)
        )  # what is written down is what is charged: plain numbers, once
        if self.__journal.past:
            return self.__again(asked.name, event)
        return self.__anew(asked.name, event, lambda: self.__curator.ask(asked, noise=multiplier, sampling=plainly))

    def release_size(self, *, noise_multiplier: float) -> None:
        """Buy the number of records, or take it from the journal."""
        event = Gaussian(noise_multiplier)
        if self.__journal.past:
            self.__again("Count", event, size=True)
            return

        def bought() -> Answer:
            size = self.__curator.release_size(noise_multiplier=noise_multiplier)
            return Answer(torch.tensor(size, dtype=torch.float64), self.__curator.trace[-1].noise_std)

        self.__anew("Count", event, bought)

    def __anew(self, name: str, event: Event, ask: Any) -> Answer:
        if self.__journal.finished:
            raise RuntimeError("the run in this checkpoint is finished and asks no more; pass another folder")
        self.__journal.charged(name, event)
        try:
            answer: Answer = ask()
        except BudgetExhausted:
            self.__journal.refused()
            raise
        line = self.__curator.trace[-1]
        self.__journal.answered(answer, {"clip": line.clip, "noise_std": line.noise_std, "norm": line.norm})
        return answer

    def __again(self, name: str, event: Event, *, size: bool = False) -> Answer:
        kept = self.__journal.past.popleft()
        if (kept.question, kept.event) != (name, event) or kept.answer is None or kept.line is None:
            raise ValueError("the checkpoint's answers are to other questions than this run asks; pass another folder")
        line = Released(name, event, spent=0.0, **kept.line)
        self.__curator.take_up(line, float(kept.answer.value) if size else None)
        self.__pass_over_lost()
        return kept.answer

    def __pass_over_lost(self) -> None:
        """Charge again, in the meter of this process, for what was charged and never answered."""
        past = self.__journal.past
        while past and past[0].answer is None:
            self.__curator.take_up(Released(LOST, past.popleft().event, None, 0.0, None, 0.0))


@contextmanager
def paid(source: Purse | Account, terms: Terms, budget: Budget, journal: Journal | None) -> Iterator[Meter]:
    """The meter of a run, settled at the end whatever that is; a run with a journal that did not end can be taken up."""
    if journal is None:
        with source.part(terms, budget, what="training") as part:
            yield part.meter
        return
    if journal.finished:  # it was paid for and is settled; nothing is drawn any more
        yield Purse(budget).part(terms, budget, what="training").meter
        return
    part = source.part(terms, budget, what="training", number=journal.claim)
    journal.claimed(part.number)
    yield part.meter
    journal.finish()
    part.settle()
