"""The server's end of the network: Flower's SuperLink in this process, with its state in memory and its Fleet API alone.

What ``flower-superlink`` serves beside it, for starting runs and for apps of their own, is not served here: there is one run,
and its ServerApp is this process. Nothing that a client sends is run, and no code is sent to clients.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization.ssh import load_ssh_public_key
from fastapi import FastAPI
from flwr.app import Context, RecordDict
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.serverapp import ServerApp
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, NodeStatus, TaskType
from flwr.supercore.error import http_error_translator
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware

from ..address import ServerAddress
from ..flower import silence
from .admission import Door
from .gate import FleetMiddlewares
from .grid import LinkGrid

FAREWELL = 5.0  # seconds that clients have to hear that the run is over
LOOK = 0.05  # seconds between two looks for clients
JUST = 1.0  # seconds that a client may be away while it comes back


class Link:
    """One run and its clients."""

    def __init__(self, clients: int, keys: Sequence[bytes] = ()) -> None:
        """``keys``: public keys of the clients that may take part; without any, whoever comes first."""
        store = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
        self._factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), store)
        state = self._factory.state()
        assert isinstance(state, InMemoryLinkState)
        self._state, self._keyed = state, bool(keys)
        known = [state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0) for key in keys]
        number = state.create_run(
            "noisewise/federated", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        (run,) = state.get_run_info(run_ids=[number])
        assert run.primary_task_id is not None
        self._task = run.primary_task_id
        state.claim_task(self._task)
        state.activate_task(self._task)
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = number, self._task, SUPERLINK_NODE_ID
        self._door, self.grid = Door(clients, known), LinkGrid(state, run)
        self._gate = FleetMiddlewares(self._door, state, self.grid)
        self.context = Context(number, SUPERLINK_NODE_ID, {}, RecordDict(), {})

    def application(self) -> FastAPI:
        """The Fleet API, behind the gate."""
        inside = FastAPI(
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            middleware=[
                Middleware(BaseHTTPMiddleware, dispatch=self._gate.outer),
                Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
                Middleware(ProtobufTranslationMiddleware),
                Middleware(NodeAuthMiddleware),
                Middleware(BaseHTTPMiddleware, dispatch=self._gate.inner),
            ],
        )
        inside.state.linkstate_factory = self._factory
        inside.state.enable_supernode_auth = self._keyed
        inside.include_router(router)
        return inside

    def gather(self, heard: Callable[[int], None], within: float | None = None) -> None:
        """Wait until all clients are there; who takes part is fixed then. ``heard``: how many there are."""
        end = None if within is None else time.monotonic() + within
        while (inside := self._door.shut()) is None:
            for node in self._state.get_node_info(node_ids=self._door.inside):
                if node.status == NodeStatus.OFFLINE and node.online_until < time.time() - JUST:
                    self._door.left(node.node_id)
            heard(len(self._door.inside))
            if end is not None and time.monotonic() > end:
                raise ValueError("not all clients came in time; nothing was asked")
            time.sleep(LOOK)
        heard(len(inside))
        self.grid.take(inside)

    def run(self, app: ServerApp) -> None:
        """Run a ServerApp here, with the clients that were gathered."""
        app(self.grid, self.context)

    def alive(self) -> bool:
        """Keep Flower from taking this run for dead."""
        self._state.acknowledge_task_heartbeat(self._task)
        return True

    def farewell(self, *, well: bool) -> None:
        """Tell all clients that are still there that the run is over."""
        self._gate.end(well=well)
        end = time.monotonic() + FAREWELL
        there = self._state.get_nodes(self.grid.run.run_id) & {*self._door.inside}
        while there - self._gate.told and time.monotonic() < end:
            time.sleep(LOOK)


@contextmanager
def listening(
    link: Link,
    listen: ServerAddress,
    *,
    certificate: Path | None,
    key: Path | None,
    opened: Callable[[ServerAddress], None],
) -> Iterator[None]:
    """Serve clients at an address while this is open, in a thread; without a certificate, in the clear.

    ``opened``: hears the address, with the port that was chosen where 0 was asked for.
    """
    silence()
    logging.getLogger("uvicorn").disabled = True
    here = _bound(listen)
    config = uvicorn.Config(
        link.application(),
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="off",
        server_header=False,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [here]}, name="noisewise-link", daemon=True)
    beats, well = HeartbeatSender(link.alive), False
    thread.start()
    while thread.is_alive() and not server.started:
        time.sleep(LOOK)
    if not server.started:
        raise OSError(f"cannot serve at {listen}")
    beats.start()
    try:
        opened(ServerAddress(listen.host, here.getsockname()[1]))
        yield
        well = True
    finally:
        link.farewell(well=well)
        server.should_exit = True
        thread.join(FAREWELL)
        beats.stop()
        here.close()


def _bound(listen: ServerAddress) -> socket.socket:
    """A socket at the address, before anything else is done."""
    try:
        kind, *_, where = socket.getaddrinfo(*listen, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        here = socket.socket(kind, socket.SOCK_STREAM)
    except OSError:
        raise ValueError(f"--listen is {listen}; this machine has no such address") from None
    try:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        here.bind(where)
        return here
    except OSError as error:
        here.close()
        raise ValueError(
            f"cannot listen at {listen}: {(error.strerror or 'no such address').lower()}; pass another --listen"
        ) from None


def check_certificate(certificate: Path, key: Path | None) -> None:
    """Refuse files that a server cannot show and prove."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise ValueError(
            f"{certificate}: {'no such file, or none' if missing else 'is no certificate in PEM'} with its private key "
            "(in the same file, or passed with --key)"
        ) from None


def public_keys(path: Path) -> list[bytes]:
    """Keys of clients, as ``ssh-keygen -t ecdsa`` writes the public part: one in a line."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            key = load_ssh_public_key(line.strip().encode())
            if not isinstance(key, ec.EllipticCurvePublicKey) or not uses_nist_ec_curve(key):
                raise ValueError
        except (ValueError, UnsupportedAlgorithm):
            raise ValueError(
                f"{path}: key {number} is none of ssh-keygen -t ecdsa; pass public keys, one in a line"
            ) from None
        found.append(public_key_to_bytes(key))
    if not found or len({*found}) < len(found):
        raise ValueError(
            f"{path}: has {'a key twice' if found else 'no key'}; pass public keys of clients, one in a line"
        )
    return found
