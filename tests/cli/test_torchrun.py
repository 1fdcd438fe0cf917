"""``noisewise train`` in several processes, as torchrun starts them: same bits, failures, restarts. Processes are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bucket_server import serving, with_key
from desk import SCHEMA, people
from ports import free_port

from noisewise.evidence.runs import verify

HERE = Path(__file__).parent
ASKED = ("train", "data", "--schema", "schema.toml", "--epsilon", "2", "--delta", "1e-6", "--method", "dpsgd")
LONG = 240  # seconds; far more than it takes
MORTAL = """
import os, signal, sys
from noisewise.remote.holder import Holder
asked, answered = Holder.reply, []
def reply(self, request):
    answered.extend([1] * (request.act == "total"))
    if len(answered) == 5 and os.environ["RANK"] == "1" and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    return asked(self, request)
Holder.reply = reply
from noisewise.faces.cli import main
main()
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A folder of two Parquet files in several row groups and a CSV, and its schema."""
    monkeypatch.chdir(tmp_path)
    rows, data = people(240), tmp_path / "data"
    data.mkdir()
    for number in range(2):
        part = pa.Table.from_pandas(rows[number * 80 : (number + 1) * 80], preserve_index=False)
        pq.write_table(part, data / f"{number}.parquet", row_group_size=30)
    rows[160:].to_csv(data / "2.csv", index=False)
    Path("schema.toml").write_text(SCHEMA)
    Path("mortal.py").write_text(MORTAL)
    return tmp_path


def environment(**also):
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "NOISEWISE_KERNELS": "reference",
        "NOISEWISE_RANK_TIMEOUT": "120",
        **also,
    }


def processes(count, *command):
    """Exit codes, outputs and errors of as many ranks, in their order."""
    port = str(free_port())
    started = [
        subprocess.Popen(
            [sys.executable, *command],
            env=environment(RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        told = [process.communicate(timeout=LONG) for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.returncode, *words) for process, words in zip(started, told, strict=True)]


def alike(one, other):
    """The same bits in two run folders; of the statements, all but the list of code, since ranks run more of it."""
    for name in ("model.safetensors", "trace.json"):
        assert Path(one, name).read_bytes() == Path(other, name).read_bytes()
    stated = [{**json.loads(Path(folder, "statement.json").read_text()), "code": None} for folder in (one, other)]
    assert stated[0] == stated[1]


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_give_the_bits_of_one(count, table, shell):
    assert shell(*ASKED, "--seed", "1", "--out", "one").code == 0
    first, *others = processes(count, "-m", "noisewise", *ASKED, "--seed", "1", "--out", "several")
    assert first[0] == 0 and "Written to several" in first[1]
    assert all(told == (0, "", "") for told in others)
    alike("one", "several")


def test_ranks_that_do_not_come_are_told_of(table, shell, monkeypatch):
    from noisewise.faces.cli import processes as ranks

    told = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for name, value in {**told, "NOISEWISE_RANK_TIMEOUT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ranks, "SECONDS_TO_MEET", 0.1)
    done = shell(*ASKED, "--out", "run")
    assert done.code != 0 and "waiting for the others of 2 ranks at 127.0.0.1:" in done.err
    assert "did not find each other" in done.err and not Path("run").exists()


@pytest.mark.slow  # tests/data/test_addresses.py reads pieces of a storage in one process
def test_ranks_read_their_pieces_from_a_storage(table, shell, monkeypatch):
    with_key(monkeypatch)
    assert shell(*ASKED, "--seed", "1", "--out", "one").code == 0
    with serving(table) as storage:
        address = storage.address("data")
        told = processes(2, "-m", "noisewise", "train", address, *ASKED[2:], "--seed", "1", "--out", "several")
    assert [rank[0] for rank in told] == [0, 0], told
    alike("one", "several")


# Ranks of one process leave such records out in tests/records/test_rank_records.py.
@pytest.mark.slow
def test_dates_and_records_without_a_label_are_the_same_in_several_processes(table, shell):
    for path in [*Path("data").glob("*.parquet")]:
        rows = pq.read_table(path).to_pandas()
        rows["born"] = pd.to_datetime("1950-01-01") + pd.to_timedelta(np.arange(len(rows)) * 100, "D")
        rows.loc[::6, "income"] = None
        pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), path, row_group_size=30)
    rows = pd.read_csv("data/2.csv")
    rows["born"], rows["age"] = "1990-02-03", rows["age"] + 0.5
    rows.loc[::5, "income"] = None
    rows.to_csv("data/2.csv", index=False, sep=";", decimal=",")
    born = '\n[columns.born]\nkind = "number"\nunit = "days"\nsince = 1950-01-01\nlow = 1940-01-01\nhigh = 2010-01-01\n'
    target = 'target = "income"\n'
    assert target in SCHEMA
    Path("schema.toml").write_text(SCHEMA.replace(target, f'{target}target_missing = "drop"\n') + born)
    asked = (*ASKED, "--separator", ";", "--decimal", ",", "--seed", "1")
    told = shell(*asked, "--out", "one")
    assert told.code == 0, told.err
    first, *others = processes(2, "-m", "noisewise", *asked, "--out", "several")
    assert first[0] == 0, first[2]
    assert all(told == (0, "", "") for told in others)
    alike("one", "several")


@pytest.mark.slow  # waits for torchrun to notice; tests/records has ranks that are lost in one process
def test_a_rank_that_is_killed_stops_all_and_what_was_spent_is_written(table):
    first, second = processes(2, "mortal.py", *ASKED, "--out", "run")
    assert first[0] == 2 and second[0] == -9
    assert "rank 1 is gone" in first[2] and "what was spent is written to run.spending.json" in first[2]
    assert "--resume run` goes on" in first[2]
    assert first[2].count("\n") == 2 and not Path("run").exists()
    (entry,) = json.loads(Path("run.spending.json").read_text())["entries"]
    assert entry["state"] == "reserved" and entry["reserved"]["cost"] == 2.0 and entry["claimed"] > 0
    for told in processes(2, "-m", "noisewise", "train", "--resume", "run"):  # rank 0 keeps the journal
        assert told[0] == 0, told[2]
    assert not list(Path().glob("run.*")) and verify("run").holds


def test_what_torchrun_starts_anew_spends_nothing(table, shell, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    told = shell(*ASKED, "--out", "run")
    assert told.code == 2 and "Nothing is spent again" in told.err and told.err.count("\n") == 1
    assert not list(Path().glob("run*"))
    assert shell(*ASKED, "--seed", "1", "--out", "run").code == 0  # a simulation may be repeated


def test_a_search_is_for_one_process(table, shell, monkeypatch):
    from noisewise.faces.cli import train

    Path("settings.toml").write_text("[[candidate]]\nmax_grad_norm = 0.5\n")
    monkeypatch.setattr(train, "lead", lambda: object())
    told = shell(*ASKED, "--tune", "selection", "--candidates", "settings.toml", "--out", "run")
    assert told.code == 2 and "--tune searches in one process" in told.err


@pytest.mark.slow  # the same line and the same holders are tested above, and in tests/data/test_pieces.py
def test_a_cell_that_is_refused_is_told_once_and_nothing_is_reserved(table):
    bad = people(20)
    bad["job"] = bad["job"].astype(object)
    bad.loc[3, "job"] = "SECRET"
    bad.to_csv("data/9.csv", index=False)
    first, *others = processes(3, "-m", "noisewise", *ASKED, "--out", "run")
    assert first[0] == 2 and first[2].count("\n") == 1 and "job" in first[2] and "SECRET" not in first[2]
    assert all(told == (0, "", "") for told in others) and not list(Path().glob("run*"))


@pytest.mark.slow  # restarts are tested above without torchrun
def test_torchrun_restarts_and_nothing_is_spent_twice(table):
    torchrun = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--max-restarts",
        "1",
        "--nproc-per-node",
        "3",
    )
    told = subprocess.run(
        [*torchrun, "mortal.py", *ASKED, "--out", "run"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert told.returncode != 0 and told.stderr.count("Nothing is spent again") == 1
    assert [path.name for path in Path().glob("run*.json")] == ["run.spending.json"]
    (entry,) = json.loads(Path("run.spending.json").read_text())["entries"]
    assert entry["state"] in ("failed", "reserved") and entry["reserved"]["cost"] == 2.0
