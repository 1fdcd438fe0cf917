"""What runs at a client: it reads its own file, lays out its rows as it is asked, and answers in integers.

It draws no noise, holds no meter, and writes nothing about rows. An error is answered with a number, without the words of a library. The
client knows which file is its own: no path comes from the server.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ...tables.encode import Encoder
from ...tables.file_pieces import pieces_of, read_pieces
from ...tables.files import Dialect, open_source
from ...tables.fit.labels import ClassesOrTarget, numbers_of_files
from ...tables.refusal import Refusal
from ...tables.rows import Scaling
from ...tables.schema import Schema
from ...trusted.models import Model
from ...trusted.process import own_settings
from ...trusted.stores.totals import Integers, IntegerTotal
from ..federation import Declared, Federated
from ..forms import packed
from ..holder import Holder, Holding, Request
from ..messages import BadMessage
from .agreement import Agreed
from .messages import (
    DONE,
    FAILED,
    MAX_VERSIONS,
    REFUSED,
    Held,
    Made,
    check_change,
    check_model,
    check_total,
    pack_answer,
    read_history,
    read_question,
)
from .one_record import Together

MAKER, ANYTHING = "client", Agreed()


def holder_of(path: Path | None, agreed: Agreed = ANYTHING) -> Holder:
    """What holds the rows of one file; without a file it answers with the zero of every sum."""
    return Holder({MAKER: partial(_hold, path, agreed)}, said=(Refusal,))


def _hold(
    path: Path | None,
    agreed: Agreed,
    schema: Schema,
    scaling: Scaling,
    labels: ClassesOrTarget,
    integers: bool,
    written: str | Dialect | None,
    federated: Federated,
    declared: Declared,
) -> Holding:
    """A client's file as rows that a curator takes, or as one record.

    Another schema or unit is refused before the file is read, sums over too few records before its length is sent.
    """
    agreed.check_unit(schema, federated)
    encoder = Encoder(schema)
    pieces = [] if path is None else pieces_of(open_source(path, separator=written))
    rows, lengths = read_pieces(pieces, encoder, scaling, separator=written)
    assert rows.y is not None
    agreed.check_size(sum(lengths), federated, declared)
    with own_settings():
        y = numbers_of_files(labels, encoder.classes, rows.y, rows.there)
        kind: Any = np.int64 if integers else np.float32
        X, numbers = rows.X, np.asarray(y, kind)
    if federated.unit == "client":
        together = Together(X, numbers, federated.local_steps, federated.local_rate, path is not None)
        return Holding((0,), (1,), together, numbers)
    return Holding((0,), (sum(lengths),), X, numbers)


class Client:
    """One client: its file, and the records that it keeps of it from one question to the next."""

    def __init__(self, path: Path, agreed: Agreed = ANYTHING) -> None:
        """``agreed``: what it answers, whatever a server says."""
        self._path, self._holder, self._agreed = path, holder_of(path, agreed), agreed
        self._asked = 0  # the number of questions, by any server
        self.refusal = ""  # why this client answers nothing, in our words, for whoever runs it
        self._heard = b""  # the history by which the records are made
        self._made: dict[int | None, bytes] = {}  # by version of the records, None for the rows themselves
        self._known: dict[int, Held] = {}  # by version
        self._length = 0

    def answer(self, history: bytes, question: bytes) -> bytes:
        """The answer to a question, after a history of how its rows are made; never raises."""
        number, state, asked = 0, FAILED, self._asked
        try:
            request = read_question(question)
            number = request.number
            if self.refusal:
                return pack_answer(number, state=REFUSED)
            state = self._catch_up(history)
            if state == DONE:
                return pack_answer(number, self._arrays(request))
        except Refusal as refusal:  # of what was agreed, in our words
            self.refusal, state = str(refusal), REFUSED
        except Exception:  # its words could be about rows
            state = FAILED
        if self._asked == asked:
            self._asked += 1  # a history or a question that failed before it was counted
        return pack_answer(number, state=state)

    def _arrays(self, request: Request) -> list[NDArray[Any]]:
        """The arrays of an answer; nothing but totals, and which rows there are, leaves a client."""
        if request.act == "make":
            return [np.array([self._length])]
        made = _made_by(told_by(self._heard)[0])
        if request.act == "counted":
            self._count()
            if made.federated.unit == "client" or made.schema.target_missing != "drop":
                raise ValueError("which rows have a label is answered only where the schema drops the others")
        elif request.act == "total":
            self._count()
            self._agreed.check_clip(request)
            check_total(request, self._length, self._known[request.arguments[0]], made)
            if self._agreed.least_size > 0:
                self._agreed.check_batch(made.declared, request.arguments[2].rows, self._there(made))
        else:
            raise ValueError("a client does not answer this")
        reply = self._holder.reply(request)
        if reply.trouble is not None:
            raise ValueError(reply.trouble)
        if request.act == "counted":
            return [np.ones(self._length, np.bool_) if reply.value is None else reply.value]
        return arrays_of(reply.value)

    def _count(self) -> None:
        """Count a question, also one that fails, and the making of rows: whether that fails may depend on rows."""
        self._asked += 1
        self._agreed.check_count(self._asked)

    def _there(self, made: Made) -> Integers:
        """The rows that count: all but those without a label."""
        if made.federated.unit == "client":
            return np.arange(self._length)
        mask = self._holder.reply(Request(0, "counted", (1 if made.integers else None,))).value
        return np.arange(self._length) if mask is None else np.flatnonzero(mask)

    def _catch_up(self, history: bytes) -> int:
        """Make the records of a history, those that are not held yet."""
        if history == self._heard:
            return DONE
        self._heard = b""
        told, gone = told_by(history)
        if len(told.keys() - gone) > MAX_VERSIONS:
            raise BadMessage
        if self._made.get(None) != told[None].digest:
            self._holder, self._made = holder_of(self._path, self._agreed), {}
            if (state := self._do(None, told)) != DONE:
                return state
        for version in told.keys() - gone - {None}:
            if (state := self._ensure(version, told)) != DONE:
                return state
        self._drop((self._made.keys() - told.keys() - {None}) | (gone & self._made.keys()))
        self._heard = history
        return DONE

    def _ensure(self, version: int | None, told: dict[int | None, MarkedRequest]) -> int:
        """Make the records of a version, and before them those that they are made of."""
        one = told[version]
        if self._made.get(version) == one.digest:
            return DONE
        if one.request.act == "change" and (state := self._ensure(one.request.arguments[0], told)) != DONE:
            return state
        return self._do(version, told)

    def _do(self, version: int | None, told: dict[int | None, MarkedRequest]) -> int:
        request, digest = told[version]
        model = self._checked(request, _made_by(told))
        if request.act == "make":
            self._count()
        reply = self._holder.reply(request)
        if reply.trouble is not None:
            if not isinstance(self._holder.error, Refusal):
                return FAILED
            self.refusal = str(self._holder.error)
            return REFUSED
        if request.act == "make":
            (self._length,) = reply.value
        if version is not None and model is not None:
            if reply.value[0] != self._length:  # sums read rows up to that length
                raise BadMessage
            self._known[version] = Held(model, reply.value[1])
        self._made[version] = digest
        return DONE

    def _checked(self, request: Request, made: Made) -> Model | None:
        """The model of records that are made next; a BadMessage if it does not fit the rows and the table."""
        if request.act == "hold":
            check_model(request.arguments[1], made)
            return cast(Model, request.arguments[1])
        if request.act == "change":
            version, _, name, arguments = request.arguments
            check_change(name, arguments, self._known[version], made)
            return self._known[version].model
        return None

    def _drop(self, versions: set[Any]) -> None:
        if versions:
            self._holder.reply(Request(0, "forget", (tuple(versions),)))
            for version in versions:
                self._made.pop(version, None)
                self._known.pop(version, None)


class MarkedRequest(NamedTuple):
    """A request of a history, and a digest of it and of those that it builds on."""

    request: Request
    digest: bytes


def _made_by(told: dict[int | None, MarkedRequest]) -> Made:
    """What a server sent for the rows to be made."""
    return Made(*told[None].request.arguments[1:])


@lru_cache(maxsize=1)
def told_by(history: bytes) -> tuple[dict[int | None, MarkedRequest], frozenset[int]]:
    """The requests of a history, by the version of the records that each makes (None: the rows), and the versions that are not needed.

    Clients that share a process read a history once.
    """
    told: dict[int | None, MarkedRequest] = {}
    gone: set[int] = set()
    for request in read_history(history):
        if request.act == "forget":
            gone |= {*request.arguments[0]}
        else:
            new = {"make": None, "hold": request.arguments[0], "change": request.arguments[1]}[request.act]
            before = told[request.arguments[0]].digest if request.act == "change" else b""
            told[new] = MarkedRequest(request, hashlib.blake2b(before + packed(request)).digest())
    return told, frozenset(gone)


def arrays_of(total: Any) -> list[NDArray[Any]]:
    """A holder's total as arrays of integers."""
    if isinstance(total, list):
        return [array for part in total for array in arrays_of(part)]
    return [total.values if isinstance(total, IntegerTotal) else np.asarray(total)]
