"""``noisewise effects``: the table of effects, as text, CSV, Parquet and JSON."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

import noisewise

TRAINING = ("--schema", "schema.toml", "--epsilon", 2, "--delta", 1e-6, "--seed", 1)


@pytest.fixture
def additive(desk, shell):
    """A run folder of the default method, with a job that a spreadsheet would run."""
    schema = Path("schema.toml").read_text().replace('"clerk"', '"=1+1"')
    Path("schema.toml").write_text(schema)
    table = pd.read_csv("private.csv")
    table.assign(job=table.job.replace("clerk", "=1+1")).to_csv("private.csv", index=False)
    assert shell("train", "private.csv", *TRAINING, "--out", "table").code == 0
    return Path("table")


def test_every_way_says_the_same(additive, shell):
    before = {path.name: path.read_bytes() for path in additive.iterdir()}
    expected = noisewise.load(additive).effects_
    document = json.loads(shell("effects", additive, "--json").out)
    assert document["rows"] == len(expected) and document["written"] is None
    pd.testing.assert_frame_equal(pd.DataFrame(document["effects"]), expected)
    assert {pair["first"] for pair in document["pairs"]} <= {"age", "hours", "job"}
    plain = shell("effects", additive).out
    told = shell("effects", additive, "--out", "e.csv")
    assert told.code == 0 and told.out == "" and f"{len(expected)} values of 3 columns" in told.err
    assert Path("e.csv").read_text() == plain
    frame = pd.read_csv(StringIO(plain))
    assert list(frame) == ["feature", "value", "effect", "noise_low", "noise_high"]
    assert "'=1+1" in plain and "\n=1" not in plain and ",=1" not in plain
    assert json.loads(shell("effects", additive, "--out", "e.parquet", "--json").out)["effects"] is None
    kept = pd.read_parquet("e.parquet")
    assert "=1+1" in set(kept.value) and kept.effect.tolist() == expected.effect.tolist()
    assert {path.name: path.read_bytes() for path in additive.iterdir()} == before


def test_bad_input_is_one_line(additive, shell):
    Path("mine.csv").write_text("mine")
    for arguments, word in (
        (("--out", "mine.csv"), "--force"),
        (("--out", "mine.txt"), ".csv or .parquet"),
    ):
        told = shell("effects", additive, *arguments)
        assert told.code == 2 and word in told.err and told.err.count("\n") == 1 and told.out == ""
    assert Path("mine.csv").read_text() == "mine"
    assert shell("effects", additive, "--out", "mine.csv", "--force").code == 0
    assert shell("effects", "nowhere").code == 2


def test_a_linear_model_is_told_so(run, shell):
    told = shell("effects", run)
    assert told.code == 2 and "dpsgd" in told.err and told.err.count("\n") == 1


def test_help_has_an_example(shell):
    assert "noisewise effects run --out effects.csv" in " ".join(shell("effects", "--help").out.split())
