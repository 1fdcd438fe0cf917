"""Messages as another process could send them: flipped, cut, and with lengths, counts and shapes that are not there."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import numpy as np

from noisewise.remote.clients.messages import read_history, read_question
from noisewise.remote.federation import Declared, Federated
from noisewise.remote.forms import packed
from noisewise.remote.holder import Request
from noisewise.remote.messages import DTYPES, pack, unpack
from noisewise.trusted.features import Codes, Hats, even
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear
from noisewise.trusted.stores.totals import Drawn

from .core import target
from .mutate import flipped, odd

LENGTHS = (0, 1, 2, 7, 8, 255, 2**16, 2**31, 2**32, 2**40, 2**61, 2**62 + 1, 2**63, 2**64 - 1)


def value(rng: Random, depth: int = 0) -> Any:
    """Plain data of any kind."""
    kind = rng.randrange(8)
    if kind < 2 and depth < 4:
        items = [value(rng, depth + 1) for _ in range(rng.randrange(4))]
        return items if kind else tuple(items)
    if kind == 2 and depth < 4:
        return {f"key{number}": value(rng, depth + 1) for number in range(rng.randrange(4))}
    if kind == 3:
        shape = [rng.randrange(4) for _ in range(rng.randrange(4))]
        return np.zeros(shape, rng.choice(DTYPES))
    return rng.choice(
        (rng.getrandbits(rng.randrange(1, 900)), rng.random(), rng.randbytes(9), "text", None, True, np.float64(0.5))
    )


def message(rng: Random) -> bytes:
    """A message, often with some of its eight-byte words replaced, its bytes flipped, or its pieces repeated."""
    body = bytearray(pack(value(rng)))
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(body))
        body[at : at + 8] = struct.pack("<Q", rng.choice(LENGTHS))
    if rng.random() < 0.3:
        body = bytearray(flipped(bytes(body), rng))
    if rng.random() < 0.1:
        body = body[: rng.randrange(20)] * rng.randrange(3000)
    return bytes(body)


@target("message", message, weight=3)
def read_message(body: bytes) -> None:
    found = unpack(body)
    assert pack(found) == body, "a message has two spellings"


@target("plain data for a message", odd)
def written(data: Any) -> None:
    body = pack(data)
    assert pack(unpack(body)) == body


HATS = Hats(0, (0.0, 0.5, 1.0), (0.0, 0.3, 1.0), 4)
ASKED = (
    Request(1, "hold", (1, Linear(3, Logistic()))),
    Request(2, "change", (1, 2, "prepared", (even((HATS, Codes(1, (0, 1, 0)))),))),
    Request(3, "change", (1, 2, "in_basis", (np.eye(3),))),
    Request(
        4,
        "total",
        (1, "vectors", Drawn(np.arange(3), 3.0), (np.zeros(3), 0.5), {"scale": np.ones(3), "basis": None}, 7),
    ),
    Request(5, "total", (1, "levels", Drawn(), (((0.0, (0.0, 1.0), (0.0, 1.0)),), 3), {})),
    Request(6, "total", (1, "score_counts", Drawn(), (np.zeros(3), np.array([0.0]), 2), {}, None)),
    Request(7, "forget", ((1, 2),)),
    Request(8, "make", ("client", Federated("record"), Declared(0.5, 3))),
)


def meddled(data: Any, rng: Random) -> Any:
    """Plain data with some of its parts left out, repeated or replaced."""
    if rng.random() < 0.06:
        return rng.choice((odd(rng), value(rng), [data, data]))
    if isinstance(data, list | tuple):
        return type(data)(meddled(each, rng) for each in data if rng.random() < 0.98)
    if isinstance(data, dict):
        return {key: meddled(each, rng) for key, each in data.items() if rng.random() < 0.99}
    return data


def question(rng: Random) -> bytes:
    """A question to a client, one of its history among them, or something like it."""
    try:
        return pack(meddled(unpack(packed(rng.choice(ASKED))), rng))
    except (TypeError, ValueError):
        return b""


@target("question to a client", question, weight=2)
def read_asked(body: bytes) -> None:
    read_question(body)


def history(rng: Random) -> bytes:
    try:
        return pack(meddled(unpack(packed(ASKED[:3])), rng))
    except (TypeError, ValueError):
        return b""


@target("history for a client", history)
def read_told(body: bytes) -> None:
    read_history(body)
