"""``noisewise plan``: a table with words, JSON, a picture; one line for bad input."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from noisewise.faces.cli import main as entry
from noisewise.faces.cli.main import app

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


def test_what_to_expect_what_tuning_costs_and_what_to_do(tmp_path):
    asked = [*BUDGET, "--size", 3000, "--features", 8, "--steps", 10, "--rates", "", "--candidates", "1,4"]
    document = json.loads(run(*asked, "--json").stdout)
    kept = document["expected"]["kept"]
    assert kept["low"] <= kept["mid"] <= kept["high"] and "columns" in document["expected"]["by"]
    assert [(way["candidates"], way["how"]) for way in document["tuning"]] == [
        (1, "none"), (4, "selection"), (4, "exponential"), (4, "public"),
    ]  # fmt: skip
    assert all(set(way) == {"candidates", "how", "mu", "factor", "kept"} for way in document["tuning"])
    assert document["tuning"][0]["kept"] == kept and document["tuning"][1]["factor"] > 1.2
    assert f"{kept['mid']:.2f} ({kept['low']:.2f} to {kept['high']:.2f})" in document["recommendation"]
    told = run(*asked)
    assert told.exit_code == 0 and max(map(len, told.stdout.splitlines())) <= 80
    for text in ("private selection", "the exponential mechanism", "public rows", "Recommendation: Use auto"):
        assert text in told.stdout
    number = json.loads(run(*asked, "--classes", 0, "--json").stdout)
    assert number["classes"] is None and number["expected"] != document["expected"]
    wide = run(*BUDGET, "--size", 3000, "--features", 300, "--steps", 10, "--rates", "", "--candidates", "1,4")
    assert wide.exit_code == 0 and "unknown" in wide.stdout and "not known" in wide.stdout


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
        (["--epsilon", "1", "--delta", "1e-6", "--candidates", "many"], "--candidates"),
        (["--epsilon", "1", "--delta", "1e-6", "--steps", "5", "--rates", "", "--candidates", "0"], "candidates"),
        (["--epsilon", "1", "--delta", "1e-6", "--classes", "1"], "classes"),
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


SCHEMA = """format = "noisewise-schema/1"
target = "y"
[columns.age]
kind = "number"
low = 17
high = 90
[columns.pay]
kind = "number"
low = 1
high = 1e6
scale = "log"
[columns.job]
kind = "category"
categories = ["a", "b", "c", "d"]
rare = ["c", "d"]
[columns.note]
kind = "ignore"
[columns.y]
kind = "category"
categories = ["no", "yes"]
"""


def planned(*arguments: object):
    told = run(*arguments, "--steps", 5, "--rates", "", "--json")
    assert told.exit_code == 0, told.output
    return json.loads(told.stdout)


def test_what_auto_would_do_moves_with_records_and_budget(tmp_path):
    small, more, large = (planned(*BUDGET, "--rows", rows, "--columns", 20) for rows in (3000, 6000, 20_000))
    assert (
        small["method"] == "additive"
        and small["columns"] == 20
        and set(small["features"]) == {"knots", "pairs", "ranks"}
    )
    assert small["features"]["knots"] < more["features"]["knots"] < large["features"]["knots"]
    assert small["features"]["pairs"] == 0 and large["features"]["pairs"] == 7
    assert (
        small["features"]["ranks"] == 0.1 > planned(*BUDGET, "--rows", 10**6, "--columns", 20)["features"]["ranks"] > 0
    )
    dear = planned("plan", "--epsilon", 0.1, "--delta", "1e-6", "--rows", 20_000, "--columns", 20)
    assert dear["features"]["knots"] < large["features"]["knots"]
    wide = planned(*BUDGET, "--size", 20_000, "--features", 200)
    assert wide["method"] == "descent" and wide["features"] == {"knots": None, "pairs": 0, "ranks": 0.0}
    assert "more than 128" in wide["why"]


def test_a_schema_says_what_the_columns_are(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    document = planned(*BUDGET, "--size", 500, "--schema", tmp_path / "schema.toml")
    features = document["features"]
    assert document["columns"] == 3 and document["parameters"] == 7 and document["examples"] == []  # a linear model's
    assert features["knots"] == 6 and features["pairs"] == 0 and features["pair_coordinates"] == 0
    assert features["coordinates"] == 2 * (7 + 4) + 4 + 1  # fine and coarse hats, a, b, rare and missing, the intercept
    assert "1 number has a log scale" in document["why"]
    told = run(*QUICK, "--size", 500, "--schema", tmp_path / "schema.toml")
    assert "What auto would do: auto takes additive" in " ".join(told.stdout.split())
    persons = SCHEMA.replace('target = "y"\n', 'target = "y"\nunit = "who"\nrows_per_unit = 3\n')
    (tmp_path / "persons.toml").write_text(persons)
    shared = planned(*BUDGET, "--size", 500, "--schema", tmp_path / "persons.toml")
    assert shared["rows_per_unit"] == 3 and shared["columns"] == 3
    (tmp_path / "open.toml").write_text(SCHEMA.replace("low = 17\nhigh = 90\n", ""))
    assert planned(*BUDGET, "--size", 500, "--schema", tmp_path / "open.toml")["features"] == features


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--schema", "schema.toml", "--features", "3"], "leave --features out"),
        (["--schema", "none.toml"], "no such file"),
        (["--schema", "open.toml"], "lacks categories"),
        (["--schema", "wrong.toml"], "low must be below high"),
    ],
)
def test_a_schema_that_says_too_little_is_one_line(monkeypatch, capsys, tmp_path, more, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "open.toml").write_text(SCHEMA.replace('categories = ["no", "yes"]', ""))
    (tmp_path / "wrong.toml").write_text(SCHEMA.replace("low = 17", "low = 99"))
    monkeypatch.setattr(sys, "argv", ["noisewise", *BUDGET, *more])
    with pytest.raises(SystemExit) as stopped:
        entry()
    told = capsys.readouterr()
    assert stopped.value.code == 2 and told.err.count("\n") == 1 and reason in told.err
