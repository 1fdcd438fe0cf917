"""``noisewise theory``: rows as JSON, CSV and a picture; a short table; one line for bad input."""

from __future__ import annotations

import csv
import json
import sys

import pytest
from typer.testing import CliRunner

from noisewise.faces.cli import main as entry
from noisewise.faces.cli.main import app

QUICK = {
    "bounds": ["--draws", "2", "--largest", "30"],
    "advantage": ["--records", "1000", "--largest", "100"],
    "momentum": ["--steps", "10", "--beta", "0.5"],
    "influence": ["--steps", "5", "--draws", "20"],
    "tails": ["--points", "20"],
    "accountants": ["--largest", "10", "--points", "2"],
    "erm": ["--records", "100"],
}
COLUMNS = {
    "bounds": {"steps", "uniform_bound", "uniform_simulated", "dynamic_bound", "momentum_bound"},
    "advantage": {"records", "kappa", "ratio", "uniform_steps", "dynamic_steps"},
    "momentum": {"beta", "step", "descent", "momentum", "printed"},
    "influence": {"step", "influence", "measured", "standard_error"},
    "tails": {"t", "pure", "approximate", "zcdp", "tcdp", "gaussian"},
    "accountants": {"sampling", "steps", "accountant", "epsilon", "seconds", "refused"},
    "erm": {"steps", "plain", "private", "lecture"},
}


def run(*arguments: str):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", QUICK)
def test_json_csv_and_picture(command, tmp_path):
    picture, table = tmp_path / "new" / "picture.png", tmp_path / "rows.csv"
    told = run("theory", command, *QUICK[command], "--json", "--out", picture, "--csv", table)
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["rows"]
    assert rows and COLUMNS[command] <= set(rows[0])
    assert all(set(row) == set(rows[0]) for row in rows)
    assert picture.read_bytes().startswith(b"\x89PNG") and str(picture) in told.stderr.replace("\n", "")
    with table.open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(rows)


@pytest.mark.parametrize("command", ["bounds", "advantage", "tails", "accountants"])
def test_a_short_table_for_people(command):
    told = run("theory", command, *QUICK[command])
    assert told.exit_code == 0, told.output
    assert 5 < told.stdout.count("\n") < 60


@pytest.mark.parametrize("command", QUICK)
def test_help_has_an_example(command):
    told = run("theory", command, "--help")
    assert told.exit_code == 0 and f"Example: noisewise theory {command}" in told.output


def test_refusals_say_why():
    told = run("theory", "accountants", *QUICK["accountants"])
    assert " - " in told.stdout and "fixed size" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["bounds", "--kappa", "0.5"], "kappa"),
        (["bounds", "--epsilon", "-1"], "epsilon"),
        (["advantage", "--largest", "1"], "largest"),
        (["momentum", "--gamma", "1"], "gamma"),
        (["momentum", "--beta", "1"], "beta"),
        (["tails", "--omega", "1"], "omega"),
        (["erm", "--adjacency", "none"], "adjacency"),
        (["accountants", "--rate", "2"], "rate"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, capsys, arguments, reason):
    monkeypatch.setattr(sys, "argv", ["noisewise", "theory", *arguments])
    with pytest.raises(SystemExit) as stopped:
        entry()
    told = capsys.readouterr()
    assert stopped.value.code == 2 and told.out == ""
    assert told.err.count("\n") == 1 and reason in told.err
