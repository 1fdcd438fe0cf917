"""``noisewise federated server`` and ``client`` as real processes: same bits, killed clients, refusals, and what is said."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from desk import SCHEMA, people
from networks import certificate_of, key_of
from ports import free_port

from noisewise.evidence.runs import verify

LONG = 200  # seconds; far more than it takes
ASKED = ("--schema", "schema.toml", "--epsilon", "2", "--delta", "1e-6", "--method", "dpsgd")
AGREED = ("--insecure", "--unit", "record")
MORTAL = """
import os, signal
from noisewise.remote.clients.client import Client
answer, totals = Client.answer, []
def mortal(self, history, question):
    totals.append(1)
    if len(totals) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(self, history, question)
Client.answer = mortal
from noisewise.faces.cli import main
main()
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A file for each of three clients, all of them in one folder, and their schema."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    rows, data = people(90), tmp_path / "data"
    data.mkdir()
    for number in range(3):
        rows[number * 30 : (number + 1) * 30].to_csv(data / f"{number}.csv", index=False)
    Path("schema.toml").write_text(SCHEMA)
    Path("mortal.py").write_text(MORTAL)
    return tmp_path


class Process:
    """A command in a process of its own; what it says goes to a file."""

    def __init__(self, *command, program=("-m", "noisewise")):
        self.said = Path(f"said-{time.monotonic_ns()}.txt")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NOISEWISE_KERNELS": "reference", "HOME": str(Path.cwd())}
        with self.said.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, *program, *map(str, command)], env=environment, stdout=file, stderr=file
            )

    @property
    def words(self):
        return self.said.read_text()

    def says(self, pattern):
        """Wait until it has said something."""
        end = time.monotonic() + LONG
        while (found := re.search(pattern, self.words)) is None:
            assert self.process.poll() is None and time.monotonic() < end, self.words
            time.sleep(0.05)
        return found

    def end(self):
        return self.process.wait(LONG)


@pytest.fixture
def start():
    """Starts processes, and leaves none behind."""
    started = []

    def one(*command, **how):
        started.append(Process(*command, **how))
        return started[-1]

    yield one
    for each in started:
        each.process.kill()
        each.process.wait()


def serve(start, *options, clients=3, unit="record", secure=("--insecure",)):
    """A server, and where it listens."""
    command = ("federated", "server", "--clients", clients, "--unit", unit, "--listen", "127.0.0.1:0")
    server = start(*command, *secure, *options)
    return server, server.says(r"listening at (\S+) for")[1]


def join(start, number, address, *options, unit="record", secure=("--insecure",), **how):
    own = (f"data/{number}.csv", "--unit", unit, "--server", address)
    client = start("federated", "client", *own, *secure, *options, **how)
    client.says("joined; waiting for questions")
    return client


def test_the_commands_train_over_the_network_of_this_machine(table, shell, monkeypatch, capsys):
    """Both commands in one process, which is quicker than starting several: the server in it, its client in a thread."""
    from noisewise.faces.cli.network import client

    where = f"127.0.0.1:{free_port()}"
    own = {
        "data": Path("data/0.csv"),
        "unit": "record",
        "server": where,
        "schema": Path("schema.toml"),
        "insecure": True,
    }
    own |= {"max_clip": 100.0, "max_questions": 1000, "least_size": 30.0}
    mine = threading.Thread(target=client, kwargs={**own, "certificate": None, "private_key": None, "patience": 60.0})
    mine.start()
    asked = ("--clients", 1, "--unit", "record", *ASKED[:-1], "descent", "--seed", 1)
    told = shell("federated", "server", *asked, "--listen", where, "--insecure", "--out", "run")
    mine.join(LONG)
    heard = told.err + capsys.readouterr().err
    assert told.code == 0 and "Setting: federated, trusted server" in told.out
    assert "what leaves this machine: how many rows 0.csv has" in heard and "the run is over" in heard
    assert shell("train", "data/0.csv", *ASKED[:-1], "descent", "--seed", 1, "--out", "one").code == 0
    assert Path("run/model.safetensors").read_bytes() == Path("one/model.safetensors").read_bytes()


@pytest.mark.slow  # the same in one process is tested above, and in tests/federated
def test_three_clients_give_the_bits_of_one_place(table, shell, start):
    assert shell("train", "data", *ASKED, "--seed", "1", "--out", "one").code == 0
    server, address = serve(start, *ASKED, "--seed", "1", "--out", "several")
    clients = [join(start, number, address) for number in range(3)]
    server.says("all clients are there")
    assert server.end() == 0, server.words
    assert [client.end() for client in clients] == [0, 0, 0]
    for name in ("model.safetensors", "trace.json"):
        assert Path("one", name).read_bytes() == Path("several", name).read_bytes()
    for client in clients:
        what, joined, over = client.words.splitlines()
        assert "sums over them in whole numbers" in what and "not encrypted" in what
        assert "joined" in joined and over == "noisewise: the run is over"
    assert not [path for path in table.iterdir() if path.name.startswith(".")]  # nothing is left at home


@pytest.mark.slow  # waits for the time that an answer has; a client that is late is tested in tests/federated
def test_unit_client_goes_on_without_a_client_that_was_killed(table, start):
    server, address = serve(start, *ASKED, "--timeout", "8", "--out", "run", unit="client")
    mortal = join(start, 0, address, unit="client", program=("mortal.py",))
    others = [join(start, number, address, unit="client") for number in (1, 2)]
    assert mortal.end() == -signal.SIGKILL
    assert server.end() == 0, server.words
    assert [other.end() for other in others] == [0, 0]
    statement = json.loads(Path("run/statement.json").read_text())
    assert verify("run").holds and statement["promise"]["unit"] == "one client, all its rows"


@pytest.mark.slow  # as above; a hostile client stops a run in tests/federated
def test_unit_record_stops_where_a_client_was_killed_and_goes_on_with_all_of_them(table, start):
    server, address = serve(start, *ASKED, "--timeout", "8", "--out", "run")
    mortal = join(start, 0, address, program=("mortal.py",))
    others = [join(start, number, address) for number in (1, 2)]
    assert mortal.end() == -signal.SIGKILL
    assert server.end() == 2 and "with unit record the question fails whole" in server.words
    assert "`noisewise federated server --resume run` goes on" in server.words
    assert [other.end() for other in others] == [1, 1]
    assert all("the server has stopped the run" in other.words for other in others)
    (entry,) = json.loads(Path("run.spending.json").read_text())["entries"]
    assert entry["state"] == "reserved" and entry["reserved"]["cost"] == 2.0
    refused = start("train", "--resume", "run")
    assert refused.end() == 2 and "go on with noisewise federated server --resume run" in refused.words
    server = start("federated", "server", "--resume", "run", "--listen", "127.0.0.1:0", "--insecure")
    address = server.says(r"listening at (\S+) for 3 clients")[1]
    clients = [join(start, number, address) for number in range(3)]
    assert server.end() == 0, server.words
    assert [client.end() for client in clients] == [0, 0, 0]
    assert verify("run").holds and not list(Path().glob("run.*"))


@pytest.mark.slow  # certificates and keys are tested in tests/federated
def test_a_client_with_a_key_that_was_killed_comes_back_and_nothing_is_lost(table, shell, start):
    certificate, key = certificate_of(table)
    Path("keys").write_text("\n".join(key_of(table / f"key{number}") for number in range(3)))
    assert shell("train", "data", *ASKED, "--seed", "1", "--out", "one").code == 0
    shown = ("--certificate", certificate, "--private-key", key, "--client-keys", "keys")
    server, address = serve(start, *ASKED, "--seed", "1", "--out", "several", secure=shown)

    def joined(number, **how):
        own = ("--certificate", certificate, "--private-key", f"key{number}")
        return join(start, number, address, secure=own, **how)

    clients = [joined(2), joined(1)]  # their order is that of their keys
    mortal = joined(0, program=("mortal.py",))
    assert "; encrypted" in mortal.words and mortal.end() == -signal.SIGKILL
    clients.append(joined(0))
    assert server.end() == 0, server.words
    assert [client.end() for client in clients] == [0, 0, 0]
    assert Path("one/model.safetensors").read_bytes() == Path("several/model.safetensors").read_bytes()


@pytest.mark.slow  # four processes; the words are tested in tests/federated
def test_a_client_stops_where_its_file_or_its_wishes_do_not_fit(table, start):
    rows = people(20)
    rows.loc[3, "job"] = "SECRET"
    rows.to_csv("data/bad.csv", index=False)
    server, address = serve(start, *ASKED, "--out", "run", clients=1)
    bad = join(start, "bad", address)
    assert bad.end() == 2 and "job" in bad.words and "SECRET" not in bad.words
    assert server.end() == 2 and "client 1: does not fit the schema" in server.words and "SECRET" not in server.words
    Path("other.toml").write_text(SCHEMA.replace("high = 90", "high = 91"))
    server, address = serve(start, *ASKED, "--out", "run", clients=1)
    mine = join(start, 0, address, "--schema", "other.toml")
    assert mine.end() == 2 and "the server's schema is not that of --schema" in mine.words
    assert server.end() == 2 and not list(Path().glob("run*"))
    server, address = serve(start, *ASKED, "--out", "run", clients=1)
    mine = join(start, 0, address, unit="client")
    assert mine.end() == 2 and "the server protects a record, and --unit is client" in mine.words
    assert server.end() == 2 and not list(Path().glob("run*"))


@pytest.mark.slow  # a process each
@pytest.mark.parametrize("which", ["server", "client"])
def test_ctrl_c_ends_both(which, table, start):
    server, address = serve(start, *ASKED, "--out", "run", clients=2)
    client = join(start, 0, address)
    stopped, left = (server, client) if which == "server" else (client, None)
    stopped.process.send_signal(signal.SIGINT)
    assert stopped.end() == 130
    if left is not None:
        assert left.end() == 1 and "the server has stopped the run" in left.words
        assert not list(Path().glob("run*"))
    else:  # another takes its place
        clients = [join(start, number, address) for number in (1, 2)]
        assert server.end() == 0 and [each.end() for each in clients] == [0, 0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--clients", 3), "Missing option '--unit'"),
        (("--clients", 3, "--unit", "record", *ASKED), "neither --certificate nor --insecure is given"),
        (("--clients", 3, "--unit", "rows", *ASKED, "--insecure"), "--unit is 'rows'"),
        (("--clients", 3, "--unit", "record", *ASKED, "--insecure", "--listen", "here"), "--listen is 'here'; pass host:port"),
        (("--clients", 3, "--unit", "record", *ASKED, "--insecure", "--timeout", "0"), "--timeout is 0.0"),
        (("--clients", 3, "--unit", "record", *ASKED, "--insecure", "--certificate", "a"), "leave one of them out"),
        (("--clients", 3, "--unit", "record", *ASKED, "--certificate", "a"), "a: no such file, or not with its private key; put both"),
        (("--clients", 3, "--unit", "record", *ASKED, "--insecure", "--client-keys", "a"), "prove nothing without encryption"),
        (("--clients", 3, "--unit", "record", *ASKED, "--insecure", "--private-key", "a"), "pass --certificate, too"),
        (("--resume", "run", "--insecure", "--epsilon", 1), "leave --epsilon out"),
        (("--resume", "run", "--insecure"), "no stopped run is there"),
    ],
)  # fmt: skip
def test_a_server_that_cannot_be_is_refused_in_one_line(options, words, table, shell):
    told = shell("federated", "server", *options)
    assert told.code == 2 and words in told.err and told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("data/0.csv", "--insecure"), "Missing option '--unit'"),
        (("data/9.csv", *AGREED), "data/9.csv"),
        (("data/0.csv", "--insecure", "--unit", "rows"), "--unit is 'rows'; pass record or client"),
        (("data/0.csv", *AGREED, "--max-clip", 0), "--max-clip is 0.0; pass a number above 0"),
        (("data/0.csv", *AGREED, "--max-questions", 0), "--max-questions is 0; pass a number from 1"),
        (("data/0.csv", *AGREED, "--least-size", -1), "--least-size is -1.0; pass a number of records"),
        (("data/0.csv", *AGREED, "--server", "there"), "--server is 'there'; pass host:port"),
        (("data/0.csv", *AGREED, "--certificate", "a"), "leave one of them out"),
        (("data/0.csv", *AGREED, "--private-key", "a"), "a key proves nothing without encryption"),
        (("data/0.csv", *AGREED, "--server", "127.0.0.1:9", "--patience", 0.1), "no server answers at 127.0.0.1:9"),
    ],
)  # fmt: skip
def test_a_client_that_cannot_be_is_refused_in_one_line(options, words, table, shell):
    told = shell("federated", "client", *options)
    lines = [line for line in told.err.splitlines() if "what leaves this machine" not in line]
    assert told.code == 2 and len(lines) == 1 and words in lines[0]
