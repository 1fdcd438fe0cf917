"""``noisewise train``: from real files to a run folder, and what is written down when there is none."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from desk import SCHEMA, people

import noisewise
from noisewise import verify
from noisewise.accounts import Budget, meter_from
from noisewise.faces.cli import train as command
from noisewise.tables.schema import read_schema
from noisewise.trusted.events import from_dict

BUDGET = ("--epsilon", 2, "--delta", 1e-6)
FILES = {"run.json", "model.safetensors", "statement.json", "statement.txt", "trace.json", "seal.json", "report.html"}


def names(folder="."):
    return {path.name for path in Path(folder).iterdir()}


def document(run, name="run.json"):
    return json.loads((Path(run) / name).read_text())


def test_a_new_user_goes_from_a_file_to_a_report(desk, shell):
    """schema init, fill it in, train, predict, evaluate, report, verify: each as it is typed."""
    told = shell("schema", "init", "private.csv", "--target", "income", "--out", "mine.toml")
    assert told.code == 0 and "still to fill in" in told.out
    refused = shell("train", "private.csv", "--schema", "mine.toml", *BUDGET, "--out", "run")
    assert refused.code == 2 and "Three ways out" in refused.err and refused.err.count("\n") == 1
    Path("mine.toml").write_text(SCHEMA)
    before = names()
    told = shell("train", "private.csv", "--schema", "mine.toml", *BUDGET, "--out", "run")
    assert told.code == 0 and told.err == "" and "(epsilon, delta) = (2, 1e-06)" in told.out
    assert names() == before | {"run"} and names("run") == FILES | {"spending.json"}
    told = shell("predict", "run", "public.csv", "--out", "predicted.csv")
    assert told.code == 0 and told.out == "" and "200 predictions" in told.err
    predicted = pd.read_csv("predicted.csv")
    assert np.mean(predicted["predicted income"] == pd.read_csv("public.csv")["income"]) > 0.7
    told = shell("evaluate", "run", "public.csv", "--public-test")
    assert told.code == 0 and re.match(r"accuracy \d\d\.\d\d% .*public rows, free", told.out)
    assert shell("report", "run", "--out", "page.html").code == 0 and "evaluation.json" in names("run")
    told = shell("verify", "run")
    assert told.code == 0 and told.out.startswith("yes")


def test_standard_errors_of_coefficients_are_written(desk, shell):
    plain = ("--method", "descent")
    assert shell("train", "private.csv", "--schema", "schema.toml", *BUDGET, *plain, "--out", "run").code == 0
    rows = document("run")["coefficients"]
    assert [row["feature"] for row in rows] == [
        "age", "hours", "job=clerk", "job=farmer", "job=nurse", "(intercept)",
    ]  # fmt: skip
    assert all(0 < row["standard_error"] < 100 for row in rows)
    loaded = noisewise.load("run")
    assert loaded.coef_std_.tolist() == [[row["standard_error"] for row in rows][:-1]]


def test_public_rows_are_enough(desk, shell):
    told = shell(
        "train", "private.csv", "--target", "income", "--public", "public.csv", *BUDGET, "--out", "run", "--json"
    )
    assert told.code == 0 and told.err == ""
    statement = json.loads(told.out)["statement"]
    assert "bounds and categories, taken from public rows" in statement["assumed"]
    assert "200 public rows, disjoint from the private ones" in statement["assumed"]
    assert statement["preparation"] is None and verify(statement).holds and shell("verify", "run").code == 0
    saved = document("run")["preprocessing"]["schema"]["columns"]
    ages = pd.read_csv("public.csv")["age"]
    assert (saved[0]["low"], saved[0]["high"]) == (ages.min(), ages.max())


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_bounds_can_be_bought(desk, shell, adjacency):
    people(2000, 3)[["age", "hours", "income"]].to_csv("numbers.csv", index=False)
    told = shell(
        "train", "numbers.csv", "--target", "income", "--epsilon", 8, "--delta", 1e-6, "--bounds-epsilon", 6,
        "--adjacency", adjacency, "--method", "dpsgd", "--out", "run", "--json",
    )  # fmt: skip
    assert told.code == 0 and "the classes were taken from the labels" in told.err and told.err.count("\n") == 1
    statement = json.loads(told.out)["statement"]
    assert verify(statement).holds and (statement["promise"]["epsilon"], statement["promise"]["delta"]) == (8, 1e-6)
    assert statement["promise"]["adjacency"] == adjacency and shell("verify", "run").code == 0
    assert (statement["preparation"]["epsilon"], statement["preparation"]["delta"]) == (6, 1e-7)
    assert "bounds of 2 columns" in statement["preparation"]["what"]
    columns = {column["name"]: column for column in document("run")["preprocessing"]["schema"]["columns"]}
    assert columns["age"]["low"] < 25 and columns["age"]["high"] > 75  # once in a few thousand noise makes them wider
    assert document("run")["warnings"] and "taken from the labels" in document("run")["warnings"][0]


def test_a_missing_value_outside_of_bought_bounds_is_clamped_and_a_declared_end_stays(desk, shell):
    people(2000, 3)[["age", "hours", "income"]].to_csv("numbers.csv", index=False)
    schema = '[columns.age]\nkind = "number"\nmissing = 1e30\n[columns.hours]\nkind = "number"\nlow = -7\n'
    head, tail = SCHEMA.split("[columns.age]")[0], SCHEMA[SCHEMA.index("[columns.income]") :]
    Path("half.toml").write_text(head + schema + tail)
    options = (*BUDGET, "--bounds-epsilon", 1, "--method", "dpsgd", "--out", "run")
    assert shell("train", "numbers.csv", "--schema", "half.toml", *options).code == 0
    age, hours = document("run")["preprocessing"]["schema"]["columns"][:2]
    assert age["missing"] == age["high"] < 1e30 and hours["low"] == -7 < hours["high"]


def test_csv_and_parquet_several_files_and_a_folder_agree(desk, shell):
    table = pd.read_csv("private.csv")
    Path("parts").mkdir()
    table[:150].to_csv("parts/a.csv", index=False)
    table[150:].astype({"job": "category"}).to_parquet("parts/b.parquet")
    common = ("--schema", "schema.toml", *BUDGET, "--seed", 5, "--method", "dpsgd")
    for out, data in (("one", ["private.csv"]), ("two", ["parts/a.csv", "parts/b.parquet"]), ("all", ["parts"])):
        assert shell("train", *data, *common, "--out", out).code == 0
    models = [Path(run, "model.safetensors").read_bytes() for run in ("one", "two", "all")]
    assert models[0] == models[1] == models[2]


def test_a_separator_of_its_own(desk, shell):
    pd.read_csv("private.csv").to_csv("semi.csv", index=False, sep=";")
    common = ("--schema", "schema.toml", *BUDGET, "--seed", 5, "--method", "dpsgd")
    refused = shell("train", "semi.csv", *common, "--out", "run")
    assert refused.code == 2 and "--separator ';'" in refused.err
    assert shell("train", "semi.csv", *common, "--out", "run", "--separator", ";").code == 0
    assert shell("train", "private.csv", *common, "--out", "other").code == 0
    assert Path("run/model.safetensors").read_bytes() == Path("other/model.safetensors").read_bytes()
    told = shell("predict", "run", "semi.csv", "--separator", ";")
    assert told.code == 0 and told.out.count("\n") == 401


@pytest.mark.parametrize("kind", ["numbers", "three"])
def test_classes_of_every_kind(desk, shell, kind):
    table = people(600, 4)
    labels = (table["age"] > 50).astype(int) if kind == "numbers" else pd.cut(table["age"], [0, 40, 65, 99]).cat.codes
    names_ = labels if kind == "numbers" else labels.map({0: "young", 1: "mid", 2: "old"})
    table["income"] = names_
    table.to_csv("private.csv", index=False)
    table.to_csv("public.csv", index=False)
    classes = "[0, 1]" if kind == "numbers" else '["young", "mid", "old"]'
    Path("schema.toml").write_text(SCHEMA.replace('["low", "high"]', classes))
    budget = ("--epsilon", 20, "--delta", 1e-6)
    assert shell("train", "private.csv", "--schema", "schema.toml", *budget, "--out", "run", "--json").code == 0
    told = shell("predict", "run", "public.csv", "--json")
    predictions = json.loads(told.out)["predictions"]
    assert np.mean(np.array(predictions["predicted income"]) == table["income"].to_numpy()) > 0.7
    shares = [values for name, values in predictions.items() if name.startswith("probability of ")]
    assert len(shares) == len(set(names_)) and np.allclose(np.sum(shares, axis=0), 1)
    outputs = {row["output"] for row in document("run")["coefficients"]}
    assert outputs == ({"1"} if kind == "numbers" else {"young", "mid", "old"})  # of two classes, the one it speaks for


def test_a_regression_and_a_perceptron(desk, shell):
    schema = SCHEMA.replace('kind = "category"\ncategories = ["low", "high"]', 'kind = "number"\nlow = 0\nhigh = 200')
    Path("schema.toml").write_text(schema)
    table = people(600, 5)
    table["income"] = table["age"] + 0.3 * table["hours"]
    table.to_csv("private.csv", index=False)
    common = ("train", "private.csv", "--schema", "schema.toml", "--epsilon", 20, "--delta", 1e-6)
    assert shell(*common, "--out", "line").code == 0
    assert shell(*common, "--model", "mlp", "--method", "dpsgd", "--out", "mlp").code == 0
    assert shell(*common, "--model", "5,3", "--method", "dpsgd", "--out", "deep").code == 0
    predicted = json.loads(shell("predict", "line", "private.csv", "--json").out)["predictions"]["predicted income"]
    assert np.corrcoef(predicted, table["income"])[0, 1] > 0.8
    assert document("deep")["model"]["shape"][1:] == [5, 3, 1] and document("mlp")["coefficients"] is None
    refused = shell(*common, "--loss", "logistic", "--out", "no")
    assert refused.code == 2 and "is a number" in refused.err


def test_few_whole_numbers_in_public_rows_are_a_number_for_a_regression(desk, shell):
    for name in ("private.csv", "public.csv"):
        table = pd.read_csv(name)
        table["income"] = (table["age"] // 20).astype(int)
        table.to_csv(name, index=False)
    common = ("private.csv", "--target", "income", "--public", "public.csv", *BUDGET, "--method", "dpsgd")
    assert shell("train", *common, "--loss", "squared", "--out", "run").code == 0
    assert document("run")["estimator"] == "PrivateRegressor"
    assert shell("train", *common, "--out", "classes").code == 0
    assert document("classes")["classes"] == [0, 1, 2, 3, 4]


def test_a_seed_makes_a_simulation_and_nobody_is_fooled(desk, shell):
    common = ("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--method", "dpsgd", "--seed", 7)
    told = shell(*common, "--out", "run")
    assert told.code == 0 and "NOT PRIVATE" in told.out
    told = shell("verify", "run")
    assert told.code == 1 and told.out.startswith("no") and "simulation" in told.out
    assert "NOT PRIVATE: a seeded simulation" in Path("run/report.html").read_text()
    assert shell(*common, "--out", "again").code == 0
    assert Path("run/model.safetensors").read_bytes() == Path("again/model.safetensors").read_bytes()
    assert noisewise.load("run").random_state == 7


def test_without_a_seed_noise_never_comes_twice(desk, shell):
    common = ("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--method", "dpsgd")
    assert shell(*common, "--out", "a").code == shell(*common, "--out", "b").code == 0
    assert Path("a/model.safetensors").read_bytes() != Path("b/model.safetensors").read_bytes()


def test_a_dry_run_says_what_would_be_done_and_does_nothing(desk, shell):
    before = names()
    told = shell("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--dry-run", "--json", "--out", "run")
    plan = json.loads(told.out)
    assert told.code == 0 and plan["dry_run"] and plan["method"] == "additive" and plan["bounds_to_buy"] == []
    assert plan["why"].startswith("auto takes additive") and plan["notes"] == []
    assert plan["estimator"] == "PrivateClassifier" and plan["out"] == "run"
    people(50)[["age", "income"]].to_csv("few.csv", index=False)
    told = shell("train", "few.csv", "--target", "income", *BUDGET, "--bounds-epsilon", 0.5, "--dry-run")
    assert told.code == 0 and "Bounds of 1 columns would be bought with epsilon 0.5" in told.out
    assert "auto takes additive" in told.out and "(1.5, " in told.out  # what is left for training
    assert "Nothing was spent" in told.out and names() == before | {"few.csv"}


def test_ids_and_constants_of_public_rows_are_one_line_and_nothing_is_spent(desk, shell):
    table = people(60)
    table.assign(id=range(60)).to_csv("public.csv", index=False)
    table.assign(id=range(60)).to_csv("private.csv", index=False)
    common = ("train", "private.csv", "--public", "public.csv", *BUDGET, "--out", "run")
    before = names()
    told = shell(*common, "--target", "income")
    assert told.code == 2 and told.out == "" and told.err.count("\n") == 1 and names() == before
    assert "column 'id' looks like an id" in told.err and 'set kind = "ignore"' in told.err
    declared = Path("schema.toml").read_text() + '\n[columns.id]\nkind = "number"\nlow = 0\nhigh = 100\n'
    Path("with-id.toml").write_text(declared)
    told = shell(*common, "--schema", "with-id.toml", "--dry-run", "--json")
    assert told.code == 0 and "'id' looks like an id" in told.err and len(json.loads(told.out)["notes"]) == 1


def test_a_dry_run_knows_no_values(desk, shell):
    """Wholly different private values, of which some are not even numbers, and not a letter differs."""
    said = set()
    for rows in ("30,40,clerk,low\n", "1e308,-inf,nobody,?\n" * 700, "not,a,number,here\n2020-01-01,,,\n"):
        Path("private.csv").write_text("age,hours,job,income\n" + rows)
        for more in ([], ["--json"], ["--public", "public.csv"]):
            told = shell("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--dry-run", *more)
            assert told.code == 0
            said.add((tuple(more), told.out, told.err))
    assert len(said) == 3


def test_neighbours_print_the_same_but_for_time(desk, shell):
    """A plan and a seed: what is printed then depends on public facts alone, whatever one record holds."""
    table, said = pd.read_csv("private.csv", dtype=str), set()
    strange = [["1e308", "-1e308", "nurse", "high"], ["inf", "NaN", "", "low"], [" +17. ", "1e-320", " clerk", "high "],
               ["-0", "99999999999999999999999999", "?", "low"], ["TRUE", ".5e1", "farmer", "low"]]  # fmt: skip
    for number, record in enumerate(strange):
        table.iloc[123] = record
        table.to_csv("private.csv", index=False)
        options = ("--schema", "schema.toml", *BUDGET, "--seed", 1, "--method", "dpsgd", "--out", f"run{number}")
        told = shell("train", "private.csv", *options)
        assert told.code == 0, told.err
        said.add((re.sub(r"\(\d+\.\d s\)|run\d", "", told.out), told.err))
        assert document(f"run{number}")["warnings"] == []
    assert len(said) == 1 and next(iter(said))[1] == ""


def test_progress_is_made_of_public_facts(desk, shell, monkeypatch):
    """Steps, their number and the share of the budget do not depend on values."""
    heard = []
    monkeypatch.setattr(command, "_stepped", lambda self, *facts: heard[-1].append(facts))
    for seed in (1, 9):
        heard.append([])
        people(400, seed).to_csv("private.csv", index=False)
        options = ("--schema", "schema.toml", *BUDGET, "--method", "dpsgd", "--size-is-public", "--out", f"run{seed}")
        assert shell("train", "private.csv", *options).code == 0
    assert heard[0] == heard[1] and len(heard[0]) > 1 and heard[0][-1][2] <= 1


def test_warnings_of_libraries_are_neither_shown_nor_kept(desk, shell, monkeypatch):
    """They can depend on private values; only noisewise's own, which are about public facts, get through."""
    import warnings

    from noisewise.protect.learned.zoo import OutsideRange

    def loud(self, step, steps, spent):
        if step == 1:
            warnings.warn("invalid value encountered: SECRET", RuntimeWarning, stacklevel=1)
            warnings.warn("the number of unique classes is SECRET", UserWarning, stacklevel=1)
            warnings.warn("not trained for this", OutsideRange, stacklevel=1)

    monkeypatch.setattr(command, "_stepped", loud)
    told = shell("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--method", "dpsgd", "--out", "run")
    assert told.code == 0 and told.err == "noisewise: not trained for this\n"
    assert document("run")["warnings"] == ["not trained for this"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--method", "pnsgd"], "needs public rows"),
        (["--method", "sufficient_statistics", "--loss", "logistic"], "takes squared"),
        (["--method", "output_perturbation", "--max-grad-norm", 1], "no setting 'max_grad_norm'"),
        (["--method", "output_perturbation", "--model", "mlp"], "linear"),
        (["--max-grad-norm", -1], "max_grad_norm"),
        (["--adjacency", "replace_one", "--delta", 0.1], "above 1/size"),
        (["--size-is-public", "--delta", 0.1], "above 1/size"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_bounds_are_paid_for(desk, shell, monkeypatch, arguments, told):
    people(300)[["age", "hours", "income"]].to_csv("numbers.csv", index=False)
    monkeypatch.setattr("noisewise.tables.bought.Purchase.bounds", lambda *_, **__: pytest.fail("bounds were bought"))
    before = names()
    answer = shell(
        "train", "numbers.csv", "--target", "income", *BUDGET, "--bounds-epsilon", 1, *arguments, "--out", "run"
    )
    assert answer.code == 2 and told in answer.err and answer.err.count("\n") == 1 and names() == before


def test_private_rows_are_not_public_at_the_same_time(desk, shell):
    told = shell("train", "private.csv", "--target", "income", "--public", "./private.csv", *BUDGET, "--out", "run")
    assert told.code == 2 and "private data and --public at once" in told.err


def test_bounds_that_need_not_be_bought_are_not(desk, shell):
    told = shell("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--bounds-epsilon", 1, "--out", "run")
    assert told.code == 2 and "leave --bounds-epsilon out" in told.err


def test_odd_names_are_printed_as_they_are(desk, shell):
    """Square brackets are markup to the library that prints."""
    table = pd.read_csv("private.csv").rename(columns={"income": "[/bold] in[red]come"})
    table.to_csv("private.csv", index=False)
    Path("schema.toml").write_text(
        SCHEMA.replace('"income"', '"[/bold] in[red]come"').replace("columns.income", 'columns."[/bold] in[red]come"')
    )
    common = ("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--method", "dpsgd", "--out", "[/run]")
    assert "'[/bold] in[red]come'" in shell(*common, "--dry-run").out
    told = shell(*common)
    assert told.code == 0 and "Written to [/run]:" in told.out
    assert (
        shell("predict", "[/run]", "private.csv", "--out", "[/p].csv").err == "Written to [/p].csv: 400 predictions\n"
    )


def test_an_empty_folder_may_be_filled_and_stays_when_nothing_comes_of_it(desk, shell):
    Path("run").mkdir()
    options = ("--schema", "schema.toml", *BUDGET, "--method", "dpsgd", "--out", "run")
    assert shell("train", "private.csv", *options, "--dry-run").code == 0 and Path("run").is_dir()
    assert shell("train", "none.csv", *options).code == 2 and Path("run").is_dir()
    assert shell("train", "private.csv", *options).code == 0 and names("run") == FILES | {"spending.json"}


@pytest.mark.parametrize("bought", [False, True])
def test_ctrl_c_while_training_writes_down_what_was_spent(desk, shell, monkeypatch, bought):
    def stop(self, step, steps, spent):
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(command, "_stepped", stop)
    people(300)[["age", "hours", "income"]].to_csv("numbers.csv", index=False)
    how = (
        ["numbers.csv", "--target", "income", "--bounds-epsilon", 1]
        if bought
        else ["private.csv", "--schema", "schema.toml"]
    )
    before = names()
    told = shell("train", *how, *BUDGET, "--out", "run")
    assert told.code == 130 and told.out == "" and "what was spent is written to run.spending.json" in told.err
    assert "`noisewise train --resume run` goes on" in told.err and told.err.count("\n") == 1
    assert names() == before | {"run.spending.json", "run.journal"}
    document = json.loads(Path("run.spending.json").read_text())
    *earlier, training = document["entries"]
    assert document["terms"]["epsilon"] == 2 and training["state"] == "reserved" and paid(training)
    lines = Path("run.journal/journal.jsonl").read_text().splitlines()
    assert sum("answered" in line for line in lines) == 6  # size, basis, length, three gradients
    assert [entry["terms"]["what"] for entry in earlier] == ["bounds"] * bought
    assert sum(entry["reserved"]["cost"] for entry in document["entries"]) <= 2
    told = shell("train", *how, *BUDGET, "--out", "run")
    assert told.code == 2 and "holds a run that was stopped" in told.err and told.err.count("\n") == 1
    assert shell("train", *how, *BUDGET, "--out", "other").code == 130
    monkeypatch.setattr(command, "_stepped", lambda *_: None)
    assert shell("train", "--resume", "run").code == 0 and shell("verify", "run").code == 0
    assert names() == before | {"run", "other.journal", "other.spending.json"}


def paid(entry):
    """Whether the meter of an entry pays for what is written down, and all of it was reserved."""
    terms = entry["terms"]
    meter = meter_from(Budget(terms["epsilon"], terms["delta"], adjacency=terms["adjacency"]), terms["meter"])
    for event in (entry["spent"] or {"events": []})["events"]:
        meter.spend(from_dict(event))
    assert entry["reserved"] == {"cost": terms["epsilon"], "delta": terms["delta"]}
    return entry["spent"] is None or bool(meter.events)


def test_ctrl_c_between_the_histograms_and_while_reading(desk, shell, monkeypatch):
    people(300)[["age", "hours", "income"]].to_csv("numbers.csv", index=False)
    common = ("train", "numbers.csv", "--target", "income", *BUDGET, "--bounds-epsilon", 1)

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("noisewise.methods.preparation.bounds._outermost", stop)
        assert shell(*common, "--out", "one").code == 130
    with monkeypatch.context() as patched:
        patched.setattr("noisewise.tables.fit.build.read_rows", stop)
        assert shell(*common, "--out", "two").code == 130
    for name, events in (("one", 1), ("two", 2)):
        (entry,) = json.loads(Path(f"{name}.spending.json").read_text())["entries"]
        assert entry["terms"]["what"] == "bounds" and len(entry["spent"]["events"]) == events and paid(entry)
    assert not {"one", "two"} & names()


def test_an_error_after_paying_is_written_down_too(desk, shell, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "_write_report", full)
    before = names()
    told = shell("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--out", "deep/run")
    assert told.code == 2 and "No space left" in told.err and names() == before | {"deep"}
    assert names("deep") == {"run.spending.json", "run.journal"}
    (entry,) = json.loads(Path("deep/run.spending.json").read_text())["entries"]
    assert entry["state"] == "spent" and paid(entry)


def test_nothing_is_asked_when_spending_cannot_be_written_down(desk, shell, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("noisewise.accounts.spending_file.write_atomically", full)
    monkeypatch.setattr("noisewise.train.Curator", lambda *_, **__: pytest.fail("a record was touched"))
    before = names()
    told = shell("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--out", "deep/run")
    assert told.code == 2 and "No space left" in told.err and names() == before


def test_a_folder_says_what_its_run_spent_and_a_simulation_spends_nothing(desk, shell):
    common = ("train", "private.csv", "--schema", "schema.toml", *BUDGET)
    assert shell(*common, "--out", "run").code == 0 and shell(*common, "--seed", 1, "--out", "seeded").code == 0
    (entry,) = json.loads(Path("run/spending.json").read_text())["entries"]
    assert entry["state"] == "spent" and paid(entry) and entry["terms"]["epsilon"] == 2
    assert not Path("seeded/spending.json").exists() and not [name for name in names() if "spending" in name]


def test_stopping_a_simulation_or_before_any_question_writes_nothing(desk, shell, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_stepped", stop)
    before = names()
    common = ("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--out", "run")
    assert shell(*common, "--seed", 1).code == 130 and names() == before
    monkeypatch.setattr("noisewise.tables.fit.build.read_rows", stop)
    assert shell(*common).code == 130 and names() == before


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_real_process_stopped_by_a_real_signal(desk, how):
    """As a user would: the command runs, a signal comes from outside, and the shell sees 130; killed, all counts."""
    people(20_000).to_csv("many.csv", index=False)
    code = (
        "import sys, noisewise.faces.cli.train as t; from noisewise.faces.cli import main\n"
        "old = t._stepped\n"
        "def heard(self, step, *facts):\n"
        "    old(self, step, *facts)\n"
        "    step == 2 and print('training', flush=True)\n"
        "t._stepped = heard\n"
        "main()"
    )
    options = ["train", "many.csv", "--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6", "--model", "64,64"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *options, "--out", "run"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "training\n"
    process.send_signal(how)
    _, err = process.communicate(timeout=600)
    assert process.returncode == (130 if how is signal.SIGINT else -how) and "Traceback" not in err
    (entry,) = json.loads(Path("run.spending.json").read_text())["entries"]
    assert "run" not in names() and entry["state"] == "reserved" and entry["claimed"] > 0 and paid(entry)


def test_the_command_as_a_process_keeps_json_clean(desk):
    options = ["train", "private.csv", "--schema", "schema.toml", "--epsilon", "2", "--delta", "1e-6", "--out", "run"]
    done = subprocess.run(
        [sys.executable, "-c", "from noisewise.faces.cli import main; main()", *options, "--method", "dpsgd", "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stderr == "" and json.loads(done.stdout)["run"] == "run"


def test_loading_gives_what_the_command_predicts(desk, shell):
    assert shell("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--out", "run").code == 0
    told = shell("predict", "run", "public.csv")
    table = pd.read_csv("public.csv")
    loaded = noisewise.load("run")
    written = pd.read_csv(StringIO(told.out))
    assert loaded.predict(table).tolist() == written["predicted income"].tolist()
    assert np.allclose(
        loaded.predict_proba(table[["job", "hours", "age"]])[:, 0], written["probability of high"], atol=1e-5
    )
    assert loaded.schema == read_schema("schema.toml") and loaded.statement_.data == document("run", "statement.json")
