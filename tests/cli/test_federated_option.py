"""``noisewise train CLIENTS/ --federated``: what is refused and how, dry runs, journals and ledgers; clients are of this process."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from crowds import Meddling, client_files
from desk import SCHEMA

from noisewise.evidence.runs import verify
from noisewise.remote.clients import flower
from noisewise.remote.clients.server import DirectCarrier

ASKED = ("train", "clients", "--schema", "schema.toml", "--epsilon", 4, "--delta", 1e-5, "--method", "dpsgd")
RECORD, CLIENT = ("--federated", "--unit", "record"), ("--federated", "--unit", "client")


@pytest.fixture
def crowd(tmp_path, monkeypatch):
    """Clients of this process in place of Flower's simulation; ``crowd.carrier`` makes them."""
    monkeypatch.chdir(tmp_path)
    client_files(tmp_path)

    class Simulation:
        carrier, started = DirectCarrier, 0

    @contextmanager
    def simulated(paths):
        Simulation.started += 1
        yield Simulation.carrier(paths)

    monkeypatch.setattr(flower, "simulated", simulated)
    monkeypatch.setattr(flower, "require_flower", lambda **_: None)
    return Simulation


def gone_after(questions):
    """Clients of which one stops to answer after so many questions."""
    return lambda paths: Meddling(paths, lambda carrier, client, body: [], after=questions)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--unit", "record"), "--unit is about clients; pass --federated, too"),
        (("--local-steps", 2), "--local-steps is about clients"),
        (("--federated",), "--unit is missing"),
        (("--federated", "--unit", "row"), "--unit is 'row'; pass record or client"),
        ((*RECORD, "--local-steps", 2), "local steps mix the rows of a client"),
        ((*CLIENT, "--availability", "independent"), "leave --availability out"),
        ((*RECORD, "--availability", "sometimes"), "--availability is 'sometimes'"),
        ((*CLIENT, "--local-steps", 0), "--local-steps is 0"),
        ((*CLIENT, "--local-rate", -1.0), "--local-rate is -1.0"),
        ((*RECORD, "--bounds-epsilon", 1), "bounds are bought where all rows are"),
        ((*RECORD, "--records", "ray"), "leave --records out"),
        (("s3://bucket/folder", *RECORD), "a client reads a file of its own"),
        ((*RECORD, "--cache", "."), "leave it out with --federated"),
        ((*RECORD, "--tune", "selection", "--candidates", "settings.toml"), "--tune searches where all rows are"),
        ((*RECORD, "--method", "output_perturbation"), "they stay with their clients; take one that asks for sums"),
        ((*CLIENT, "--method", "l2p", "--protector", "private"), "they stay with their clients; take one that asks"),
    ],
)
def test_what_does_not_go_with_clients_is_refused_in_one_line(options, words, crowd, shell):
    Path("settings.toml").write_text("[[candidate]]\nmax_grad_norm = 0.5\n")
    told = shell(*ASKED, *options, "--out", "run")
    assert told.code == 2 and words in told.err and told.err.count("\n") == 1
    assert not crowd.started and not list(Path().glob("run*"))


def test_persons_are_refused(crowd, shell):
    Path("schema.toml").write_text(
        SCHEMA.replace("format", 'unit = "id"\nrows_per_unit = 2\nformat') + '[columns.id]\nkind = "ignore"\n'
    )
    for path in Path("clients").iterdir():
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([f"{head},id", *(f"{row},{number}" for number, row in enumerate(rows))]) + "\n")
    told = shell(*ASKED[:-1], "descent", *RECORD, "--out", "run")
    assert told.code == 2 and "leave unit out of it" in told.err and not crowd.started


def test_without_flower_one_line_says_how_to_install_it(tmp_path, shell, monkeypatch):
    monkeypatch.chdir(tmp_path)
    client_files(tmp_path)
    monkeypatch.setattr(flower, "find_spec", lambda name: None)
    told = shell(*ASKED, *RECORD, "--out", "run")
    assert told.code == 2 and "pip install 'noisewise[flower]'" in told.err and told.err.count("\n") == 1
    assert not list(Path().glob("run*"))


def test_refusals_need_neither_torch_nor_flower():
    code = (
        "import sys\nsys.argv[1:] = ['train', 'x', '--epsilon', '1', '--delta', '1e-6', '--federated']\n"
        "from noisewise.faces.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    print(stop.code, *{'torch', 'flwr', 'ray', 'scipy', 'numpy'} & {*sys.modules})\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["2"] and "--unit is missing" in told.stderr


def test_a_dry_run_says_what_is_protected_and_asks_nobody(crowd, shell):
    told = shell(*ASKED, *CLIENT, "--dry-run")
    assert told.code == 0 and "the unit is one client, all its rows, federated, trusted server" in told.out.replace(
        "\n", " "
    )
    document = json.loads(shell(*ASKED, *RECORD, "--dry-run", "--json").out)
    assert (document["unit"], document["setting"]) == ("one record", "federated, trusted server") and not crowd.started


@pytest.mark.parametrize(
    "options", [RECORD, (*CLIENT, "--local-steps", 2, "--local-rate", 0.5)], ids=["record", "client"]
)
def test_a_run_verifies_and_shows_its_setting(options, crowd, shell):
    told = shell(*ASKED, *options, "--out", "run")
    assert told.code == 0, told.err
    assert "Setting: federated, trusted server" in told.out
    assert verify("run").holds and shell("verify", "run").code == 0
    assert shell("evaluate", "run", "public.csv", "--public-test").code == 0
    statement = json.loads(Path("run/statement.json").read_text())
    assert statement["federated"]["local_steps"] == (2 if "client" in options else 1)
    assert "federated" in Path("run/report.html").read_text()
    settings = json.loads(Path("run/run.json").read_text())
    settings["settings"]["federated"]["unit"] = "record" if "client" in options else "client"
    Path("run/run.json").write_text(json.dumps(settings))
    assert shell("verify", "run").code != 0


def test_a_file_that_does_not_fit_is_named_and_nothing_is_spent(crowd, shell):
    path = Path("clients/003.csv")
    path.write_text(path.read_text().replace("nurse", "SECRET"))
    for options in (RECORD, CLIENT):
        told = shell(*ASKED, *options, "--out", "run")
        assert told.code == 2 and "003.csv: does not fit the schema" in told.err and "SECRET" not in told.err + told.out
        assert told.err.count("\n") == 1 and not list(Path().glob("run*"))


@pytest.mark.parametrize("options", [RECORD, (*CLIENT, "--size-is-public")], ids=["record", "client"])
def test_a_run_that_was_stopped_goes_on(options, crowd, shell, monkeypatch):
    class Stopped(DirectCarrier):
        asked = 0

        def ask(self, history, questions):
            Stopped.asked += 1
            if Stopped.asked == 20:
                raise KeyboardInterrupt
            return super().ask(history, questions)

    crowd.carrier = Stopped
    told = shell(*ASKED, *options, "--out", "run")
    assert told.code == 130 and "--resume run` goes on" in told.err and not Path("run").exists()
    crowd.carrier = DirectCarrier
    told = shell("train", "--resume", "run")
    assert told.code == 0, told.err
    assert verify("run").holds and crowd.started == 2 and not list(Path().glob("run.*"))


def test_a_client_that_is_lost_stops_a_run_of_records_and_the_charge_stays(crowd, shell):
    crowd.carrier = gone_after(10)
    told = shell(*ASKED, *RECORD, "--out", "run")
    assert told.code == 2 and "fails whole" in told.err and "what was spent is written to run.spending.json" in told.err
    (entry,) = json.loads(Path("run.spending.json").read_text())["entries"]
    assert entry["state"] in ("failed", "reserved") and entry["reserved"]["cost"] > 0
    told = shell(*ASKED, *RECORD, "--availability", "independent", "--out", "other")
    assert told.code == 0 and verify("other").holds
    assert shell(*ASKED, *CLIENT, "--out", "third").code == 0


def test_an_account_pays_for_runs_of_its_unit(crowd, shell):
    assert shell("ledger", "init", "--ledger", "ledger.db").code == 0
    for name, unit in (("rows", "record"), ("people", "person")):
        options = ("--ledger", "ledger.db", "--epsilon", 9, "--delta", 1e-4, "--unit", unit)
        told = shell("ledger", "register", "--dataset", name, *options)
        assert told.code == 0, told.err
    paying = ("--ledger", "ledger.db", "--dataset")
    assert shell(*ASKED, *RECORD, *paying, "rows", "--out", "one").code == 0
    assert shell(*ASKED, *CLIENT, *paying, "people", "--out", "two").code == 0
    assert "each client is one person of the account" in Path("two/statement.txt").read_text()
    told = shell(*ASKED, *CLIENT, *paying, "rows", "--out", "three")
    assert told.code == 2 and "the two do not add up" in told.err and not Path("three").exists()


class Stopping(DirectCarrier):
    """Clients of a process that is stopped at its twentieth question; what was asked is counted."""

    asked, stops = 0, True

    def ask(self, history, questions):
        type(self).asked += 1
        if self.stops and self.asked == 20:
            raise KeyboardInterrupt
        return super().ask(history, questions)


@pytest.mark.parametrize("changed", [{"unit": "client"}, {"availability": "independent"}, None], ids=str)
def test_a_stopped_run_goes_on_with_the_unit_it_began_with(changed, crowd, shell, monkeypatch):
    """What was answered for records is not sold as an answer about clients."""
    monkeypatch.setattr(Stopping, "asked", 0)
    crowd.carrier = Stopping
    assert shell(*ASKED, *RECORD, "--size-is-public", "--out", "run").code == 130
    (place,) = Path().glob("run.*/settings.json")
    kept = json.loads(place.read_text())
    asked = kept["asked"] if "federated" in kept["asked"] else kept["settings"]
    asked["federated"] = None if changed is None else asked["federated"] | changed
    place.write_text(json.dumps(kept))
    monkeypatch.setattr(Stopping, "stops", False)
    told = shell("train", "--resume", "run")
    assert told.code == 2 and "its journal was changed" in told.err and not Path("run").exists()


def test_a_run_that_goes_on_asks_no_question_again(crowd, shell, monkeypatch):
    monkeypatch.setattr(Stopping, "asked", 0)
    crowd.carrier = Stopping
    plan = ("--size-is-public", "--seed", 1)
    assert shell(*ASKED, *RECORD, "--size-is-public", "--out", "run").code == 130
    before = Stopping.asked
    monkeypatch.setattr(Stopping, "stops", False)
    assert shell("train", "--resume", "run").code == 0
    both = Stopping.asked
    monkeypatch.setattr(Stopping, "asked", 0)
    assert shell(*ASKED, *RECORD, *plan, "--out", "whole").code == 0
    assert before == 20 and both <= Stopping.asked + 2, (before, both, Stopping.asked)  # rows are read twice


def test_a_run_does_not_list_the_clients_that_it_protects(crowd, shell):
    """`clients/*.csv` is what many write; the names, and how many there are, were in the folder of the run."""
    files = sorted(map(str, Path("clients").iterdir()))
    for options, named in ((CLIENT, False), (RECORD, True)):
        told = shell("train", *files, *ASKED[2:], *options, "--out", options[-1])
        assert told.code == 0, told.err
        written = {path.name: path.read_bytes() for path in Path(options[-1]).iterdir()}
        assert {b"003.csv" in content for content in written.values()} == ({True, False} if named else {False})
        assert (b"more file" in written["report.html"]) == named
        assert (json.loads(written["run.json"]).get("data") is not None) == named
    assert shell(*ASKED, *CLIENT, "--out", "run").code == 0
    assert json.loads(Path("run/run.json").read_text())["data"] == ["clients"]
