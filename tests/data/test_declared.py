"""Schemas in short, dates and times by a unit, a decimal comma, frames, marks on guesses, and names that were nearly right."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import noisewise as nw
from noisewise.tables.encode import Encoder
from noisewise.tables.files import Dialect, open_source
from noisewise.tables.fill import fill_from_public, same_names
from noisewise.tables.rows import read_matrix
from noisewise.tables.schema import Column, Schema, gaps, read_schema
from noisewise.tables.values import UNITS, in_unit

# --- in short ---------------------------------------------------------------------------------------------------------


def test_columns_in_short():
    schema = Schema(age=(17, 90), job=["clerk", "farmer"], name="ignore", target="job")
    assert schema == Schema(
        (Column("age", "number", 17, 90), Column("job", "category", categories=("clerk", "farmer")), Column("name", "ignore")),
        "job",
    )  # fmt: skip
    assert schema == Schema({"age": (17, 90), "job": ["clerk", "farmer"], "name": "ignore"}, "job")
    assert Schema({"unit": (0, 1)}, job=pd.CategoricalDtype(["a", "b"]), n=Column("x", "number", 0, 1))["n"].name == "n"
    assert Schema(job={"b", "a"})["job"].categories == ("a", "b") and not gaps(schema)
    for wrong, told in [
        ({"age": (1, 2, 3)}, "tuple of 3"), ({"age": "numbr"}, "did you mean 'number'"), ({"age": 3}, "a list of all values"),
        ({"age": {"lo": 1}}, "unknown key 'lo'.*did you mean 'low'"), ({"target": "agee", "age": (0, 1)}, "did you mean 'age'"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=told):
            Schema(**wrong)
    with pytest.raises(ValueError, match="pass Column objects"):
        Schema(["age"])


def test_numbers_of_numpy_are_numbers():
    column = nw.Column("a", "number", np.int64(0), np.float32(0.1), knots=(np.float64(0), np.float32(0.1)))
    assert (column.low, column.high) == (0.0, 0.1) and type(column.high) is float and type(column.low) is float
    codes = nw.Column("c", "category", categories=(np.int64(1), np.bool_(True), np.str_("x"), np.float32(1.5)))
    assert codes.categories == (1, True, "x", 1.5) and [type(v) for v in codes.categories] == [int, bool, str, float]
    assert nw.Schema(a=(np.float64(0), np.int8(3)))["a"].high == 3


# --- dates and times --------------------------------------------------------------------------------------------------

BORN = Column("born", "number", datetime.date(1900, 1, 1), "2020-01-01", unit="years")


@pytest.mark.parametrize(
    ("unit", "since", "cell", "number"),
    [
        ("years", "", "2000-01-01", 2000.0), ("years", "2000-01-01", "1990-01-01", -10.0), ("days", "", "1970-01-11", 10.0),
        ("days", "2000-01-01", "2000-01-01T12:00", 0.5), ("hours", "", "1970-01-01T02:00:00+01:00", 1.0),
        ("hours", "", "06:30", 6.5), ("minutes", "", "00:00:30", 0.5), ("weeks", "", "1969-12-25", -1.0),
        ("days", "", "2024-02-30", None), ("years", "", "06:30", None), ("days", "", "1.1.1970", None), ("days", "", "1984", None),
    ],
)  # fmt: skip
def test_what_a_moment_is(unit, since, cell, number):
    assert in_unit(cell, unit, since) == number
    column = Column("x", "number", -1e6, 1e6, unit=unit, since=since)
    batch = pa.RecordBatch.from_pydict({"x": [cell, "?", None]})
    if number is None:
        with pytest.raises(ValueError, match=r"no date or time.*2024-02-29") as told:
            Encoder(Schema((column,))).table(batch)
        assert cell not in str(told.value)
    else:
        assert Encoder(Schema((column,))).table(batch)[:, 0].tolist()[0] == number


def test_dates_of_every_kind_of_table_are_the_same(tmp_path):
    days = [datetime.date(1950, 5, 17), None, datetime.date(2001, 12, 31)]
    frame = pd.DataFrame({"born": pd.to_datetime(pd.Series(days))})
    pq.write_table(pa.table({"born": pa.array(days, pa.date32())}), tmp_path / "d.parquet")
    frame.to_csv(tmp_path / "d.csv", index=False)
    encoder = Encoder(Schema((BORN,)))
    batches = [next(open_source(tmp_path / name).batches()) for name in ("d.csv", "d.parquet")]
    found = [
        encoder(data)[:, 0].tolist() for data in (frame, frame.astype(object), pd.DataFrame({"born": days}), *batches)
    ]
    assert (
        all(one == found[0] for one in found) and found[0][0] == pytest.approx(1950 + 136 / 365) and found[0][1] == 1960
    )
    zoned = pd.DataFrame({"born": pd.to_datetime(pd.Series(days), utc=True)})
    assert encoder(zoned)[:, 0].tolist() == found[0]
    spans = pd.DataFrame({"x": pd.to_timedelta([90, 30], unit="min")})
    assert Encoder(Schema((Column("x", "number", 0, 9, unit="hours"),)))(spans)[:, 0].tolist() == [1.5, 0.5]
    # company changes nothing
    alone = [encoder(frame.iloc[[i]])[0, 0] for i in range(3)]
    assert alone == found[0]


def test_a_unit_in_a_file_and_from_public_rows(tmp_path):
    text = (
        'format = "noisewise-schema/1"\ntarget = "y"\n[columns.born]\nkind = "number"\nlow = 1920-01-01\nhigh = 2010\n'
    )
    (tmp_path / "s.toml").write_text(text + 'unit = "years"\n[columns.y]\nkind = "category"\ncategories = [0, 1]\n')
    schema = read_schema(tmp_path / "s.toml")
    assert (schema["born"].low, schema["born"].high) == (1920, 2010) and Schema.from_dict(schema.to_dict()) == schema
    (tmp_path / "again.toml").write_text(schema.to_toml())
    assert read_schema(tmp_path / "again.toml") == schema
    (tmp_path / "d.csv").write_text("born,at\n" + "1950-01-01,08:00\n1980-01-01,09:30\n" * 15)
    left = fill_from_public(None, tmp_path / "d.csv")
    assert 'unit = "years"' in left["born"].note and 'unit = "hours"' in left["at"].note and gaps(left)
    dated = Schema((Column("born", "number", unit="years"), Column("at", "number", unit="hours")))
    filled = fill_from_public(dated, tmp_path / "d.csv")
    assert (filled["born"].low, filled["born"].high, filled["at"].high) == (1950, 1980, 9.5)
    pq.write_table(pa.table({"born": [datetime.date(2000, 1, 1)]}), tmp_path / "d.parquet")
    assert same_names(Schema((BORN,)), open_source(tmp_path / "d.parquet")) == []


def test_units_that_make_no_sense():
    for fields, told in [
        ({"unit": "year"}, f"pass one of {', '.join(UNITS)}.*did you mean 'years'"), ({"since": "2000-01-01"}, "set a unit"),
        ({"unit": "days", "since": "2000"}, "since must be a date"), ({"unit": "days", "low": "soon"}, "low must be a number of days"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=told):
            Column("x", "number", **fields)
    with pytest.raises(ValueError, match='set kind = "number"'):
        Column("x", "category", unit="days")


# --- a decimal comma --------------------------------------------------------------------------------------------------


def test_a_decimal_comma(tmp_path):
    schema = Schema(a=(0, 10), b=["1.5", "x,y"], y=[0, 1], target="y")
    (tmp_path / "d.csv").write_text('a;b;y\n1,5;1,5;0\n ,25;"x,y";1\n3;x,y;1\n"2,5e0";1,5;0\n?;1,5;1\n')
    X, _ = read_matrix(tmp_path / "d.csv", Encoder(schema), separator=Dialect(";", ","))
    assert X[:, 0].tolist() == [1.5, 0.25, 3.0, 2.5, 5.0] and X[:, 1].tolist() == [1, 0, 0, 1, 1]
    (tmp_path / "e.csv").write_text("a;b;y\n1.234,5;1,5;0\n")
    (tmp_path / "f.csv").write_text("a;b;y\n1.234;1,5;0\n")
    for name in ("e.csv", "f.csv"):
        with pytest.raises(
            ValueError, match=r"column 'a' holds a number with a point.*write numbers as 1234,5"
        ) as told:
            read_matrix(tmp_path / name, Encoder(schema), separator=Dialect(";", ","))
        assert "1.234" not in str(told.value)
    with pytest.raises(ValueError, match="pass --decimal ,"):
        read_matrix(tmp_path / "d.csv", Encoder(schema), separator=";")
    with pytest.raises(ValueError, match=r"pass '\.' or ','"):
        Dialect(";", "'")
    seen = fill_from_public(None, tmp_path / "d.csv", "y", separator=Dialect(";", ","))
    assert (seen["a"].low, seen["a"].high) == (0.25, 3.0)


def test_files_are_fitted_with_a_decimal_comma(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(0, 10, 300).round(2)})
    frame["y"] = (frame.a > 5).astype(int)
    frame.to_csv(tmp_path / "point.csv", index=False)
    frame.to_csv(tmp_path / "comma.csv", index=False, sep=";", decimal=",")
    schema = nw.Schema(a=(0, 10), y=[0, 1], target="y")
    model = nw.PrivateClassifier(1.0, 1e-6, schema=schema, random_state=0, method="descent")
    one = model.fit_files(tmp_path / "point.csv").fitted_.theta
    assert np.array_equal(one, model.fit_files(tmp_path / "comma.csv", separator=";", decimal=",").fitted_.theta)


# --- frames and marks -------------------------------------------------------------------------------------------------


def test_a_schema_from_a_public_frame():
    n = 300
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "age": rng.integers(17, 90, n), "wealth": np.exp(rng.normal(0, 3, n)), "level": rng.integers(1, 6, n),
        "id": np.arange(n), "job": rng.choice(["clerk", "farmer"], n), "woman": rng.random(n) < 0.5,
        "size": pd.Categorical(rng.choice(["S", "M"], n), ["S", "M", "L"]), "born": pd.Timestamp("2000-01-01"),
        "name": [f"Eve{i}" for i in range(n)], "rich": rng.integers(0, 2, n),
    })  # fmt: skip
    schema = nw.Schema.from_frame(frame, target="rich")
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds["age"] == "number" and kinds["job"] == "category" and schema["woman"].categories == (False, True)
    assert schema["size"].categories == ("S", "M", "L") and schema["size"].unknown == "refuse"
    assert schema["rich"].categories == (0, 1) and schema.target == "rich"
    for name, mark in {
        "level": "few whole numbers: a code?", "id": "looks like an id", "wealth": "heavy tail: scale = log?",
        "name": "looks like an id", "born": "is a date",
    }.items():  # fmt: skip
        assert mark in schema[name].note, name
        assert mark in schema.to_toml()
    assert "categories = [1, 2, 3, 4, 5]" in schema["level"].note
    assert not schema["age"].note and not schema["woman"].note
    with pytest.raises(ValueError, match="did you mean 'rich'"):
        nw.Schema.from_frame(frame, target="rch")
    for wrong in (frame.to_numpy(), frame[:0]):
        with pytest.raises(ValueError, match="public rows"):
            nw.Schema.from_frame(wrong)


def test_names_that_were_nearly_right(tmp_path):
    (tmp_path / "d.csv").write_text("age,income\n1,0\n2,1\n")
    schema = Schema(agee=(0, 9), income=[0, 1], target="income")
    with pytest.raises(ValueError, match=r"lacks the column 'agee'.*did you mean 'age'"):
        read_matrix(tmp_path / "d.csv", Encoder(schema))
    with pytest.raises(ValueError, match="did you mean 'income'"):
        fill_from_public(None, tmp_path / "d.csv", "incme")
    assert "did you mean 'age'" in same_names(schema, open_source(tmp_path / "d.csv"))[0]
    with pytest.raises(ValueError, match="did you mean 'descent'"):
        nw.PrivateClassifier(bounds=(0, 1), method="desent").fit(np.zeros((9, 1)), np.arange(9) % 2)
