"""``noisewise bench transfer``, ``ablation`` and ``protector``: tables, files and JSON; nothing here is trained or timed."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise_lab import ablation, protector_speed, transfer

SCORES = {"error": 0.2, "loss": 0.5, "repeats": 2, "over_momentum": 0.1, "over_momentum_error": 0.1}


@pytest.fixture
def asked(monkeypatch):
    """What the commands asked for, and made-up results."""
    calls = []

    def run_transfer(folder, **settings):
        calls.append(settings)
        settings["report"]("training"), settings["report"]((1, 2))
        settings["out"].mkdir(parents=True, exist_ok=True)
        rows = [
            {"study": cell.study, "target": cell.target, "epsilon": cell.epsilon, "horizon": cell.horizon,
             "protector": cell.protector, "score": 90.0, **SCORES,
             "over_zero": float(cell.protector == "digits"), "over_zero_error": 0.5}
            for cell in transfer.cells(1, 1, quick=True)
        ]  # fmt: skip
        return rows, [{"name": "tables", "seconds": 1.0}]

    def run_ablation(folder, **settings):
        calls.append(settings)
        settings["out"].mkdir(parents=True, exist_ok=True)
        numbers = ("loss", "accuracy", "asked", "loss_change", "accuracy_change")
        change = dict.fromkeys(numbers, 0.5) | {f"{name}_error": 0.25 for name in numbers}
        variants = [{"variant": name, "epsilon": 0.1, **change} for name in (*ablation.BY_NAME, "zero")]
        whats = (
            "spend",
            "influence",
            *(f"{a}_{b}" for a in ("released", "average", "step") for b in ("cosine", "error")),
        )
        steps = [
            {"protector": name, "epsilon": 0.1, "step": step, **dict.fromkeys(whats, 0.5),
             **{f"{what}_standard_error": 0.1 for what in whats}}
            for name in ("full", "zero") for step in (1, 2)
        ]  # fmt: skip
        memory = [
            {"key": "k", "form": form, "steps": steps, "megabytes": megabytes * steps}
            for form, megabytes in (("lagrangian", 1.0), ("batch_lagrangian", 0.25))
            for steps in (50, 100)
        ]
        return {"variants": variants, "steps": steps, "memory": memory, "training": []}

    def speed_rows(folder, **settings):
        calls.append(settings)
        settings["report"]("projector step")
        return [{"what": "l2p step over plain step", "value": 1.2, "goal": 1.25, "met": True},
                {"what": "l2p step, ms", "value": 2.5, "goal": None, "met": None}]  # fmt: skip

    monkeypatch.setattr(transfer, "run_transfer", run_transfer)
    monkeypatch.setattr(ablation, "run_ablation", run_ablation)
    monkeypatch.setattr(protector_speed, "speed_rows", speed_rows)
    return calls


def run(*arguments):
    told = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    assert told.exit_code == 0, told.output
    return told


@pytest.mark.slow
def test_transfer(asked, tmp_path):
    told = run("transfer", "--data", tmp_path, "--quick", "--out", tmp_path / "out")
    assert asked[0]["quick"] and asked[0]["repeats"] == 2 and asked[0]["jobs"] == 2
    first = told.stdout.splitlines()
    assert max(map(len, first)) <= 80, "fits a terminal"
    assert all(name in told.stdout for name in ("ipums-br logistic 0.1", "3-vs-5 d/4", "quadratics", "narrow", "15"))
    assert "written to" in told.stderr
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"transfer.csv", "transfer.png", "horizons.png", "budgets.png"} <= written
    assert len(pd.read_csv(tmp_path / "out" / "transfer.csv")) > 50
    document = json.loads(run("transfer", "--data", tmp_path, "--json", "--out", tmp_path / "out").stdout)
    assert {row["study"] for row in document["rows"]} == {"matrix", "dimension", "horizon", "budget"}
    assert document["training"][0]["name"] == "tables"
    assert asked[1]["repeats"] == 10 and not asked[1]["quick"]


@pytest.mark.slow
def test_ablation(asked, tmp_path):
    told = run("ablation", "--data", tmp_path, "--repeats", 7, "--out", tmp_path / "out", "--jobs", 1)
    assert asked[0]["repeats"] == 7 and asked[0]["jobs"] == 1
    assert "scheduler off" in told.stdout and "+0.50±0.25" in told.stdout
    assert max(map(len, told.stdout.splitlines())) <= 80 and "impact" in told.stdout
    memory = next(line for line in told.stdout.splitlines() if " 100 " in line)
    assert "25" in memory and "0.25" in memory
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {f"{name}.csv" for name in ("variants", "steps", "memory")} <= written
    assert {f"{name}.png" for name in ("variants", "denoising", "influence", "memory")} <= written
    document = json.loads(run("ablation", "--data", tmp_path, "--quick", "--json", "--out", tmp_path / "out").stdout)
    assert set(document) == {"variants", "steps", "memory", "training"}
    assert asked[1]["repeats"] == 4


def test_protector(asked, tmp_path):
    told = run("protector", "--quick", "--out", tmp_path / "out")
    assert asked[0]["rounds"] == 5 and asked[0]["epochs"] == 5
    assert "yes" in told.stdout and "1.25" in told.stdout
    assert len(pd.read_csv(tmp_path / "out" / "protector.csv")) == 2
    rows = json.loads(run("protector", "--json").stdout)["rows"]
    assert rows[0]["met"] is True and rows[1]["goal"] is None


def test_a_folder_without_data_is_one_clear_line(tmp_path):
    told = CliRunner().invoke(app, ["bench", "transfer", "--data", str(tmp_path), "--out", str(tmp_path / "out")])
    assert isinstance(told.exception, ValueError) and "a9a.parquet is not there" in str(told.exception)
    assert CliRunner().invoke(app, ["bench", "ablation", "--data", str(tmp_path / "none")]).exit_code == 2
