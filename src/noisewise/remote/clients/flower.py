"""Clients of Flower's simulation: Flower carries the messages; clipping, noise and price are noisewise's own.

``FlowerCarrier`` hands questions to nodes of a Flower grid and takes their answers. A node is one client; in a simulation of many clients it
stands for several, each of which is asked, answers and is checked by itself. ``simulated`` runs Flower's own simulation, in processes of
Ray on this machine, until its block ends. Nothing is logged: who was asked, and what, is secret.

*What it costs to use Flower's public interface alone* (``flwr.app``, ``clientapp``, ``serverapp``, ``simulation``): Flower's SuperLink and
SuperNodes, with their accounts and their management of runs, are not used, because nothing in that interface keeps a SuperNode from running
code that a server sends. It costs no speed: :mod:`.network` takes about 3 ms for a question over a network, where Flower's SuperLink took
60, and the simulation carries about a hundred messages a second, whatever they hold, as before.
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

from ..transport import STAYS, RankLost
from ..workers import keep_out
from .client import Client

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

RECORD = "noisewise"
MAX_NODES = 16  # of a simulation
MAX_HELD_CLIENTS = 1 << 14  # whose rows a process of the simulation keeps
MAX_PROCESSES = 8  # of a simulation
POLL_SECONDS = 0.02  # between two looks for answers
START_SECONDS = 300.0  # that a simulation may take to start
SILENT = {  # Flower reports every run to its makers; Ray reports every cluster, and prints news of its own future
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}


def require_flower() -> None:
    """Refuse, in one line, to go on without Flower, or without Ray, on which its simulation runs."""
    if find_spec("flwr") is None or find_spec("ray") is None:
        raise ValueError(
            "Flower is not installed; pip install 'noisewise[flower]' brings it for the simulation of clients"
        )


def silence() -> None:
    """Switch off what Flower and Ray log and report; called before either is imported, and again after."""
    os.environ.update(SILENT)
    for name in ("flwr", "flwr-telemetry", "ray"):
        logger = logging.getLogger(name)
        logger.disabled, logger.propagate = True, False


class FlowerCarrier:
    """Carries questions over a Flower grid."""

    def __init__(
        self,
        grid: Grid,
        members: Sequence[tuple[int, int]],
        names: Sequence[str],
        *,
        wait: float | None = None,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """``members``: each client's node and its number there. ``wait``: seconds that an answer may take, None for as long as it takes.

        ``alive``: whether somebody may still answer.
        """
        self._grid, self._members, self._names = grid, [*members], [*names]
        self._wait, self._alive = wait, alive
        self._client = {member: client for client, member in enumerate(self._members)}
        self.clients = len(self._members)

    def ask(self, history: bytes, questions: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        from flwr.app import ConfigRecord, Message, RecordDict

        by_node: dict[int, list[tuple[int, bytes]]] = {}
        for client, question in questions.items():
            node, number = self._members[client]
            by_node.setdefault(node, []).append((number, question))
        messages = []
        for node, some in by_node.items():
            numbers, asked = [number for number, _ in some], [question for _, question in some]
            record = ConfigRecord({"history": history, "numbers": numbers, "questions": asked})
            messages.append(Message(RecordDict({RECORD: record}), dst_node_id=node, message_type="query"))
        for node, said in self.exchanged(messages):
            for number, body in _answered(said):
                client_of = self._client.get((node, number))
                if client_of is not None:
                    yield client_of, body

    def exchanged(self, messages: Sequence[Message]) -> Iterator[tuple[int, Any]]:
        """Push all messages at once, and pull until all are answered or the time is up: each node with its answer."""
        nodes = [message.metadata.dst_node_id for message in messages]
        until = None if self._wait is None else time.monotonic() + self._wait
        waiting = dict(zip(self._grid.push_messages(messages), nodes, strict=True)) if messages else {}
        while waiting:
            over = until is not None and time.monotonic() >= until
            replies = self._grid.pull_messages(list(waiting))  # once more when the time is up: none makes another late
            for reply in replies:
                question, node = reply.metadata.reply_to_message_id, reply.metadata.src_node_id
                if waiting.get(question) != node:
                    continue  # another node's; its own answer may still come
                del waiting[question]
                if not reply.has_error():
                    yield node, reply.content
            if waiting:
                if over:
                    return
                if not self._alive():
                    raise RankLost(f"the simulation of clients has ended{STAYS}")
                time.sleep(POLL_SECONDS)

    def name(self, client: int) -> str:
        return self._names[client]

    def close(self) -> None:
        """Whoever made the grid ends it."""


def _answered(content: Any) -> list[tuple[int, bytes]]:
    """A node's answers, with its own numbers of clients; none where they are malformed."""
    try:
        record = content[RECORD]
        numbers, answers = list(record["numbers"]), list(record["answers"])
    except Exception:  # a node may send anything
        return []
    pairs = zip(numbers, answers, strict=False)
    return [(number, answer) for number, answer in pairs if type(number) is int and type(answer) is bytes]


ClientOf = Callable[[Any, int], Client | None]  # a node's client of a number, by the node's context


def answer_message(own: ClientOf, message: Message, context: Context) -> Message:
    """A node's answer to a message: the answers of its own clients."""
    from flwr.app import ConfigRecord, Message, RecordDict

    silence()
    record = message.content[RECORD]
    history, answers = record["history"], []
    for number, question in zip(record["numbers"], record["questions"], strict=True):
        client = own(context, number)
        answers.append(b"" if client is None else client.answer(history, question))
    content = ConfigRecord({"numbers": list(record["numbers"]), "answers": answers})
    return Message(RecordDict({RECORD: content}), reply_to=message)


def client_app(own: ClientOf) -> ClientApp:
    """What Flower runs at a node, for clients of its own."""
    from flwr.clientapp import ClientApp

    app = ClientApp()
    app.query()(partial(answer_message, own))
    return app


_held: OrderedDict[Path, Client] = OrderedDict()  # of this process, the longest unused first


def _simulated_client(paths: Sequence[Path], context: Context, number: int) -> Client | None:
    """The client of a number, at whichever node is asked for it."""
    if not 0 <= number < len(paths):
        return None
    client = _held.pop(paths[number], None) or Client(paths[number])
    _held[paths[number]] = client
    while len(_held) > MAX_HELD_CLIENTS:
        _held.popitem(last=False)
    return client


@contextmanager
def simulated(paths: Sequence[Path]) -> Iterator[FlowerCarrier]:
    """Flower's simulation of one client for each file, until the block ends.

    There is no time limit for an answer: on one machine a client's time depends on the others'.
    """
    require_flower()
    silence()
    keep_out()
    files, many = [path.absolute() for path in paths], min(len(paths), MAX_NODES)
    with tempfile.TemporaryDirectory(prefix="noisewise-", ignore_cleanup_errors=True) as folder:
        grids: queue.Queue[Grid] = queue.Queue()
        done = threading.Event()
        run = threading.Thread(
            target=_run, args=(files, many, folder, grids, done), name="noisewise-flower", daemon=True
        )
        run.start()
        try:
            grid, nodes = _started(grids, many, run)
            members = [(nodes[number % many], number) for number in range(len(files))]
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
    ray = {
        "num_cpus": processes,
        "log_to_driver": False,
        "logging_level": "CRITICAL",
        "_temp_dir": str(Path(folder) / "ray"),  # all users may enter it, so it lies in a folder that only this one may
        "include_dashboard": False,
        "_system_config": {"automatic_object_spilling_enabled": False},
    }
    config: Any = {"init_args": ray, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    app = client_app(partial(_simulated_client, files))
    with suppress(Exception):  # whoever waits for an answer reports it; a library's words could be about rows
        run_simulation(server, app, num_supernodes=nodes, backend_config=config)


def _started(grids: queue.Queue[Grid], nodes: int, run: threading.Thread) -> tuple[Grid, list[int]]:
    """The simulation's grid and its nodes, once all are there."""
    until, grid, ids = time.monotonic() + START_SECONDS, None, list[int]()
    while run.is_alive() and time.monotonic() < until:
        with suppress(queue.Empty):
            grid = grid or grids.get(timeout=POLL_SECONDS)
        if grid is not None and len(ids := list(grid.get_node_ids())) >= nodes:
            return grid, sorted(ids)
        time.sleep(POLL_SECONDS)
    raise RankLost("Flower's simulation could not start all of its nodes; nothing was spent")
