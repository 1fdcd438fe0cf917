"""``noisewise plan``: a table with words, JSON, a picture; one line for bad input."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from noisewise.cli import main as entry
from noisewise.cli.main import app

BUDGET = ["plan", "--epsilon", "1", "--delta", "1e-6"]
QUICK = [*BUDGET, "--steps", "10,100", "--rates", "0.1"]


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "80"})


def test_json_and_picture(tmp_path):
    picture = tmp_path / "new" / "plan.png"
    told = run(*QUICK, "--size", 500, "--features", 3, "--clip", 2, "--plot", picture, "--json")
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert document["parameters"] == 4 and document["size"] == 500 and document["examples"] == []
    assert [(row["sampling"], row["rate"], row["steps"]) for row in document["rows"]] == [
        ("full", 1.0, 10), ("full", 1.0, 100), ("poisson", 0.1, 10), ("poisson", 0.1, 100),
    ]  # fmt: skip
    first = document["rows"][0]
    assert first["noise_std"] == pytest.approx(2 * first["noise_multiplier"] / 500)
    assert {"accountant", "alternatives", "step_ratio", "run_ratio", "passes", "batch"} <= set(first)
    assert {need["ratio"] for need in document["records_needed"]} == {1.0, 0.1, 0.01}
    assert picture.read_bytes().startswith(b"\x89PNG") and "plan.png" in told.stderr
    assert [file.name for file in picture.parent.iterdir()] == ["plan.png"]


def test_a_table_for_people_that_fits_80_columns():
    told = run(*QUICK, "--adjacency", "replace_one")
    assert told.exit_code == 0, told.output
    assert max(map(len, told.stdout.splitlines())) <= 80 and "…" not in told.stdout
    for text in ("full batch", "Poisson 10 %", "fixed 10 %", "gdp", "pld", "Full batch has the least noise"):
        assert text in told.stdout
    assert "--size and --features not given" in told.stdout


def test_full_batch_alone_and_given_numbers():
    told = run(*BUDGET, "--size", 2000, "--features", 5, "--steps", 10, "--rates", "")
    assert told.exit_code == 0 and "Poisson" not in told.stdout and "not given" not in told.stdout


def test_help_has_an_example():
    assert "Example: noisewise plan" in run("plan", "--help").output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--epsilon", "-1", "--delta", "1e-6"], "epsilon"),
        (["--epsilon", "1", "--delta", "2"], "delta"),
        (["--epsilon", "1", "--delta", "1e-6", "--adjacency", "none"], "adjacency"),
        (["--epsilon", "1", "--delta", "1e-6", "--steps", "ten"], "--steps"),
        (["--epsilon", "1", "--delta", "1e-6", "--steps", ","], "steps"),
        (["--epsilon", "1", "--delta", "1e-6", "--rates", "2"], "rate"),
        (["--epsilon", "1", "--delta", "1e-6", "--clip", "0"], "clip"),
        (["--epsilon", "1", "--delta", "1e-6", "--steps", "5", "--rates", "", "--plot", "plan.txt"], "plan.txt"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, arguments, reason):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["noisewise", "plan", *arguments])
    with pytest.raises(SystemExit) as stopped:
        entry()
    told = capsys.readouterr()
    assert stopped.value.code == 2 and told.out == ""
    assert told.err.count("\n") == 1 and reason in told.err
    assert not list(tmp_path.iterdir())
