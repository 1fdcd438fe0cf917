"""A line to workers that may be lost: a lost one is started anew, reads its pieces again, and hears the question once more.

The driver is rank 0 and holds no rows; worker w is rank w. Each question is asked of every worker, whose one reply names the
question and the pieces it answers for, and :class:`~noisewise.remote.processes.Lead` takes no sum that is not made of every piece
once. A worker that dies, or says nothing for too long, is ended and replaced; whatever it may still say of the question goes
to nobody. Its successor is asked the same question, with the same rows drawn and the same secret words: a question has one
answer, however often it was asked. A piece that has other rows than at first stops the run.

What is said is sealed (:class:`Sealed`): an engine that keeps messages on disk keeps nothing readable of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from .._version import __version__
from .forms import packed, unpacked
from .history import History
from .holder import Holder, Reply, Request
from .transport import MAX_BYTES, RankLost, patience

STAYS = "; this run stops, and what was reserved stays charged"
START_SECONDS = 300.0  # that a cluster has to find room for a worker
MAX_ATTEMPTS = 4  # workers tried for one question, one after the other


class Gone(ConnectionError):
    """A worker has died, or says nothing."""


class Cluster(Protocol):
    """An engine that keeps workers: each holds a :class:`Worker`, and is asked by name of its methods."""

    workers: int

    def start(self) -> Any: ...
    def ask(self, worker: Any, what: str, *said: bytes) -> Any: ...
    def wait(self, ticket: Any, seconds: float) -> Any: ...
    def end(self, worker: Any) -> None: ...
    def close(self) -> None: ...


class Sealed:
    """Messages under a key of one worker, by AES-GCM. ``way``: from whom to whom, so that none is taken for its answer."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)

    def seal(self, message: Any, way: bytes) -> bytes:
        nonce = os.urandom(12)
        return nonce + self._cipher.encrypt(nonce, packed(message), way)

    def open(self, sealed: bytes, way: bytes) -> Any:
        return unpacked(self._cipher.decrypt(sealed[:12], sealed[12:], way), MAX_BYTES)


class Worker:
    """The side of one worker: a holder of pieces behind sealed messages. It draws no noise and keeps no account."""

    def __init__(self, holder: Callable[[], Holder]) -> None:
        self._holder = holder()
        self._sealed: Sealed | None = None

    def meet(self, key: bytes) -> str:
        """Take the key of this worker, once; the version that is installed here."""
        if self._sealed is not None:
            raise ValueError("this worker has a key already")
        self._sealed = Sealed(key)
        return __version__

    def answer(self, sealed: bytes) -> bytes:
        """A sealed reply to a sealed request."""
        assert self._sealed is not None
        request = self._sealed.open(sealed, b"asked")
        return self._sealed.seal(self._holder.reply(request), b"answered")


class _Place:
    """A rank: the worker that has it now, what its rows came from, and what it was asked last."""

    def __init__(self, rank: int) -> None:
        self.rank, self.worker, self.history = rank, None, History()
        self.sealed: Sealed | None = None  # by a key that nobody but this worker has; its successor has another
        self.said: dict[int, Any] = {}  # by number: what was answered to requests that made rows
        self.asked: Request | None = None
        self.ticket: Any = None


class WorkerLine:
    """Rank 0's end of a line to workers of a cluster."""

    rank = 0

    def __init__(self, cluster: Cluster, *, wait: float | None = None) -> None:
        self._cluster, self._wait = cluster, patience() if wait is None else wait
        self.world_size = cluster.workers + 1
        self._closed = False
        self._places = {rank: _Place(rank) for rank in range(1, self.world_size)}
        try:
            for place in self._places.values():
                place.worker = cluster.start()
            for place in self._places.values():
                self._met(place)
        except BaseException as error:
            self.close()
            if isinstance(error, Gone):
                raise RankLost("a worker did not start; check that the cluster has room for it") from None
            raise

    def send(self, to: int, message: Request) -> None:
        """Ask one worker; what it says is taken by :meth:`receive`."""
        place = self._places[to]
        if self._closed or place.worker is None:
            raise RankLost(f"worker {to} is gone; this run stops")
        place.asked = message
        if message.act == "stop":
            self._ended(place)
            return
        place.ticket = self._ask(place, message)

    def receive(self, of: int) -> Reply:
        """The reply of a worker to what it was asked last; of another worker in its place, if it was lost."""
        place = self._places[of]
        for attempt in range(MAX_ATTEMPTS):
            try:
                if attempt:
                    self._replace(place)
                reply = self._reply(place, place.asked)
            except Gone:
                continue
            assert place.asked is not None
            self._remember(place, place.asked, reply)
            return reply
        raise RankLost(f"worker {of} was lost {MAX_ATTEMPTS} times with one question{STAYS}")

    def close(self) -> None:
        """End all workers, and with them the rows that they hold."""
        if not self._closed:
            self._closed = True
            for place in self._places.values():
                self._ended(place)
            self._cluster.close()

    def _ask(self, place: _Place, request: Request) -> Any:
        assert place.sealed is not None
        return self._cluster.ask(place.worker, "answer", place.sealed.seal(request, b"asked"))

    def _reply(self, place: _Place, request: Request | None) -> Reply:
        """What the worker says; nothing but its reply to this request, for whose ticket alone it is waited."""
        sealed = self._cluster.wait(place.ticket, self._wait)
        try:
            assert place.sealed is not None
            reply = place.sealed.open(sealed, b"answered")
        except Exception:  # not sealed by this worker, or not made of what messages are made of
            reply = None
        if type(reply) is not Reply or request is None or reply.number != request.number:
            raise RankLost(f"worker {place.rank} answered another question{STAYS}")
        return reply

    def _replace(self, place: _Place) -> None:
        """Another worker in the place of one that was lost: it makes the same rows, and is asked the same."""
        self._ended(place)
        place.worker = self._cluster.start()
        self._met(place)
        for request in place.history.needed():
            place.ticket = self._ask(place, request)
            reply = self._reply(place, request)
            if reply.trouble is not None:
                raise RankLost(
                    f"worker {place.rank} was lost and its rows cannot be made again: {reply.trouble}{STAYS}"
                )
            if request.act != "forget" and (reply.value, reply.mark) != place.said.get(request.number):
                raise RankLost(f"worker {place.rank} was lost, and its files are no longer what they were{STAYS}")
        assert place.asked is not None
        place.ticket = self._ask(place, place.asked)

    def _met(self, place: _Place) -> None:
        key = os.urandom(32)
        place.sealed = Sealed(key)
        version = self._cluster.wait(self._cluster.ask(place.worker, "meet", key), min(self._wait, START_SECONDS))
        if version != __version__:
            raise RankLost(f"worker {place.rank} has another version of noisewise; install the same everywhere")

    def _ended(self, place: _Place) -> None:
        worker, place.worker, place.ticket = place.worker, None, None
        if worker is not None:
            self._cluster.end(worker)

    def _remember(self, place: _Place, request: Request, reply: Reply) -> None:
        if reply.trouble is not None:
            return
        place.history.note(request)
        if request.act in ("make", "hold", "change"):
            place.said[request.number] = reply.value, reply.mark
        place.ticket = None
