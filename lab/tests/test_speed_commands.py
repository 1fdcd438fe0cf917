"""``noisewise bench``: one JSON document with named rows; nothing here is timed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise_lab import module_memory, pricing, speed


@pytest.fixture
def quick(monkeypatch):
    works = [replace(work, rows=600, steps=1) for work in speed.workloads()]
    monkeypatch.setattr(speed, "workloads", lambda: works)
    monkeypatch.setattr(speed, "module_workloads", list)
    monkeypatch.setattr(speed, "loops", list)
    monkeypatch.setattr(speed, "DRAWS", 1000)
    monkeypatch.setattr(pricing, "_median", lambda run: 1.5)


@pytest.mark.slow
def test_speed_as_json(quick):
    told = CliRunner().invoke(app, ["bench", "speed", "--json", "--rounds", "1"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    rows = found["rows"]
    assert {row["workload"] for row in rows} == {
        "logistic-batch", "logistic-full", "softmax-batch", "softmax-full", "mlp-small", "mlp-large", "noise-1000"
    }  # fmt: skip
    assert {row["engine"] for row in rows} == {"plain", "noisewise"}
    assert all(row["ratio"] > 0 for row in rows) and len(rows) == 14
    assert found["threads"]["faster"] > 0


@pytest.mark.slow
def test_speed_as_a_table(quick):
    told = CliRunner().invoke(app, ["bench", "speed", "--rounds", "1"])
    assert told.exit_code == 0 and "logistic-batch" in told.stdout and "second thread" in told.stdout


def test_a_library_that_is_not_there_is_said_and_left_out(quick, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastDP", None)
    told = CliRunner().invoke(
        app, ["bench", "speed", "--json", "--rounds", "1", "--only", "mlp-small", "--against", "fastdp"]
    )
    assert told.exit_code == 0, told.output
    assert "fastdp cannot be imported" in told.stderr and "pip install" in told.stderr
    assert {row["engine"] for row in json.loads(told.stdout)["rows"]} == {"plain", "noisewise"}


def test_an_unknown_library_is_refused(quick):
    told = CliRunner().invoke(app, ["bench", "speed", "--against", "tensorflow"])
    assert isinstance(told.exception, ValueError) and "pass opacus or fastdp" in str(told.exception)


def test_some_workloads_by_name(quick):
    told = CliRunner().invoke(app, ["bench", "speed", "--json", "--rounds", "1", "--only", "mlp-small,noise-1000"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert {row["workload"] for row in found["rows"]} == {"mlp-small", "noise-1000"} and found["threads"] is None
    told = CliRunner().invoke(app, ["bench", "speed", "--only", "mlp-medium"])
    assert isinstance(told.exception, ValueError) and "mlp-small" in str(told.exception)


def test_memory(monkeypatch):
    grown = {"plain": 2.0, "noisewise": 3.0}
    monkeypatch.setattr(module_memory, "in_own_process", lambda name, engine: grown[engine])
    told = CliRunner().invoke(app, ["bench", "memory", "--json", "--only", "cnn,lstm"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["rows"]
    assert [(row["workload"], row["engine"], row["ratio"]) for row in rows] == [
        ("cnn", "plain", 1.0), ("cnn", "noisewise", 1.5), ("lstm", "plain", 1.0), ("lstm", "noisewise", 1.5)
    ]  # fmt: skip
    assert "transformer" in CliRunner().invoke(app, ["bench", "memory"]).stdout


def test_accounting(quick):
    told = CliRunner().invoke(app, ["bench", "accounting", "--json"])
    assert told.exit_code == 0, told.output
    assert all(row["milliseconds"] == 1.5 for row in json.loads(told.stdout)["rows"])
    assert "milliseconds" in CliRunner().invoke(app, ["bench", "accounting"]).stdout


def test_rounds_are_at_least_one():
    assert CliRunner().invoke(app, ["bench", "speed", "--rounds", "0"]).exit_code == 2


@pytest.mark.parametrize("command", ["speed", "accounting"])
def test_help_of_each_command_has_an_example(command):
    told = CliRunner().invoke(app, ["bench", command, "--help"])
    assert told.exit_code == 0
    assert f"Example: noisewise bench {command}" in told.output
