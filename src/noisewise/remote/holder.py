"""One rank's side of a run of several: it holds its pieces of the records and answers rank 0, in integers, until it is let go.

It holds no meter and no stream of noise, and releases nothing: what it says goes to rank 0 alone, where noise is added.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..trusted.models import Model
from ..trusted.process import hide_memory, own_settings
from ..trusted.questions import QUESTIONS as QUESTIONS
from ..trusted.stores import records_of
from ..trusted.stores.grid import Allocator, in_memory, labelled
from ..trusted.stores.protocol import SUMS
from ..trusted.stores.totals import Drawn, Integers, IntegerTotal
from .transport import Transport

CHANGES = frozenset({"in_basis", "prepared", "centred"})


class Request(NamedTuple):
    """What rank 0 asks of one rank."""

    number: int
    act: str
    arguments: tuple[Any, ...]


class Reply(NamedTuple):
    """What a rank says to a request: which pieces its rows are made of, and a value; or in words why there is none."""

    number: int
    pieces: tuple[int, ...]
    value: Any = None
    trouble: str | None = None
    refused: bool = False  # by a check that every rank makes alike
    mark: bytes = b""  # of the rows, by which those who make them again show that they are the same


@dataclass(frozen=True, eq=False)
class Holding:
    """The rows of one rank: those of its pieces, one after the other. ``model``: its own, where none is sent."""

    pieces: tuple[int, ...]
    lengths: tuple[int, ...]
    X: Any
    y: Any
    store: Allocator = in_memory
    model: Model | None = None
    stamp: str = ""  # of what must be the same at all ranks
    mark: bytes = b""  # of the rows, where they may have to be made again

    def __repr__(self) -> str:
        return "Holding(...)"


Maker = Callable[..., Holding]


class Holder:
    """One rank's side of the line: makes its holding, lays it out, answers."""

    def __init__(
        self,
        makers: Mapping[str, Maker] | None = None,
        holding: Holding | None = None,
        said: tuple[type[Exception], ...] = (),
    ) -> None:
        """``makers``: what may be asked to make a holding, by name; ``said``: errors whose words are ours to pass on."""
        hide_memory()  # before rows are read
        self._makers, self._holding, self._said = dict(makers or {}), holding, said
        self._held: dict[int, Any] = {}
        self.error: Exception | None = None  # what the last request failed by, for whoever asks in this process
        self._seed, self._drawn = b"", 0

    def reply(self, request: Request) -> Reply:
        """The answer; whatever goes wrong is said in words of ours, without what a library says of rows."""
        trouble, refused = "could not answer", False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an engine keeps what is said here in its logs
                value = getattr(self, f"_{request.act}")(*request.arguments)
            return Reply(request.number, self._pieces, value, mark=b"" if self._holding is None else self._holding.mark)
        except self._said as error:
            self.error, trouble = error, str(error)
        except ValueError as error:
            self.error, refused = error, True
        except Exception as error:
            self.error = error
        return Reply(request.number, self._pieces, None, trouble, refused)

    @property
    def _pieces(self) -> tuple[int, ...]:
        return () if self._holding is None else self._holding.pieces

    def _make(self, name: str, *arguments: Any) -> tuple[int, ...]:
        self._holding = self._makers[name](*arguments)
        return self._holding.lengths

    def _stamp(self) -> str:
        assert self._holding is not None
        return self._holding.stamp

    def _hold(self, version: int, model: Model | None) -> tuple[int, int, bool, Any]:
        holding = self._holding
        assert holding is not None
        own = holding.model if model is None else model
        assert own is not None
        with own_settings():
            records = records_of(own, holding.X, holding.y, holding.store, self._coins)
        self._held[version] = records
        return len(records), records.columns, bool(records.coordinates), records.arithmetic

    def _counted(self, classes: int | None) -> NDArray[np.bool_] | None:
        """Which of its rows have a label; None where all have one."""
        assert self._holding is not None
        with own_settings():
            return labelled(self._holding.y, classes)

    def _change(self, version: int, new: int, name: str, arguments: tuple[Any, ...]) -> tuple[int, int, bool, Any]:
        assert name in CHANGES and self._holding is not None
        with own_settings():
            records = getattr(self._held[version], name)(*arguments, self._holding.store)
        self._held[new] = records
        return len(records), records.columns, bool(records.coordinates), records.arithmetic

    def _total(
        self,
        version: int,
        name: str,
        drawn: Drawn,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        seed: int | None = None,
    ) -> IntegerTotal | Integers:
        records = self._held[version]
        self._seed, self._drawn = b"" if seed is None else seed.to_bytes(8, "little"), 0
        with own_settings():
            return SUMS[name].total(records, drawn, *arguments, **options)

    def _coins(self, many: int) -> Integers:
        """Secret words for what a model draws in its passes, such as dropout: made of the word that came with the request."""
        words = []
        for _ in range(many):
            self._drawn += 1
            made = hashlib.blake2b(self._drawn.to_bytes(8, "little"), digest_size=8, key=self._seed).digest()
            words.append(int.from_bytes(made, "little") >> 1)
        return np.array(words, np.int64)

    def _rows(self, version: int) -> tuple[Any, Any]:
        with own_settings():
            rows, labels = self._held[version].float_rows()
            return rows, labels

    def _forget(self, versions: tuple[int, ...]) -> None:
        for version in versions:
            self._held.pop(version, None)


def serve(line: Transport, holder: Holder) -> Any:
    """Answer rank 0 until it says that all is done; what it hands over at the end."""
    while True:
        request = line.receive(0)
        if request.act == "stop":
            return request.arguments[0]
        line.send(0, holder.reply(request))
