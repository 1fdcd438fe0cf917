"""``noisewise bench``: one JSON document with named rows; nothing here is timed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from noisewise.bench import pricing, speed
from noisewise.cli.main import app


@pytest.fixture
def quick(monkeypatch):
    works = [replace(work, rows=600, steps=1) for work in speed.workloads()]
    monkeypatch.setattr(speed, "workloads", lambda: works)
    monkeypatch.setattr(pricing, "_median", lambda run: 1.5)


def test_speed_as_json(quick):
    told = CliRunner().invoke(app, ["bench", "speed", "--json", "--rounds", "1"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["rows"]
    assert {row["workload"] for row in rows} == {"logistic-batch", "logistic-full", "mlp-small", "mlp-large"}
    assert {row["engine"] for row in rows} == {"plain", "noisewise"}
    assert all(row["ratio"] > 0 for row in rows) and len(rows) == 8


def test_speed_as_a_table(quick):
    told = CliRunner().invoke(app, ["bench", "speed", "--rounds", "1"])
    assert told.exit_code == 0 and "logistic-batch" in told.stdout


def test_accounting(quick):
    told = CliRunner().invoke(app, ["bench", "accounting", "--json"])
    assert told.exit_code == 0, told.output
    assert all(row["milliseconds"] == 1.5 for row in json.loads(told.stdout)["rows"])
    assert "milliseconds" in CliRunner().invoke(app, ["bench", "accounting"]).stdout


def test_rounds_are_at_least_one():
    assert CliRunner().invoke(app, ["bench", "speed", "--rounds", "0"]).exit_code == 2
