"""``--records ray``: real workers on a real Ray cluster of this machine; killed ones change no bit."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisewise import PrivateClassifier
from noisewise.faces.cli.processes import refuse_records
from noisewise.methods import method_named
from noisewise.remote.transport import RankLost
from noisewise.tables.fit.across_processes import elsewhere, lead_workers
from noisewise.tables.schema import read_schema

pytest.importorskip("ray", reason="ray is not installed: pip install 'noisewise[ray]'")
SCHEMA = """format = "noisewise-schema/1"
target = "y"
[columns.a]
kind = "number"
low = -1.0
high = 1.0
[columns.b]
kind = "number"
low = -1.0
high = 1.0
[columns.y]
kind = "category"
categories = ["no", "yes"]
"""
METHODS = {
    "poisson": method_named("dpsgd").with_settings(sampling=("poisson", 0.1), steps=30),
    "full": method_named("dpsgd").with_settings(steps=30),
    "l2p": "l2p",
    "additive": "additive",
    "walk": "output_perturbation",
}


pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",  # Ray leaves its own processes to the collector
    "ignore::ResourceWarning",
    "ignore:protector .* was not trained for this",
)


@pytest.fixture(autouse=True)
def collected():
    """What Ray leaves behind is collected here, where it may complain."""
    yield
    gc.collect()


@pytest.fixture
def people(tmp_path):
    """A folder of three Parquet files of several row groups, and its schema."""
    draw = np.random.default_rng(0)
    folder = tmp_path / "people"
    folder.mkdir()
    for number, rows in enumerate((700, 400, 900)):
        a, b = draw.uniform(-1, 1, (2, rows))
        y = np.where(a + b + draw.normal(0, 0.3, rows) > 0, "yes", "no")
        pq.write_table(pa.table({"a": a, "b": b, "y": y}), folder / f"{number}.parquet", row_group_size=150)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return folder


def estimator(people, method):
    schema = read_schema(people.parent / "schema.toml")
    return PrivateClassifier(epsilon=1.0, delta=1e-5, schema=schema, method=method, random_state=3)


def bits(fitted):
    stated = {**fitted.statement_.data, "code": None}  # workers run more of it
    return fitted.fitted_.theta.tobytes(), fitted.trace_, stated


def test_two_workers_give_the_bits_of_one_process(people):
    alone = estimator(people, METHODS["poisson"]).fit_files(people)
    assert bits(estimator(people, METHODS["poisson"]).fit_files(people, records="ray", ray_workers=2)) == bits(alone)
    import ray

    assert not ray.is_initialized()  # it ends with the fit, and the rows with it


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_any_number_of_workers_gives_the_bits_of_one_process(people, workers):
    with elsewhere("ray", workers) as lead:
        for method in METHODS.values():
            alone = estimator(people, method).fit_files(people)
            assert bits(estimator(people, method).fit_files(people, lead=lead)) == bits(alone)


def worker_processes():
    """The processes of this machine's workers."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and (place / "cmdline").read_bytes().startswith(b"ray::Worker"):
                found.append(int(place.name))
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["poisson", "full"])
def test_a_worker_killed_in_the_middle_of_random_questions_changes_no_bit(people, name):
    """Ten kills each, at random moments of questions that are being answered."""
    method = METHODS[name].with_settings(steps=400)
    alone, draw, kills = bits(estimator(people, method).fit_files(people)), random.Random(name), []
    with elsewhere("ray", 2) as lead:
        for seed in range(10):
            moment = 1.0 + 0.5 * draw.random() + 0.2 * seed % 1

            def kill(moment=moment, seed=seed):
                time.sleep(moment)
                while len(found := sorted(worker_processes())) < 2:  # the last one that was killed is being replaced
                    time.sleep(0.01)
                victim = found[seed % 2]
                os.kill(victim, signal.SIGKILL)
                kills.append(victim)

            killer = threading.Thread(target=kill)
            killer.start()
            assert bits(estimator(people, method).fit_files(people, lead=lead)) == alone
            killer.join()
    assert len(kills) == 10


def asked_once(lead, monkeypatch, before):
    """Let ``before`` happen once, right after the fifth question was sent to worker 1."""
    line, count = lead._line, []
    ask = line._ask

    def counted(place, request):
        ticket = ask(place, request)
        if request.act == "total" and place.rank == 1:
            count.append(request.number)
            if len(count) == 5:
                before(place)
        return ticket

    monkeypatch.setattr(line, "_ask", counted)
    return count


@pytest.mark.slow
def test_a_worker_that_cannot_read_its_piece_again_stops_the_run(people, monkeypatch):
    with elsewhere("ray", 2) as lead:

        def lose(place):
            other = pq.read_table(people / "0.parquet").slice(1)
            pq.write_table(other, people / "0.parquet", row_group_size=150)
            lead._line._cluster.end(place.worker)

        asked_once(lead, monkeypatch, lose)
        with pytest.raises(RankLost, match=r"changed|no longer"):
            estimator(people, METHODS["full"]).fit_files(people, lead=lead)


@pytest.mark.slow
def test_the_command_trains_resumes_and_evaluates_on_workers(people):
    def noisewise(*arguments):
        made = subprocess.run(
            [sys.executable, "-m", "noisewise", *arguments],
            cwd=people.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        return made.stdout + made.stderr

    asked = ["people", "--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-5", "--seed", "2"]
    noisewise("train", *asked, "--out", "one")
    said = noisewise("train", *asked, "--out", "two", "--records", "ray", "--ray-workers", "2")
    one, two = people.parent / "one", people.parent / "two"
    for name in ("model.safetensors", "trace.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    stated, again = (json.loads((run / "statement.json").read_text()) for run in (one, two))
    assert stated["code"]["dependencies"] == again["code"]["dependencies"]
    assert {**stated, "code": None} == {**again, "code": None}  # workers run more of it
    assert "2000" not in said and "2,000" not in said and "raylet" not in said
    scored = ["evaluate", "one", "people", "--epsilon", "1", "--delta", "1e-6", "--seed", "1"]
    assert noisewise(*scored) == noisewise(*scored, "--records", "ray", "--ray-workers", "2")


def test_where_records_cannot_lie_is_said_before_anything_is_read(monkeypatch):
    with pytest.raises(ValueError, match="--records is 'spark'; pass ray"):
        refuse_records("spark", None, None)
    with pytest.raises(ValueError, match="add --records ray"):
        refuse_records(None, 2, None)
    with pytest.raises(ValueError, match="records is 'spark'"), elsewhere("spark"):
        pass
    with pytest.raises(ValueError, match="pass at least 1"):
        lead_workers(0)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'noisewise\[ray\]'"):
        refuse_records("ray", None, None)


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_one_clear_line():
    with pytest.raises(ValueError, match=r"no Ray cluster at 127\.0\.0\.1:1 can be reached"):
        lead_workers(1, "127.0.0.1:1")
