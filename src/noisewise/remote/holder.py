"""What holds rows for a curator elsewhere, and answers it: a rank of torchrun, a worker, or a client.

A :class:`Holder` keeps its pieces of the records and answers requests in integers. It holds no meter and no stream of noise, and
releases nothing: its replies go to rank 0 alone, which adds the noise. A :class:`History` lists the requests by which a holder's rows
came about, so that another one can be made to hold the same.
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
from ..trusted.stores.protocol import SUMS, HeldRecords
from ..trusted.stores.totals import Drawn, Integers, IntegerTotal
from .transport import Transport

CHANGES = frozenset({"in_basis", "prepared", "centred"})


class Request(NamedTuple):
    """What rank 0 asks of one rank."""

    number: int
    act: str
    arguments: tuple[Any, ...]


class Reply(NamedTuple):
    """A rank's answer to a request: the pieces that its rows are made of, and a value, or the trouble that there was."""

    number: int
    pieces: tuple[int, ...]
    value: Any = None
    trouble: str | None = None
    refused: bool = False  # by a check that every rank makes alike
    mark: bytes = b""  # of the rows; whoever makes them again shows by it that they are the same


@dataclass(frozen=True, eq=False)
class Holding:
    """The rows of one rank: those of its pieces, one after the other."""

    pieces: tuple[int, ...]
    lengths: tuple[int, ...]
    X: Any
    y: Any
    store: Allocator = in_memory
    model: Model | None = None  # the rank's own, used where none is sent
    stamp: str = ""  # of what must be the same at all ranks
    mark: bytes = b""  # of the rows, where they may have to be made again

    def __repr__(self) -> str:
        return "Holding(...)"


Maker = Callable[..., Holding]
RankLayout = tuple[
    int, int, bool, Any
]  # how many records, their columns, whether they have coordinates, and their arithmetic


class Holder:
    """Makes a holding, lays it out, and answers requests about it."""

    def __init__(
        self,
        makers: Mapping[str, Maker] | None = None,
        holding: Holding | None = None,
        said: tuple[type[Exception], ...] = (),
    ) -> None:
        """``makers``: what may be asked to make a holding, by name; ``said``: errors whose words are ours to pass on."""
        hide_memory()  # before rows are read
        self._makers, self._holding, self._said = dict(makers or {}), holding, said
        self._held: dict[int, HeldRecords] = {}
        self.error: Exception | None = None  # of the last request that failed, for whoever asks in this process
        self._seed, self._drawn = b"", 0

    def reply(self, request: Request) -> Reply:
        """The answer to a request. An error is reported in our own words, never in those of a library, which may quote rows."""
        trouble, refused = "could not answer", False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an engine keeps what is printed here in its logs
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

    def _hold(self, version: int, model: Model | None) -> RankLayout:
        holding = self._holding
        assert holding is not None
        own = holding.model if model is None else model
        assert own is not None
        with own_settings():
            return self._keep(version, records_of(own, holding.X, holding.y, holding.store, self._coins))

    def _change(self, version: int, new: int, name: str, arguments: tuple[Any, ...]) -> RankLayout:
        assert name in CHANGES and self._holding is not None
        with own_settings():
            return self._keep(new, getattr(self._held[version], name)(*arguments, self._holding.store))

    def _keep(self, version: int, records: HeldRecords) -> RankLayout:
        self._held[version] = records
        return len(records), records.columns, bool(records.coordinates), records.arithmetic

    def _counted(self, classes: int | None) -> NDArray[np.bool_] | None:
        """Which rows have a label; None where all have one."""
        assert self._holding is not None
        with own_settings():
            return labelled(self._holding.y, classes)

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
        """Secret words for what a model draws in its passes, such as dropout; made of the word that came with the request."""
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
    """Answer rank 0 until it ends the run; what it hands over then."""
    while True:
        request = line.receive(0)
        if request.act == "stop":
            return request.arguments[0]
        line.send(0, holder.reply(request))


class History:
    """The requests by which a holder's rows and records came about, in their order.

    A holder may be lost, or keep nothing from one question to the next; another one that answers these requests holds the same. Rows are
    made once, held for a model, and changed. Records that nobody uses any more, and nothing was made of, are left out.
    """

    def __init__(self) -> None:
        self._made: Request | None = None
        self._told: dict[
            int, tuple[Request, int | None]
        ] = {}  # by version of the records it made, and of which it made them
        self._unused: set[int] = set()

    def note(self, request: Request) -> None:
        """Remember a request that was answered, if it changed what the holder holds."""
        arguments = request.arguments
        if request.act == "make":
            self._made = request
            self._told.clear()
            self._unused.clear()
        elif request.act == "hold":
            self._told[arguments[0]] = request, None
        elif request.act == "change":
            self._told[arguments[1]] = request, arguments[0]
        elif request.act == "forget":
            self._unused |= {*arguments[0]} & self._told.keys()
            while drop := self._unused - {of for _, of in self._told.values()}:
                self._unused -= drop
                for version in drop:
                    del self._told[version]

    def needed(self) -> list[Request]:
        """What to ask of a holder that holds nothing, one after the other, so that it holds the same."""
        told = [request for request, _ in self._told.values()]
        made = [] if self._made is None else [self._made]
        last = [Request(told[-1].number, "forget", (tuple(sorted(self._unused)),))] if self._unused else []
        return [*made, *told, *last]
