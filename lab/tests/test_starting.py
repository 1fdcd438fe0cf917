"""``noisewise bench starting``: fresh processes, their processor time, and refusals that are really refused."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise_lab import starting
from noisewise_lab.starting import STARTS, Cost, Start, plain_environment, starting_rows


@pytest.mark.slow
def test_a_fresh_process_takes_processor_time_and_ends_as_expected(tmp_path):
    cost = Start("version", ("--version",), 1.0).cost(tmp_path, 0)
    assert 0 < cost.seconds < 60 and 5 < cost.megabytes < 5000
    refused = Start(
        "plan", ("plan", "--epsilon", "-1", "--delta", "1e-6", "--size", "100", "--features", "3"), 1.0, True
    )
    assert refused.cost(tmp_path, 0).seconds > 0
    with pytest.raises(RuntimeError, match="ended with 2: noisewise"):
        Start("plan", refused.arguments, 1.0).cost(tmp_path, 0)


def test_the_least_of_the_rounds_counts_and_the_first_only_compiles(monkeypatch):
    taken = {"predict": iter([0.1, 1.0, 0.5, 0.9]), "report": iter([0.2, 3.0, 2.5, 2.75])}
    monkeypatch.setattr(starting, "_prepare", lambda folder: None)
    monkeypatch.setattr(Start, "cost", lambda self, folder, number: Cost(next(taken[self.name]), 100.4 - number))
    assert starting_rows(rounds=3, only=["predict", "report"]) == [
        {"command": "predict", "seconds": 0.5, "goal": 2.0, "met": "yes", "megabytes": 97},
        {"command": "report", "seconds": 2.5, "goal": 2.0, "met": "no", "megabytes": 97},
    ]
    with pytest.raises(ValueError, match="no command of this name; pass some of --help, train"):
        starting_rows(only=["fly"])


@pytest.mark.slow  # twenty fresh processes; the two above catch the same
def test_the_command_times_all_of_them_for_real(monkeypatch):
    monkeypatch.setattr(starting, "ROWS", 2000)
    told = CliRunner().invoke(app, ["bench", "starting", "--rounds", "1", "--json"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["rows"]
    assert [row["command"] for row in rows] == [one.name for one in STARTS] and all(row["seconds"] > 0 for row in rows)
    table = CliRunner().invoke(app, ["bench", "starting", "--rounds", "1", "--only", "--help"])
    assert table.exit_code == 0 and "Processor seconds and memory" in table.stdout


def test_what_python_compiles_is_kept(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in plain_environment() and "PATH" in plain_environment()
