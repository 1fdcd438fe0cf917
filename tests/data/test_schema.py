"""Schemas: what may be declared, one clear line for what may not, and files that come back as they were written."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.tables.schema import FORMAT, Column, Gap, Schema, gaps, read_schema
from noisewise.tables.values import key

EXAMPLE = """
format = "noisewise-schema/1"
target = "income"
[columns.age]
kind = "number"
low = 17
high = 90
missing = 40
[columns.job]
kind = "category"
categories = ["clerk", "farmer", 3, 1.5, true]
missing = 3.0
unknown = "missing"
[columns."full name"]
kind = "ignore"
[columns.income]
kind = "category"
categories = [0, 1]
"""


def read(tmp_path, text):
    path = tmp_path / "schema.toml"
    path.write_text(text, encoding="utf-8")
    return read_schema(path)


def test_the_example_is_read(tmp_path):
    schema = read(tmp_path, EXAMPLE)
    assert [column.name for column in schema.columns] == ["age", "job", "full name", "income"]
    assert schema["age"] == Column("age", "number", 17.0, 90.0, missing=40) and schema["age"].middle == 53.5
    assert schema["job"].categories == ("clerk", "farmer", 3, 1.5, True) and schema["job"].missing == 3
    assert [column.name for column in schema.features] == ["age", "job"]
    assert gaps(schema) == []


SCALARS = st.one_of(
    st.text(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False)
)
NUMBERS = st.floats(-1e300, 1e300)


@st.composite
def columns(draw, name):
    kind = draw(st.sampled_from(["", "number", "category", "ignore"]))
    if kind == "number":
        low, high = sorted((draw(NUMBERS), draw(NUMBERS)))
        full = draw(st.booleans()) and low < high
        missing = draw(st.none() | st.floats(low, high)) if full else None
        return Column(name, kind, low if full else None, high if full else None, missing=missing)
    if kind == "category":
        categories = tuple(draw(st.lists(SCALARS, unique_by=key, max_size=4)))
        missing = draw(st.none() | st.sampled_from(categories)) if categories else None
        return Column(name, kind, None, None, categories, missing, draw(st.sampled_from(["refuse", "missing"])))
    return Column(name, kind, note=draw(st.text()))


@st.composite
def schemas(draw):
    names = draw(
        st.lists(st.text() | st.sampled_from(["", '"', "a.b", "\\", "\x7f\x00\r\n", "é", "#", "[x]"]), unique=True)
    )
    made = tuple(draw(columns(name)) for name in names)
    possible = [
        column.name
        for column in made
        if column.name  # an empty target means that there is none yet
        and column.kind != "ignore" and column.missing is None and column.unknown == "refuse" and len(column.categories) != 1
    ]  # fmt: skip
    return Schema(made, draw(st.none() | st.sampled_from(possible)) if possible else None)


@settings(deadline=None)
@given(schemas(), st.lists(st.text(), max_size=2))
def test_a_schema_comes_back_as_it_was_written(tmp_path_factory, schema, top):
    path = tmp_path_factory.getbasetemp() / "round.toml"
    path.write_bytes(schema.to_toml(top=top).encode())
    back = read_schema(path)
    assert back == schema and [column.name for column in back.columns] == [column.name for column in schema.columns]
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    for mine, theirs in zip(schema.columns, again.columns, strict=True):
        assert [type(value) for value in mine.categories] == [type(value) for value in theirs.categories]


def test_a_skeleton_says_what_to_fill_in():
    text = Schema((Column("a", "number"), Column("b", "category"), Column("c", note="is\na date"))).to_toml(
        top=["hello"]
    )
    assert text.splitlines()[0] == "# hello"
    for part in ('target = ""  # the column to predict', "# low =", "# high =", "# categories =", "# is a date"):
        assert part in text, part
    assert 'kind = ""  # number, category or ignore' in text


def test_gaps_name_what_is_missing():
    schema = Schema((Column("a", "number", low=0), Column("b", "category"), Column("c"), Column("d", "ignore")), "b")
    assert gaps(schema) == [Gap("bounds", "a"), Gap("categories", "b"), Gap("kind", "c")]
    assert "'a' lacks bounds" in str(gaps(schema)[0])
    assert [gap.what for gap in gaps(Schema(()))] == ["target", "columns"]
    only = Schema((Column("y", "number", 0, 1), Column("d", "ignore")), "y")
    assert [gap.what for gap in gaps(only)] == ["features"] and "ignored" in str(gaps(only)[0])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"kind": "date"}, "kind is 'date'"),
        ({"kind": 3}, "kind must be a text"),
        ({"kind": "number", "lo": 1}, "unknown key 'lo'"),
        ({"kind": "number", "low": 2, "high": 1}, "low must be below high"),
        ({"kind": "number", "low": 1, "high": 1}, "low must be below high"),
        ({"kind": "number", "low": -1.7e308, "high": 1.7e308}, "low must be below high"),
        ({"kind": "number", "low": math.nan}, "low must be finite"),
        ({"kind": "number", "high": math.inf}, "high must be finite"),
        ({"kind": "number", "high": 10**400}, "high must be finite"),
        ({"kind": "number", "low": True}, "low must be a number"),
        ({"kind": "number", "low": "1"}, "low must be a number"),
        ({"kind": "number", "low": 0, "high": 1, "missing": 2}, "missing is outside of the bounds"),
        ({"kind": "number", "low": 0, "high": 1, "missing": "no"}, "missing must be a number"),
        ({"kind": "number", "categories": ["a"]}, "categories and unknown are for categories"),
        ({"kind": "category", "low": 1}, "low and high are for numbers"),
        ({"kind": "category", "categories": "ab"}, "categories must be a list"),
        ({"kind": "category", "categories": [["a"]]}, "categories must be texts, numbers or booleans"),
        ({"kind": "category", "categories": [math.nan]}, "a category must be finite"),
        ({"kind": "category", "categories": ["a", "b", "a"]}, "category 'a' is listed twice"),
        ({"kind": "category", "categories": [1, "1.0"]}, "is listed twice"),
        ({"kind": "category", "categories": [True, "TRUE"]}, "is listed twice"),
        ({"kind": "category", "categories": ["a"], "missing": "b"}, "missing is not among the categories"),
        ({"kind": "category", "unknown": "drop"}, "unknown is 'drop'"),
        ({"kind": "category", "categories": ["\ud800"]}, "half a character"),
        (3, "must be a table"),
    ],
)  # fmt: skip
def test_what_cannot_be_declared(fields, told):
    with pytest.raises(ValueError, match=told) as refused:
        column = {"name": "x", **fields} if isinstance(fields, dict) else fields
        Schema.from_dict({"format": FORMAT, "target": None, "columns": [column]})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[columns", "is not TOML"),
        ("a = " + "9" * 5000, "is not TOML"),
        ("target = 'a'", 'format must be "noisewise-schema/1"'),
        ("format = 'noisewise-schema/2'", "format must be"),
        (f"format = '{FORMAT}'\ntarget = 'a'", "not among the columns"),
        (f"format = '{FORMAT}'\ntarget = 3", "target must be the name"),
        (f"format = '{FORMAT}'\ncolumns = 3", "columns must be tables"),
        (f"format = '{FORMAT}'\nlabel = 3", "unknown key 'label'"),
        (f"format = '{FORMAT}'\n[columns]\na = 3", "column 'a' must be a table"),
        (f"format = '{FORMAT}'\ntarget = 'a'\n[columns.a]\nkind = 'ignore'", "is ignored"),
        (f"format = '{FORMAT}'\ntarget = 'a'\n[columns.a]\nkind='number'\nlow=0\nhigh=1\nmissing=1", "never made up"),
        (f"format = '{FORMAT}'\ntarget = 'a'\n[columns.a]\nkind = 'category'\ncategories = [1]", "at least two"),
        (
            f"format = '{FORMAT}'\n[columns.a]\nkind = 'category'\ncategories = [1979-05-27]",
            "texts, numbers or booleans",
        ),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path, text, told):
    with pytest.raises(ValueError, match=told) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(str(tmp_path)) and "\n" not in str(refused.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        read_schema(tmp_path / "none.toml")
    with pytest.raises(ValueError, match="directory"):
        read_schema(tmp_path)
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="UTF-8"):
        read_schema(tmp_path / "x.toml")
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbf" + EXAMPLE.encode())
    assert read_schema(tmp_path / "bom.toml").target == "income"


def test_one_column_twice_and_a_list_that_is_none():
    with pytest.raises(ValueError, match="'a' is listed twice"):
        Schema((Column("a"), Column("a")))
    for columns in ("ab", 3, None):
        with pytest.raises(ValueError, match="list of columns"):
            Schema.from_dict({"format": FORMAT, "columns": columns})
    with pytest.raises(ValueError, match="must be a table"):
        Schema.from_dict([])


@settings(deadline=None)
@given(st.one_of(st.text(), st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_key_is_its_own_key(value):
    assert key(key(value)) == key(value)


@settings(deadline=None)
@given(st.integers(-(10**20), 10**20) | st.floats(-(2.0**50), 2.0**50, width=32))
def test_a_number_and_its_text_are_one_category(number):
    assert key(str(number)) == key(number) == key(f" {number} ")
    assert key(float(number)) == key(repr(float(number)))
