"""What a schema may say of a table's columns, and cells as a table has them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise.accounts.purse import Purse
from noisewise.tables.encode import Encoder
from noisewise.tables.rows import columns_of
from noisewise.tables.schema import Column, Schema, read_schema

TARGET = Column("y", "category", categories=("no", "yes"))
BAD = {
    "knots below the bounds": ({"kind": "number", "low": 0, "high": 1, "knots": (-1, 1)}, "knots"),
    "knots above the bounds": ({"kind": "number", "low": 0, "high": 1, "knots": (0, 2)}, "knots"),
    "one knot": ({"kind": "number", "low": 0, "high": 1, "knots": (0.5,)}, "knots"),
    "knots that shrink": ({"kind": "number", "low": 0, "high": 1, "knots": (0.5, 0.4)}, "knots"),
    "knots that stay": ({"kind": "number", "low": 0, "high": 1, "knots": (0.5, 0.5)}, "knots"),
    "knots of NaN": ({"kind": "number", "low": 0, "high": 1, "knots": (0.0, math.nan)}, "knot"),
    "knots of text": ({"kind": "number", "low": 0, "high": 1, "knots": ("a", "b")}, "knot"),
    "log from 0": ({"kind": "number", "low": 0, "high": 1, "scale": "log"}, "low"),
    "log from below 0": ({"kind": "number", "low": -1, "high": 1, "scale": "log"}, "low"),
    "another scale": ({"kind": "number", "low": 0, "high": 1, "scale": "sqrt"}, "scale"),
    "a scale of no text": ({"kind": "number", "low": 0, "high": 1, "scale": 3}, "scale"),
    "a scale of categories": ({"kind": "category", "categories": ("a", "b"), "scale": "log"}, "scale"),
    "knots of categories": ({"kind": "category", "categories": ("a", "b"), "knots": (0, 1)}, "knots"),
    "a rare number": ({"kind": "number", "low": 0, "high": 1, "rare": (1,)}, "rare"),
    "rare but unknown": ({"kind": "category", "categories": ("a", "b"), "rare": ("c",)}, "rare"),
    "very many categories": ({"kind": "category", "categories": tuple(range(10_001))}, "10001 categories"),
}


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_one_clear_line(name):
    fields, word = BAD[name]
    with pytest.raises(ValueError, match=word) as told:
        Column("age", **fields)
    said = str(told.value)
    assert "'age'" in said and "\n" not in said and len(said) < 250


TOML = {
    "knots outside": 'kind = "number"\nlow = 0\nhigh = 1\nknots = [0, 3]',
    "log from 0": 'kind = "number"\nlow = 0\nhigh = 1\nscale = "log"',
    "another scale": 'kind = "number"\nlow = 0\nhigh = 1\nscale = "ranks"',
    "rare but unknown": 'kind = "category"\ncategories = ["a"]\nrare = ["b"]',
    "knots that are no list": 'kind = "number"\nlow = 0\nhigh = 1\nknots = 3',
}


@pytest.mark.parametrize("name", TOML)
def test_a_schema_file_with_a_mistake_is_one_clear_line(name, tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(f'format = "noisewise-schema/1"\ntarget = "y"\n[columns.age]\n{TOML[name]}\n')
    with pytest.raises(ValueError, match="'age'") as told:
        read_schema(path)
    assert "\n" not in str(told.value)


def test_ten_thousand_categories_are_not_too_many():
    column = Column("id", "category", categories=tuple(range(10_000)), rare=tuple(range(10, 10_000)))
    assert max(columns_of(Schema((column, TARGET), "y"))[0].groups) == 10


@pytest.mark.parametrize(
    "column",
    [
        Column("x", "number", 1.0, 1.0 + 1e-15, scale="log"),
        Column("x", "number", 0.0, 1e-310),
        Column("x", "number", 0.0, 1.0, knots=(0.0, 5e-324, 1.0)),
    ],
)
def test_a_scale_without_room_is_refused_before_anything_is_spent(column):
    """Points that are equal, or so near that no place lies between them, in double precision."""
    schema, purse = Schema((column, TARGET), "y"), Purse(nw.Budget(1.0, 1e-6))
    with pytest.raises(ValueError, match="scale of column 'x'") as told:
        frame = pd.DataFrame({"x": [1.0] * 9})
        nw.PrivateClassifier(1.0, 1e-6, method="additive", schema=schema).fit(
            frame, ["no", "yes"] * 4 + ["no"], purse=purse
        )
    assert "\n" not in str(told.value)
    assert purse.spent_fraction == 0 and purse.entries == ()


def schema():
    return Schema(
        (
            Column("age", "number", 0, 100),
            Column("hours", "number", 0, 99, missing=40),
            Column("job", "category", categories=("clerk", "nurse"), unknown="missing"),
            Column("town", "category", categories=("a", "b"), missing="b"),
            TARGET,
        ),
        "y",
    )


def test_a_table_has_a_column_for_each_of_the_schema():
    frame = pd.DataFrame(
        {
            "age": ["30", "", "1e300"],
            "hours": ["", "5", "?"],
            "job": ["nurse", "new", ""],
            "town": ["a", "", "b"],
        }
    )
    found = Encoder(schema()).table(frame)
    expected = [[30, 40, 1, 0], [math.nan, 5, math.nan, 1], [1e300, 40, math.nan, 1]]
    np.testing.assert_array_equal(found, np.array(expected, float))


def test_a_cell_that_the_schema_does_not_foresee_is_refused_without_its_value():
    strict = Schema((Column("job", "category", categories=("clerk",)), Column("age", "number", 0, 9), TARGET), "y")
    for frame, word in (
        (pd.DataFrame({"job": ["Xanthippe"], "age": [1]}), "job"),
        (pd.DataFrame({"job": ["clerk"], "age": ["Xanthippe"]}), "age"),
        (pd.DataFrame({"job": ["clerk"]}), "age"),
    ):
        with pytest.raises(ValueError, match=word) as told:
            Encoder(strict).table(frame)
        assert "Xanthippe" not in str(told.value) and "\n" not in str(told.value)
