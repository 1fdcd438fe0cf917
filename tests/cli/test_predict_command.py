"""``noisewise predict``: new rows in, one line each out."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import noisewise

OPTIONS = ("--schema", "schema.toml", "--epsilon", 2, "--delta", 1e-6, "--method", "dpsgd", "--seed", 1, "--out", "run")


def test_text_json_csv_and_parquet_say_the_same(run, shell):
    plain = pd.read_csv(StringIO(shell("predict", run, "public.csv").out))
    document = json.loads(shell("predict", run, "public.csv", "--json").out)
    assert document["rows"] == 200 and document["written"] is None
    assert list(document["predictions"]) == list(plain) == [
        "predicted income", "probability of high", "probability of low",
    ]  # fmt: skip
    for out in ("p.csv", "p.parquet"):
        told = shell("predict", run, "public.csv", "--out", out, "--json")
        assert json.loads(told.out) == {"rows": 200, "written": out, "predictions": None}
    frames = [pd.read_csv("p.csv"), pd.read_parquet("p.parquet"), pd.DataFrame(document["predictions"])]
    for frame in frames:
        pd.testing.assert_frame_equal(frame, plain, check_dtype=False)
    assert oct(Path("p.csv").stat().st_mode & 0o777) == oct(Path("public.csv").stat().st_mode & 0o777)


def test_rows_without_target_with_other_columns_and_gaps(run, shell):
    table = pd.read_csv("public.csv")
    new = table.drop(columns="income").assign(name="Eve", hours=np.nan)[["name", "job", "hours", "age"]]
    new.to_csv("new.csv", index=False)
    written = pd.read_csv(StringIO(shell("predict", run, "new.csv").out))
    expected = noisewise.load(run).predict(table.assign(hours=40.0))
    assert written["predicted income"].tolist() == expected.tolist()


def test_several_files_keep_their_order(run, shell):
    table = pd.read_csv("public.csv")
    table[:50].to_csv("a.csv", index=False)
    table[50:].to_parquet("b.parquet")
    assert shell("predict", run, "a.csv", "b.parquet").out == shell("predict", run, "public.csv").out


def test_predicting_spends_nothing_and_changes_nothing(run, shell):
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert shell("predict", run, "public.csv", "--out", "p.csv").code == 0
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_files_are_not_written_over_unasked(run, shell):
    Path("p.csv").write_text("mine")
    told = shell("predict", run, "public.csv", "--out", "p.csv")
    assert told.code == 2 and "--force" in told.err and Path("p.csv").read_text() == "mine"
    assert shell("predict", run, "public.csv", "--out", "p.csv", "--force").code == 0
    assert Path("p.csv").read_text().startswith("predicted income")


@pytest.mark.parametrize(
    ("out", "told"),
    [("p.txt", ".csv or .parquet"), ("none/p.csv", "cannot be written"), ("public.csv/p.csv", "cannot be")],
)
def test_an_out_that_cannot_be(run, shell, out, told):
    before = sorted(Path().rglob("*"))
    answer = shell("predict", run, "public.csv", "--out", out)
    assert (
        answer.code == 2 and told in answer.err and answer.err.count("\n") == 1 and sorted(Path().rglob("*")) == before
    )


def test_hinge_has_no_probabilities(desk, shell):
    assert shell("train", "private.csv", *OPTIONS, "--loss", "huber_hinge").code == 0
    assert shell("predict", "run", "public.csv").out.splitlines()[0] == "predicted income"


def test_a_model_of_arrays_is_used_in_python(desk, shell):
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    fitted = noisewise.PrivateClassifier(2.0, 1e-6, bounds=(-1, 1), random_state=0, method="dpsgd").fit(X, X[:, 0] > 0)
    noisewise.save(fitted, "arrays")
    told = shell("predict", "arrays", "public.csv")
    assert told.code == 2 and "noisewise.load('arrays')" in told.err
    assert noisewise.load("arrays").predict(X).tolist() == fitted.predict(X).tolist()


@pytest.mark.parametrize("command", ["train", "predict", "evaluate"])
def test_help_shows_an_example(shell, command):
    assert "Example: noisewise" in shell(command, "--help").out
