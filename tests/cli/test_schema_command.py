"""``noisewise schema``: a skeleton that never depends on values, public filling, and what is still missing."""

from __future__ import annotations

import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli import main as entry
from noisewise.faces.cli.main import app
from noisewise.faces.cli.schema import schema
from noisewise.tables.schema import read_schema


@pytest.fixture(autouse=True)
def attached():
    """The commands under the entry point, whether or not it has them already."""
    if not any(group.name == "schema" for group in app.registered_groups):
        app.add_typer(schema, name="schema")


def run(*arguments):
    return CliRunner().invoke(app, ["schema", *(str(argument) for argument in arguments)])


def refused(monkeypatch, capsys, *arguments):
    """The one line on standard error of bad input."""
    monkeypatch.setattr(sys, "argv", ["noisewise", "schema", *(str(argument) for argument in arguments)])
    with pytest.raises(SystemExit) as stopped:
        entry()
    told = capsys.readouterr()
    assert stopped.value.code == 2 and told.out == "" and told.err.count("\n") == 1, told.err
    return told.err


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,job,income\n30,clerk,high\n41,farmer,low\n,clerk,low\n")
    return path


def test_a_skeleton_of_private_rows_does_not_depend_on_values(tmp_path, people):
    out, skeletons, said = tmp_path / "schema.toml", [], []
    values = ["30,clerk,high\n41,farmer,low\n", "1999-01-01,?,3.5\n" * 500, "true,\n"]  # the last is not even a table
    for rows in values:
        people.write_text(f"age,job,income\n{rows}")
        told = run("init", people, "--target", "income", "--out", out, "--force", "--json")
        assert told.exit_code == 0, told.output
        skeletons.append(out.read_bytes())
        said.append(told.stdout)
    assert len(set(skeletons)) == len(set(said)) == 1
    text = skeletons[0].decode()
    assert "A CSV has no types, only values" in text and text.count('kind = ""') == 3 and 'target = "income"' in text


def test_a_skeleton_of_parquet_holds_types_alone(tmp_path):
    out, skeletons = tmp_path / "schema.toml", []
    for values in ({"a": [1, 2], "s": ["x", "y"]}, {"a": [-7], "s": ["Eve"]}):
        pq.write_table(pa.table(values), tmp_path / "d.parquet")
        assert run("init", tmp_path / "d.parquet", "--out", out, "--force").exit_code == 0
        skeletons.append(out.read_text())
    assert skeletons[0] == skeletons[1]
    assert 'kind = "number"' in skeletons[0] and 'kind = "category"' in skeletons[0] and "# low =" in skeletons[0]


def test_filling_from_public_rows_makes_a_complete_schema(tmp_path, people):
    out = tmp_path / "schema.toml"
    told = run("init", people, "--target", "income", "--public", "--out", out)
    assert told.exit_code == 0 and "complete: 2 features, 0 ignored, target 'income' (2 classes)" in told.stdout
    made = read_schema(out)
    assert (made["age"].low, made["age"].high, made["job"].categories) == (30, 41, ("clerk", "farmer"))
    told = run("check", out, people)
    assert told.exit_code == 0 and told.stdout.startswith("complete")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["people.csv", "schema.toml"]


def test_check_says_what_is_missing(tmp_path, people):
    out = tmp_path / "schema.toml"
    told = run("init", people, "--out", out)
    assert "still to fill in: 4 entries" in told.stdout
    told = run("check", out)
    assert told.exit_code == 1 and len(told.stdout.splitlines()) == 4 and "target is empty" in told.stdout
    people.write_text("age,job\n")  # names are enough
    told = run("check", out, people, "--json")
    document = json.loads(told.stdout)
    assert told.exit_code == 1 and document["complete"] is False
    assert [(gap["what"], gap["column"]) for gap in document["missing"]] == [
        ("target", None), ("kind", "age"), ("kind", "job"), ("kind", "income"),
    ]  # fmt: skip
    assert document["files"] == ["the files lack the column 'income'"]


def test_a_complete_schema_with_other_columns_is_not_fine(tmp_path, people):
    out = tmp_path / "schema.toml"
    run("init", people, "--target", "income", "--public", "--out", out)
    people.write_text("age,job,income,name\n30,clerk,high,Eve\n")
    told = run("check", out, people)
    assert told.exit_code == 1 and "'name'" in told.stdout and "Eve" not in told.stdout


def test_a_file_is_never_written_over_unasked(tmp_path, people, monkeypatch, capsys):
    out = tmp_path / "schema.toml"
    out.write_text("mine")
    assert "pass --force" in refused(monkeypatch, capsys, "init", people, "--out", out)
    assert out.read_text() == "mine"
    assert run("init", people, "--out", out, "--force").exit_code == 0 and out.read_text() != "mine"


def test_bad_input_is_one_line_and_writes_nothing(tmp_path, people, monkeypatch, capsys):
    out = tmp_path / "schema.toml"
    semicolons = tmp_path / "semi.csv"
    semicolons.write_text("a;b\n1;2\n")
    for arguments, told in [
        ((tmp_path / "none.csv",), "no such file"), ((people, "--target", "pay"), "no column 'pay'"),
        ((semicolons,), "--separator ';'"), ((people, "--separator", "ab"), "one character"),
    ]:  # fmt: skip
        assert told in refused(monkeypatch, capsys, "init", *arguments, "--out", out)
        assert not out.exists()
    assert "cannot be written" in refused(monkeypatch, capsys, "init", people, "--out", tmp_path / "no" / "x.toml")
    assert "no such file" in refused(monkeypatch, capsys, "check", out)
    assert run("init", semicolons, "--separator", ";", "--out", out).exit_code == 0


@pytest.mark.parametrize("command", ["init", "check"])
def test_help_shows_an_example(command):
    told = run(command, "--help")
    assert told.exit_code == 0 and "Example: noisewise schema" in told.stdout
