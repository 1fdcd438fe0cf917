"""Flower carries the messages; clipping, noise and price are noisewise's own.

``FlowerCarrier`` hands a question to nodes of Flower's grid and takes what they say. A node is one client; in a simulation of
many clients it stands for several, which are asked, answer and are checked one by one all the same: the simulation carries about
a hundred messages a second, whatever they hold. ``simulated`` runs Flower's own simulation, in processes of Ray on this machine, until
its block ends. Nothing is logged: who was asked, and with what, is secret.
"""

from __future__ import annotations

import logging
import os
import queue
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..processes import STAYS
from ..ray_workers import keep_out
from ..transport import RankLost
from .client import Client

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

RECORD = "noisewise"
MAX_NODES = 16  # of a simulation
MAX_HELD_CLIENTS = 1 << 14  # whose rows a process of the simulation keeps
MAX_PROCESSES = 8  # of a simulation at most
POLL_SECONDS = 0.02  # between looks for answers
START_SECONDS = 300.0  # that a simulation may take to start
SILENT = {  # Flower tells its makers of every run, Ray of every cluster, and of its own future
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}
MISSING = "Flower is not installed; pip install 'noisewise[flower]' brings it, training on clients needs it"


def require_flower(*, simulation: bool = True) -> None:
    """Refuse, in one line, to go on without Flower, and for its simulation without Ray."""
    if find_spec("flwr") is None or (simulation and find_spec("ray") is None):
        raise ValueError(MISSING)


def silence() -> None:
    """Switch off what Flower and Ray log and tell others; called before either is imported, and again after."""
    os.environ.update(SILENT)
    for name in ("flwr", "flwr-telemetry", "ray"):
        logger = logging.getLogger(name)
        logger.disabled, logger.propagate = True, False


class FlowerCarrier:
    """Carries questions over Flower's grid. ``members``: for each client, its node and its number there.

    ``wait``: seconds that an answer may take, None for as long as it takes; ``alive``: whether somebody may still answer.
    """

    def __init__(
        self,
        grid: Grid,
        members: Sequence[tuple[int, int]],
        names: Sequence[str],
        *,
        wait: float | None = None,
        poll: float = POLL_SECONDS,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self._grid, self._members, self._names = grid, [*members], [*names]
        self._wait, self._poll, self._alive = wait, poll, alive
        self._client = {member: client for client, member in enumerate(self._members)}
        self.clients = len(self._members)

    def ask(self, history: bytes, questions: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        by_node: dict[int, list[tuple[int, bytes]]] = {}
        for client, question in questions.items():
            node, number = self._members[client]
            by_node.setdefault(node, []).append((number, question))
        from flwr.app import Message

        messages = [
            Message(_asked(history, some), dst_node_id=node, message_type="query") for node, some in by_node.items()
        ]
        for node, said in self.exchanged(messages):
            for number, body in _answered(said):
                client_of = self._client.get((node, number))
                if client_of is not None:
                    yield client_of, body

    def exchanged(self, messages: Sequence[Message]) -> Iterator[tuple[int, Any]]:
        """Push all messages at once, and pull until all are answered or the time is up: which node said what."""
        nodes = [message.metadata.dst_node_id for message in messages]
        until = None if self._wait is None else time.monotonic() + self._wait
        waiting = dict(zip(self._grid.push_messages(messages), nodes, strict=True)) if messages else {}
        while waiting:
            over = until is not None and time.monotonic() >= until
            for reply in self._grid.pull_messages(
                list(waiting)
            ):  # once more when the time is up: nobody waits for another
                question, node = reply.metadata.reply_to_message_id, reply.metadata.src_node_id
                if waiting.get(question) != node:
                    continue  # somebody else's: its own may still come
                del waiting[question]
                if not reply.has_error():
                    yield node, reply.content
            if waiting:
                if over:
                    return
                if not self._alive():
                    raise RankLost(f"the simulation of clients has ended{STAYS}")
                time.sleep(self._poll)

    def name(self, client: int) -> str:
        return self._names[client]

    def close(self) -> None:
        """Whoever made the grid ends it."""


def _asked(history: bytes, some: Sequence[tuple[int, bytes]]) -> Any:
    from flwr.app import ConfigRecord, RecordDict

    numbers, questions = [number for number, _ in some], [question for _, question in some]
    return RecordDict({RECORD: ConfigRecord({"history": history, "numbers": numbers, "questions": questions})})


def _answered(content: Any) -> list[tuple[int, bytes]]:
    """What a node says, by its own numbers of clients; nothing where it is not said as it should be."""
    try:
        record = content[RECORD]
        numbers, answers = list(record["numbers"]), list(record["answers"])
    except Exception:  # a node may send anything
        return []
    pairs = zip(numbers, answers, strict=False)
    return [(number, answer) for number, answer in pairs if type(number) is int and type(answer) is bytes]


_held: OrderedDict[Path, Client] = OrderedDict()  # of this process, the longest unused first


Own = Callable[[Any, int], Client | None]  # a node's client of a number, by the node's context


def answer_message(own: Own, message: Message, context: Context) -> Message:
    """What a node says to a message: the answers of its own clients."""
    from flwr.app import ConfigRecord, Message, RecordDict

    silence()
    record = message.content[RECORD]
    history, answers = record["history"], []
    for number, question in zip(record["numbers"], record["questions"], strict=True):
        client = own(context, number)
        answers.append(b"" if client is None else client.answer(history, question))
    content = ConfigRecord({"numbers": list(record["numbers"]), "answers": answers})
    return Message(RecordDict({RECORD: content}), reply_to=message)


def client_app(own: Own) -> ClientApp:
    """What Flower runs at a node, for clients of its own: usually one."""
    from flwr.clientapp import ClientApp

    app = ClientApp()
    app.query()(partial(answer_message, own))
    app.query("hello")(_hello)
    return app


def _hello(message: Message, context: Context) -> Message:
    """Which partition of a simulation a node has."""
    from flwr.app import ConfigRecord, Message, RecordDict

    return Message(RecordDict({RECORD: ConfigRecord({"partition": _partition(context)})}), reply_to=message)


def _partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _dealt(paths: Sequence[Path], nodes: int, context: Context, number: int) -> Client | None:
    own = paths[_partition(context) :: nodes]
    if not 0 <= number < len(own):
        return None
    client = _held.pop(own[number], None) or Client(own[number])
    _held[own[number]] = client
    while len(_held) > MAX_HELD_CLIENTS:
        _held.popitem(last=False)
    return client


@contextmanager
def simulated(paths: Sequence[Path], *, nodes: int | None = None) -> Iterator[FlowerCarrier]:
    """Flower's simulation of one client for each file, until the block ends. There is no time limit: on one machine a
    client's time depends on the others'.
    """
    require_flower()
    silence()
    keep_out()
    many = min(len(paths), MAX_NODES if nodes is None else nodes)
    files = [path.absolute() for path in paths]
    with tempfile.TemporaryDirectory(prefix="noisewise-", ignore_cleanup_errors=True) as folder:
        grids: queue.Queue[Grid] = queue.Queue()
        done = threading.Event()
        run = threading.Thread(
            target=_run, args=(files, many, folder, grids, done), name="noisewise-flower", daemon=True
        )
        run.start()
        try:
            grid = _first(grids, run)
            members = _members(grid, len(files), many, run)
            yield FlowerCarrier(grid, members, [str(path) for path in paths], alive=run.is_alive)
        finally:
            done.set()
            run.join()


def _run(files: Sequence[Path], nodes: int, folder: str, grids: queue.Queue[Grid], done: threading.Event) -> None:
    """The simulation, in a thread of its own: its server hands over the grid and waits."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    silence()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        grids.put(grid)
        done.wait()

    processes = min(os.cpu_count() or 1, nodes, MAX_PROCESSES)
    quiet = {"num_cpus": processes, "log_to_driver": False, "logging_level": "CRITICAL"}
    config: Any = {"init_args": quiet | _alone(folder), "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    app = client_app(partial(_dealt, files, nodes))
    with suppress(Exception):  # whoever waits for an answer says so; a library's words could be about rows
        run_simulation(server, app, num_supernodes=nodes, backend_config=config)


def _alone(folder: str) -> dict[str, Any]:
    """What keeps Ray's messages to this user. It lets everybody into its folder, so that lies in one that nobody else may enter."""
    return {
        "_temp_dir": str(Path(folder) / "ray"),
        "include_dashboard": False,
        "_system_config": {"automatic_object_spilling_enabled": False},
    }


def _first(grids: queue.Queue[Grid], run: threading.Thread) -> Grid:
    while True:
        try:
            return grids.get(timeout=0.1)
        except queue.Empty:
            if not run.is_alive():
                raise RankLost("Flower's simulation could not start; nothing was spent") from None


def _members(grid: Grid, clients: int, nodes: int, run: threading.Thread) -> list[tuple[int, int]]:
    """Which node stands for which clients: that of partition p for clients p, p + nodes, ..."""
    until = time.monotonic() + START_SECONDS
    while len(ids := list(grid.get_node_ids())) < nodes and run.is_alive() and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    from flwr.app import Message, RecordDict

    carrier = FlowerCarrier(grid, [], [], wait=START_SECONDS, alive=run.is_alive)
    found: dict[int, int] = {}
    for node, said in carrier.exchanged(
        [Message(RecordDict(), dst_node_id=node, message_type="query.hello") for node in ids]
    ):
        found[int(said[RECORD]["partition"])] = node
    if len(found) != nodes:
        raise RankLost("Flower's simulation could not start all of its nodes; nothing was spent")
    return [(found[client % nodes], client // nodes) for client in range(clients)]
