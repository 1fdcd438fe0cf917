"""What a stranger can do to records that workers hold: in their files, between the workers, and on the network around them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from desk import shell_of
from ranks import made_up
from workers import Here, held

import noisewise as nw
from noisewise.budget import Budget
from noisewise.budget.purse import Purse
from noisewise.data.files import find_files
from noisewise.data.refusal import Refusal
from noisewise.data.schema import read_schema
from noisewise.methods import method_named
from noisewise.remote.holder import Holder, Holding, Request
from noisewise.remote.processes import Lead
from noisewise.remote.transport import RankLost
from noisewise.remote.workers import Worker, WorkerLine
from noisewise.tables.fit.across_processes import _holder
from noisewise.train import Records, train
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear

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
[columns.who]
kind = "ignore"
"""
UNIT = SCHEMA.replace('target = "y"\n', 'target = "y"\nunit = "who"\nrows_per_unit = 1\n')
DROP = SCHEMA.replace('target = "y"\n', 'target = "y"\ntarget_missing = "drop"\n')
POISSON = method_named("dpsgd").with_settings(sampling=("poisson", 0.2), steps=20)


def written(folder, seed=0, rows=(70, 40, 90), persons=50):
    """A folder of Parquet files of several row groups, and a CSV beside them."""
    draw = np.random.default_rng(seed)
    folder.mkdir()
    for number, many in enumerate(rows):
        a, b = draw.uniform(-1, 1, (2, many)).round(3)
        y, who = np.where(a + b > 0, "yes", "no"), draw.integers(0, persons, many)
        table = pa.table({"a": a, "b": b, "y": y, "who": who})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=15)
    return folder


def classifier(schema=SCHEMA, method="descent", seed=3, **others):
    if isinstance(schema, str):
        schema = read_schema(schema)
    return nw.PrivateClassifier(epsilon=2.0, delta=1e-5, schema=schema, method=method, random_state=seed, **others)


@pytest.fixture
def schema_of(tmp_path):
    def read(text):
        (tmp_path / "schema.toml").write_text(text)
        return read_schema(tmp_path / "schema.toml")

    return read


def led(workers=2, fails=lambda number: None, cluster=Here):
    """Workers of this process that hold pieces of files."""
    there = cluster(_holder, workers, fails)
    return Lead(WorkerLine(there), _holder(), holds=False), there


def bits(fitted):
    stated = {**fitted.statement_.data, "code": None}  # workers run more of it
    return fitted.fitted_.theta.tobytes(), fitted.trace_, stated


# -- one lead, several fits ------------------------------------------------------------------------------------------


def test_one_account_does_not_pay_for_the_rows_of_another(tmp_path, schema_of):
    """Two folders of as many rows, read through one lead: the first fit would train on the rows of the second."""
    mine, theirs = written(tmp_path / "mine"), written(tmp_path / "theirs", seed=1)
    face, (lead, _) = classifier(schema_of(SCHEMA)), led()
    ready = face.ready_files(mine, lead=lead)
    other = face.ready_files(theirs, lead=lead)
    purse = Purse(Budget(2.0, 1e-5))
    with pytest.raises(RankLost, match="other rows were dealt since"):
        ready.run(purse=purse)
    alone = classifier(schema_of(SCHEMA)).fit_files(theirs)
    assert np.array_equal(other.run().theta, alone.fitted_.theta)  # whoever came last is served


def test_rows_are_not_mixed_after_a_read_that_failed(tmp_path, schema_of):
    """One worker reads the second folder, the other refuses it and keeps the rows of the first."""
    mine, broken = written(tmp_path / "mine", rows=(15, 15)), written(tmp_path / "broken", seed=1, rows=(15, 15))
    table = pq.read_table(broken / "1.parquet").set_column(2, "y", pa.array(["neither"] * 15))
    pq.write_table(table, broken / "1.parquet")
    face, (lead, _) = classifier(schema_of(SCHEMA)), led()
    ready = face.ready_files(mine, lead=lead)
    with pytest.raises(ValueError, match=r"1\.parquet|'y'") as refused:
        face.ready_files(broken, lead=lead)
    assert "neither" not in str(refused.value)
    with pytest.raises(RankLost, match="other rows were dealt since"):
        ready.run()
    again = classifier(schema_of(SCHEMA)).fit_files(mine, lead=lead)
    assert bits(again) == bits(classifier(schema_of(SCHEMA)).fit_files(mine))


def test_a_deal_that_was_overtaken_makes_no_rows(tmp_path):
    """Two threads at one lead: who dealt first and reads last would put its rows under the names of the other's."""
    X, y = made_up(60, 4)
    rows, _, lead, _ = held(X, y, 2)
    first = lead.deal(9)
    lead.deal(9)
    with pytest.raises(RankLost, match="other rows were dealt since"):
        lead.each("make", [("rows", numbers) for numbers in first], dealt=first)
    assert len(rows) == 60


# -- files -----------------------------------------------------------------------------------------------------------


def test_a_successor_of_a_worker_reads_the_same_rows_or_the_run_stops(tmp_path, schema_of):
    """Other cells in a file of the same size, whose time of change was put back: a later question would see other rows."""
    folder = tmp_path / "people"
    folder.mkdir()
    path = folder / "0.csv"
    path.write_text("a,b,y\n" + "0.25,0.25,yes\n-0.5,0.25,no\n" * 20)
    lost = []

    def fails(number):
        if number != 8:
            return None
        stamp, text = path.stat().st_mtime_ns, path.read_text()
        path.write_text(text.replace("0.25,0.25,yes", "0.75,0.75,yes"))
        os.utime(path, ns=(stamp, stamp))
        lost.append(number)
        return "dies"

    lead, _ = led(1, fails)
    with pytest.raises(RankLost, match="no longer what they were"):
        classifier(schema_of(SCHEMA), POISSON).fit_files(folder, lead=lead)
    assert lost


def exchanged(folder):
    """As many rows of as many bytes or not, all of one person."""
    path = folder / "0.parquet"
    table = pq.read_table(path)
    one = table.set_column(3, "who", pa.array(np.zeros(len(table), np.int64)))
    pq.write_table(one, path, row_group_size=15)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_person_does_not_count_more_often_when_files_are_exchanged_after_the_choice(
    tmp_path, schema_of, monkeypatch, workers
):
    """Rows that count are chosen in one pass and read in a later one: rows of one person in between would all count."""
    from noisewise.data.persons import PersonColumn

    folder, choose = written(tmp_path / "people"), PersonColumn.in_files

    def chosen(self, source, **how):
        mask = choose(self, source, **how)
        exchanged(folder)
        return mask

    monkeypatch.setattr(PersonColumn, "in_files", chosen)
    reading = {"lead": led(workers)[0]} if workers else {}
    with pytest.raises(Refusal, match=r"0\.parquet: has changed while it was read"):
        classifier(schema_of(UNIT)).fit_files(folder, **reading)


def test_nor_when_bounds_are_bought(tmp_path, schema_of, monkeypatch):
    from noisewise.data.persons import PersonColumn

    folder, choose = written(tmp_path / "people"), PersonColumn.in_files
    schema = schema_of(UNIT.replace("low = -1.0\nhigh = 1.0\n", "", 1))

    def chosen(self, source, **how):
        mask = choose(self, source, **how)
        exchanged(folder)
        return mask

    monkeypatch.setattr(PersonColumn, "in_files", chosen)
    face = nw.PrivateClassifier(epsilon=2.0, delta=1e-5, schema=schema, bounds="buy", bounds_epsilon=0.5)
    purse = Purse(Budget(2.0, 1e-5))
    with pytest.raises(Refusal, match=r"0\.parquet: has changed while it was read"):
        face.fit_files(folder, purse=purse)
    assert [entry.spent.cost > 0 for entry in purse.entries] == [True]  # what was asked stays charged


def test_nor_when_a_score_is_bought(tmp_path, schema_of, monkeypatch, capsys):
    from noisewise.data.persons import PersonColumn

    folder, choose, shell = written(tmp_path / "people"), PersonColumn.in_files, shell_of(monkeypatch, capsys)
    nw.save(classifier(schema_of(UNIT)).fit_files(folder), tmp_path / "run")

    def chosen(self, source, **how):
        mask = choose(self, source, **how)
        exchanged(folder)
        return mask

    monkeypatch.setattr(PersonColumn, "in_files", chosen)
    told = shell("evaluate", tmp_path / "run", folder, "--epsilon", 1, "--seed", 1)
    assert told.code and "0.parquet: has changed while it was read" in told.err


def test_nor_when_candidates_read_the_files_one_after_the_other(tmp_path, schema_of):
    folder, read = written(tmp_path / "people"), []

    class Face(nw.PrivateClassifier):
        def ready_files(self, paths, **how):
            if read:
                exchanged(folder)
            read.append(paths)
            return super().ready_files(paths, **how)

    face = Face(epsilon=2.0, delta=1e-5, schema=schema_of(UNIT), method="dpsgd", random_state=3)
    search = nw.PrivateSearchCV(face, [{"max_grad_norm": 1.0}, {"max_grad_norm": 0.5}], how="none")
    with pytest.raises(Refusal, match=r"0\.parquet: has changed while it was read"):
        search.fit_files(folder)


@pytest.mark.parametrize("name", ["local://{}", "fsspec+file://{}"])
def test_a_file_is_not_named_twice_by_another_address(tmp_path, name):
    """Its records would count twice; or be public under one name and private under the other."""
    path = written(tmp_path / "people") / "0.parquet"
    with pytest.raises(Refusal, match="has no file system for this address"):
        find_files([path, name.format(path)])


def test_a_key_behind_one_slash_too_many_is_not_shown():
    for address in ("s3:///AKIA1:hunt3r@bucket/people", "gs:///AKIA1%3Ahunt3r%40bucket/people"):
        with pytest.raises(Refusal, match="carries no credentials") as told:
            find_files(address)
        assert "hunt3r" not in str(told.value)


# -- between driver and workers --------------------------------------------------------------------------------------


class Crossed(Here):
    """An engine that mixes up, once, what it carries to two workers: each hears the question of the other."""

    def ask(self, worker, what, *said):
        if what == "meet":
            return super().ask(worker, what, *said)
        self.asked += 1
        self.sent.append(said)
        here = self.asked - 1
        place = {6: 7, 7: 6}.get(here, here)  # the first questions about rows drawn
        return lambda: self.answered(worker, *self.sent[place])

    def answered(self, worker, *said):
        try:
            return worker.answer(*said)
        except Exception:
            return self._dead()


def test_a_question_for_one_worker_is_read_by_no_other():
    """Worker 2 would add up the rows that were drawn of worker 1: a sum of every piece, of the right number, and wrong."""
    X, y = made_up(56, 4)

    def trained(rows, labels):
        run = train(
            POISSON, Records(rows, labels, None, 1.0), model=Linear(4, Logistic()), budget=Budget(4.0, 1e-5), seed=5
        )
        return run.theta

    rows, labels, _, there = held(X, y, 2, cluster=Crossed)
    assert np.array_equal(trained(rows, labels), trained(X, y))
    assert len(there.started) == 4  # both did not understand, and were replaced


def test_a_worker_takes_one_key():
    """Whoever finds the worker would give it a key of their own and ask for the rows."""
    X, y = made_up(14, 4)
    worker = Worker(lambda: Holder(holding=Holding((0,), (14,), X, y)))
    worker.meet(bytes(32))
    with pytest.raises(ValueError, match="has a key already"):
        worker.meet(bytes(32))


def test_what_a_library_warns_of_is_not_left_in_the_logs_of_a_worker():
    def made(number):
        warnings.warn(f"{number} rows overflow", RuntimeWarning, stacklevel=1)
        return Holding((0,), (0,), np.zeros((0, 4)), np.zeros(0))

    holder = Holder({"rows": made})
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert holder.reply(Request(1, "make", ("rows", 4177))).trouble is None
    assert not heard


def test_a_worker_without_pieces_that_fails_stops_the_run():
    """Replies are not compared with each other: those of arrays cannot be, and nothing would be broken."""
    rows, _, lead, there = held(*made_up(14, 4), 3)
    lead.everyone("counted", None)
    idle = there.started[2]
    idle._holder._counted = None
    lead._holder._counted = lambda classes: np.zeros(3, np.bool_)
    with pytest.raises(RankLost, match="rank 3 could not answer"):
        rows.counted(None)
    assert lead.broken


@pytest.mark.sample(1)
@pytest.mark.guard("workers choose nothing and drop nothing by themselves: a person counts as often as in one process")
@pytest.mark.parametrize("text", [UNIT, DROP], ids=["unit", "drop"])
@pytest.mark.parametrize("how", [None, "dies"])
def test_persons_and_records_without_a_label_count_as_in_one_process(tmp_path, schema_of, text, how):
    folder = written(tmp_path / "people")
    table = pq.read_table(folder / "1.parquet")
    if text is DROP:
        some = [None if number % 3 else label for number, label in enumerate(table["y"].to_pylist())]
        pq.write_table(table.set_column(2, "y", pa.array(some)), folder / "1.parquet", row_group_size=15)
    for method in (POISSON, "descent"):
        face = classifier(schema_of(text), method)
        alone = bits(face.fit_files(folder))
        for workers in (1, 2, 3, 5):
            lead, _ = led(workers, lambda number: how if number % 17 == 0 else None)
            assert bits(face.fit_files(folder, lead=lead)) == alone


@pytest.mark.guard("a question that is stopped is charged, and nothing is asked after it")
@pytest.mark.parametrize("moment", range(1, 20, 3))
def test_a_question_that_is_stopped_is_asked_no_more_and_stays_charged(tmp_path, schema_of, moment):
    """Ctrl-C while a lost worker is replaced, or while the others still answer."""

    class Stopped(Here):
        waits = 0

        def wait(self, ticket, seconds):
            self.waits += 1
            if self.waits == 30 + moment:
                raise KeyboardInterrupt
            return super().wait(ticket, seconds)

    folder, purse = written(tmp_path / "people"), Purse(Budget(2.0, 1e-5))
    lead, cluster = led(2, lambda number: "dies" if number in (14, 22, 26) else None, Stopped)
    with pytest.raises(KeyboardInterrupt):
        classifier(schema_of(SCHEMA), POISSON, seed=None).fit_files(folder, lead=lead, purse=purse)
    asked = cluster.asked
    assert lead.broken and [entry.spent.cost > 0 for entry in purse.entries] == [True]
    with pytest.raises(RankLost, match="not answered"):
        classifier(schema_of(SCHEMA), POISSON).fit_files(folder, lead=lead)
    assert cluster.asked == asked


# -- on Ray ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["local", "", "ray://head:10001", "os://x", "auto ", "user:word@head:6379", "head"])
def test_an_address_is_that_of_a_cluster_that_is_there(address):
    """Ray would start a cluster with dashboard and spilling for some of these, and import a module for others."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'noisewise[ray]'")
    from noisewise.faces.cli.processes import refuse_records

    with pytest.raises(ValueError, match="pass HOST:PORT, or auto"):
        refuse_records("ray", None, address)


STRANGER = """import ray, sys
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
print("in", ray.cluster_resources())
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_stranger_on_the_network_does_not_join_the_cluster():
    """Ray listens on every network that the machine has, and runs the code of whoever connects."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'noisewise[ray]'")
    from noisewise.tables.fit.across_processes import elsewhere

    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    with elsewhere("ray", 1) as lead:
        where = ray.get_runtime_context().gcs_address
        for more in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32}):
            tried = subprocess.run(
                [sys.executable, "-c", STRANGER, where], env=own | more, capture_output=True, text=True, check=False
            )
            assert tried.returncode and "in {" not in tried.stdout
        token = os.environ["RAY_AUTH_TOKEN"].encode()
        session = Path(ray._private.worker._global_node.get_session_dir_path())
        kept = [path for path in session.rglob("*") if path.is_file() and token in path.read_bytes()]
        assert not kept
        assert lead.everyone("forget", ()) == [None, None]
    gc.collect()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_no_other_cluster_takes_the_place_of_one_that_was_left():
    """Ray would start one by itself at the next call: with a dashboard, spilling, and open to strangers."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'noisewise[ray]'")
    from noisewise.tables.fit.across_processes import elsewhere

    with elsewhere("ray", 1) as lead:
        ray.shutdown()
        with pytest.raises(RankLost, match="was left"):
            lead.everyone("forget", ())
    assert not ray.is_initialized()
    gc.collect()
