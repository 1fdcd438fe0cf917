"""What passes between the network and the SuperLink: requests of clients that take part, as long as the run goes on.

Flower checks that a client signs with the key of the node that it says it is. Here is checked what Flower does not: that replies
come from the node that signs, that nobody joins a run that has begun, and that both sides have the same noisewise.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from flwr.proto import fleet_pb2 as fleet
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from starlette.middleware.base import RequestResponseEndpoint

from ...._version import __version__
from ..address import LATE, OTHER, OVER, SAID, STOPPED, VERSION
from .admission import Door
from .grid import LinkGrid

MAX_REQUEST_BYTES = 1 << 28
BEAT = 10.0  # seconds: after two of them without a sign of a client, Flower takes it for gone
WAIT, LOOK = 10.0, 0.01  # seconds that a client's request for a question is kept open, and between two looks for one


SERVED = (
    fleet.RegisterNodeFleetRequest,
    fleet.ActivateNodeRequest,
    fleet.DeactivateNodeRequest,
    fleet.UnregisterNodeFleetRequest,
    SendNodeHeartbeatRequest,
    fleet.PullMessagesRequest,
    fleet.PushMessagesRequest,
)


class FleetMiddlewares:
    """Middlewares of the Fleet API."""

    def __init__(self, door: Door, state: InMemoryLinkState, grid: LinkGrid) -> None:
        self._door, self._state, self._grid = door, state, grid
        self._end = ""  # what is said to all from now on
        self.told: set[int] = set()

    def end(self, *, well: bool) -> None:
        """The run is over: clients hear it when they ask next, and are asked nothing more."""
        self._end = OVER if well else STOPPED

    async def outer(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Before anything is read: the path, the version and the length."""
        if not request.url.path.startswith("/v1/fleet/"):
            return _refused(404, "nothing")
        length = request.headers.get("content-length", "")
        if request.headers.get(VERSION) != __version__:
            return _refused(409, OTHER)
        if not (length.isascii() and length.isdigit()) or int(length) > MAX_REQUEST_BYTES:
            return _refused(413, "too large")
        return await call_next(request)

    async def inner(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """After Flower has read the request and checked its signature."""
        asked: Any = getattr(request.state, "protobuf_request", None)
        if not isinstance(asked, SERVED):
            return _refused(404, "nothing")
        node = self._node(asked)
        if self._end:
            if node is not None:
                self.told.add(node)
            return _refused(410, self._end)
        if isinstance(asked, fleet.RegisterNodeFleetRequest) and self._door.full():
            return _refused(403, LATE)
        if isinstance(asked, fleet.ActivateNodeRequest) and node is not None:
            if not self._door.admits(node):
                return _refused(403, LATE)
            self._state.deactivate_node(node)  # which comes back before it was missed
        if isinstance(asked, fleet.PushMessagesRequest) and not _own(asked):
            return _refused(403, "not an answer of its own")
        if isinstance(asked, fleet.PullMessagesRequest) and not await self._question(asked.node.node_id):
            return _refused(410, self._end)
        response = await call_next(request)
        if isinstance(asked, fleet.DeactivateNodeRequest | fleet.UnregisterNodeFleetRequest) and node is not None:
            self._door.left(node)
        return response

    def _node(self, asked: Any) -> int | None:
        """The node that a request is of: that of its key, which it was signed with."""
        if isinstance(asked, fleet.RegisterNodeFleetRequest | fleet.ActivateNodeRequest):
            return self._state.get_node_id_by_public_key(asked.public_key)
        return int(asked.node.node_id if hasattr(asked, "node") else asked.node_id)

    async def _question(self, node: int) -> bool:
        """Wait until there is a question for a client, for a while; whether the run goes on."""
        until = time.monotonic() + WAIT
        self._state.acknowledge_node_heartbeat(node, BEAT)
        self._grid.again(node)
        while node not in self._grid.due and time.monotonic() < until:
            if self._end:
                self.told.add(node)
                return False
            await asyncio.sleep(LOOK)
        self._grid.due.discard(node)
        return True


def _own(asked: fleet.PushMessagesRequest) -> bool:
    """Whether this is one answer, of who has signed it, and nothing else."""
    messages, trees = asked.messages_list, asked.message_object_trees
    if len(messages) != 1 or len(trees) != 1 or trees[0].children:
        return False
    return bool(messages[0].metadata.src_node_id == asked.node.node_id)


def _refused(status: int, said: str) -> Response:
    return JSONResponse({"detail": said}, status, {SAID: said, VERSION: __version__})
