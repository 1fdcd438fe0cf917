"""``noisewise compare``: from public files to a table, comparison.json and a picture; nothing half-written."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from noisewise.evidence import runs
from noisewise.faces.cli import main as entry
from noisewise.faces.cli.compare import read_public
from noisewise.faces.cli.main import app
from noisewise.statements.seal import NEEDED

BUDGET = ["--epsilon", "2", "--delta", "1e-6", "--size", "1000"]
QUICK = [*BUDGET, "--methods", "descent,pnsgd", "--repeats", "2", "--jobs", "1"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    age, job = rng.integers(18, 90, 400), rng.choice(["clerk", "farmer", "smith"], 400)
    rich = np.where(age + 30 * (job == "smith") > 70, "yes", "no")
    return pd.DataFrame({"age": age, "job": job, "pay": 10.0 * age + rng.normal(size=400), "rich": rich})


@pytest.fixture
def public(frame, tmp_path):
    frame.drop(columns="pay").to_csv(tmp_path / "public.csv", index=False)
    return tmp_path / "public.csv"


def run(*arguments: object):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "80"})


def test_files_and_json(public, tmp_path):
    out = tmp_path / "new" / "folder"
    told = run(public, "--target", "rich", *QUICK, "--out", out, "--json")
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert document == json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in out.iterdir()) == ["comparison.json", "comparison.png"]
    assert [row["method"] for row in document["rows"]] == ["nonprivate", "descent", "pnsgd"]
    assert document["rows"][1]["mean"] > 0.8 and "replace_one" in document["rows"][2]["refused"]
    assert (document["size"], document["drawn_from"], document["public_rows"], document["test_rows"]) == (
        1000,
        288,
        32,
        80,
    )
    assert document["target"] == "rich" and document["files"] == ["public.csv"] and document["metric"] == "accuracy"


def test_a_table_for_people(public, tmp_path):
    quick = [*BUDGET, "--methods", "additive,descent,pnsgd", "--repeats", "2", "--jobs", "1"]
    told = run(public, "--target", "rich", *quick, "--out", tmp_path / "out")
    assert told.exit_code == 0, told.output
    assert "descent (recommended)" not in told.stdout  # auto does not choose it here
    assert max(map(len, told.stdout.splitlines())) <= 80 and "…" not in told.stdout
    words = " ".join(told.stdout.split())
    for text in ("nonprivate (no privacy)", "additive (recommended)", "pnsgd refused: ", "bootstrapped", "with replacement",
                 "seeded simulations", "taken as public", "An estimate"):  # fmt: skip
        assert text in words
    assert "comparison.json, comparison.png" in told.stderr


def test_two_repeats_have_no_error_and_three_have_one(public, tmp_path):
    quick = [public, "--target", "rich", *BUDGET, "--methods", "descent,only_public", "--jobs", "1", "--out", tmp_path]
    words, shown = {}, {}
    for repeats in (1, 2, 3):
        told = run(*quick, "--repeats", repeats)
        assert told.exit_code == 0, told.output
        words[repeats] = " ".join(told.stdout.split())
        rows = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))["rows"]
        shown[repeats] = [row["standard_error"] is not None for row in rows]
    assert "One training each: spread unknown." in words[1] and "Mean of 2 repeats: spread unknown." in words[2]
    assert "Mean of 3 repeats ± its standard error." in words[3] and "±" not in words[1] + words[2]
    assert not any(shown[1] + shown[2]) and all(shown[3]) and "± 0.00" not in words[3]
    assert all("worse by " in one and "by -" not in one for one in words.values())


def test_a_picture_goes_where_it_is_asked_for(public, tmp_path):
    told = run(public, "--target", "rich", *QUICK, "--out", tmp_path / "out", "--plot", tmp_path / "new" / "all.svg")
    assert told.exit_code == 0, told.output
    picture = (tmp_path / "new" / "all.svg").read_text(encoding="utf-8")
    assert "<svg" in picture and [file.name for file in (tmp_path / "out").iterdir()] == ["comparison.json"]
    assert "all.svg" in told.stderr


def test_what_auto_chooses_for_the_model_asked_for_is_recommended(public, tmp_path):
    quick = [*BUDGET, "--methods", "descent", "--repeats", "1", "--jobs", "1", "--out", tmp_path / "out"]
    for model, chosen in (("auto", "additive"), ("linear", "descent")):
        told = run(public, "--target", "rich", *quick, "--model", model, "--json")
        assert told.exit_code == 0 and json.loads(told.stdout)["recommended"] == chosen, told.output


def test_regression_from_several_parquet_files(frame, tmp_path):
    for number, part in enumerate((frame.iloc[:200], frame.iloc[200:])):
        part.to_parquet(tmp_path / f"{number}.parquet")
    told = run(
        tmp_path / "0.parquet", tmp_path / "1.parquet", "--target", "pay", *BUDGET, "--methods", "descent",
        "--repeats", "1", "--jobs", "1", "--adjacency", "replace_one", "--out", tmp_path / "out",
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    document = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert document["metric"] == "mean squared error" and document["better"] == "lower"
    assert document["rows"][0]["mean"] < document["constant"] == pytest.approx(frame["pay"].var(ddof=0))
    assert document["drawn_from"] + document["public_rows"] + document["test_rows"] == 400


def test_a_schema_declares_and_public_rows_fill_what_it_leaves_open(public, tmp_path):
    schema = tmp_path / "schema.toml"
    schema.write_text(
        'format = "noisewise-schema/1"\ntarget = "rich"\n[columns.age]\nkind = "number"\nlow = 0\nhigh = 120\n'
        '[columns.job]\nkind = "ignore"\n[columns.rich]\nkind = "category"\n',
        encoding="utf-8",
    )
    table = read_public([public], target=None, schema=schema)
    assert table.X.shape == (400, 1) and table.bounds.tolist() == [[0, 120]]
    assert table.task == "classification" and table.classes == [0, 1] and set(table.y) == {0, 1}


def test_categories_become_columns_with_their_own_bounds(public):
    table = read_public([public], target="rich", schema=None)
    assert table.X.shape == (400, 4) and table.bounds[1:].tolist() == [[0, 1]] * 3


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in NEEDED:
        (folder / name).write_text("{}", encoding="utf-8")
    runs.reseal(folder)
    return folder


def test_a_run_folder_gets_the_comparison_and_a_new_seal(public, tmp_path, run_folder):
    told = run(public, "--target", "rich", *QUICK, "--out", tmp_path / "out", "--run", run_folder)
    assert told.exit_code == 0, told.output
    assert (run_folder / "comparison.json").read_bytes() == (tmp_path / "out" / "comparison.json").read_bytes()
    assert "comparison.json" in json.loads((run_folder / "seal.json").read_text(encoding="utf-8"))["sha256"]
    runs.check_seal(run_folder)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_changed_run_folder_is_not_sealed_again(public, tmp_path, run_folder, monkeypatch, when):
    def change(*_, **__):
        (run_folder / "trace.json").write_text("[]", encoding="utf-8")
        return []

    if when == "before":
        change()
    else:
        monkeypatch.setattr("noisewise.faces.compare.compare", change)
    told = run(public, "--target", "rich", *QUICK, "--out", tmp_path / "out", "--run", run_folder)
    assert isinstance(told.exception, ValueError) and "trace.json was changed" in str(told.exception)
    assert not (run_folder / "comparison.json").exists()
    assert (tmp_path / "out").exists() is (when == "meanwhile")


def test_ctrl_c_leaves_nothing_behind(public, tmp_path, monkeypatch, capsys):
    def stopped(*_, **options):
        options["report"](1, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr("noisewise.faces.compare.compare", stopped)
    monkeypatch.setattr(sys, "argv", ["noisewise", "compare", str(public), "--target", "rich", *BUDGET,
                                      "--out", str(tmp_path / "out")])  # fmt: skip
    with pytest.raises(SystemExit) as exit_:
        entry()
    assert exit_.value.code == 130 and not (tmp_path / "out").exists() and capsys.readouterr().out == ""


def test_help_has_an_example():
    assert "Example: noisewise compare" in run("--help").output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["public.csv"], "--target is missing"),
        (["public.csv", "--target", "poor"], "poor"),
        (["none.csv", "--target", "rich"], "none.csv"),
        (["public.csv", "--target", "rich", "--schema", "none.toml"], "none.toml"),
        (["public.csv", "--target", "rich", "--methods", "magic"], "magic"),
        (["public.csv", "--target", "rich", "--methods", ","], "--methods is empty"),
        (["public.csv", "--target", "rich", "--run", "none"], "no such run folder"),
        (["public.csv", "--target", "rich", "--delta", "0.1"], "above 1/size"),
        (["public.csv", "--target", "rich", "--public-share", "2"], "public_share"),
        (["dates.csv", "--target", "rich"], "looks like dates"),
        (["few.csv", "--target", "rich"], "too few"),
        (["public.csv", "--target", "rich", "--plot", "all.txt"], "all.txt has no picture format that is known"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, public, frame, arguments, reason):
    few = frame.head(10).drop(columns="pay")
    few.to_csv(tmp_path / "few.csv", index=False)
    few.assign(born="2001-02-03").to_csv(tmp_path / "dates.csv", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["noisewise", "compare", *BUDGET, *arguments, "--out", "out"])
    with pytest.raises(SystemExit) as stopped:
        entry()
    told = capsys.readouterr()
    assert stopped.value.code == 2 and told.out == ""
    assert told.err.count("\n") == 1 and reason in told.err
    assert not (tmp_path / "out").exists()
