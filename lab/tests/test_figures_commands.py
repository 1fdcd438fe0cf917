"""``noisewise bench figure2|figure3|figure4``: files, JSON, resuming and refusals, on small generated data."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise_lab import figure3, figure4, hand_tuned

pytestmark = pytest.mark.filterwarnings("ignore::noisewise.protect.learned.zoo.OutsideRange")


@pytest.fixture
def tables(tmp_path):
    """A census table and its two public ones; no images."""
    rng = np.random.default_rng(0)
    for file, columns in (("ipums_br", 4), ("a9a", 6), ("bank_lee_kifer", 3)):
        X = rng.normal(size=(400, columns))
        frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(columns)]).assign(y=(X[:, 0] > 0).astype(int))
        frame.to_parquet(tmp_path / f"{file}.parquet")
    return tmp_path


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {}
    for part, many in (("train", 400), ("test", 200)):
        y = np.arange(many) % 10
        X = rng.integers(0, 100, (many, 4, 4)) + 12 * y[:, None, None]
        arrays |= {f"X_{part}": X.astype(np.uint8), f"y_{part}": y.astype(np.uint8)}
    np.savez(tmp_path / "mnist.npz", **arrays)
    return tmp_path


@pytest.fixture
def small(monkeypatch):
    """A small grid and short training."""
    monkeypatch.setattr(hand_tuned, "HORIZONS", (3, 4, 5))
    monkeypatch.setattr(hand_tuned, "CLIP_FACTORS", (1.0,))
    monkeypatch.setattr(figure4, "RANGES", {**figure4.RANGES, "horizon": (3, 4)})
    monkeypatch.setattr(figure3, "BASELINES", ("sgd_ma", "dynamic"))


def called(*arguments):
    return CliRunner().invoke(app, ["bench", *map(str, arguments), "--jobs", "1"])


def test_figure_2_writes_its_curves_and_says_what_the_loss_is(tables, tmp_path):
    out = tmp_path / "out"
    told = called("figure2", "--data", tables, "--repeats", "2", "--out", out)
    assert told.exit_code == 0, told.output
    assert "l2p" in told.stdout and "agd" in told.stdout
    assert "taking ipums-br" in told.stderr and "simulations" in told.stderr
    frame = pd.read_csv(out / "figure2.csv")
    ends = frame.groupby("method")["spent"].max()
    assert set(ends.index) == {"l2p", "agd"} and (ends <= 1 + 1e-9).all() and (ends > 0.9).all()
    assert (out / "figure2.png").stat().st_size > 10_000
    again = called("figure2", "--data", tables, "--repeats", "2", "--out", out, "--json")
    document = json.loads(again.stdout)
    assert document["summary"][0]["repeats"] == 2 and len(document["rows"]) == len(frame)
    assert len((out / "results.jsonl").read_text().splitlines()) == 4, "nothing was run again"


@pytest.mark.slow
def test_figure_3_runs_resumes_and_skips_what_is_not_there(tables, tmp_path, small):
    out = tmp_path / "out"
    arguments = ("figure3", "--data", tables, "--quick", "--out", out)
    told = called(*arguments, "--json")
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert "skipping mnist35:" in told.stderr and "mnist.npz is not there" in told.stderr
    methods = {row["method"] for row in document["rows"]}
    assert {"l2p", "zero_weight", "hand_tuned", "hand_sgd", "hand_adam", "descent", "nonprivate"} <= methods
    assert {row["epsilon"] for row in document["rows"]} == {0.05, 0.4, None}
    assert all(row["repeats"] == 0 and row["refused"] == 2 for row in document["rows"] if row["method"] == "sgd_ma")
    assert {gap["epsilon"] for gap in document["differences"]} == {0.05, 0.4, "<= 0.1"}
    assert sum(row["best"] for row in document["tuned"]) == 2, "one rule for each budget"
    assert (out / "figure3.png").stat().st_size > 10_000

    lines = (out / "results.jsonl").read_text(), (out / "tuning.jsonl").read_text()
    again = called(*arguments)
    assert again.exit_code == 0, again.output
    assert "refused" in again.stdout and "l2p minus" in again.stdout
    assert "no public start" in again.stderr and "moments accountant" in again.stderr
    assert lines == ((out / "results.jsonl").read_text(), (out / "tuning.jsonl").read_text())
    for file in ("figure3.csv", "differences.csv", "tuned.csv"):
        assert len(pd.read_csv(out / file)) > 0


def test_figure_4_draws_its_map(images, tmp_path, small):
    out = tmp_path / "out"
    told = called("figure4", "--data", images, "--quick", "--repeats", "1", "--out", out, "--json")
    assert told.exit_code == 0, told.output
    names = {row["trained_on"] for row in json.loads(told.stdout)["rows"]}
    assert names == {"0 vs 1", "1 vs 2", "4 vs 6", "rule", "zero_weight"}
    assert (out / "figure4.png").stat().st_size > 10_000 and len(pd.read_csv(out / "figure4.csv")) == 5
    assert len(list((out / "protectors").glob("*.safetensors"))) == 3
    again = called("figure4", "--data", images, "--quick", "--repeats", "1", "--out", out)
    assert again.exit_code == 0 and "zero_weight" in again.stdout and "written to" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("figure2",), r"neither ipums_us.parquet nor ipums_br.parquet"),
        (("figure3", "--tasks", "adult"), "--tasks has 'adult'; pass some of ipums-br"),
        (("figure3", "--quick"), "no task has its files"),
        (("figure4",), "mnist.npz is not there"),
    ],
)
def test_bad_input_is_one_clear_error(tmp_path, arguments, message):
    told = called(*arguments, "--data", tmp_path, "--out", tmp_path / "out")
    assert isinstance(told.exception, ValueError) and message in str(told.exception)


@pytest.mark.parametrize("command", ["figure2", "figure3", "figure4"])
def test_help_shows_an_example(command):
    told = CliRunner().invoke(app, ["bench", command, "--help"])
    assert told.exit_code == 0 and "Example:" in told.stdout
    assert called(command, "--data", "no-such-folder").exit_code == 2
