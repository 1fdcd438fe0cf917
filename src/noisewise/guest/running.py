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
from typing import Any

from ..remote.messages import BadMessage
from ..trusted.process import Process, hide_memory, this_process
from .isolation import Isolation, located, no_sandbox, package_of, started
from .wire import Hung, Wire

MAX_SILENCE = 600.0  # seconds in which a guest must ask or answer something
START_SECONDS = 120.0  # in which a guest must be there
TICK_SECONDS = 0.02  # what follows work on records is sent so many of it after the guest's last message

Serve = Callable[[Any], dict[str, Any]]


class GuestFailed(ValueError):
    """A guest ended, hung, broke the protocol or raised; what was spent by then is spent."""


class Guest:
    """One running guest."""

    def __init__(self, spec: str, isolation: Isolation) -> None:
        package, self.spec, self.isolation = located(package_of(spec)), spec, isolation
        hide_memory()  # rows may be here by now, or come while it runs
        self._process = started(isolation, package)
        self._pipes: list[Any] = [self._process.stdout, self._process.stdin, self._process.stderr]
        self._wire, self._heard = Wire(*(pipe.fileno() for pipe in self._pipes)), time.monotonic()
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
        """What the guest replies to a message; ``serve`` answers what it asks meanwhile, else it may ask nothing."""
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
        """Send a message and read the next; a guest that does not play its part is ended."""
        try:
            self._wire.send(message, MAX_SILENCE)
            found, self._heard = self._wire.receive(MAX_SILENCE), time.monotonic()
            if type(found) is dict:
                return found
            why = "sent what is no message"
        except Hung:
            why = f"said nothing for {MAX_SILENCE:.0f} s"
        except (EOFError, OSError, BadMessage):
            why = "ended or broke off in its process"
        self.end()
        said = self._last_line()
        raise GuestFailed(f"the method {self.spec} {why}" + (f": {said}" if said else ""))

    def tick(self) -> None:
        """Wait until whole ticks have passed since a guest in a sandbox was heard last.

        On a clock that ran on by itself, a guest could choose when to ask, and find out what just misses a tick.
        """
        if self.isolation == "sandbox":
            time.sleep(TICK_SECONDS - (time.monotonic() - self._heard) % TICK_SECONDS)

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
        """What the guest has printed since this was asked last."""
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
    """A running guest that nobody else talks to meanwhile; one that failed is ended, another stays for the next run.

    One that took part in a ``simulation``, whose noise can be guessed with its seed, takes part in no private run.
    """
    key = this_process(), threading.get_native_id(), spec, isolation, simulation
    with _lock:
        _forget_ended()
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
        _show(guest)


def _forget_ended() -> None:
    """Close what is left of guests whose threads have ended."""
    for waiting in _own():
        for guest in [guest for guest in waiting if not guest.alive]:
            guest.end()
            waiting.remove(guest)


def _own() -> list[list[Guest]]:
    return [waiting for key, waiting in _idle.items() if key[0] == this_process()]


def _show(guest: Guest) -> None:
    """Print what a guest has printed, after its run, as the guest's."""
    for line in guest.printed().splitlines():
        if line.strip():
            print(f"[{guest.spec}] {printable(line, 500)}", file=sys.stderr)


@atexit.register
def end_idle() -> None:
    """End the guests of this process that wait for a next run."""
    with _lock:
        for waiting in _own():
            while waiting:
                waiting.pop().end()
