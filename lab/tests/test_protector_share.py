"""``noisewise bench protector-share``: which runs there are, what is made of them, and what the command writes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise_lab import protector_share
from noisewise_lab.figure3 import ZeroWeight
from noisewise_lab.l2p_data import Problem, scaled_rows
from noisewise_lab.protector_share import ShareCell, method_at, plan, run_cell, summary


@pytest.fixture
def small(monkeypatch):
    """A small table instead of the files."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (900, 4))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    rows = Problem(scaled_rows("small", X[:600], y[:600]), scaled_rows("small", X[600:], y[600:]))
    monkeypatch.setattr(protector_share, "place_rows", lambda place, folder, repeat: rows)
    monkeypatch.setattr(protector_share, "is_there", lambda place, folder: None)


def test_the_protector_of_the_package_is_always_beside_it():
    cells = plan(["ipums-br"], [0.8], [0.0, 0.2], ["zero"], 2)
    assert [(cell.start, cell.share) for cell in cells[:3]] == [("zero", 0.0), ("zero", 0.2), ("auto", 0.0)]
    assert len(cells) == 6 and len(set(cells)) == 6
    assert len(plan(["ipums-br"], [0.8], [0.0, 0.2], ["zero", "auto"], 1)) == 4


def test_methods():
    zero, private, shipped = (
        method_at(ShareCell("mnist35-features", 0.8, start, share, 0, ""))
        for start, share in (("zero", 0.0), ("zero", 0.2), ("auto", 0.0))
    )
    assert isinstance(zero, ZeroWeight) and not zero.deflate
    assert private.trains and private.protector_share == 0.2 and not shipped.trains


def test_differences_are_paired():
    made = [
        {"place": "p", "epsilon": 0.8, "start": start, "share": share, "repeat": repeat, "accuracy": base + repeat / 10}
        for repeat in range(3)
        for start, share, base in (("zero", 0.0, 0.5), ("zero", 0.2, 0.52), ("auto", 0.0, 0.55))
    ]
    row = next(row for row in summary(made) if row["share"] == 0.2)
    assert row["over_zero"] == pytest.approx(0.02) and row["over_shipped"] == pytest.approx(-0.03)
    assert row["over_zero_se"] < 1e-9 < row["accuracy_se"]


def test_a_cell_says_what_meta_training_did(small, tmp_path):
    row = run_cell(ShareCell("ipums-br", 0.8, "zero", 0.2, 0, ""), tmp_path)
    assert 0 <= row["accuracy"] <= 1 and row["shards"] >= 2 and row["meta_steps"] == 1 and len(row["added"]) == 4


def test_the_command_writes_a_table_and_a_picture(small, tmp_path):
    settings = ["bench", "protector-share", "--data", str(tmp_path), "--quick", "--places", "ipums-br", "--jobs", "1"]
    done = CliRunner().invoke(app, [*settings, "--out", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert {(row["start"], row["share"]) for row in rows} == {("zero", 0.0), ("zero", 0.2), ("auto", 0.0)}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "results.jsonl", "protector_share.csv", "protector_share.png",
    }  # fmt: skip
    for wrong in (["--places", "mars"], ["--starts", "one"], ["--epsilons", "x"]):
        refused = CliRunner().invoke(app, [*settings, *wrong, "--out", str(tmp_path / "none")])
        assert refused.exit_code != 0 and wrong[0] in str(refused.exception)
