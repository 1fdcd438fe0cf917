"""The server's end of the network: who takes part, what each is asked, and what each answers (the protocol: :mod:`.network`).

All state of a :class:`Link` belongs to the thread of its event loop; other threads reach it by ``_call``. Until the run begins, clients come
and go; then those that are there take part, each known by its key or its token, and nobody else. An answer belongs to the client whose
connection it came from, and counts only for the question that this client was sent last.
"""

from __future__ import annotations

import asyncio
import queue
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_der_public_key
from cryptography.hazmat.primitives.serialization.ssh import load_ssh_public_key

from ..._version import __version__
from ..messages import BadMessage, unpack
from .network import (
    GREETING,
    JOIN_SECONDS,
    JOINED,
    LATE,
    LENGTH,
    MAX_JOIN_BYTES,
    MAX_VALUES,
    OVER,
    SIGNATURE,
    SILENT_SECONDS,
    STOPPED,
    UNKNOWN_KEY,
    ServerAddress,
    frame,
    keep_alive,
    public_bytes,
    to_sign,
)

T = TypeVar("T")
MAX_ANSWER_BYTES = 1 << 28
BUFFER_BYTES = 1 << 18  # that a connection reads ahead
ROUNDS = 8  # of the loop, in which all connections end
MAX_JOINING = 64  # connections at a time that have not joined yet
FAREWELL_SECONDS = 5.0  # that clients have to read that the run is over
PAUSE_SECONDS = 0.05  # between two looks for clients


@dataclass(eq=False)
class _Seat:
    """A client's seat in the run."""

    number: int = -1  # from 0, once the run has begun
    question: tuple[int, list[bytes]] | None = None  # its number and frames, until it is answered or withdrawn
    news: asyncio.Event = field(default_factory=asyncio.Event)  # a question, or the end of the run
    writer: asyncio.StreamWriter | None = None  # while it is connected
    lost: float = 0.0  # when its connection ended


class Link:
    """One run and its clients: a :class:`~noisewise.remote.clients.server.Carrier` of questions to them."""

    def __init__(self, clients: int, keys: Sequence[bytes] = (), *, wait: float | None = None) -> None:
        """``keys``: public keys of those that may take part; none for whoever comes first. ``wait``: seconds that an answer may take."""
        self.clients, self._keys, self._wait = clients, tuple(keys), wait
        self._seats: dict[bytes, _Seat] = {}  # by key or token, in the order in which they came
        self._writers: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}  # of all connections
        self._order: list[_Seat] = []  # of those that take part, once the run has begun
        self._end = ""  # OVER or STOPPED, once the run has ended
        self._joining: dict[
            asyncio.StreamWriter, None
        ] = {}  # those that have not joined, in the order in which they came
        self._number, self._certificate = 0, b""
        self._loop: asyncio.AbstractEventLoop
        self._answers: queue.Queue[tuple[int, int, bytes | None]] = queue.Queue()  # None: there will be no answer

    def gather(self, heard: Callable[[int], None]) -> None:
        """Wait until all clients are there, who then take part. ``heard`` is called with how many there are."""
        while (there := self._call(self._begin)) < self.clients:
            heard(there)
            time.sleep(PAUSE_SECONDS)
        heard(there)

    def ask(self, history: bytes, questions: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Ask all at once; each client with its answer, until all have answered or left, or the time is up."""
        self._number += 1
        number, waiting = self._number, {*questions}
        until = float("inf") if self._wait is None else time.monotonic() + self._wait
        self._call(self._put, number, frame((number, history)), questions)
        while waiting:
            try:  # an answer that came in time counts, however long others take to be looked at
                asked, client, body = self._answers.get(timeout=max(0.0, min(until - time.monotonic(), 1.0)))
            except queue.Empty:
                if time.monotonic() >= until:
                    return
                self._call(self._give_up)
                continue
            if asked == number and client in waiting:
                waiting.remove(client)
                if body is not None:
                    yield client, body

    def name(self, client: int) -> str:
        return f"client {client + 1}"

    def close(self) -> None:
        """Nothing: the block of ``listening`` ends it."""

    @contextmanager
    def listening(
        self,
        listen: ServerAddress,
        *,
        certificate: Path | None,
        key: Path | None,
        opened: Callable[[ServerAddress], None],
    ) -> Iterator[None]:
        """Serve clients in a thread until the block ends; without a certificate, unencrypted.

        ``opened`` is called with the address, in which port 0 is replaced by the one that was chosen.
        """
        tls = None
        if certificate is not None:
            tls = shown_certificate(certificate, key)
            self._certificate = x509.load_pem_x509_certificate(certificate.read_bytes()).public_bytes(Encoding.DER)
        here, well = _bound(listen), False
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)  # nothing that comes over the network is printed
        thread = threading.Thread(target=self._loop.run_forever, name="noisewise-network", daemon=True)
        thread.start()
        shake = None if tls is None else JOIN_SECONDS
        start = asyncio.start_server(self._met, sock=here, limit=BUFFER_BYTES, ssl=tls, ssl_handshake_timeout=shake)
        server = asyncio.run_coroutine_threadsafe(start, self._loop).result()
        try:
            opened(ServerAddress(listen.host, here.getsockname()[1]))
            yield
            well = True
        finally:
            self._call(self._say, OVER if well else STOPPED)
            until = time.monotonic() + FAREWELL_SECONDS
            while self._call(self._connected) and time.monotonic() < until:
                time.sleep(PAUSE_SECONDS)
            asyncio.run_coroutine_threadsafe(self._ended(server), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    # -- what runs in the thread of the loop ------------------------------------------------------------------------------

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in the thread of the loop."""

        async def called() -> T:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result()

    def _begin(self) -> int:
        """The number of clients that are there. With enough of them the run begins, in the order of their keys or of their coming."""
        if len(self._seats) == self.clients and not self._order:
            known = [*self._keys] or [*self._seats]
            self._order = [self._seats[who] for who in known if who in self._seats]
            for number, seat in enumerate(self._order):
                seat.number = number
        return len(self._seats)

    def _put(self, number: int, history: bytes, questions: Mapping[int, bytes]) -> None:
        """Have these clients asked; earlier questions that were not answered are withdrawn."""
        for seat in self._order:
            seat.question = None
        for client, question in questions.items():
            self._order[client].question = number, [history, frame(question)]
            self._order[client].news.set()
        self._give_up()

    def _give_up(self) -> None:
        """Wait no longer for clients that have not been connected for a while."""
        before = time.monotonic() - SILENT_SECONDS
        for seat in self._order:
            if seat.writer is None and seat.lost < before:
                self._answered(seat, None)

    def _say(self, end: str) -> None:
        self._end = end
        for seat in self._seats.values():
            seat.news.set()

    def _connected(self) -> int:
        return sum(seat.writer is not None for seat in self._seats.values())

    async def _ended(self, server: asyncio.Server) -> None:
        """End all connections, also those that have just been accepted."""
        server.close()
        for _ in range(ROUNDS):
            for writer in [*self._writers]:
                writer.transport.abort()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0)

    # -- one connection ---------------------------------------------------------------------------------------------------

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers[writer] = self._loop.create_task(self._served(reader, writer))

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends, or does not keep to the protocol."""
        left = False
        try:
            keep_alive(writer.get_extra_info("socket"))
            seat = await self._joined(reader, writer)
            left = seat is not None and await self._exchange(seat, reader, writer)
        except (OSError, EOFError, BadMessage):
            pass
        finally:
            writer.transport.abort()
            del self._writers[writer]
            for who, seat in [*self._seats.items()]:
                if seat.writer is writer:
                    self._lost(who, left)

    def _lost(self, who: bytes, left: bool) -> None:
        """Note that a client's connection has ended; ``left``: it does not come back."""
        seat = self._seats[who]
        seat.writer, seat.lost = None, -float("inf") if left else time.monotonic()
        if not self._order:  # another may take its seat
            del self._seats[who]
        elif left:
            self._answered(seat, None)

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Seat | None:
        """The seat of the client that has connected, once it has proved who it is; None if it has none."""
        if (
            len(self._joining) >= MAX_JOINING
        ):  # the one that has waited longest makes room: whoever is silent keeps nobody out
            oldest = next(iter(self._joining))
            del self._joining[oldest]
            oldest.transport.abort()
        self._joining[writer] = None
        try:
            async with asyncio.timeout(JOIN_SECONDS):
                nonce = secrets.token_bytes(32)
                writer.write(frame((GREETING, __version__, nonce)))
                match await _read(reader, MAX_JOIN_BYTES):
                    case (bytes() as key, bytes() as signature, bytes() as token):
                        who = self._decided(key, signature, token, nonce)
                    case _:
                        raise BadMessage
                if isinstance(who, str):
                    writer.write(frame(who))
                    await reader.read(1)  # until the client has read why and closes
                    return None
                seat = self._seats[who]
                if seat.writer is not None:
                    seat.writer.transport.abort()  # lost, though not noticed yet
                seat.writer = writer
                writer.write(frame((JOINED, who)))
                await writer.drain()
        finally:
            self._joining.pop(writer, None)
        if seat.question is not None or self._end:
            seat.news.set()
        return seat

    def _decided(self, key: bytes, signature: bytes, token: bytes, nonce: bytes) -> str | bytes:
        """The key or token of a client that takes part, or the word that refuses it."""
        if self._end:
            return self._end
        if self._keys and not (key in self._keys and _proved(key, signature, to_sign(nonce, self._certificate))):
            return UNKNOWN_KEY
        who = key if self._keys else token
        if who not in self._seats:
            if self._order or len(self._seats) >= self.clients:
                return LATE
            who = who if self._keys else secrets.token_bytes(32)
            self._seats[who] = _Seat()
        return who

    async def _exchange(self, seat: _Seat, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Ask and take the answer, in turns, until the run or the connection ends; whether the client has left."""
        heard = asyncio.ensure_future(reader.readexactly(LENGTH.size))
        while True:
            news = asyncio.ensure_future(seat.news.wait())
            await asyncio.wait({heard, news}, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            if seat.writer is not writer:  # another connection has taken over
                return False
            if heard.done():  # unasked: the client leaves, is gone, or does not keep to the protocol
                return await _read(reader, MAX_JOIN_BYTES, await heard) is None
            seat.news.clear()
            if self._end:
                writer.write(frame(self._end))
                await heard
                return True
            if seat.question is None:
                continue
            number, frames = seat.question
            writer.writelines(frames)
            await writer.drain()
            try:
                match await _read(reader, MAX_ANSWER_BYTES, await heard):
                    case (int() as same, bytes() as body) if same == number:
                        self._answered(seat, body, number)
                    case None:
                        return True
                    case _:
                        raise BadMessage
            except BadMessage:
                self._answered(seat, None, number)
                raise
            heard = asyncio.ensure_future(reader.readexactly(LENGTH.size))

    def _answered(self, seat: _Seat, body: bytes | None, number: int | None = None) -> None:
        """Pass on the answer to the question that stands (None: there will be none), once."""
        if seat.question is not None and number in (None, seat.question[0]):
            self._answers.put((seat.question[0], seat.number, body))
            seat.question = None


async def _read(reader: asyncio.StreamReader, limit: int, head: bytes | None = None) -> Any:
    """The next message, of at most ``limit`` bytes; ``head``: its length, if that was read already."""
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size) if head is None else head)
    if length > limit:
        raise BadMessage
    return unpack(await reader.readexactly(length), limit, values=MAX_VALUES)


def _proved(key: bytes, signature: bytes, signed: bytes) -> bool:
    """Whether the owner of a listed key has signed this."""
    public = load_der_public_key(key)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    try:
        public.verify(signature, signed, SIGNATURE)
    except InvalidSignature:
        return False
    return True


def _bound(listen: ServerAddress) -> socket.socket:
    """A listening socket at the address."""
    try:
        kind, *_, where = socket.getaddrinfo(*listen, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        here = socket.socket(kind, socket.SOCK_STREAM)
    except OSError:
        raise ValueError(f"--listen is {listen}; this machine has no such address") from None
    try:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        here.bind(where)
        here.listen()
        return here
    except OSError as error:
        here.close()
        reason = (error.strerror or "no such address").lower()
        raise ValueError(f"cannot listen at {listen}: {reason}; pass another --listen") from None


def shown_certificate(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """A server's certificate with its private key; refused if these files are not that."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        problem = "no such file" if isinstance(error, FileNotFoundError) else "not a certificate in PEM"
        raise ValueError(
            f"{certificate}: {problem}, or not with its private key; put both in this file, or pass the key with --private-key"
        ) from None
    return context


def public_keys(path: Path) -> list[bytes]:
    """Keys of clients, as ``ssh-keygen -t ecdsa`` writes the public part: one in a line."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            key = load_ssh_public_key(line.strip().encode())
            if not isinstance(key, ec.EllipticCurvePublicKey):
                raise ValueError
        except (ValueError, UnsupportedAlgorithm):
            raise ValueError(
                f"{path}: key {number} is not one of ssh-keygen -t ecdsa; pass public keys, one in a line"
            ) from None
        found.append(public_bytes(key))
    if not found or len({*found}) < len(found):
        problem = "a key twice" if found else "no key"
        raise ValueError(f"{path}: has {problem}; pass public keys of clients, one in a line")
    return found
