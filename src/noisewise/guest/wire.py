"""What goes over the pipes between host and guest: messages of plain data, and facts, terms and questions as such data.

Every message is its length in 8 bytes and then the packed value (:mod:`noisewise.remote.messages`). The two sides take turns: a side
that has sent a message reads next. Both time and size are bounded, so the other side can neither stop nor flood this one.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..accounts import Budget, Terms
from ..asking import QUESTIONS, Answer, Facts, PublicCurator, array
from ..remote.messages import pack, unpack
from ..trusted.events import from_dict, plain_sampling, to_dict
from ..trusted.features import TableColumn
from ..trusted.losses import ClassWeighted, Loss, loss_named
from ..trusted.models import MLP, Additive, Linear, Model
from ..trusted.question import plain
from ..trusted.units import Released, Unit
from ..trusted.walks import WHOLE
from ..trusted.walks.oneshot import whole_numbers

MAX_MESSAGE = 1 << 28  # bytes
BYTES_PER_CALL = 1 << 20  # of reading or writing
MAX_OUTPUT = 1 << 16  # bytes of what a guest prints that are kept
MAX_WALK = 10**5  # steps or passes of a walk: the host takes them all before it answers


class Hung(TimeoutError):
    """The other side neither sends nor takes anything in time."""


class Wire:
    """One side of the pipes. ``printed``: a third pipe, which is emptied into ``output`` while waiting."""

    def __init__(self, reading: int, writing: int, printed: int | None = None) -> None:
        self._reading, self._writing, self._read = reading, writing, bytearray()
        self._printed, self.output = printed, bytearray()
        for descriptor in (writing, printed):
            if descriptor is not None:
                os.set_blocking(descriptor, False)

    def send(self, value: Any, seconds: float | None = None) -> None:
        body = pack(value)
        if len(body) > MAX_MESSAGE:
            raise ValueError(f"a message of {len(body):,} bytes is too large; {MAX_MESSAGE:,} is the most")
        rest, until = memoryview(len(body).to_bytes(8, "little") + body), _until(seconds)
        while rest:
            _wait({self._writing: select.POLLOUT}, until)
            rest = rest[os.write(self._writing, rest[:BYTES_PER_CALL]) :]

    def receive(self, seconds: float | None = None) -> Any:
        """The next value; EOFError when the other side is gone, BadMessage for one that cannot be read."""
        until = _until(seconds)
        length = int.from_bytes(self._bytes(8, until), "little")
        if length > MAX_MESSAGE:
            raise EOFError("a message that is too large")
        return unpack(self._bytes(length, until), MAX_MESSAGE)

    def _bytes(self, length: int, until: float | None) -> bytes:
        while len(self._read) < length:
            pipes = {self._reading: select.POLLIN}
            if self._printed is not None:
                pipes[self._printed] = select.POLLIN
            ready = _wait(pipes, until)
            if self._printed in ready:
                self.listen()
            if self._reading in ready:
                more = os.read(self._reading, BYTES_PER_CALL)
                if not more:
                    raise EOFError("the other side is gone")
                self._read += more
        taken = bytes(self._read[:length])
        del self._read[:length]
        return taken

    def listen(self) -> None:
        """Read once from what was printed, so that endless printing does not block."""
        with suppress(BlockingIOError):
            if self._printed is not None:
                more = os.read(self._printed, BYTES_PER_CALL)
                self.output += more[: max(MAX_OUTPUT - len(self.output), 0)]
                self._printed = self._printed if more else None


def _until(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


def _wait(pipes: Mapping[int, int], until: float | None) -> set[int]:
    """Which of these pipes are ready, or closed at the other end; Hung when time is up."""
    polled = select.poll()  # unlike select.select it takes descriptors of any number
    for descriptor, what in pipes.items():
        polled.register(descriptor, what)
    left = None if until is None else (until - time.monotonic()) * 1e3
    if left is not None and left <= 0:  # whatever else is ready: a byte now and then is no answer
        raise Hung
    ready = {descriptor for descriptor, _ in polled.poll(left)}
    if not ready:
        raise Hung
    return ready


def facts_to(facts: Facts) -> dict[str, Any]:
    return {**asdict(facts), "unit": facts.unit.rows}


def facts_from(data: Mapping[str, Any]) -> Facts:
    table = tuple(TableColumn(**column) for column in data["table"])
    return Facts(**{**data, "budget": Budget(**data["budget"]), "table": table, "unit": Unit(data["unit"])})


def terms_to(terms: Terms) -> dict[str, Any]:
    own = {field.name: getattr(terms, field.name) for field in fields(terms)}
    return {**own, "events": [to_dict(event) for event in terms.events]}


def terms_from(data: Any) -> Terms:
    """Terms as a guest names them; their worth is judged where the meter is made (``open_meter``)."""
    if type(data) is not dict or {*data} != {field.name for field in fields(Terms)} or type(data["events"]) is not list:
        raise TypeError("this is no description of terms")
    return Terms(**{**data, "events": tuple(from_dict(event) for event in data["events"])})


def question_to(question: Any) -> dict[str, Any]:
    values = [plain(array(getattr(question, field.name))) for field in fields(question)]
    return {"question": type(question).__name__, "values": values}


def question_from(data: Mapping[str, Any]) -> Any:
    """A registered question made of received numbers; its own class refuses those that it is not proved for."""
    return QUESTIONS[data["question"]](*[_plain_floats(value) for value in data["values"]])


def walk_to(walk: Any) -> dict[str, Any]:
    values = {field.name: plain(array(getattr(walk, field.name))) for field in fields(walk)}
    return {"walk": type(walk).__name__, "values": values}


def walk_from(data: Mapping[str, Any]) -> Any:
    kind, values = WHOLE[data["walk"]], {name: _plain_floats(value) for name, value in data["values"].items()}
    counted = whole_numbers(kind)
    whole = {name: int(value) for name, value in values.items() if name in counted and type(value) is float}
    if max(whole.values(), default=0) > MAX_WALK:
        raise ValueError(f"a walk of a guest has at most {MAX_WALK:,} steps or passes")
    return kind(**{**values, **whole})


def sampling_from(data: Any) -> Any:
    return plain_sampling(tuple(data) if type(data) is list else data)


def answer_to(answer: Answer) -> dict[str, Any]:
    return {"value": answer.value, "noise_std": float(answer.noise_std), "below": answer.below}


def answer_from(data: Mapping[str, Any]) -> Answer:
    return Answer(data["value"], data["noise_std"], data["below"])


def trace_to(trace: tuple[Released, ...]) -> list[Any]:
    return [[*line._replace(event=cast(Any, to_dict(line.event)))] for line in trace]


def trace_from(data: list[Any]) -> tuple[Released, ...]:
    lines = (Released(*line) for line in data)
    return tuple(line._replace(event=from_dict(cast(Any, line.event))) for line in lines)


def _plain_floats(value: Any) -> Any:
    """:func:`plain` for what a guest sends: of arrays only those of floats, since others would grow when made plain."""
    if type(value) in (list, tuple):
        return tuple(_plain_floats(part) for part in value)
    return plain(vector_from(value) if type(value) is np.ndarray else value)


def vector_from(data: Any) -> NDArray[Any]:
    if type(data) is not np.ndarray or data.dtype not in (np.float32, np.float64):
        raise TypeError("this is no array of floating-point numbers")
    return data


def public_to(public: PublicCurator | None) -> dict[str, Any] | None:
    """Public rows and their model, for a guest that makes a public curator of its own."""
    if public is None:
        return None
    if public.model.tensors:
        raise ValueError(
            "public rows of a module cannot be handed to a guest, which has no code of the module; leave public out, or pass "
            "the method as an object of your own"
        )
    X, y = (np.asarray(array(part)) for part in public.given)
    return {"X": X, "y": y, "model": _model_to(public.model)}


def public_from(data: Mapping[str, Any] | None) -> PublicCurator | None:
    if data is None:
        return None
    return PublicCurator(data["X"], data["y"], model=_model_from(data["model"]))


def _model_to(model: Model) -> dict[str, Any]:
    columns = [asdict(column) for column in model.columns] if isinstance(model, Additive) else []
    between = getattr(model, "activation", None)
    shape = [int(size) for size in model.shape]
    return {"shape": shape, "loss": _loss_to(model.loss), "columns": columns, "activation": between}


def _model_from(data: Mapping[str, Any]) -> Model:
    shape, loss = data["shape"], _loss_from(data["loss"])
    if data["columns"]:
        return Additive(shape[0], loss, shape[-1], columns=tuple(TableColumn(**column) for column in data["columns"]))
    if data["activation"] is None:
        return Linear(shape[0], loss, shape[-1])
    return MLP(tuple(shape), loss, data["activation"])


def _loss_to(loss: Loss) -> dict[str, Any]:
    if isinstance(loss, ClassWeighted):
        return {"weighted": _loss_to(loss.loss), "weights": loss.weights}
    return {"name": loss.name, "settings": asdict(cast(Any, loss))}


def _loss_from(data: Mapping[str, Any]) -> Loss:
    if "weighted" in data:
        return ClassWeighted(_loss_from(data["weighted"]), tuple(data["weights"]))
    return replace(cast(Any, loss_named(data["name"])), **data["settings"])
