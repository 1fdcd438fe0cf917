"""``noisewise schema wizard``: questions and guesses, documents, pasted lists, answers from a file; never a private value."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise.tables.codebook import codes_in, pair_in, read_book
from noisewise.tables.schema import gaps, read_schema

CODEBOOK = """name,kind,low,high,categories,label
age,integer,17,90,,Age in years
wage,number,1,1000000,,Yearly wage
job,category,,,1=clerk|2=farmer|3=bishop,Occupation
born,date,1900-01-01,2010-01-01,,
patient_id,id,,,,
outcome,target,,,"ill, well",
"""
LONG = "variable;type;code;description\njob;code;1;clerk, junior\njob;code;2;farmer\nage;int64;;Age\n"
TYPES = (
    "age              int64\njob             object\nborn    datetime64[ns]\nrich              bool\ndtype: object\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 300
    pd.DataFrame({
        "id": np.arange(n), "age": rng.integers(17, 90, n), "level": rng.integers(1, 6, n), "wealth": np.exp(rng.normal(3, 3, n)) + 1,
        "job": rng.choice(["clerk", "farmer"], n), "seen": pd.date_range("2020-01-01", periods=n).strftime("%Y-%m-%d"),
        "rich": rng.integers(0, 2, n),
    }).to_csv("people.csv", index=False)  # fmt: skip
    (tmp_path / "codebook.csv").write_text(CODEBOOK)
    return tmp_path


def wizard(*arguments, lines=()):
    return CliRunner().invoke(app, ["schema", "wizard", *arguments], input="".join(f"{line}\n" for line in lines))


def made(*arguments, lines=()):
    result = wizard(*arguments, "--out", "s.toml", "--force", lines=lines)
    assert result.exit_code == 0, (result.output, result.exception)
    return read_schema("s.toml"), result.output


def test_public_rows_give_marked_guesses():
    schema, shown = made("people.csv", lines=["y", "rich", "", "", "0 120", "category", "", "", "", "", "", ""])
    for mark in ("looks like an id", "few whole numbers: a code?", "heavy tail: scale = log?", "(to be predicted)"):
        assert mark in shown
    assert schema["id"].kind == "ignore" and schema["age"].high == 120 and schema["level"].categories == (1, 2, 3, 4, 5)
    assert schema["wealth"].scale == "log" and schema["job"].categories == ("clerk", "farmer")
    assert schema["seen"].unit == "years" and schema["seen"].low == 2020
    assert schema["rich"].categories == (0, 1) and schema.target == "rich" and not gaps(schema)


def test_private_rows_are_never_looked_at():
    """Whatever the rows hold, the questions and the guesses are the same."""
    shown, texts = [], []
    for values in (["1", "2"], ["Eve", "4711"]):
        with open("private.csv", "w") as file:
            file.write("age,code,rich\n" + "".join(f"{v},{v},{v}\n" for v in values * 20))
        _, told = made("private.csv", lines=["no", "", "", "", "", "a, b", "yes, no"])
        shown.append(told)
        with open("s.toml") as file:
            texts.append(file.read())
    assert shown[0] == shown[1] and texts[0] == texts[1] and "4711" not in shown[1]
    schema = read_schema("s.toml")
    assert (
        schema["age"].high == 120
        and schema["code"].categories == ("a", "b")
        and schema["rich"].categories == ("yes", "no")
    )


def test_a_codebook_is_taken_with_enter():
    schema, shown = made("codebook.csv", lines=["drop", "", "", "log", "", "", "", ""])
    assert schema.target == "outcome" and schema.target_missing == "drop" and not gaps(schema)
    assert (schema["age"].low, schema["age"].high) == (17, 90) and schema["wage"].scale == "log"
    assert schema["job"].categories == (1, 2, 3) and "1 = clerk, 2 = farmer" in shown
    assert schema["born"].unit == "years" and schema["born"].low == 1900 and schema["patient_id"].kind == "ignore"
    with open("s.toml") as file:
        assert "# Age in years" in file.read()
    with open("long.csv", "w") as file:
        file.write(LONG)
    long, _ = made("long.csv", "--target", "job", lines=["", "", ""])
    assert long["job"].categories == (1, 2) and long["age"].high == 120


def test_types_of_pandas_pasted_lists_and_commands():
    with open("types.txt", "w") as file:
        file.write(TYPES)
    lines = [
        "rch",
        "rich",
        "",
        "?",
        "back",
        "",
        "category",
        "clerk",
        "farmer",
        "bishop",
        "",
        "1900-01-01 2020-01-01",
        "",
    ]
    schema, shown = made("types.txt", lines=lines)
    assert "did you mean 'rich'" in shown and "a quantity: you will be asked" in shown
    assert schema["job"].categories == ("clerk", "farmer", "bishop") and schema["rich"].categories == (False, True)
    assert (schema["born"].low, schema["born"].high) == (1900, 2020) and schema["age"].high == 120
    left, shown = made("types.txt", lines=["", "", "5 3", "nmber", "", "stop"])
    assert "low must be below high" in shown and "did you mean 'number'" in shown
    assert [gap.column for gap in gaps(left)] == ["job", "born"] and "still to fill in" in shown
    rest, _ = made("types.txt", lines=["", "", "rest"])
    assert rest["age"].high == 120 and rest["job"].kind == "category"


def test_what_a_guess_shows_can_be_typed_and_signs_of_order_are_no_codes():
    with open("private.csv", "w") as file:
        file.write("age,job,grade,income\n")
    lines = ["", "number 16 to 99", "category clerk, farmer", "Category", "A", "B", "", "<=50K, >50K"]
    schema, shown = made("private.csv", "--private", "--target", "income", lines=lines)
    assert (schema["age"].low, schema["age"].high) == (16, 99) and schema["job"].categories == ("clerk", "farmer")
    assert schema["grade"].categories == ("A", "B") and schema["income"].categories == ("<=50K", ">50K")
    assert "next: noisewise schema check s.toml private.csv, then noisewise train private.csv --schema s.toml" in shown


def test_answers_come_from_a_file():
    with open("answers.toml", "w") as file:
        file.write(
            'target = "rich"\npublic = true\ntarget_missing = "drop"\n[columns.age]\nlow = 0\nhigh = 120\n'
            '[columns.job]\nkind = "category"\ncategories = ["clerk", "farmer", "bishop"]\n[columns.level]\nkind = "ignore"\n'
        )
    schema, _ = made("people.csv", "--answers", "answers.toml")
    assert schema["age"].high == 120 and len(schema["job"].categories) == 3 and schema["level"].kind == "ignore"
    assert schema.target_missing == "drop" and schema["wealth"].kind == "number" and not gaps(schema)
    told = json.loads(wizard("people.csv", "--answers", "answers.toml", "--out", "s.toml", "--force", "--json").stdout)
    assert told["complete"] and told["columns"] == 7
    private, _ = made("people.csv", "--answers", "answers.toml", "--private")
    assert private["wealth"].kind == "" and private["age"].high == 120
    for text, message in [
        ("[columns.agee]\nlow = 0\n", "did you mean 'age'"), ("colums = 1\n", "may have target"), ("x = [", "is not TOML"),
    ]:  # fmt: skip
        with open("wrong.toml", "w") as file:
            file.write(text)
        refused = wizard("people.csv", "--answers", "wrong.toml", "--out", "t.toml")
        assert refused.exit_code != 0 and message in str(refused.exception)


def test_what_goes_wrong_writes_nothing(folder):
    for arguments, lines, told in [
        (["people.csv"], ["y", "rich"], "the answers ended before the questions"),
        (["none.csv"], [], "no such file"),
        (["people.csv", "--public", "--target", "rch"], [], "did you mean 'rich'"),
    ]:
        result = wizard(*arguments, "--out", "new.toml", lines=lines)
        assert told in str(result.exception) and not (folder / "new.toml").exists()
    (folder / "there.toml").write_text("")
    assert "--force" in str(wizard("people.csv", "--out", "there.toml").exception)
    with open("bad.csv", "w") as file:
        file.write("name,kind,low,high\na,nmber,0,1\n")
    assert "did you mean 'number'" in str(wizard("bad.csv", "--out", "new.toml").exception)


def test_lists_and_pairs():
    assert codes_in("1. clerk\n2. farmer")[0] == (1, 2) and codes_in("a\tanna\nb\tbob")[0] == ("a", "b")
    assert codes_in("'x, y'; z")[0] == ("x, y", "z") and codes_in("true, FALSE")[0] == (True, False)
    assert codes_in("10, 10.0, 20")[0] == (10, 20) and codes_in("") == ((), "")
    assert pair_in("-5 5") == ("-5", "5") and pair_in("1 2 3") is None and pair_in("-1e3 to 2") == ("-1e3", "2")


def test_a_table_is_no_codebook(folder):
    for text in ("name,label\nEve,1\nAda,2\n", "age,rich\n1,0\n", "name,type\nEve,a\n"):
        (folder / "t.csv").write_text(text)
        assert read_book(folder / "t.csv") is None
