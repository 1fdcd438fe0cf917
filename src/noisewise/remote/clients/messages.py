"""What goes between the server and its clients, as bytes.

*To a client*: plain data, and objects of a short list that are made of their fields (:mod:`noisewise.remote.forms`), none of which
names a file. Reading costs no more than what is there, calls nothing that a message names and changes nothing; what is asked is
checked by its shape and type (:mod:`.requests`). *From a client*: whole numbers of 64 bits: which question it answers, whether it could, how many arrays follow and how long each is, then their entries. What
these stand for, and of which shape they are, the server knows; an answer that is a byte shorter or longer than that is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...trusted.stores.totals import Integers
from ..forms import ELSEWHERE, packed, unpacked
from ..holder import Request
from ..messages import BadMessage
from .requests import check_request

DONE, REFUSED, FAILED = 0, 1, 2  # answered; its file does not fit what was asked; anything else
WHOLE = np.dtype("<i8")
MAX_REQUESTS = 1 << 9  # that a history can have: each may lay all rows out anew


def pack_history(history: Sequence[Request]) -> bytes:
    """What a client needs to hear before a question: how its rows are made. The same for all clients."""
    return packed(tuple(history))


def read_history(body: bytes) -> tuple[Request, ...]:
    """What :func:`pack_history` packed, at a client."""
    history = unpacked(body, without=ELSEWHERE)
    if type(history) is not tuple or len(history) > MAX_REQUESTS:
        raise BadMessage
    return tuple(map(_checked, history))


def pack_question(request: Request) -> bytes:
    """What one client is asked."""
    return packed(request)


def read_question(body: bytes) -> Request:
    """What :func:`pack_question` packed, at a client."""
    return _checked(unpacked(body, without=ELSEWHERE))


def _checked(request: object) -> Request:
    if type(request) is not Request:
        raise BadMessage
    check_request(request)
    return request


def pack_answer(number: int, arrays: Sequence[NDArray[Any]] = (), state: int = DONE) -> bytes:
    """A client's answer to the question of that number."""
    head = [number, state, len(arrays), *(array.size for array in arrays)]
    return b"".join(
        [
            np.array(head, WHOLE).tobytes(),
            *(np.ascontiguousarray(array).astype(WHOLE, casting="safe").tobytes() for array in arrays),
        ]
    )


def read_answer(body: object, number: int, shapes: Sequence[tuple[int, ...]]) -> list[Integers] | None:
    """The arrays of an answer to the question of that number, in the shapes that were asked for; None for anything else."""
    sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
    if type(body) is not bytes or len(body) != WHOLE.itemsize * (3 + len(sizes) + sum(sizes)):
        return None
    words = np.frombuffer(body, WHOLE).astype(np.int64)
    if words[: 3 + len(sizes)].tolist() != [number, DONE, len(sizes), *sizes]:
        return None
    ends = np.cumsum([3 + len(sizes), *sizes]).tolist()
    return [words[ends[i] : ends[i + 1]].reshape(shape) for i, shape in enumerate(shapes)]


def refused(body: object, number: int) -> bool:
    """Whether an answer says that the client's file does not fit what was asked."""
    head = np.array([number, REFUSED, 0], WHOLE).tobytes()
    return type(body) is bytes and body == head
