"""A client's end of the network: Flower's SuperNode in this process, for one ClientApp that is installed here.

``flower-supernode`` runs code that the server sends, in a new process for every message. Here nothing is run but noisewise's own
ClientApp: a server can ask its questions and nothing else.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization.ssh import load_ssh_private_key
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto import fleet_pb2 as fleet
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node as Name
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from ...._version import __version__
from ..address import LATE, OTHER, OVER, SAID, STOPPED, VERSION, ServerAddress
from ..flower import silence

T = TypeVar("T")
Keys = tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]
BEAT = 10.0  # seconds, the least that Flower takes: after two of them without a sign a client is taken for gone
SOON, SLOW = 0.2, 5.0  # seconds between two tries to reach a server, at first and at most


class Ended(Exception):
    """The server has said that the run is over; ``well``: and that it went well."""

    def __init__(self, *, well: bool) -> None:
        super().__init__()
        self.well = well


@dataclass(frozen=True)
class Server:
    """Where the server is, and how it and this client prove who they are; ``patience``: seconds that it may be away."""

    address: ServerAddress
    insecure: bool
    certificate: Path | None = None
    key: Path | None = None
    patience: float = 60.0


def serve(
    app: ClientApp, server: Server, joined: Callable[[], None], answered: Callable[[], None] = lambda: None
) -> bool:
    """Answer a server's questions by an app until it says that the run is over; whether it went well.

    ``joined``: the server knows this client now. ``answered``: a question was; what it raises ends this.
    """
    silence()
    keys = generate_key_pairs() if server.key is None else private_key(server.key)
    with _fleet(server, keys) as fleet:
        node = Node(fleet, server, keys)
        try:
            node.join()
            joined()
            with node.beating():
                while True:
                    node.answer(app)
                    answered()
        except Ended as end:
            return end.well
        finally:
            node.leave()


def private_key(path: Path) -> Keys:
    """A client's key, as ``ssh-keygen -t ecdsa`` writes it, without a passphrase."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(f"{path}: is no private key of ssh-keygen -t ecdsa without a passphrase; make one") from None
    return key, key.public_key()


class _Versioned:
    """Says with every request which noisewise this is."""

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers[VERSION] = __version__
        return call_next(context)


@contextmanager
def _fleet(server: Server, keys: Keys) -> Iterator[FleetHttpClient]:
    try:
        fleet = FleetHttpClient.from_server_address(
            str(server.address),
            server.insecure,
            None if server.certificate is None else server.certificate.read_bytes(),
            [_Versioned(), RuntimeVersionHttpInterceptor(component_name="SuperNode"), NodeAuthHttpInterceptor(*keys)],
        )
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{server.certificate}: is no certificate in PEM") from None
    with fleet:
        yield fleet


class Node:
    """This client, as the server knows it."""

    def __init__(self, fleet: FleetHttpClient, server: Server, keys: Keys) -> None:
        self._fleet, self._server, self._keys = fleet, server, keys
        self._name: Name | None = None
        self._state = RecordDict()

    def join(self) -> None:
        public = public_key_to_bytes(self._keys[1])
        if self._server.key is None:
            self._call(self._fleet.RegisterNode, fleet.RegisterNodeFleetRequest(public_key=public))
        asked = fleet.ActivateNodeRequest(public_key=public, heartbeat_interval=BEAT)
        self._name = Name(node_id=self._call(self._fleet.ActivateNode, asked).node_id)

    def leave(self) -> None:
        """Say so, if anybody hears it."""
        if self._name is not None:
            with suppress(httpx.HTTPError):
                self._fleet.DeactivateNode(fleet.DeactivateNodeRequest(node_id=self._name.node_id))
                if self._server.key is None:
                    self._fleet.UnregisterNode(fleet.UnregisterNodeFleetRequest(node_id=self._name.node_id))

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Let the server know in between that this client is there."""
        asked, over = SendNodeHeartbeatRequest(node=self._name, heartbeat_interval=BEAT), threading.Event()

        def beat() -> None:
            while not over.wait(BEAT / 2):
                with suppress(httpx.HTTPError, ValueError):
                    self._fleet.SendNodeHeartbeat(asked)

        thread = threading.Thread(target=beat, name="noisewise-beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(1.0)

    def answer(self, app: ClientApp) -> None:
        """Wait for a question for a while, and answer it if one comes."""
        response = self._call(self._fleet.PullMessages, fleet.PullMessagesRequest(node=self._name))
        for packed in response.messages_list:
            question = message_from_proto(packed)
            assert self._name is not None
            context = Context(question.metadata.run_id, self._name.node_id, {}, self._state, {})
            self.push(app(question, context))

    def push(self, reply: Message) -> None:
        """Send an answer; one that is not wanted any more is dropped there."""
        name = secrets.token_hex(32)
        reply.metadata.__dict__["_message_id"] = name
        asked = fleet.PushMessagesRequest(
            node=self._name,
            messages_list=[message_to_proto(reply)],
            message_object_trees=[ObjectTree(object_id=name)],
        )
        self._call(self._fleet.PushMessages, asked)

    def _call(self, function: Callable[[Any], T], request: Any) -> T:
        """What the server answers; tried again while it cannot be reached, for as long as patience lasts."""
        end, wait = time.monotonic() + self._server.patience, SOON
        while True:
            try:
                return function(request)
            except httpx.HTTPStatusError as error:
                raise _told(error.response) from None
            except httpx.TransportError as error:
                if (trouble := _tls(error)) is not None:
                    raise ValueError(f"{self._server.address}: {trouble}") from None
                if time.monotonic() + wait > end:
                    raise ConnectionError(self._lost) from None
            time.sleep(wait)
            wait = min(2 * wait, SLOW)

    @property
    def _lost(self) -> str:
        if self._name is None:
            return f"no server answers at {self._server.address}; start noisewise federated server there, or check --server"
        return f"the server at {self._server.address} is gone; nothing more is answered"


def _told(response: httpx.Response) -> Exception:
    """What it means that the server has refused a request."""
    said, other = response.headers.get(SAID, ""), response.headers.get(VERSION, "")
    if said in (OVER, STOPPED):
        return Ended(well=said == OVER)
    if said == OTHER:
        return ValueError(
            f"the server has noisewise {other:.20}, and this is {__version__}; install the same on both sides"
        )
    if said == LATE:
        return ValueError("the run has all its clients and has begun without this one; it is not asked")
    if response.status_code == httpx.codes.UNAUTHORIZED:
        return ValueError(
            "the server does not accept this client's signature; check --key, and the clocks of both machines"
        )
    if VERSION not in response.headers and response.status_code not in range(400, 500):
        return ValueError("this is no server of noisewise; check --server")
    return ValueError("the server refused this client; where it lists keys, pass one of them with --key")


def _tls(error: httpx.TransportError) -> str | None:
    """What is wrong with the encryption, if that is it."""
    words = str(error).lower()
    if "certificate" in words:
        return "its certificate cannot be trusted; pass that of its authority with --certificate"
    if "ssl" in words or "tls" in words:
        return "it does not speak TLS; start the server with --certificate, or pass --insecure on both sides"
    return None
