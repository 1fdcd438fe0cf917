"""A skeleton never depends on values; a schema from public rows holds what those rows hold."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisewise.tables.encode import Encoder
from noisewise.tables.files import open_source
from noisewise.tables.fill import fill_from_public, same_names, skeleton
from noisewise.tables.rows import read_matrix
from noisewise.tables.schema import Column, Schema, gaps


def csv(folder, columns, name="d.csv"):
    """A CSV with these columns of texts."""
    path = folder / name
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_the_skeleton_of_a_csv_holds_names_alone(tmp_path):
    one = skeleton(open_source(csv(tmp_path, {"a": [1, 2], "b": ["x", "y"]})), "b")
    two = skeleton(open_source(csv(tmp_path, {"a": ["Eve", ""], "b": ["1999-01-01", "7"]})), "b")
    assert one == two == Schema((Column("a"), Column("b")), "b") and one.to_toml() == two.to_toml()


def test_the_skeleton_of_a_parquet_file_holds_types(tmp_path):
    table = pa.table({
        "n": [1], "f": [1.5], "s": ["x"], "b": [True], "d": [datetime.date(2000, 1, 1)], "l": [[1]],
        "c": pa.array(["x"]).dictionary_encode(), "y": [0], "void": pa.nulls(1),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "d.parquet")
    made = skeleton(open_source(tmp_path / "d.parquet"), "y")
    kinds = {column.name: column.kind for column in made.columns}
    assert kinds == {
        "n": "number", "f": "number", "s": "category", "b": "category", "d": "", "l": "", "c": "category", "y": "", "void": "",
    }  # fmt: skip
    assert made["b"].categories == (False, True) and made["s"].categories == () and made["n"].low is None
    assert 'unit = "years"' in made["d"].note and 'unit = "years"' in made.to_toml()
    with pytest.raises(ValueError, match="no column 'z'"):
        skeleton(open_source(tmp_path / "d.parquet"), "z")


def filled(folder, cells, target=None):
    other = ["1", "2"] * (len(cells) // 2) + ["3"] * (len(cells) % 2)
    return fill_from_public(None, csv(folder, {"x": cells, "other": other}), target)["x"]


@pytest.mark.parametrize(
    ("cells", "kind", "found"),
    [
        (["3", "-1.5", "", "2e1"], "number", (-1.5, 20)),
        (["3", "inf", "nan", "4"], "number", (3, 4)),
        (["b", "a", "NA", "a "], "category", ("a", "b")),
        (["1", "1.0", "x"], "category", ("1", "x")),
        (["TRUE", "false"], "category", (False, True)),
        (["true", "1"], "category", ("1", "true")),
        (["5", "5"], "number", (2.5, 7.5)),
        (["0", "0"], "number", (-1, 1)),
        (["-4", "-4"], "number", (-6, -2)),
    ],
)
def test_public_columns(tmp_path, cells, kind, found):
    column = filled(tmp_path, cells)
    assert column.kind == kind and (column.categories or (column.low, column.high)) == found
    assert [type(value) for value in column.categories] == [type(value) for value in found[: len(column.categories)]]


def test_public_columns_that_say_too_little(tmp_path):
    for cells, note in [
        (["2024-01-31", "2023-12-01T10:00:00Z", ""], "looks like dates"),
        ([f"Eve{i}" for i in range(201)], "more than 200 different texts"),
        (["", "?"], "no value"),
    ]:
        column = filled(tmp_path, cells)
        assert column.kind == "" and note in column.note and note in Schema((column,)).to_toml()
    assert len(filled(tmp_path, [f"Eve{i}" for i in range(200)]).categories) == 200
    assert filled(tmp_path, [str(i) for i in range(300)]).kind == "number"
    constant = filled(tmp_path, ["1.7e308", "1.7e308"])
    assert constant.kind == "number" and constant.low is None and constant.note


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["1", "0", "1.0"], (0, 1)),
        (["-1", "+1", "0"], (-1, 0, 1)),
        ([str(i) for i in range(20)], tuple(range(20))),
        ([str(i) for i in range(21)], None),
        (["0.5", "1"], None),
        (["0", "inf"], None),
        (["01", "1", "2"], ("01", "1", "2")),
        (["yes", "no"], ("no", "yes")),
    ],
)
def test_public_targets(tmp_path, cells, found):
    target = filled(tmp_path, cells, "x")
    assert (target.kind, target.categories) == (("number", ()) if found is None else ("category", found))


def test_a_target_with_one_class_is_left_open(tmp_path):
    target = filled(tmp_path, ["yes", "yes"], "x")
    assert target.kind == "category" and not target.categories and "at least two" in target.note


def test_what_is_declared_stays(tmp_path):
    path = csv(tmp_path, {"a": ["5", "7"], "b": ["5", "7"], "c": ["5", "x"], "d": ["u", "v"], "e": ["1", "2"]})
    declared = Schema((
        Column("a", "number", 0), Column("b", "category", missing="7"), Column("c", "category", categories=("q",)),
        Column("d", "ignore"), Column("e"),
    ))  # fmt: skip
    made = fill_from_public(declared, path, "e")
    assert (made["a"].low, made["a"].high) == (0, 7) and made["b"].categories == (5, 7) and made["b"].missing == "7"
    assert made["c"].categories == ("q",) and made["d"].kind == "ignore" and made.target == "e" and not gaps(made)
    with pytest.raises(ValueError, match="the schema says 'e'"):
        fill_from_public(made, path, "a")
    with pytest.raises(ValueError, match="lacks the column 'z'"):
        fill_from_public(Schema((Column("z"),)), path)
    wrong = fill_from_public(Schema((Column("d", "number"),)), path)["d"]
    assert wrong.low is None and "holds text" in wrong.note


def test_a_filled_schema_reads_its_own_rows_from_csv_and_parquet(tmp_path):
    columns = {"age": ["30", "", "50"], "job": ["b", "a", "NA"], "flag": ["true", "false", ""], "y": ["1", "0", "1"]}
    text = csv(tmp_path, columns)
    typed = pa.table({"age": [30.0, None, 50.0], "job": ["b", "a", None], "flag": [True, False, None], "y": [1, 0, 1]})
    pq.write_table(typed, tmp_path / "d.parquet")
    one, two = (fill_from_public(None, path, "y") for path in (text, tmp_path / "d.parquet"))
    assert one == two and not gaps(one)
    matrices = [read_matrix(path, Encoder(one)) for path in (text, tmp_path / "d.parquet")]
    for X, y in matrices:
        assert X.tolist() == [[30, 0, 1, 0, 1], [40, 1, 0, 1, 0], [50, 0, 0, 0, 0]] and y.tolist() == [1, 0, 1]


def test_same_names(tmp_path):
    pq.write_table(pa.table({"a": [1], "born": [datetime.date(2000, 1, 1)], "x": [1]}), tmp_path / "d.parquet")
    schema = Schema((Column("a"), Column("b"), Column("born", "number"), Column("gone", "ignore")))
    told = same_names(schema, open_source(tmp_path / "d.parquet"))
    assert len(told) == 3
    for part, line in zip(("lack the column 'b'", "have the column 'x'", "'born' is a date"), told, strict=True):
        assert part in line
