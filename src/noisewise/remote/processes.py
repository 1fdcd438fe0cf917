"""Records that lie at several processes (ranks): each adds up its own pieces in integers, and rank 0 adds up the sums.

Pieces are numbered; each is dealt to one rank. Rank 0 holds the curator, its meter and the stream of noise, and draws batches over all
records, in the order of pieces: the number of ranks changes no bit of what is drawn or added up. The other ranks hold rows and answer.
They hold no meter and no stream, and release nothing.

*Guarantee*: a total is the sum over all pieces, each exactly once, or the question fails: every reply names the number of the request and
the pieces that its rows are made of, which must be those that were dealt to its rank. A question that fails stays charged, and nothing is
asked after it. Rows of an earlier deal are asked nothing: other rows lie there by then.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..trusted.arithmetic import Arithmetic
from ..trusted.models import Model
from ..trusted.stores import Coins
from ..trusted.stores.grid import MAX_ROWS, Allocator, in_memory
from ..trusted.stores.protocol import Elsewhere, HeldRecords, Parts
from ..trusted.stores.totals import Drawn, FloatRows, Floats, IntegerTotal
from .holder import Holder, Reply, Request
from .transport import STAYS, RankLost, Transport

OVERTAKEN = "other rows were dealt since, and lie where these did; read these again, or with a lead of their own"
Dealt = Sequence[Sequence[int]]  # the pieces of each rank


class Lead:
    """Rank 0's side: asks every rank, itself among them, and takes one reply of each."""

    def __init__(self, line: Transport, holder: Holder, *, holds: bool = True) -> None:
        """``holds``: whether pieces are dealt to rank 0, too; if not, it answers with the zero of every sum."""
        self._line, self._holder, self._first = line, holder, 0 if holds else 1
        self._number, self._versions, self._broken, self._stopped = 0, 0, "", False
        self._dealt: tuple[tuple[int, ...], ...] | None = None
        self._unused: list[int] = []
        self._asking = threading.RLock()  # one question after the other, whoever asks
        self._owed = False  # whether replies were not taken: a rank that still sends one does not read

    @property
    def world_size(self) -> int:
        return self._line.world_size

    @property
    def holds(self) -> bool:
        """Whether this process holds rows itself."""
        return self._first == 0

    @property
    def broken(self) -> bool:
        """Whether a rank was lost: nothing more is asked."""
        return bool(self._broken)

    def version(self) -> int:
        """A new number, for records that are laid out next."""
        self._versions += 1
        return self._versions

    def unused(self, version: int) -> None:
        """Let the ranks drop records that nobody uses any more, when they are asked next."""
        self._unused.append(version)

    def deal(self, pieces: int) -> tuple[tuple[int, ...], ...]:
        """Deal pieces in turns to the ranks that hold any; which rank has which."""
        first, holding = self._first, self.world_size - self._first
        self._dealt = ((),) * first + tuple(tuple(range(rank, pieces, holding)) for rank in range(holding))
        return self._dealt

    def everyone(self, act: str, *arguments: Any, dealt: Dealt | None = None) -> list[Any]:
        """Every rank's answer to the same request."""
        return self.each(act, [arguments] * self.world_size, dealt=dealt)

    def each(self, act: str, arguments: Sequence[tuple[Any, ...]], *, dealt: Dealt | None = None) -> list[Any]:
        """Every rank's answer to its own request, in the order of ranks. ``dealt``: the deal whose rows are asked about."""
        with self._asking:
            if self._broken:
                raise RankLost(self._broken)
            if dealt is not None and dealt is not self._dealt:
                raise RankLost(OVERTAKEN)
            if self._unused and act != "forget":
                forgotten, self._unused = tuple(self._unused), []
                self.everyone("forget", forgotten)
            self._number += 1
            return self._asked(act, [Request(self._number, act, each) for each in arguments])

    def _asked(self, act: str, requests: list[Request]) -> list[Any]:
        """Every rank's answer to a request that may be asked."""
        try:
            replies = self._replies(requests)
            self._check(replies)
        except (
            BaseException
        ) as error:  # also when interrupted: later replies would be taken for those of another request
            self._broken = str(error) if isinstance(error, RankLost) else f"a question was not answered{STAYS}"
            raise
        troubled = [rank for rank, reply in enumerate(replies) if reply.trouble is not None]
        if not troubled:
            return [reply.value for reply in replies]
        together = len(troubled) == len(replies) and all(reply.refused for reply in replies)
        if self._holder.error is not None and (together or (act == "make" and replies[0].trouble is not None)):
            raise self._holder.error
        if act == "make":
            raise ValueError(f"rank {troubled[0]}: {replies[troubled[0]].trouble}")
        self._broken = f"rank {troubled[0]} could not answer{STAYS}"
        raise RankLost(self._broken)

    def _replies(self, requests: list[Request]) -> list[Reply]:
        """One reply of each rank; of the others also when one is lost, so that they read what is sent next."""
        self._owed, lost = True, None
        asked, replies = [], []
        for rank in range(1, self.world_size):
            try:
                self._line.send(rank, requests[rank])
                asked.append(rank)
            except RankLost as error:
                lost = lost or error
        replies.append(self._holder.reply(requests[0]) if lost is None else None)
        for rank in asked:
            try:
                replies.append(self._line.receive(rank))
            except RankLost as error:
                lost = lost or error
        self._owed = False
        if lost is not None:
            raise lost
        return replies  # type: ignore[return-value]

    def _check(self, replies: list[Reply]) -> None:
        """Refuse replies in which not every piece answers this request once: each rank for those dealt to it."""
        for rank, reply in enumerate(replies):
            if type(reply) is not Reply or reply.number != self._number:
                raise RankLost(f"rank {rank} answered another question{STAYS}")
            if self._dealt is not None and reply.trouble is None and reply.pieces != self._dealt[rank]:
                raise RankLost(f"a piece of rank {rank} answered twice or not at all{STAYS}")

    def stop(self, result: Any = None) -> None:
        """Let the other ranks go, with what was released; ranks that are gone are skipped."""
        if self._stopped:
            return
        self._stopped, self._broken = True, self._broken or "the run is over; nothing more is asked"
        if self._owed:  # a rank that still sends would not read this, and sees the line end
            self._line.close()
            return
        for rank in range(1, self.world_size):
            with suppress(RankLost):
                self._line.send(rank, Request(self._number + 1, "stop", (result,)))

    def close(self) -> None:
        """Let all ranks go, and close the line."""
        self.stop()
        self._line.close()


class PiecePlaces:
    """Where records lie: pieces one after the other, which rank has each, and where there."""

    def __init__(self, dealt: Dealt, lengths: Sequence[Sequence[int]], most: int = MAX_ROWS) -> None:
        self.dealt = dealt
        pieces = sum(len(numbers) for numbers in dealt)
        self.lengths, self.rank_of = np.zeros(pieces, np.int64), np.zeros(pieces, np.int64)
        self._at, self._ranks = np.zeros(pieces, np.int64), len(dealt)
        seen: list[int] = []
        for rank, (numbers, long) in enumerate(zip(dealt, lengths, strict=True)):
            if len(numbers) != len(long):
                raise RankLost(f"rank {rank} holds other pieces than those dealt to it; start again")
            where = np.array(numbers, np.int64)
            self.lengths[where], self.rank_of[where] = long, rank
            self._at[where] = np.cumsum([0, *long])[:-1]
            seen += numbers
        if sorted(seen) != list(range(pieces)):
            raise RankLost("a piece was dealt twice or not at all; start again")
        self._starts = np.cumsum(self.lengths) - self.lengths
        self.records = int(self.lengths.sum())
        if self.records > most:
            raise ValueError(f"more than {most} records do not fit; pass fewer")

    def parts(self, drawn: Drawn) -> list[Drawn]:
        """Each rank's part of a batch, by the rank's own numbers of records."""
        if drawn.rows is None:
            return [drawn] * self._ranks
        piece = np.searchsorted(self._starts, drawn.rows, side="right") - 1
        own, rank = drawn.rows - self._starts[piece] + self._at[piece], self.rank_of[piece]
        return [Drawn(own[rank == number], drawn.expected) for number in range(self._ranks)]

    def in_order(self, parts: Sequence[Any]) -> Any:
        """Rows of every rank, as one array in the order of pieces."""
        pieces = zip(self.rank_of.tolist(), self._at, self.lengths, strict=True)
        return np.concatenate([parts[rank][at : at + length] for rank, at, length in pieces])


class RowsElsewhere(Elsewhere):
    """Stands on rank 0 for rows that lie at all ranks, until a curator lays them out."""

    ndim: ClassVar[int] = 2

    def __init__(
        self, lead: Lead, places: PiecePlaces, columns: int, *, shapes: Sequence[tuple[int, ...]] | None = None
    ) -> None:
        """``shapes``: of one record's tensors, where records are tensors; every rank then has a model of its own."""
        self._lead, self._places, self._shapes = lead, places, shapes
        self.shape = (places.records, columns)

    def __iter__(self) -> Iterator[ShapeElsewhere]:
        return iter([ShapeElsewhere((len(self), *shape)) for shape in self._shapes or ()])

    def __len__(self) -> int:
        return self._places.records

    def __repr__(self) -> str:
        return "RowsElsewhere(...)"

    def held(self, model: Model, store: Allocator, coins: Coins | None = None) -> RankRecords:
        version = self._lead.version()
        known = self._lead.everyone("hold", version, model if self._shapes is None else None, dealt=self._places.dealt)
        return RankRecords(self._lead, self._places, version, known, coins)

    def counted(self, classes: int | None) -> NDArray[np.bool_] | None:
        parts = self._lead.everyone("counted", classes, dealt=self._places.dealt)
        if all(part is None for part in parts):
            return None
        lengths = np.bincount(self._places.rank_of, self._places.lengths, len(parts)).astype(np.int64)
        whole = [
            np.ones(length, np.bool_) if part is None else part for part, length in zip(parts, lengths, strict=True)
        ]
        if any(len(part) != length for part, length in zip(whole, lengths, strict=True)):
            raise RankLost(f"the ranks do not have as many labels as rows{STAYS}")
        return np.asarray(self._places.in_order(whole))


class ShapeElsewhere:
    """Stands for labels, or for tensors of records, that lie at all ranks: their shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.ndim = shape, len(shape)

    def __len__(self) -> int:
        return self.shape[0]


class RankRecords(HeldRecords):
    """Private rows at all ranks, which a curator asks for exact integer totals as it asks any others."""

    def __init__(
        self, lead: Lead, places: PiecePlaces, version: int, known: Sequence[Any], coins: Coins | None = None
    ) -> None:
        if any(each[1:] != known[0][1:] for each in known) or sum(each[0] for each in known) != places.records:
            raise RankLost(f"the ranks laid out their rows differently{STAYS}")
        self._lead, self._places, self._version, self._coins = lead, places, version, coins
        _, self._columns, self._coordinates, self._arithmetic = known[0]
        weakref.finalize(self, lead.unused, version)

    def __len__(self) -> int:
        return self._places.records

    @property
    def columns(self) -> int:
        return self._columns

    @property
    def coordinates(self) -> bool:
        return self._coordinates

    @property
    def arithmetic(self) -> Arithmetic:
        return self._arithmetic

    def summed(self, name: str, drawn: Drawn, *arguments: Any, **options: Any) -> Any:
        """A sum over all ranks, by its name: of all sums that records can be asked for."""
        plain = tuple(tuple(each) if isinstance(each, list) else each for each in arguments)
        parts = self._places.parts(drawn)
        seeds = [None] * len(parts) if self._coins is None else self._coins(len(parts)).tolist()
        requests = [(self._version, name, part, plain, options, seed) for part, seed in zip(parts, seeds, strict=True)]
        return _added(self._lead.each("total", requests, dealt=self._places.dealt))

    def unit_rows(self, drawn: Drawn) -> Parts:
        raise TypeError("rows stay at their ranks; ask for a sum of them")

    def scored(self, drawn: Drawn, theta: Floats) -> Parts:
        return self.unit_rows(drawn)

    def float_rows(self) -> FloatRows:
        """All rows and labels, in this process: walks and minimisers go over them one by one."""
        parts = self._lead.everyone("rows", self._version, dealt=self._places.dealt)
        rows, labels = (self._places.in_order([part[i] for part in parts]) for i in (0, 1))
        return FloatRows(rows, labels)

    def in_basis(self, matrix: Floats, store: Allocator = in_memory) -> RankRecords:
        return self._changed("in_basis", matrix)

    def prepared(self, features: Any, store: Allocator = in_memory) -> RankRecords:
        return self._changed("prepared", features)

    def centred(self, centre: Floats, scale: float, store: Allocator = in_memory) -> RankRecords:
        return self._changed("centred", centre, scale)

    def _changed(self, name: str, *arguments: Any) -> RankRecords:
        new = self._lead.version()
        known = self._lead.everyone("change", self._version, new, name, arguments, dealt=self._places.dealt)
        return RankRecords(self._lead, self._places, new, known)


def _added(totals: Sequence[Any]) -> Any:
    """The sum of all ranks' totals, in integers, where no order matters."""
    first = totals[0]
    if isinstance(first, list):
        return [_added(parts) for parts in zip(*totals, strict=True)]
    for other in totals[1:]:
        if type(other) is not type(first) or _stands_for(other) != _stands_for(first):
            raise RankLost(f"the ranks added up different things{STAYS}")
        first = first + other
    return first


def _stands_for(total: Any) -> tuple[Any, ...]:
    """What the entries of a total are: only totals of the same are added."""
    if isinstance(total, IntegerTotal):
        return total.values.shape, total.values.dtype.str, total.ones, total.one, total.step
    return total.shape, total.dtype.str


def spread_tensors(
    lead: Lead, maker: str, pieces: int, shapes: Callable[[], Sequence[Sequence[tuple[int, ...]]]], most: int
) -> tuple[RowsElsewhere, tuple[ShapeElsewhere, ...]]:
    """Records of tensors, which every rank makes by its own ``maker``; ``shapes``: of one record's inputs and targets."""
    dealt = lead.deal(pieces)
    places = PiecePlaces(dealt, lead.everyone("make", maker, dealt=dealt), most)
    if len({*lead.everyone("stamp", dealt=dealt)}) > 1:
        raise ValueError(
            "the module or the data set is not the same at all ranks; make the module from the same seed, "
            "torch.manual_seed(...), or load the same weights everywhere, and pass the whole data set to each"
        )
    inputs, targets = shapes()
    rows = RowsElsewhere(lead, places, 0, shapes=inputs)
    return rows, tuple(ShapeElsewhere((len(rows), *shape)) for shape in targets)


def cut(records: int, length: int, rank: int, world_size: int) -> list[range]:
    """The records of a data set that lie at a rank: contiguous pieces of a fixed, public ``length``, dealt in turns."""
    starts = range(rank * length, records, world_size * length)
    return [range(start, min(start + length, records)) for start in starts]
