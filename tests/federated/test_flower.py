"""Flower as the carrier: who answers is the node that sent it, nothing is said aloud, and the bits are those of one place."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from crowds import CLIENT, RECORD, a_fit, alone, client_files, equal, on_clients

from noisewise.remote.clients import flower
from noisewise.remote.clients.server import DirectCarrier
from noisewise.remote.transport import RankLost

pytest.importorskip("flwr", reason="the extra noisewise[flower] is not installed")
LONG = 600  # seconds; far more than it takes


@pytest.fixture(autouse=True)
def silent(monkeypatch):
    """What noisewise sets for Flower is gone after a test."""
    for name, value in flower.SILENT.items():
        monkeypatch.setenv(name, value)


class Grid:
    """A grid whose nodes are objects of this process; ``meddle`` changes the replies of a question."""

    def __init__(self, nodes, meddle=lambda replies: replies):
        self.nodes, self.meddle, self.sent, self.count = nodes, meddle, {}, 0

    def push_messages(self, messages):
        ids = []
        for message in messages:
            self.count += 1
            ids.append(str(self.count))
            self.sent[ids[-1]] = message
        return ids

    def pull_messages(self, ids):
        replies = []
        for name in [name for name in ids if name in self.sent]:
            message = self.sent.pop(name)
            node = message.metadata.dst_node_id
            content = self.nodes[node](message)
            replies.append(reply_of(name, node, content))
        return self.meddle(replies)


def reply_of(to, node, content, error=False):
    metadata = SimpleNamespace(reply_to_message_id=to, src_node_id=node)
    return SimpleNamespace(metadata=metadata, content=content, has_error=lambda: error)


def nodes_of(paths, stand_for=1):
    """Node 100 + p stands for so many clients of the paths, in turns."""
    nodes = -(-len(paths) // stand_for)

    def answer(message):
        asked = SimpleNamespace(content=message.content, metadata=message.metadata)
        said = {}
        original = flower_message()
        try:
            patch_message(lambda content, reply_to: said.setdefault("content", content))
            flower.answer_message(partial(flower._simulated_client, paths), asked, None)
        finally:
            patch_message(original)
        return said["content"]

    members = [(100 + client % nodes, client) for client in range(len(paths))]
    return dict.fromkeys(range(100, 100 + nodes), answer), members


def flower_message():
    import flwr.app

    return flwr.app.Message


def patch_message(kind):
    import flwr.app

    flwr.app.Message = kind


class Sent:
    """Stands for Flower's message, which knows its node only inside of a run."""

    def __init__(self, content, *, dst_node_id, message_type):
        self.content, self.metadata = content, SimpleNamespace(dst_node_id=dst_node_id)


@pytest.fixture
def crowd(tmp_path, monkeypatch):
    monkeypatch.setattr("flwr.app.Message", Sent)
    paths = client_files(tmp_path)

    def carrier(meddle=lambda replies: replies, stand_for=1, **options):
        nodes, members = nodes_of(paths, stand_for)
        return flower.FlowerCarrier(Grid(nodes, meddle), members, list(map(str, paths)), **options)

    return a_fit(tmp_path, "descent"), paths, carrier


@pytest.mark.parametrize("stand_for", [1, 4])
def test_a_node_that_stands_for_several_clients_changes_nothing(stand_for, crowd):
    fit, paths, carrier = crowd
    assert equal(on_clients(fit, paths, RECORD, carrier=carrier(stand_for=stand_for)), alone(fit, paths))
    assert equal(on_clients(fit, paths, CLIENT, carrier=carrier(stand_for=stand_for)), on_clients(fit, paths, CLIENT))


def renamed(replies):
    """The first node says that it is another one, or answers for clients that are not its own."""
    for first in replies[:1]:
        first.metadata.src_node_id = 105
    return replies


def for_others(replies):
    first, *others = replies
    content = {"noisewise": {"numbers": [0, 1, 5, -1], "answers": list(first.content["noisewise"]["answers"]) * 4}}
    return [reply_of(first.metadata.reply_to_message_id, 100, content), *others]


def test_a_node_answers_for_its_own_clients_alone(crowd):
    fit, paths, carrier = crowd
    assert equal(on_clients(fit, paths, RECORD, carrier=carrier(for_others)), alone(fit, paths))
    with pytest.raises(ValueError, match=r"000\.csv: could not read its rows, or did not answer"):
        on_clients(fit, paths, RECORD, carrier=carrier(renamed, wait=0.1))


@pytest.mark.parametrize(
    "content",
    [
        None,
        {},
        {"noisewise": {}},
        {"noisewise": {"numbers": 3, "answers": b""}},
        {"noisewise": {"numbers": ["0"], "answers": [b"x"]}},
        {"noisewise": {"numbers": [0], "answers": ["x"]}},
    ],
    ids=str,
)
def test_what_a_node_sends_is_read_or_left(content, crowd):
    *_, carrier = crowd

    def meddle(replies):
        return [reply_of(reply.metadata.reply_to_message_id, reply.metadata.src_node_id, content) for reply in replies]

    assert list(carrier(meddle).ask(b"", {0: b"", 3: b""})) == []


def test_late_answers_and_errors_count_as_none(crowd):
    *_, carrier = crowd
    failed = carrier(
        lambda replies: [reply_of(r.metadata.reply_to_message_id, r.metadata.src_node_id, None, True) for r in replies]
    )
    assert list(failed.ask(b"", {0: b""})) == []
    late = carrier(lambda replies: [], wait=0.05)
    assert list(late.ask(b"", {0: b"", 1: b""})) == []
    with pytest.raises(RankLost, match="the simulation of clients has ended"):
        list(carrier(lambda replies: [], alive=lambda: False).ask(b"", {0: b""}))


def told(folder, *arguments):
    """What a command says, in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NOISEWISE_KERNELS": "reference"}
    command = [sys.executable, "-m", "noisewise", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONG)


ASKED = ("train", "clients", "--schema", "schema.toml", "--epsilon", 4, "--delta", 1e-5)


def test_flowers_simulation_gives_the_bits_of_one_process_and_says_nothing(tmp_path):
    client_files(tmp_path, clients=3)
    asked = (*ASKED, "--method", "sufficient_statistics", "--loss", "squared", "--seed", 1)
    one = told(tmp_path, *asked, "--out", "one")
    many = told(tmp_path, *asked, "--federated", "--unit", "record", "--out", "many")
    assert (one.returncode, many.returncode) == (0, 0), many.stderr
    for name in ("model.safetensors", "trace.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()
    assert many.stderr == one.stderr
    told_by_both = {line for line in many.stdout.splitlines() if "Setting" not in line and "many" not in line}
    assert told_by_both <= {*one.stdout.splitlines()}


@pytest.mark.slow  # the quick one above runs the same simulation; tests/federated/test_clients_law.py has every method
@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("method", ["dpsgd", "additive", "descent"])
def test_flowers_simulation_gives_the_bits_of_clients_in_one_process(method, unit, tmp_path):
    from noisewise.remote.federation import Federated

    paths = client_files(tmp_path, clients=5)
    asked = (*ASKED, "--method", method, "--seed", 1, "--size-is-public", "--federated", "--unit", unit)
    run = told(tmp_path, *asked, "--out", "run")
    assert run.returncode == 0 and run.stderr == "", run.stderr
    direct = on_clients(a_fit(tmp_path, method), paths, Federated(unit), carrier=DirectCarrier)
    import noisewise as nw

    assert direct.theta.tobytes() == nw.load(tmp_path / "run").fitted_.theta.tobytes()


@pytest.mark.slow  # starts a simulation only to end it
def test_nothing_of_a_simulation_stays(tmp_path):
    paths = client_files(tmp_path, clients=2)
    code = (
        "import pathlib, sys, tempfile\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "from noisewise.remote.clients.flower import simulated\n"
        "if __name__ == '__main__':\n"
        "    with simulated([pathlib.Path(p) for p in sys.argv[2:]]) as carrier:\n"
        "        assert len(list(carrier.ask(b'', {0: b'', 1: b''}))) == 2\n"
    )
    short = Path(os.environ.get("TMPDIR", "/tmp")) / f"nw{os.getpid()}"  # sockets want a short path
    short.mkdir()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(short), *map(str, paths)], capture_output=True, text=True, timeout=LONG
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert not list(short.iterdir())
    finally:
        for left in sorted(short.rglob("*"), reverse=True):
            left.unlink() if left.is_file() else left.rmdir()
        short.rmdir()


SIMULATION = """
import os, pathlib, subprocess, sys
from noisewise.remote.clients.flower import simulated
if __name__ == "__main__":
    with simulated([pathlib.Path(path) for path in sys.argv[1:]]) as carrier:
        assert len(list(carrier.ask(b"", {0: b""}))) == 1  # now Ray runs
        import ray
        session = pathlib.Path(ray._private.worker._global_node.get_session_dir_path())
        shut = [place.stat().st_mode & 0o077 == 0 for place in session.parents if "noisewise-" in str(place)]
        join = f"import ray; ray.init({ray.get_runtime_context().gcs_address!r}, logging_level='CRITICAL')"
        others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
        joined = subprocess.run([sys.executable, "-c", join], env=others, capture_output=True).returncode == 0
        print(any(shut), joined)
"""


@pytest.mark.slow  # starts a simulation, and waits until Ray gives up on a stranger
def test_nobody_else_gets_into_a_simulation(tmp_path):
    """Ray opened its folder to all users, and its ports to the network; whoever joined ran code where rows were."""
    paths = client_files(tmp_path, clients=2)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", SIMULATION, *map(str, paths)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.stdout.split() == ["True", "False"], done.stderr
