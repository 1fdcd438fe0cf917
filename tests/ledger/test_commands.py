"""The ledger from the shell: every command, its exit code, its JSON, and nothing of a password anywhere."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from desk import SCHEMA
from pg_server import ANALYST, WORD

import noisewise as nw
from noisewise.accounts.ledger import Ledger
from noisewise.accounts.ledger.verify import verified

TRAIN = ("train", "private.csv", "--schema", "schema.toml", "--delta", 1e-6)
PAID = ("--ledger", "ledger.db", "--dataset", "patients")
AMOUNTS = ("granted", "reserved", "spent", "left")


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch):
    monkeypatch.delenv("NOISEWISE_LEDGER", raising=False)


@pytest.fixture
def kept(desk, shell):
    """A desk with a ledger that has an account of patients."""
    assert shell("ledger", "init", "--ledger", "ledger.db").code == 0
    registered = ("--dataset", "patients", "--epsilon", 3, "--delta", 1e-5)
    assert shell("ledger", "register", "--ledger", "ledger.db", *registered).code == 0
    return desk


def shown(shell, *more):
    told = shell("ledger", "show", *(more or PAID), "--json")
    assert told.code == 0, told.err
    return json.loads(told.out)


def names():
    return {path.name for path in Path().iterdir()}


def test_init_register_and_show(desk, shell):
    told = shell("ledger", "init", "--ledger", "ledger.db")
    assert told.code == 0 and "ledger register" in told.out and stat.S_IMODE(Path("ledger.db").stat().st_mode) == 0o600
    assert shell("ledger", "init", "--ledger", "ledger.db").code == 2
    assert "no data set" in shell("ledger", "show", "--ledger", "ledger.db").out
    options = ("--epsilon", 2, "--delta", 1e-6, "--adjacency", "replace_one", "--unit", "person", "--currency", "zcdp")
    told = shell("ledger", "register", "--ledger", "ledger.db", "--dataset", "people", *options, "--json")
    assert told.code == 0 and json.loads(told.out)["unit"] == "person"
    document = shown(shell, "--ledger", "ledger.db")
    assert {*AMOUNTS, "currency", "epsilon", "delta", "adjacency", "unit", "fits"} <= set(document)
    assert (document["currency"], document["adjacency"], document["runs"]) == ("zcdp", "replace_one", 0)
    assert document["granted"] == document["left"] and document["spent"]["cost"] == document["reserved"]["cost"] == 0
    told = shell("ledger", "register", "--ledger", "ledger.db", "--dataset", "more", "--epsilon", 1, "--delta", 1e-6)
    assert [one["dataset"] for one in shown(shell, "--ledger", "ledger.db")["accounts"]] == ["more", "people"]
    for wrong in (("--epsilon", -1), ("--currency", "pld"), ("--unit", "family"), ("--delta-share", 2)):
        given = {"--epsilon": 1, "--delta": 1e-6, "--dataset": "others", wrong[0]: wrong[1]}
        told = shell("ledger", "register", "--ledger", "ledger.db", *(part for pair in given.items() for part in pair))
        assert told.code == 2 and told.err.count("\n") == 1


def test_train_pays_from_the_account_and_keeps_a_receipt(kept, shell):
    before = names()
    told = shell(*TRAIN, "--epsilon", 1, *PAID, "--out", "run")
    assert told.code == 0 and "part of the account 'patients'" in told.out and told.err == ""
    assert names() == before | {"run"}
    receipt = json.loads(Path("run/spending.json").read_text())
    (entry,) = receipt["entries"]
    assert receipt["dataset"] == "patients" and entry["number"] == 0 and entry["state"] == "spent"
    assert json.loads(Path("run/statement.json").read_text())["account"] == {
        "dataset": "patients", "epsilon": 3.0, "delta": 1e-5, "adjacency": "add_remove",
    }  # fmt: skip
    document = shown(shell)
    assert document["spent"]["cost"] == entry["spent"]["cost"] and document["entries"][0]["key"] == entry["key"]
    assert document["granted"]["cost"] == pytest.approx(document["spent"]["cost"] + document["left"]["cost"])
    told = shell("verify", "run", "--ledger", "ledger.db")
    assert told.code == 0 and told.out.splitlines()[1] == "yes: the account 'patients' has paid for it as run 0"


def test_a_run_that_does_not_fit_leaves_nothing_behind(kept, shell):
    before, then = names(), shown(shell)
    told = shell(*TRAIN, "--epsilon", 9, *PAID, "--out", "deep/run")
    assert told.code == 3 and told.out == "" and told.err.count("\n") == 1
    assert "has (2.88794, 1e-05) left" in told.err and "asks for (9, 1e-06)" in told.err and "would fit" in told.err
    fits = float(told.err.split("at most epsilon=")[1].split()[0])
    assert names() == before and shown(shell) == then
    assert shell(*TRAIN, "--epsilon", 9, *PAID, "--dry-run").code == 3
    assert shell(*TRAIN, "--epsilon", fits, *PAID, "--dry-run").code == 0 and shown(shell) == then
    assert shell(*TRAIN, "--epsilon", fits, *PAID, "--out", "run").code == 0
    assert shell(*TRAIN, "--epsilon", 0.5, *PAID, "--out", "more").code == 3


def test_bounds_are_not_bought_for_a_run_that_would_not_fit(kept, shell):
    text = "\n".join(line for line in SCHEMA.splitlines() if not line.startswith(("low", "high")))
    Path("open.toml").write_text(text)
    train = ("train", "private.csv", "--schema", "open.toml", "--delta", 1e-6, "--bounds-epsilon", 0.1, *PAID)
    told = shell(*train, "--epsilon", 4, "--out", "run")
    assert told.code == 3 and "bounds before it included; nothing was bought" in told.err
    assert shown(shell)["runs"] == 0
    told = shell(*train, "--epsilon", 1, "--out", "run")
    assert told.code == 0 and [one["what"] for one in shown(shell)["entries"]] == ["bounds", "training"]
    assert shell("verify", "run", "--ledger", "ledger.db").out.splitlines()[1].endswith("as runs 0, 1")


@pytest.mark.slow
def test_ten_runs_cost_less_than_ten_times_one(kept, shell):
    """Their epsilons add up to 9; all of them fit into 3."""
    for number in range(10):
        told = shell(*TRAIN, "--epsilon", 0.9, "--method", "descent", *PAID, "--out", f"run{number}")
        assert told.code == 0, told.err
    document = shown(shell)
    assert document["runs"] == 10 and sum(one["epsilon"] for one in document["entries"]) == pytest.approx(9)
    assert document["left"]["cost"] >= 0 and verified(Ledger("ledger.db")).holds
    assert shell("ledger", "verify", "--ledger", "ledger.db").code == 0


def test_journals_of_runs_show_why_they_took_less_than_they_claimed(kept, shell):
    for name in ("one", "two"):
        assert shell(*TRAIN, "--epsilon", 0.9, "--method", "descent", *PAID, "--out", name).code == 0
    check = ("ledger", "verify", "--ledger", "ledger.db")
    assert shell(*check, "--journal", "one", "--journal", "two").code == 0
    told = shell(*check, "--journal", "one")
    assert told.code == 1 and told.out.startswith("run 1 of the account 'patients' took less than it claimed, and its")
    lines = Path("two/journal.jsonl").read_bytes().splitlines(keepends=True)
    Path("two/journal.jsonl").write_bytes(b"".join([*lines[:2], *lines[4:]]))
    told = shell(*check, "--journal", "one", "--journal", "two")
    assert told.code == 2 and "was changed" in told.err and told.err.count("\n") == 1
    assert shell(*check, "--journal", "nowhere").code == 2


def test_a_simulation_takes_nothing(kept, shell):
    assert shell(*TRAIN, "--epsilon", 9, "--seed", 1, *PAID, "--out", "run").code == 0
    assert shown(shell)["runs"] == 0 and not Path("run/spending.json").exists()
    told = shell("verify", "run", "--ledger", "ledger.db")
    assert told.code == 1 and "no account of one has paid for it" in told.out
    told = shell(
        *TRAIN, "--epsilon", 1, "--seed", 1, "--ledger", "ledger.db", "--dataset", "pateints", "--out", "other"
    )
    assert told.code == 2 and "no account 'pateints'" in told.err


def test_a_search_pays_once(kept, shell):
    Path("settings.toml").write_text("[[candidate]]\nmax_grad_norm = 0.5\n[[candidate]]\nmax_grad_norm = 1.0\n")
    tune = ("--tune", "exponential", "--candidates", "settings.toml", "--method", "descent")
    assert shell(*TRAIN, "--epsilon", 1, *tune, *PAID, "--out", "run").code == 0
    assert [one["what"] for one in shown(shell)["entries"]] == ["tuning"]
    assert shell("verify", "run", "--ledger", "ledger.db").code == 0
    tune = ("--tune", "selection", *tune[2:])
    told = shell(*TRAIN, "--epsilon", 2, *tune, *PAID, "--out", "more")
    assert told.code == 3 and "counts as the (epsilon, delta) that it promises" in told.err


def test_evaluate_pays_from_the_account(kept, shell):
    assert shell(*TRAIN, "--epsilon", 1, *PAID, "--out", "run").code == 0
    told = shell("evaluate", "run", "private.csv", "--epsilon", 0.5, *PAID)
    assert told.code == 0 and "more from the account 'patients'" in told.out
    assert [one["what"] for one in shown(shell)["entries"]] == ["training", "evaluation"]
    told = shell("evaluate", "run", "private.csv", "--epsilon", 5, *PAID)
    assert told.code == 3 and "would fit" in told.err and shown(shell)["runs"] == 2
    assert not list(Path("run").glob("*.spending*"))
    told = shell("evaluate", "run", "public.csv", "--public-test", *PAID)
    assert told.code == 2 and "free" in told.err


def test_what_is_named_and_what_is_not(kept, shell, monkeypatch):
    for command in ((*TRAIN, "--epsilon", 1), ("plan",), ("evaluate", "run", "private.csv", "--epsilon", 1)):
        told = shell(*command, "--ledger", "ledger.db")
        assert told.code == 2 and "--dataset" in told.err and told.err.count("\n") == 1
    told = shell(*TRAIN, "--epsilon", 1, "--dataset", "patients")
    assert told.code == 2 and "no ledger is named" in told.err
    assert shell("ledger", "show").code == 2 and "NOISEWISE_LEDGER" in shell("ledger", "show").err
    monkeypatch.setenv("NOISEWISE_LEDGER", "ledger.db")
    told = shell(*TRAIN, "--epsilon", 1, "--out", "alone")
    assert told.code == 0 and told.err.count("no account pays for this") == 1
    assert shown(shell, "--dataset", "patients")["runs"] == 0
    assert json.loads(Path("alone/spending.json").read_text())["entries"][0]["state"] == "spent"
    told = shell(*TRAIN, "--epsilon", 1, "--seed", 1, "--out", "seeded")
    assert "no account" not in told.err
    assert shell(*TRAIN, "--epsilon", 1, "--dataset", "patients", "--out", "run").code == 0
    assert shown(shell, "--dataset", "patients")["runs"] == 1


def test_an_attack_on_private_rows_cannot_be_charged(kept, shell):
    told = shell("attack", "membership", "--run", "run", "--members", "private.csv", *PAID)
    assert told.code == 2 and "no account can pay for it" in told.err
    assert "--ledger" not in shell("attack", "membership", "--help").out


def test_plan_plans_from_what_is_left(kept, shell):
    plan = ("plan", "--size", 20000, "--features", 5, "--steps", 10, "--rates", "", "--candidates", 1)
    told = shell(*plan, *PAID, "--json")
    assert told.code == 0 and json.loads(told.out)["epsilon"] == 2.88794  # rounded down, so that it fits
    assert shell(*TRAIN, "--epsilon", 1.5, *PAID, "--out", "run").code == 0
    told = shell(*plan, *PAID, "--json")
    assert json.loads(told.out)["epsilon"] < 2.6 and json.loads(told.out)["delta"] == 1e-5
    assert json.loads(shell(*plan, *PAID, "--delta", 1e-6, "--json").out)["epsilon"] > json.loads(told.out)["epsilon"]
    told = shell(*plan, *PAID, "--epsilon", 2.9, "--delta", 1e-6)
    assert told.code == 3 and "would fit" in told.err
    assert shell(*plan, "--epsilon", 1).code == 2


def test_grant_makes_room(kept, shell):
    told = shell(*TRAIN, "--epsilon", 4, *PAID, "--out", "run")
    assert told.code == 3
    told = shell("ledger", "grant", *PAID, "--epsilon", 5)
    assert told.code == 0 and "has (5, 1e-05) now" in told.out and "before (3, 1e-05)" in told.out
    assert shell(*TRAIN, "--epsilon", 4, *PAID, "--out", "run").code == 0
    assert shell("ledger", "grant", *PAID, "--epsilon", 2).code == 2
    assert shell("ledger", "grant", *PAID).code == 2 and shell("ledger", "grant", "--ledger", "ledger.db").code == 2
    told = shell("ledger", "grant", "--ledger", "ledger.db", "--role", "analyst")
    assert told.code == 2 and "no roles" in told.err


def test_show_draws_the_account(kept, shell):
    assert shell(*TRAIN, "--epsilon", 1, *PAID, "--out", "run").code == 0
    Ledger("ledger.db").account("patients").part(
        nw.budget.Terms.adaptive("gdp"), nw.Budget(1.0, 1e-6), what="<b>killed"
    )
    told = shell("ledger", "show", *PAID, "--page", "account.html")
    assert told.code == 0 and all(f"{name} " in told.out for name in ("spent", "reserved", "left"))
    assert "█" in told.out and "▒" in told.out and "░" in told.out and "training" in told.out
    page = Path("account.html").read_text()
    assert "&lt;b&gt;killed" in page and "<b>killed" not in page
    assert "default-src &#x27;none&#x27;" in page and "http" not in page.replace("http-equiv", "")
    assert "Taken by runs" in page and "training" in page and "ledger.db" not in page


def test_history_and_export(kept, shell):
    assert shell(*TRAIN, "--epsilon", 1, *PAID, "--out", "run").code == 0
    rows = json.loads(shell("ledger", "history", *PAID, "--json").out)
    kinds = [row["kind"] for row in rows]
    assert (
        kinds[:2] == ["registered", "reserved"]
        and kinds[-1] == "settled"
        and rows[1]["body"]["terms"]["epsilon"] == 1.0
    )
    told = shell("ledger", "history", "--ledger", "ledger.db")
    assert told.code == 0 and len(told.out.splitlines()) == len(rows) + 1 and "the ledger was made" in told.out
    assert shell("ledger", "history", "--ledger", "ledger.db", "--dataset", "others").code == 2
    assert shell("ledger", "export", "--ledger", "ledger.db", "--out", "all.json").code == 0
    assert stat.S_IMODE(Path("all.json").stat().st_mode) == 0o600
    assert shell("ledger", "export", "--ledger", "ledger.db", "--out", "all.json").code == 2
    told = shell("ledger", "verify", "all.json", "--json")
    assert told.code == 0 and json.loads(told.out)["holds"] and json.loads(told.out)["runs"] == 1
    document = json.loads(Path("all.json").read_text())
    document["runs"][0]["spent"] -= 1
    Path("edited.json").write_text(json.dumps(document))
    told = shell("ledger", "verify", "edited.json")
    assert told.code == 1 and "is not what the history says" in told.out
    for content in ("[]", "{}", "{", '{"format": "noisewise-ledger/2"}'):
        Path("odd.json").write_text(content)
        assert shell("ledger", "verify", "odd.json").code == 2


def test_a_head_that_was_kept_elsewhere_finds_a_history_that_was_written_anew(kept, shell):
    assert shell("ledger", "export", "--ledger", "ledger.db", "--head-only", "--out", "head.json").code == 0
    assert shell("ledger", "verify", "--ledger", "ledger.db", "--head", "head.json").code == 0
    Path("ledger.db").unlink()
    for name in ("ledger.db-wal", "ledger.db-shm"):
        Path(name).unlink(missing_ok=True)
    assert shell("ledger", "init", "--ledger", "ledger.db").code == 0
    register = ("--dataset", "patients", "--epsilon", 30, "--delta", 1e-5)
    assert shell("ledger", "register", "--ledger", "ledger.db", *register).code == 0
    assert shell("ledger", "verify", "--ledger", "ledger.db").code == 0
    told = shell("ledger", "verify", "--ledger", "ledger.db", "--head", "head.json")
    assert told.code == 1 and "is not the one that was known" in told.out
    Path("odd.json").write_text("{}")
    assert shell("ledger", "verify", "--ledger", "ledger.db", "--head", "odd.json").code == 2


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "edit, says",
    [
        (lambda entry: entry.update(number=1), "no run 1"),
        (lambda entry: entry.update(number=-1), "no run -1"),
        (lambda entry: entry.update(key="0" * 32), "key of the receipt"),
        (lambda entry: entry["spent"].update(cost=0.0), "other terms, amounts or events"),
        (lambda entry: entry["spent"].update(events=[]), "other terms, amounts or events"),
        (lambda entry: entry["terms"].update(epsilon=0.5), "other terms, amounts or events"),
        (lambda entry: entry.pop("reserved"), "no receipt that can be read"),
    ],
)
def test_a_receipt_that_the_account_does_not_have(kept, shell, edit, says):
    assert shell(*TRAIN, "--epsilon", 1, "--method", "descent", *PAID, "--out", "run").code == 0
    path = Path("run/spending.json")
    receipt = json.loads(path.read_text())
    edit(receipt["entries"][0])
    path.write_text(json.dumps(receipt))
    told = shell("verify", "run", "--ledger", "ledger.db")
    assert told.code == 1 and says in told.out.splitlines()[1] and told.out.splitlines()[1].startswith("no: ")


def test_a_receipt_of_another_run(kept, shell):
    for name, epsilon in (("one", 0.5), ("two", 0.6)):
        assert shell(*TRAIN, "--epsilon", epsilon, "--method", "descent", *PAID, "--out", name).code == 0
    assert shell("verify", "one", *PAID).code == 0
    Path("one/spending.json").write_text(Path("two/spending.json").read_text())
    told = shell("verify", "one", *PAID, "--json")
    assert told.code == 1 and json.loads(told.out)["holds"] and not json.loads(told.out)["ledger"]["paid"]
    assert "is the training that the statement tells of" in json.loads(told.out)["ledger"]["says"]
    assert "not of 'others'" in shell("verify", "two", "--ledger", "ledger.db", "--dataset", "others").out
    receipt = json.loads(Path("two/spending.json").read_text())
    Path("two/spending.json").write_text(json.dumps({**receipt, "entries": []}))
    assert shell("verify", "two", *PAID).code == 1
    assert shell("verify", "two/statement.json", *PAID).code == 2


def test_another_version_is_refused(kept, shell):
    import sqlite3

    with sqlite3.connect("ledger.db") as connection:
        connection.execute("UPDATE noisewise_ledger SET version = 7")
    for command in (("ledger", "show"), ("ledger", "verify"), (*TRAIN, "--epsilon", 1, "--dataset", "patients")):
        told = shell(*command, "--ledger", "ledger.db")
        assert told.code == 2 and "version 7" in told.err and "use the noisewise that wrote it" in told.err


STOPPED = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from noisewise.faces.cli import main
from noisewise.accounts.journal.folder import Journal
whole = Journal.answered
count = iter(range(100))
def answered(self, *rest):
    whole(self, *rest)
    if next(count) == 3:
        import os, signal
        os.kill(os.getpid(), signal.SIG{how})
        import time
        time.sleep(5)
Journal.answered = answered
sys.argv = ["noisewise", *{arguments!r}]
main()
"""


def stopped(how, *arguments, **environment):
    script = STOPPED.format(tests=str(Path(__file__).parents[1]), how=how, arguments=[*map(str, arguments)])
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, **environment}
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["KILL", "INT"])
def test_a_stopped_run_goes_on_in_its_own_part_of_the_account(kept, shell, how):
    train = (*TRAIN, "--epsilon", 1, "--method", "descent", *PAID, "--out", "run")
    done = stopped(how, *train)
    assert done.returncode == (-signal.SIGKILL if how == "KILL" else 130)
    if how == "INT":
        assert "written to the account 'patients'" in done.stderr and "train --resume run" in done.stderr
    (left,) = shown(shell)["entries"]
    assert left["state"] == "reserved" and not Path("run").exists() and Path("run.journal").is_dir()
    assert shell("train", "--resume", "run", "--dataset", "patients").code == 2
    told = shell("train", "--resume", "run")
    assert told.code == 0, told.err
    (after,) = shown(shell)["entries"]
    assert after["state"] == "spent" and after["key"] == left["key"] and not Path("run.journal").exists()
    assert shell("verify", "run", *PAID).code == 0 and shell("ledger", "verify", "--ledger", "ledger.db").code == 0


@pytest.mark.slow  # the same on SQLite is above
def test_a_team_on_a_server_and_its_password(server, desk, shell, tmp_path, monkeypatch):
    """Everything a password could be written into is searched for it."""
    database = server.database()
    url, theirs = server.url(database), server.url(database, ANALYST)
    said = [shell("ledger", "init", "--ledger", url)]
    register = ("--dataset", "patients", "--epsilon", 3, "--delta", 1e-5)
    said.append(shell("ledger", "register", "--ledger", url, *register))
    said.append(shell("ledger", "grant", "--ledger", url, "--role", ANALYST))
    assert [one.code for one in said] == [0, 0, 0]
    monkeypatch.setenv("NOISEWISE_LEDGER", theirs)
    train = (*TRAIN, "--epsilon", 1, "--method", "descent", "--dataset", "patients")
    done = stopped("KILL", *train, "--out", "run")
    assert done.returncode == -signal.SIGKILL
    searched = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b'"patients"' in searched and WORD.encode() not in searched  # the journal names the account
    monkeypatch.delenv("NOISEWISE_LEDGER")
    refused = shell("train", "--resume", "run")
    assert refused.code == 2 and "pass --ledger URL again" in refused.err
    said += [refused, shell("train", "--resume", "run", "--ledger", theirs)]
    assert said[-1].code == 0, said[-1].err
    monkeypatch.setenv("NOISEWISE_LEDGER", theirs)
    more = [
        shell("evaluate", "run", "private.csv", "--epsilon", 0.3, "--dataset", "patients"),
        shell("ledger", "show", "--page", "account.html"),
        shell("ledger", "history"),
        shell("ledger", "export", "--out", "all.json"),
        shell("ledger", "verify"),
        shell("verify", "run", "--dataset", "patients"),
        shell("plan", "--dataset", "patients", "--size", 1000, "--features", 3),
    ]
    assert [one.code for one in more] == [0] * len(more), more
    wrong = [
        shell(*train, "--epsilon", 9, "--out", "large"),
        shell("ledger", "grant", "--dataset", "patients", "--epsilon", 5),  # not theirs to grant
        shell("ledger", "init", theirs),
        shell("ledger", "show", f"--leger={theirs}"),
        shell("ledger", "show", "--ledger", theirs.replace(WORD, f"{WORD}x")),
        shell("ledger", "show", "--ledger", f"mysql://u:{WORD}@h/db"),
    ]
    assert [one.code for one in wrong] == [3, 2, 2, 2, 2, 2], wrong
    told = "".join(one.out + one.err for one in (*said, *more, *wrong)) + done.stdout + done.stderr
    searched = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert WORD not in told and WORD.encode() not in searched


def test_a_ledger_that_does_not_answer(desk, shell):
    told = shell("ledger", "show", "--ledger", "postgresql://officer:pw@127.0.0.1:1/none")
    assert told.code == 2 and "does not answer" in told.err and told.err.count("\n") == 1 and "pw" not in told.err


def test_commands_without_a_ledger_do_not_import_the_database(desk):
    code = """
import sys
from noisewise.faces.cli import main
for arguments in (["--version"], ["train", "private.csv", "--epsilon", "-1", "--delta", "1e-6", "--dataset", "d"],
                  ["train", "private.csv", "--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6"], ["ledger", "--help"],
                  ["plan", "--epsilon", "1", "--delta", "1e-6", "--size", "1000"]):
    sys.argv = ["noisewise", *arguments]
    try:
        main()
    except SystemExit:
        pass
import noisewise
noisewise.spending(1.0, 1e-6)
print("sqlalchemy" in sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "False"
