"""A guest's process as the host sees it: started once, asked for one thing after another, ended with this process."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from ..accounts import BudgetExhausted
from ..asking import Answer, Curator
from ..remote.messages import BadMessage
from ..trusted.events import from_dict, to_dict
from ..trusted.features import Features
from ..trusted.process import Process, hide_memory, this_process
from .isolation import Isolation, located, no_sandbox, package_of, started
from .wire import Hung, Wire, answer_to, facts_to, question_from, sampling_from, trace_to, vector_from, walk_from

MAX_SILENCE = 600.0  # seconds in which a guest must ask or answer something
START_SECONDS = 120.0  # in which a guest must be there
TICK_SECONDS = 0.02  # replies that follow work on records leave whole ticks after the guest's last message

Serve = Callable[[Any], dict[str, Any]]


class GuestFailed(ValueError):
    """A guest ended, hung, broke the protocol or raised; what was spent by then is spent."""


class Guest:
    def __init__(self, spec: str, isolation: Isolation) -> None:
        package, self.spec, self.isolation = located(package_of(spec)), spec, isolation
        hide_memory()  # rows may be here by now, or come while it runs
        self._process = started(isolation, package)
        self._pipes: list[Any] = [self._process.stdout, self._process.stdin, self._process.stderr]
        self._wire, self._received = Wire(*(pipe.fileno() for pipe in self._pipes)), time.monotonic()
        try:
            self._wire.receive(START_SECONDS)
        except (EOFError, BadMessage, OSError):
            self.end()
            raise ValueError(no_sandbox(self._last_line() or "it does not start")) from None
        try:
            self.call({"do": "load", "spec": spec})
        except GuestFailed:
            self.end()
            raise

    def call(self, message: dict[str, Any], serve: Serve | None = None) -> Any:
        """What the guest replies to a message; ``serve`` answers its requests meanwhile, without it there may be none."""
        if serve is None:
            self.tick()  # before a run and at its ends, rows are read and laid out
        while True:
            found = self._exchanged(message)
            if "done" in found:
                return found["done"]
            if "failed" in found:
                why = printable(found["failed"], 1000)
                raise GuestFailed(f"the method {self.spec} failed in its process: {why}")
            if serve is None:
                self.end()
                raise GuestFailed(f"the method {self.spec} asks before its run has begun")
            message = serve(found)  # what the host itself raises here is not the guest's failure

    def _exchanged(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and read the next; a guest that breaks the protocol is ended."""
        try:
            self._wire.send(message, MAX_SILENCE)
            found, self._received = self._wire.receive(MAX_SILENCE), time.monotonic()
            if type(found) is dict:
                return found
            why = "sent what is no message"
        except Hung:
            why = f"said nothing for {MAX_SILENCE:.0f} s"
        except (EOFError, OSError, BadMessage):
            why = "ended or broke off in its process"
        self.end()
        last = self._last_line()
        raise GuestFailed(f"the method {self.spec} {why}" + (f": {last}" if last else ""))

    def tick(self) -> None:
        """Wait until whole ticks have passed since the last message of a guest in a sandbox.

        On a clock of its own, a guest could choose when to ask, and find out what just misses a tick.
        """
        if self.isolation == "sandbox":
            time.sleep(TICK_SECONDS - (time.monotonic() - self._received) % TICK_SECONDS)

    def end(self) -> None:
        """Kill the guest and its children, and close the pipes; once."""
        pipes, self._pipes = self._pipes, []
        if not pipes:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._wire.listen()
        for pipe in pipes:
            pipe.close()

    @property
    def alive(self) -> bool:
        return bool(self._pipes) and self._process.poll() is None

    def printed(self) -> str:
        """What the guest has printed since the last call."""
        if self.alive:
            self._wire.listen()
        text, self._wire.output = self._wire.output.decode(errors="replace"), bytearray()
        return text

    def _last_line(self) -> str:
        return printable(next(iter(self._wire.output.decode(errors="replace").strip().splitlines()[-1:]), ""), 300)


def printable(text: object, most: int) -> str:
    """A guest's words as one line without control characters."""
    words = " ".join(str(text)[:most].split())
    return "".join(letter if letter.isprintable() else "?" for letter in words)


# by thread, because a guest ends with the one that started it; and by whether it knows answers of simulations
_idle: dict[tuple[Process, int, str, Isolation, bool], list[Guest]] = {}
_lock = threading.Lock()


@contextmanager
def borrowed(spec: str, isolation: Isolation, simulation: bool = False) -> Iterator[Guest]:
    """A running guest for this caller alone; afterwards one that failed is ended, and any other waits for the next run.

    A guest of a ``simulation``, whose noise follows from its seed, takes part in no private run.
    """
    key = this_process(), threading.get_native_id(), spec, isolation, simulation
    with _lock:
        for waiting in _own():  # guests whose threads have ended
            for ended in [guest for guest in waiting if not guest.alive]:
                ended.end()
                waiting.remove(ended)
        waiting = _idle.setdefault(key, [])
        guest = waiting.pop() if waiting else None
    if guest is None or not guest.alive:
        guest = Guest(spec, isolation)
    try:
        yield guest
    except BaseException:
        guest.end()
        raise
    else:
        with _lock:
            waiting.append(guest)
    finally:
        for line in filter(str.strip, guest.printed().splitlines()):
            print(f"[{guest.spec}] {printable(line, 500)}", file=sys.stderr)


def _own() -> list[list[Guest]]:
    return [waiting for key, waiting in _idle.items() if key[0] == this_process()]


@atexit.register
def end_idle() -> None:
    """End the guests of this process that wait for a next run."""
    with _lock:
        for waiting in _own():
            while waiting:
                waiting.pop().end()


# The host's side of a guest's questions. What a guest sends is never executed and never kept, but for copies of its numbers:
# a question is made anew of them by its own registered class, and the curator checks, prices and answers that copy as it does
# any other. Errors reach the guest as one of a few fixed words.

EXHAUSTED, REFUSED, UNKNOWN = "exhausted", "refused", "unknown"  # all that a guest learns of an error
OF_THE_REQUEST = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)  # of what was parsed

MAX_NUMBERS = 1 << 26  # half a gigabyte
MAX_BLOCKS = 32  # of features, for each column of a table

Parsed = Callable[[], Any]


class Served:
    def __init__(self, guest: Guest, private: Curator) -> None:
        self._guest, self._private = guest, private
        self.refused: Exception | None = None  # the last refusal, for the caller: the guest gets one word

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request.get("ask")
        parse = PARSED.get(name) if type(name) is str else None
        if parse is None:
            return {"error": UNKNOWN}
        try:
            ask = parse(self._private, request)
        except Exception as error:  # nothing is touched by then, so it is about what was sent
            self.refused, found = error, {"error": REFUSED}
        else:
            found = self._asked(ask)
        if name not in FREE:
            self._guest.tick()
        return found

    def _asked(self, ask: Parsed) -> dict[str, Any]:
        try:
            return {"answer": ask()}
        except BudgetExhausted:
            return {"error": EXHAUSTED}
        except OF_THE_REQUEST as error:
            self.refused = error
            return {"error": REFUSED}


def _question(private: Curator, request: dict[str, Any]) -> Parsed:
    question, noise, sampling = question_from(request), _number(request["noise"]), sampling_from(request["sampling"])
    if question.numbers(private.facts) > MAX_NUMBERS:
        raise ValueError(f"the answer to this takes more than {MAX_NUMBERS:,} numbers, which are too many for a guest")
    return lambda: answer_to(private.ask(question, noise=noise, sampling=sampling))


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError("this is no number")
    return float(value)


def _answer(asked: Callable[[Any], Answer], walk: Any) -> dict[str, Any]:
    return answer_to(asked(walk))


def _prepare(private: Curator, request: dict[str, Any]) -> Parsed:
    features = Features.from_dict(request["features"])
    if len(features.blocks) > MAX_BLOCKS * (1 + len(private.facts.table)):  # each is a column of every row
        raise ValueError("there are too many blocks of features for a table of so few columns")
    return lambda: private.prepare(features)


def _in_first_basis(private: Curator, request: dict[str, Any]) -> Parsed:
    theta = vector_from(request["theta"])
    if theta.shape != (private.facts.dimension,):
        raise ValueError("theta is of another model")
    return lambda: private.in_first_basis(theta)


# What to ask the curator, from a request of plain data: all of it is parsed before anything is asked.
PARSED: dict[str, Callable[[Curator, dict[str, Any]], Parsed]] = {
    "question": _question,
    "last_iterate": lambda private, request: partial(_answer, private.last_iterate, walk_from(request)),
    "minimise": lambda private, request: partial(_answer, private.minimise, walk_from(request)),
    "prepare": _prepare,
    "centre": lambda private, asked: partial(private.centre, vector_from(asked["centre"]), _number(asked["scale"])),
    "change_basis": lambda private, request: partial(private.change_basis, vector_from(request["matrix"])),
    "in_first_basis": _in_first_basis,
    "noise_for": lambda private, request: partial(
        private.meter.noise_for, _number(request["share"]), sampling_from(request["sampling"])
    ),
    "share_after": lambda private, request: partial(private.meter.share_after, from_dict(request["event"])),
    "facts": lambda private, _: lambda: facts_to(private.facts),
    "spent_fraction": lambda private, _: lambda: private.meter.spent_fraction,
    "events": lambda private, _: lambda: [[to_dict(leaf), count] for leaf, count in private.meter.events.items()],
    "trace": lambda private, _: lambda: trace_to(private.trace),
}
FREE = {"in_first_basis", "noise_for", "share_after", "facts", "spent_fraction", "events", "trace"}  # touch no record
