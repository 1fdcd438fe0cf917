"""Clients over a network: the protocol of the server and its clients, and the client's end.

A client keeps one connection to the server, over TLS unless both sides choose otherwise. Each message is its length in 8 bytes and then
plain data (:mod:`noisewise.remote.messages`); the length is checked before anything is read.

1. The server sends its version and a nonce. The client sends its key and a signature of the nonce and of the server's certificate, so that
   no other server can use the signature, or the token that it was given when it first joined. The server answers ``JOINED`` or a refusal.
2. The server sends a question: its number with the history, then the question itself. The client sends the number with its answer. Neither
   side sends anything else: one answer for each question.
3. The server sends ``OVER`` or ``STOPPED``, or the client sends None and leaves.

A client that loses its connection joins again, and is asked once more what it has not answered. Nothing that one side sends is run by
the other.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.hazmat.primitives.serialization.ssh import load_ssh_private_key

from ..._version import __version__
from ..messages import MAX_BYTES, BadMessage, pack, unpack

JOINED, LATE, UNKNOWN_KEY, OVER, STOPPED = "joined", "late", "unknown key", "over", "stopped"
GREETING = b"noisewise federated"
LENGTH = struct.Struct("<Q")
SIGNATURE = ec.ECDSA(hashes.SHA256())
MAX_VALUES = 8  # of a message
MAX_JOIN_BYTES = 1 << 12  # of a message before a client has joined
MAX_QUESTION_BYTES = 1 << 28  # of a history, and of a question
BYTES_PER_READ = 1 << 20
JOIN_SECONDS = 10.0  # that a client may take to join, once it is connected
SILENT_SECONDS = 20  # after which a silent connection is lost, and a lost client is not waited for
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 5.0  # between two tries to reach a server
REFUSALS = {
    LATE: "the run has all its clients and has begun without this one; it is not asked",
    UNKNOWN_KEY: "the server refused this client; where it lists keys, pass one of them with --private-key",
}


class ServerAddress(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str, option: str) -> ServerAddress:
        """Read ``host:port``, also ``[::1]:9092``."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        is_port = port.isascii() and port.isdigit() and int(port) <= 65535
        if not host or not is_port or any(sign in host for sign in "/@ "):
            raise ValueError(f"{option} is {text!r}; pass host:port, such as 127.0.0.1:9092")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ServerEndpoint:
    """Where the server is, how both sides prove who they are, and for how many seconds the server may be away (``patience``)."""

    address: ServerAddress
    insecure: bool
    certificate: Path | None = None
    key: Path | None = None
    patience: float = 60.0


def frame(message: Any) -> bytes:
    """A message with its length."""
    body = pack(message)
    return LENGTH.pack(len(body)) + body


def keep_alive(connection: socket.socket) -> None:
    """Have the operating system end a connection whose other side is silent, where it can."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    limits = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 1000 * SILENT_SECONDS}
    for name, value in {**limits, "TCP_NODELAY": 1}.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def to_sign(nonce: bytes, certificate: bytes) -> bytes:
    """What a client signs to join: the server's nonce and a digest of its certificate (DER; empty without encryption)."""
    return GREETING + nonce + hashlib.sha256(certificate).digest()


def public_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as the server compares it."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A client's key, as ``ssh-keygen -t ecdsa`` writes it, without a passphrase."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(
            f"{path}: not a private key of ssh-keygen -t ecdsa without a passphrase; make one with it"
        ) from None
    return key


# -- the client's end ---------------------------------------------------------------------------------------------------


class RunEnded(Exception):
    """The server has ended the run; ``well``: it is complete."""

    def __init__(self, *, well: bool) -> None:
        super().__init__()
        self.well = well


class Connection:
    """One connection to a server: whole messages, bounded before they are read."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.certificate = b""  # of the server
        if isinstance(connection, ssl.SSLSocket):
            self.certificate = connection.getpeercert(binary_form=True) or b""

    def send(self, message: Any) -> None:
        self._connection.sendall(frame(message))

    def receive(self, limit: int = MAX_BYTES) -> Any:
        """The next message; ConnectionError where the connection ends first."""
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        if length > limit:
            raise BadMessage
        return unpack(self._read(length), limit, values=MAX_VALUES)

    def _read(self, length: int) -> bytearray:
        """The next ``length`` bytes; memory grows as they come."""
        body = bytearray()
        while len(body) < length:
            part = self._connection.recv(min(length - len(body), BYTES_PER_READ))
            if not part:
                raise ConnectionError
            body += part
        return body

    def close(self) -> None:
        self._connection.close()


def serve(
    answer: Callable[[bytes, bytes], bytes],
    server: ServerEndpoint,
    joined: Callable[[], None],
    answered: Callable[[], None] = lambda: None,
) -> bool:
    """Answer a server's questions until it ends the run.

    Args:
        answer: makes the answer of a history and a question.
        joined: called once, when the server has taken this client in.
        answered: called after each answer; what it raises ends this client's part.

    Returns:
        Whether the run is complete.
    """
    client = _Client(server)
    connection, pause = None, 0.0
    try:
        connection = client.join()
        joined()
        while True:
            try:
                number, history, question = _question(connection)
                body = answer(history, question)
                try:
                    connection.send((number, body))
                finally:
                    answered()  # a client that has refused stops, also if that could not be sent
                pause = 0.0
            except OSError:
                connection.close()
                time.sleep(pause)
                pause = min(max(2 * pause, FIRST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
                connection = client.join()
    except RunEnded as end:
        return end.well
    finally:
        if connection is not None:
            with suppress(OSError):
                connection.send(None)  # this client leaves
            connection.close()


def _question(connection: Connection) -> tuple[int, bytes, bytes]:
    """The next question: its number, the history and the question."""
    match connection.receive(MAX_QUESTION_BYTES):
        case (int() as number, bytes() as history):
            question = connection.receive(MAX_QUESTION_BYTES)
            if type(question) is bytes:
                return number, history, question
        case str() as word if word in (OVER, STOPPED):
            raise RunEnded(well=word == OVER)
    raise BadMessage


class _Client:
    """What a client joins with, and joins again with after it has lost its connection."""

    def __init__(self, server: ServerEndpoint) -> None:
        self._server, self._token, self._known = server, b"", False
        self._key = None if server.key is None else private_key(server.key)
        self._tls = None if server.insecure else _trusting(server.certificate)

    def join(self) -> Connection:
        """A connection to the server; tries for as long as ``patience`` lasts."""
        end, pause = time.monotonic() + self._server.patience, FIRST_PAUSE_SECONDS
        while True:
            try:
                return self._joined(max(min(end - time.monotonic(), JOIN_SECONDS), FIRST_PAUSE_SECONDS))
            except ssl.SSLCertVerificationError:
                problem = "its certificate cannot be trusted; pass that of its authority with --certificate"
                raise ValueError(f"{self._server.address}: {problem}") from None
            except OSError as error:
                if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                    problem = (
                        "it does not speak TLS; start the server with --certificate, or pass --insecure on both sides"
                    )
                    raise ValueError(f"{self._server.address}: {problem}") from None
                if time.monotonic() + pause > end:
                    raise ConnectionError(self._lost) from None
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _joined(self, seconds: float) -> Connection:
        """A connection on which the server has taken this client in, within ``seconds``."""
        raw = socket.create_connection(self._server.address, timeout=seconds)
        try:
            keep_alive(raw)
            secure = raw if self._tls is None else self._tls.wrap_socket(raw, server_hostname=self._server.address.host)
            connection = Connection(secure)
            raw = secure
            self._introduce(connection)
            secure.settimeout(None)  # a question may take any time to come
            return connection
        except BaseException:
            raw.close()
            raise

    def _introduce(self, connection: Connection) -> None:
        """Compare versions, prove who this is, and read the server's decision."""
        try:
            greeting, version, nonce = connection.receive(MAX_JOIN_BYTES)
            if greeting != GREETING or type(version) is not str or type(nonce) is not bytes:
                raise BadMessage
        except (BadMessage, TypeError, ValueError):
            raise ValueError("this is no server of noisewise; check --server") from None
        if version != __version__:
            raise ValueError(
                f"the server has noisewise {version[:20]!a}, and this is {__version__}; install the same on both sides"
            )
        if self._key is None:
            connection.send((b"", b"", self._token))
        else:
            signature = self._key.sign(to_sign(nonce, connection.certificate), SIGNATURE)
            connection.send((public_bytes(self._key.public_key()), signature, b""))
        match connection.receive(MAX_JOIN_BYTES):
            case (str() as word, bytes() as token) if word == JOINED:
                self._token, self._known = token, True
            case str() as word if word in (OVER, STOPPED):
                raise RunEnded(well=word == OVER)
            case str() as word if word in REFUSALS:
                raise ValueError(REFUSALS[word])
            case _:
                raise BadMessage

    @property
    def _lost(self) -> str:
        where = self._server.address
        if self._known:
            return f"the server at {where} is gone; nothing more is answered"
        return f"no server answers at {where}; start noisewise federated server there, or check --server"


def _trusting(certificate: Path | None) -> ssl.SSLContext:
    """What the server's certificate is checked against: this file, or the authorities of the system."""
    try:
        return ssl.create_default_context(cafile=certificate)
    except FileNotFoundError:
        raise
    except (OSError, ValueError):
        raise ValueError(f"{certificate}: not a certificate in PEM; pass that of the server's authority") from None
