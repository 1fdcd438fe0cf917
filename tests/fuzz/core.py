"""Targets of the fuzz suite: what is tried, with which inputs, and what counts as a finding.

A target makes an input from a seed and hands it to one entry point. Three outcomes are fine or not:

* accepted: it returned;
* refused: an exception that docs/security.md lists, raised by a line of noisewise that says so;
* a finding: anything else. Another exception, or one that a library or an accident raised; a warning of a library; more
  processor time or memory than the limits; a planted cell in a message.
"""

from __future__ import annotations

import linecache
import os
import random
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import noisewise

HOME = str(Path(noisewise.__file__).parent)
SECRETS = ("S3CRET", "8675309")  # cells of private rows hold these; no message may
WORD, NUMBER = "S3CRET-417", 8675309.25
SECONDS, MEGABYTES = 3.0, 512  # of processor time and of memory, for one input
MOST_FINDINGS = 20  # of one target that are written down in a piece of work
REFUSALS = (ValueError, TypeError)  # BudgetExhausted and RuntimeError where a target says so

Make = Callable[[random.Random], Any]
Run = Callable[[Any], Any]


@dataclass(frozen=True)
class Target:
    """One entry point: ``make`` an input, ``run`` it; ``weight`` is its share of the inputs of its ``group``."""

    name: str
    make: Make
    run: Run
    group: str = "parsers"
    weight: float = 1.0
    refusals: tuple[type[BaseException], ...] = REFUSALS
    shown: Callable[[Any], str] = repr  # what of an input may be quoted: there a planted word is no leak
    seconds: float = SECONDS  # of processor time


TARGETS: dict[str, Target] = {}


def target(
    name: str, make: Make, *, group: str = "parsers", weight: float = 1.0, also: tuple[type[BaseException], ...] = (),
    shown: Callable[[Any], str] = lambda value: "", seconds: float = SECONDS,
) -> Callable[[Run], Run]:  # fmt: skip
    """Register the function below as a target; ``also``: further exceptions that are documented for it."""

    def register(run: Run) -> Run:
        assert name not in TARGETS, name
        TARGETS[name] = Target(name, make, run, group, weight, (*REFUSALS, *also), shown, seconds)
        return run

    return register


@dataclass
class Tally:
    """What became of the inputs of a target."""

    tried: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    findings: list[tuple[int, str]] = field(default_factory=list)  # the seed of the input, and what was wrong


class TooLong(BaseException):
    """The input took more processor time than it may. Not an Exception, so that nobody takes it for bad input."""


def seed_of(target: Target, seed: int, number: int) -> int:
    """The seed of one input: the same in every process, whatever else is run."""
    return int.from_bytes(f"{target.name}/{seed}/{number}".encode(), "little") % (2**61 - 1)


def made(target: Target, seed: int) -> Any:
    """The input of a seed."""
    return target.make(random.Random(seed))


def tried(target: Target, value: Any) -> tuple[str, str]:
    """Run one input: ("accepted" | "refused" | "finding", why)."""
    heard: list[str] = []
    before, start = _peak(), time.process_time()
    with _listening(heard):
        try:
            with _at_most(target.seconds):
                target.run(value)
            verdict = "accepted", ""
        except target.refusals as error:
            verdict = _refused(target, value, error)
        except TooLong:
            verdict = "finding", f"took more than {target.seconds:g} s"
        except (Exception, SystemExit) as error:
            verdict = "finding", _described(error)
    if heard:
        verdict = "finding", f"warned: {heard[0]}"
    if time.process_time() - start > target.seconds:
        verdict = "finding", f"took more than {target.seconds:g} s"
    if _peak() - before > MEGABYTES:
        verdict = "finding", f"took more than {MEGABYTES} MB"
    return verdict


def tally_of(target: Target, seed: int, numbers: range, keep: Callable[[Target, int, str], None]) -> Tally:
    """Try so many inputs of a target; ``keep`` hears of findings."""
    tally, start = Tally(), time.perf_counter()
    for number in numbers:
        own = seed_of(target, seed, number)
        verdict, why = tried(target, made(target, own))
        tally.tried += 1
        tally.accepted += verdict == "accepted"
        tally.refused += verdict == "refused"
        if verdict == "finding" and len(tally.findings) < MOST_FINDINGS:
            tally.findings.append((own, why))
            keep(target, own, why)
    tally.seconds = time.perf_counter() - start
    return tally


# -- what is wrong with a refusal ------------------------------------------------------------------------------------


def _refused(target: Target, value: Any, error: BaseException) -> tuple[str, str]:
    if leak := _leaks(error, target.shown(value)):
        return "finding", f"shows a cell: {leak}"
    if not _ours(error):
        return "finding", _described(error)
    return "refused", type(error).__name__


def _leaks(error: BaseException | None, shown: str) -> str:
    """A planted cell in a message, or in what hangs on to it, unless the input shows it where names are."""
    words = []
    while error is not None and len(words) < 10:
        words.append(f"{error} {error!r}")
        error = error.__context__ if not error.__suppress_context__ else None
    text = " ".join(words)
    return next((text[:300] for secret in SECRETS if secret in text and secret not in shown), "")


def _ours(error: BaseException) -> bool:
    """Whether a line of noisewise raised it on purpose."""
    frames = traceback.extract_tb(error.__traceback__)
    if type(error) is EOFError:
        return True
    last = frames[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return last.filename.startswith(HOME) and line.startswith("raise")


def _described(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = next((frame for frame in reversed(frames) if frame.filename.startswith(HOME)), frames[-1])
    place = f"{os.path.relpath(where.filename, HOME)}:{where.lineno}"
    return f"{type(error).__name__} at {place}: {str(error)[:200]}"


# -- limits ----------------------------------------------------------------------------------------------------------


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Processor time, so that a busy machine finds nothing."""

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def _listening(heard: list[str]) -> Iterator[None]:
    """Warnings of libraries are findings; those of noisewise are for its users."""

    def hear(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        ours = (
            category.__module__.startswith("noisewise") or category.__name__ == "DataConversionWarning"
        )  # raised by us
        if not ours:
            heard.append(f"{category.__name__} at {os.path.basename(filename)}:{lineno}: {str(message)[:200]}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = hear  # type: ignore[assignment]
        yield


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def limit_memory(gigabytes: float = 12.0) -> None:
    """No more address space than this for the whole process: a bomb is a MemoryError, not a frozen machine."""
    most = int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
