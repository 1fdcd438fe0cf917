"""Private models of tables beside others: small generated tables, and peers that only note what they are given."""

from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise.tables.schema import Column, Schema
from noisewise_lab import tables_bench
from noisewise_lab.tables_bench import Asked, mean_ways, scored, summary, way
from noisewise_lab.tables_prepare import write_table
from noisewise_lab.tables_split import Split, coded, listed, split, widened

KEYS = {"table", "method", "epsilon", "accuracy", "roc_auc", "se", "cpu_s", "way"}
EVERYONE = "ebm,ebm-fast,diffprivlib,logistic,boosting"
FAKE = """
import json, os
from sklearn.linear_model import LinearRegression as Line, LogisticRegression as Logit


def rows_of(X):
    return list(zip(*X.values())) if isinstance(X, dict) else list(X)


def numbers_of(X):
    return [[float(str(cell).lstrip("v")) for cell in row] for row in rows_of(X)]


class Noted:
    def __init__(self, **settings):
        self.settings = settings

    def fit(self, X, y):
        print("libraries print what they like")
        note = [type(self).__name__, self.settings, [str(cell) for cell in rows_of(X)[0]]]
        with open(os.environ["NOTES"], "a") as file:
            file.write(json.dumps(note, default=list) + "\\n")
        self.model = (Line if self.line else Logit)().fit(numbers_of(X), y)
        self.classes_ = getattr(self.model, "classes_", None)
        return self

    def predict(self, X):
        return self.model.predict(numbers_of(X))

    def decision_function(self, X):
        return self.model.decision_function(numbers_of(X))


class {classifier}(Noted):
    line = False


class {regressor}(Noted):
    line = True
"""


def frames() -> dict[str, tuple[pd.DataFrame, Schema]]:
    rng = np.random.default_rng(0)
    n = 400
    age, debt = rng.uniform(0, 100, n), rng.normal(size=n)
    job = rng.choice(["clerk", "farmer", "?"], n)
    likes = np.where(age + 30 * (job == "farmer") + 10 * rng.normal(size=n) > 60, "yes", "no")
    people = pd.DataFrame({"age": age, "debt": debt, "job": job, "id": np.arange(n), "likes": likes})
    people.loc[:9, "age"] = np.nan
    features = (
        Column("age", "number", 0, 100),
        Column("debt", "number", -2, 2),
        Column("job", "category", categories=("clerk", "farmer")),
        Column("id", "ignore"),
    )
    houses = people.drop(columns=["likes", "id"]).assign(price=2 * debt + (job == "farmer"))
    three = people.drop(columns=["likes", "id"]).assign(kind=np.digitize(age, [30, 60]))
    no_id = features[:3]
    return {
        "people": (people, Schema((*features, Column("likes", "category", categories=("no", "yes"))), "likes")),
        "houses": (houses, Schema((*no_id, Column("price", "number", -4, 5)), "price")),
        "three": (three, Schema((*no_id, Column("kind", "category", categories=(0, 1, 2))), "kind")),
    }


@pytest.fixture
def folder(tmp_path):
    to = tmp_path / "tables"
    to.mkdir()
    for name, (frame, schema) in frames().items():
        write_table(frame, schema, to / name, "generated")
    return to


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """Packages that stand for the peers; the file in which they note what they were given."""
    root = tmp_path / "fakes"
    for package, module, classes in (
        ("interpret", "privacy", ("DPExplainableBoostingClassifier", "DPExplainableBoostingRegressor")),
        ("diffprivlib", "models", ("LogisticRegression", "LinearRegression")),
    ):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("__version__ = 'fake'\n")
        text = FAKE.replace("{classifier}", classes[0]).replace("{regressor}", classes[1])
        (root / package / f"{module}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes.jsonl"))
    return tmp_path / "notes.jsonl"


def asked(folder, *arguments):
    return CliRunner().invoke(app, ["bench", "tables", "--data", str(folder), "--out", f"{folder}-out", *arguments])


@pytest.mark.slow
def test_rows_of_every_method_with_the_way_to_boosting(folder, fakes):
    arguments = ["--tables", "people,houses", "--against", EVERYONE, "--epsilons", "1,4", "--seeds", "2", "--json"]
    told = asked(folder, *arguments)
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["rows"]
    assert all(set(row) >= KEYS for row in rows)
    private = {"noisewise", "descent", "ebm", "ebm-fast", "diffprivlib"}
    assert {(row["table"], row["method"], row["epsilon"]) for row in rows} == {
        (table, method, epsilon)
        for table in ("people", "houses")
        for method, epsilon in [("logistic", None), ("boosting", None), *((m, e) for m in private for e in (1, 4))]
    }
    by = {(row["table"], row["method"], row["epsilon"]): row for row in rows}
    for row in rows:
        assert row["cpu_s"] >= 0 and row["se"] >= 0 and row["refused"] is None
        if row["table"] == "people":
            assert 0.4 < row["accuracy"] <= 1 and row["roc_auc"] > 0.3 and row["r2"] is None
        else:
            assert row["rmse"] > 0 and row["r2"] <= 1 and row["accuracy"] is None and row["roc_auc"] is None
    assert {by["people", name, None]["seeds"] for name in ("logistic", "boosting")} == {1, 2}
    if by["people", "logistic", None]["way"] is not None:
        assert by["people", "logistic", None]["way"] == 0 and by["people", "boosting", None]["way"] == 1
    assert len(pd.read_csv(f"{folder}-out/tables.csv")) == len(rows)


@pytest.mark.slow
def test_peers_get_what_the_schema_declares_and_nothing_is_run_twice(folder, fakes):
    arguments = ["--against", "ebm,ebm-fast,diffprivlib", "--methods", "", "--epsilons", "1", "--seeds", "1"]
    first = asked(folder, *arguments, "--tables", "people,houses", "--json")
    assert first.exit_code == 0, first.output
    notes = [json.loads(line) for line in fakes.read_text().splitlines()]
    assert len(notes) == 6
    name, ebm, row = notes[0]
    assert name == "DPExplainableBoostingClassifier" and len(row) == 3 and row[2] in ("v-1", "v0", "v1")
    assert ebm["feature_types"] == ["continuous", "continuous", "nominal"] and ebm["composition"] == "gdp"
    assert ebm["privacy_bounds"] == {"n0": [0, 100], "n1": [-2, 2]} and ebm["delta"] == 1e-6
    assert "learning_rate" not in ebm and notes[1][1]["learning_rate"] == 0.1
    assert notes[2][0] == "LogisticRegression" and notes[2][1]["data_norm"] == 1 and notes[2][1]["epsilon"] == 1
    assert np.isclose(np.linalg.norm([float(cell) for cell in notes[2][2]]), 1)
    assert notes[3][1]["privacy_target_min"] == -4 and notes[3][1]["privacy_target_max"] == 5
    assert notes[5][1]["bounds_y"] == [-4, 5] and notes[5][1]["bounds_X"] == [[-1, -1, 0, 0], [1, 1, 1, 1]]

    again = asked(folder, *arguments, "--tables", "people,houses", "--json", "--peer-python", "ebm=/nowhere/python")
    assert json.loads(again.stdout) == json.loads(first.stdout), "finished rows need no peer"
    assert len(fakes.read_text().splitlines()) == 6


@pytest.mark.slow
def test_wider_bounds_reach_every_private_method_and_not_the_references(folder, fakes):
    arguments = ["--tables", "people", "--against", "ebm,logistic", "--methods", "descent", "--epsilons", "1"]
    told = asked(folder, *arguments, "--seeds", "1", "--widen", "10")
    assert told.exit_code == 0 and "people: means over seeds" in told.stdout
    assert json.loads(fakes.read_text())[1]["privacy_bounds"] == {"n0": [0, 1000], "n1": [-20, 20]}
    (line,) = (folder.parent / "tables-out" / "people.logistic.jsonl").read_text().splitlines()
    assert json.loads(line)["widen"] == 1
    assert widened(frames()["houses"][1], 10)["price"].high == 5, "the target keeps its bounds"


@pytest.mark.slow
def test_several_classes_and_what_a_peer_cannot_do(folder, fakes):
    arguments = ["--tables", "three", "--against", "ebm,diffprivlib,logistic,boosting", "--methods", "descent"]
    told = asked(folder, *arguments, "--epsilons", "1", "--seeds", "1", "--json")
    rows = {row["method"]: row for row in json.loads(told.stdout)["rows"]}
    assert rows["ebm"]["refused"] == "DP-EBM knows two classes only" and rows["ebm"]["roc_auc"] is None
    assert rows["boosting"]["roc_auc"] > 0.9 and rows["logistic"]["roc_auc"] > 0.7
    shown = asked(folder, *arguments, "--epsilons", "1", "--seeds", "1")
    assert "refused: three, ebm: DP-EBM knows two classes only" in shown.stderr


def test_a_missing_peer_is_one_line_that_says_how_to_install_it(folder, tmp_path, monkeypatch):
    (tmp_path / "broken" / "interpret").mkdir(parents=True)
    (tmp_path / "broken" / "interpret" / "__init__.py").write_text("raise ImportError('no such thing')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "broken"), os.environ.get("PYTHONPATH", "")]))
    arguments = ["--tables", "people,three", "--methods", "", "--against", "ebm,diffprivlib,logistic", "--json"]
    told = asked(folder, *arguments, "--peer-python", f"diffprivlib={tmp_path}/python")
    assert told.exit_code == 0, told.output
    assert {row["method"] for row in json.loads(told.stdout)["rows"]} == {"logistic"}
    lines = [line for line in told.stderr.splitlines() if "cannot be imported" in line]
    assert len(lines) == 2, "once for each peer"
    assert "(no such thing)" in lines[0] and "pip install interpret-core" in lines[0]
    assert "diffprivlib scikit-learn==1.5.2" in lines[1] and "--peer-python diffprivlib=" in lines[1]


def test_missing_cells_are_told_apart_from_values():
    frame, schema = frames()["people"]
    numbers, codes = coded(schema, frame)
    assert np.isnan(numbers[:10, 0]).all() and not np.isnan(numbers[10:]).any()
    assert np.array_equal(codes[:, 0] == -1, frame["job"] == "?")
    assert numbers[10:, 1].min() == -2, "clamped"
    filled = schema.with_column(Column("age", "number", 0, 100, missing=40))
    assert (coded(filled, frame)[0][:10, 0] == 40).all()


def test_a_split_is_fixed_by_its_seed(folder):
    (table,) = listed(folder, ["people"])
    one, same, other = split(table, seed=0), split(table, seed=0), split(table, seed=1)
    assert len(one.test) == 100 and len(one.train) == 300 and not set(one.test["id"]) & set(one.train["id"])
    assert one.test["id"].equals(same.test["id"]) and not one.test["id"].equals(other.test["id"])
    assert set(one.labels) == {"no", "yes"} and set(one.train_y) == {0, 1}


def test_scores_are_those_of_scikit_learn():
    empty, none = pd.DataFrame(), np.empty(0)
    three = Split(Schema(()), np.arange(3), empty, empty, none, np.array([0, 1, 2, 1]))
    perfect = scored(three, np.array([0, 1, 2, 0]), np.eye(3)[[0, 1, 2, 1]])
    assert perfect == {"accuracy": 0.75, "roc_auc": 1.0}
    schema = Schema((Column("x", "number", 0, 1), Column("y", "number", 0, 4)), "y")
    line = Split(schema, None, empty, empty, none, np.array([0.0, 4.0]))
    assert scored(line, np.array([0.0, 99.0]), none) == {"rmse": 0.0, "r2": 1.0}, "answers stay within the bounds"


def test_a_way_needs_a_gap(folder):
    assert (
        way(0.9, 0.8, 0.8) is None
        and way(0.9, 0.8, 0.9, 0.03) is None
        and way(None, 0.7, 0.8) is None
        and way(0.7, None, 0.8) is None
    )
    plan = Asked(listed(folder, ["people"]), ["descent"], ["logistic", "boosting"], [1.0])
    found = [("logistic", None, 0.7), ("boosting", None, 0.9), ("descent", 1.0, 0.75), ("descent", 1.0, 0.85)]
    results = [
        {"table": "people", "method": m, "epsilon": e, "roc_auc": auc, "accuracy": 0.5, "cpu_s": 1.0}
        for m, e, auc in found
    ]
    last = summary(results, plan)[-1]
    assert last["way"] == pytest.approx(0.5) and last["se"] == pytest.approx(0.05) and last["seeds"] == 2
    assert mean_ways([last])[0]["mean_way"] == pytest.approx(0.5)


def test_rows_of_other_source_do_not_count(folder, monkeypatch):
    plan = Asked(listed(folder), ["descent"], ["ebm"], [1.0])
    table = plan.tables[0]
    before = {name: tables_bench.cells(plan, table, name) for name in ("descent", "ebm")}
    monkeypatch.setattr(tables_bench, "source_digest", lambda: "another")
    assert tables_bench.cells(plan, table, "ebm") == before["ebm"]
    assert tables_bench.cells(plan, table, "descent") != before["descent"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--tables", "people,what"], "--tables has 'what'; there are houses, people, three"),
        (["--methods", "magic"], "--methods has 'magic'; pass some of noisewise, auto"),
        (["--against", "magic"], "--against has 'magic'; pass some of logistic, boosting"),
        (["--epsilons", "1,much"], "--epsilons has 'much'"),
        (["--epsilons", "1,-1"], "--epsilons has -1; pass positive numbers"),
        (["--widen", "0.5"], "--widen is 0.5; pass 1 or more"),
        (["--peer-python", "ebm"], "--peer-python is 'ebm'; pass NAME=PATH"),
    ],
)
def test_bad_input_is_one_line(folder, arguments, words):
    told = asked(folder, *arguments)
    assert isinstance(told.exception, ValueError) and words in str(told.exception)


def test_a_folder_without_tables_and_a_schema_with_gaps_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="tables-prepare"):
        listed(tmp_path)
    (folder / "people.toml").write_text('format = "noisewise-schema/1"\ntarget = "a"\n[columns.a]\nkind = "number"\n')
    with pytest.raises(ValueError, match="ignored"):
        listed(folder, ["people"])
