"""Bad input: one clear line, exit code 2, no value of a record in it, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from desk import SCHEMA, people

SECRET = "Xanthippe7"
BUDGET = ("--epsilon", 2, "--delta", 1e-6)
HEAD = b"age,hours,job,income\n"
GOOD = b"30,40,clerk,low\n41,39,nurse,high\n"


def everything():
    return sorted(str(path) for path in Path().rglob("*"))


def refused(shell, *arguments):
    """The one line, after a look at what a refusal must leave alone."""
    before = everything()
    told = shell(*arguments)
    assert told.code == 2 and told.out == "", (told.code, told.err)
    assert told.err.startswith("noisewise: ") and told.err.count("\n") == 1, told.err
    assert "Traceback" not in told.err and SECRET not in told.err
    assert everything() == before
    return told.err


FILES = {
    "wrong encoding": (HEAD + GOOD + b"30,40,clerk,l\xf6w\n", "is not UTF-8 text"),
    "utf-16": (b"\xff\xfe" + (HEAD + GOOD).decode().encode("utf-16-le"), "UTF-16"),
    "ragged row": (HEAD + GOOD + b"30,Xanthippe7\n", "more or fewer fields"),
    "one field too many": (HEAD + GOOD + b"30,40,clerk,low,Xanthippe7\n", "more or fewer fields"),
    "open quote": (HEAD + GOOD + b'30,40,"Xanthippe7,low\n', "more or fewer fields"),
    "duplicate columns": (b"age,hours,job,income,age\n30,40,clerk,low,3\n", "'age' is there twice"),
    "empty": (b"", "is empty"),
    "blank lines": (b"\n\n\n", "is empty"),
    "header only": (HEAD, "no rows"),
    "header without an end": (HEAD.strip(), "no rows"),
    "no header": (b"30,40,Xanthippe7,low\n", "first line looks like a record"),
    "another column": (b"age,hours,job,income,name\n30,40,clerk,low,Xanthippe7\n", "'name' that the schema does not name"),
    "no label column": (b"age,hours,job\n30,40,clerk\n", "lacks the target 'income'"),
    "no feature column": (b"age,job,income\n30,clerk,low\n", "lacks the column 'hours'"),
    "missing label": (HEAD + GOOD + b"30,40,clerk,\n", "has missing labels"),
    "NaN label": (HEAD + GOOD + b"30,40,clerk,NaN\n", "has missing labels"),
    "unknown label": (HEAD + GOOD + b"30,40,clerk,Xanthippe7\n", "a label that is not among its categories"),
    "unknown category": (HEAD + GOOD + b"30,40,Xanthippe7,low\n", "column 'job' has a value that is not among"),
    "text for a number": (HEAD + GOOD + b"Xanthippe7,40,clerk,low\n", "column 'age' holds text"),
    "decimal comma": (HEAD + GOOD + b'"30,5",40,clerk,low\n', "write numbers as 1.5"),
    "a date": (HEAD + GOOD + b"2001-02-03,40,clerk,low\n", "give dates a unit"),
    "a NUL": (HEAD + GOOD + b"3\x000,40,clerk,low\n", "column 'age' holds text"),
    "bytes": (bytes(range(256)) * 40, "noisewise: private.csv"),
    "a spreadsheet": (b"PK\x03\x04" + bytes(100), "save the table as CSV"),
    "other separator": ((HEAD + GOOD).replace(b",", b";"), "pass --separator ';'"),
}  # fmt: skip


@pytest.mark.parametrize("what", FILES)
def test_a_malformed_csv_gets_one_line(desk, shell, what):
    content, told = FILES[what]
    Path("private.csv").write_bytes(content)
    assert told in refused(shell, "train", "private.csv", "--schema", "schema.toml", *BUDGET, "--out", "run")


@pytest.mark.parametrize("what", FILES)
def test_nothing_is_bought_from_a_malformed_csv(desk, shell, what):
    """Bounds of numbers would be bought, but what is wrong is found before; a new class is not wrong there."""
    if what in ("unknown label", "no feature column", "another column"):
        return
    content, _ = FILES[what]
    Path("private.csv").write_bytes(content)
    open_ends = SCHEMA.replace("low = 17\nhigh = 90\n", "").replace("low = 0\nhigh = 99\n", "")
    Path("open.toml").write_text(open_ends)
    options = ("--schema", "open.toml", *BUDGET, "--bounds-epsilon", 1, "--out", "run")
    assert "Three ways out" not in refused(shell, "train", "private.csv", *options)


@pytest.mark.parametrize("where", ["record", "header"])
def test_a_line_of_64_mb(desk, shell, where):
    with open("private.csv", "wb") as stream:
        stream.write(HEAD + GOOD if where == "record" else b"")
        stream.write(b"7" * (64 << 20))
    assert "longer than" in refused(shell, "train", "private.csv", "--schema", "schema.toml", *BUDGET, "--out", "run")


@pytest.mark.parametrize("content", [b"PAR1 and no more", b"PAR1", b""])
def test_parquet_that_is_none(desk, shell, content):
    Path("private.parquet").write_bytes(content)
    refused(shell, "train", "private.parquet", "--schema", "schema.toml", *BUDGET, "--out", "run")


def test_parquet_cut_short_in_the_middle(desk, shell):
    people(4000).to_parquet("whole.parquet")
    whole = Path("whole.parquet").read_bytes()
    Path("holes.parquet").write_bytes(whole[:4] + bytes(2000) + whole[2004:])
    refused(shell, "train", "holes.parquet", "--schema", "schema.toml", *BUDGET, "--out", "run")


def test_dates_in_parquet_get_advice(desk, shell):
    table = people(10)
    table["age"] = pd.Timestamp("2001-02-03")
    table.to_parquet("private.parquet")
    line = refused(shell, "train", "private.parquet", "--schema", "schema.toml", *BUDGET, "--out", "run")
    assert "'age' is a date; turn it into a number in the schema" in line
    line = refused(shell, "train", "private.parquet", "--target", "income", *BUDGET, "--bounds-epsilon", 1)
    assert "is a date" in line


OPTIONS = [
    (["--epsilon", 0], "epsilon is 0"), (["--epsilon", -1], "epsilon is -1"), (["--epsilon", "nan"], "epsilon is nan"),
    (["--epsilon", "inf"], "epsilon is inf"), (["--epsilon", 1e9], "at most 1e6"), (["--epsilon", 1e-9], "too little"),
    (["--delta", 0], "delta is 0"), (["--delta", 1], "delta is 1"), (["--delta", "nan"], "delta is nan"),
    (["--method", "magic"], "method is 'magic'"), (["--loss", "zero_one"], "zero_one"),
    (["--loss", "softmax", "--method", "objective_perturbation"], "takes logistic, huber_hinge"),
    (["--model", "forest"], "pass auto, linear, mlp, or hidden sizes"), (["--model", "3,0"], "--model is '3,0'"),
    (["--model", ""], "--model is ''"), (["--adjacency", "friends"], "adjacency is 'friends'"),
    (["--max-grad-norm", "nan"], "max_grad_norm is nan"), (["--target", "pay"], "--target is 'pay'"),
    (["--schema", "none.toml"], "no such file"), (["--schema", "private.csv"], "is not TOML"),
    (["--public", "none.csv"], "no such file"), (["--bounds-epsilon", 0], "bounds-epsilon is 0"),
    (["--bounds-epsilon", "nan"], "bounds-epsilon is nan"), (["--bounds-epsilon", 2], "less than 2"),
    (["--separator", "ab"], "one character"), (["--cache", "none"], "existing folder"),
    (["--out", "private.csv"], "exists already"), (["--out", "."], "exists already"), (["--out", "full"], "exists already"),
    (["--out", "private.csv/run"], "cannot be written"), (["--out", "/proc/none/run"], "cannot be written"),
    (["--out", "link"], "exists already"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "told"), OPTIONS, ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else ""
)
def test_nonsense_options_get_one_line(desk, shell, options, told):
    Path("full").mkdir()
    Path("full/mine.txt").write_text("mine")
    Path("link").symlink_to("nowhere")
    line = refused(shell, "train", "private.csv", "--schema", "schema.toml", *BUDGET, "--out", "run", *options)
    assert told in line


def test_no_schema_names_the_three_ways_out(desk, shell):
    line = refused(shell, "train", "private.csv", "--target", "income", *BUDGET, "--out", "run")
    assert all(way in line for way in ("schema init", "--public", "--bounds-epsilon"))
    assert "name the column to predict" in refused(shell, "train", "private.csv", *BUDGET, "--out", "run")
    assert "no such file" in refused(shell, "train", "gone.csv", "--target", "income", *BUDGET, "--out", "run")
    pd.read_csv("private.csv").to_parquet("typed.parquet")
    line = refused(
        shell, "train", "typed.parquet", "--target", "income", *BUDGET, "--bounds-epsilon", 1, "--out", "run"
    )
    assert "column 'job' lacks categories" in line and "buying bounds does not help with 'job'" in line


def test_a_target_that_is_no_classes(desk, shell):
    people(300)[["age", "hours"]].to_csv("numbers.csv", index=False)
    line = refused(shell, "train", "numbers.csv", "--target", "age", *BUDGET, "--bounds-epsilon", 1, "--out", "run")
    assert "--loss squared for a regression" in line
    one = people(300)[["age", "hours"]].assign(income="low")
    one.to_csv("one.csv", index=False)
    line = refused(shell, "train", "one.csv", "--target", "income", *BUDGET, "--bounds-epsilon", 1, "--out", "run")
    assert "does not look like classes" in line


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_malformed_files_to_predict_or_evaluate(desk, shell, command):
    options = ("--schema", "schema.toml", *BUDGET, "--method", "dpsgd", "--out", "run")
    assert shell("train", "private.csv", *options).code == 0
    more = ["--out", "p.csv"] if command == "predict" else ["--epsilon", 1]
    fine = {"another column", "missing label", "NaN label", "unknown label", "no label column", "wrong encoding"}
    for what, (content, _) in FILES.items():
        if command == "predict" and what in fine:  # other columns and the label are not even read
            continue
        Path("private.csv").write_bytes(content)
        refused(shell, command, "run", "private.csv", *more)
    refused(shell, command, "run", "none.csv", *more)
    refused(shell, command, "none", "public.csv", *more)
    refused(shell, command, "schema.toml", "public.csv", *more)
