"""A guest's process: ``python -m noisewise.guest``, started by the host. It never receives a record.

Reads messages from standard input and answers on standard output; what the method prints goes to standard error.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..accounts import BudgetExhausted
from ..asking import array
from ..methods.base import Method
from .remote_curator import Remote
from .wire import Wire, facts_from, public_from, terms_to

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 1, 38, 47, 4
CAPABILITIES_VERSION_3 = 0x20080522


@dataclass
class Room:
    kind: Any = None
    method: Any = None
    state: Any = None
    public: Any = None


def main() -> None:
    _give_up_rights()
    sys.path.insert(0, sys.argv[1])
    replies = os.dup(1)
    os.dup2(2, 1)  # what is printed is not a message
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    wire, room = Wire(0, replies), Room()
    wire.send("here")
    while True:
        try:
            message = wire.receive()
        except EOFError:
            return
        wire.send(_reply(room, message, wire))


def _give_up_rights() -> None:
    """Keep no capability, gain none, and end with the parent."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    libc.capset((ctypes.c_uint32 * 2)(CAPABILITIES_VERSION_3, 0), (ctypes.c_uint32 * 6)())


def _reply(room: Room, message: dict[str, Any], wire: Wire) -> dict[str, Any]:
    try:
        return {"done": DO[message["do"]](room, message, wire)}
    except BudgetExhausted:
        return {"done": "exhausted"}
    except Exception as error:
        import traceback

        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"[:2000]}


def _load(room: Room, message: dict[str, Any], wire: Wire) -> None:
    module, _, name = message["spec"].partition(":")
    kind = getattr(importlib.import_module(module), name)
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise TypeError(f"{message['spec']} is not a noisewise.methods.Method")
    room.kind = kind


def _make(room: Room, message: dict[str, Any], wire: Wire) -> dict[str, Any]:
    room.method, room.state, room.public = room.kind(**message["settings"]), None, None
    method = room.method
    return {
        "title": method.name,
        "summary": method.summary,
        "paper": method.paper,
        "losses": tuple(method.losses),
        "needs_public": bool(method.needs_public),
        "adaptive": bool(method.adaptive),
        "table": bool(method.table),
        "walks": bool(method.walks),
        "settings": {name: _plain(value) for name, value in method.settings().items()},
        "total_steps": None if (steps := method.total_steps()) is None else int(steps),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_plain(part) for part in value)
    return value if value is None or type(value) in (bool, int, float, str) else str(value)


def _init(room: Room, message: dict[str, Any], wire: Wire) -> bool:
    room.public = public_from(message["public"])
    room.state = room.method.init(message["theta"], facts_from(message["facts"]), room.public)
    return bool(room.method.done(room.state))


def _step(room: Room, message: dict[str, Any], wire: Wire) -> bool:
    room.state = room.method.step(room.state, Remote(wire, simulation=message["simulation"]), room.public)
    return bool(room.method.done(room.state))


def _array(value: Any) -> Any:
    found = array(value)
    if found is not None and not isinstance(found, np.ndarray):
        raise TypeError(f"{type(found).__name__} is no array of floating-point numbers")
    return None if found is None else np.asarray(found)


DO: dict[str, Callable[[Room, dict[str, Any], Wire], Any]] = {
    "load": _load,
    "make": _make,
    "terms": lambda room, message, wire: terms_to(room.method.terms(facts_from(message["facts"]))),
    "init": _init,
    "step": _step,
    "finish": lambda room, message, wire: _array(room.method.finish(room.state, room.public)),
    "spread": lambda room, message, wire: _array(room.method.spread(room.state)),
    "shares": lambda room, message, wire: _array(room.method.shares(room.state)),
}

if __name__ == "__main__":
    main()
