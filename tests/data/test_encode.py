"""Encoding: the same cell means the same in CSV, Parquet and DataFrames; what is not foreseen is named, never shown."""

from __future__ import annotations

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.tables.encode import Encoder
from noisewise.tables.rows import Scaling
from noisewise.tables.schema import Column, Schema
from noisewise.tables.values import is_missing_word, number_of

AGE = Column("age", "number", 0, 100)
JOB = Column("job", "category", categories=("clerk", "farmer"))
LABEL = Column("y", "category", categories=("yes", "no"))
NUMBER = Column("x", "number", 0, 10)


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def encode(column, cells):
    """One column, encoded."""
    return Encoder(Schema((column,)))(batch(**{column.name: cells})).tolist()


def test_a_table_becomes_a_matrix_with_bounds():
    encoder = Encoder(Schema((AGE, JOB, Column("name", "ignore"), LABEL), "y"))
    data = batch(age=["17", " 2e1 "], job=["farmer", "clerk"], name=["Eve", "Bob"], y=["no", "yes"])
    assert encoder(data).tolist() == [[17, 0, 1], [20, 1, 0]]
    assert encoder.feature_names == ("age", "job=clerk", "job=farmer") and encoder.columns == ("age", "job", "y")
    assert encoder.low.tolist() == [0, 0, 0] and encoder.high.tolist() == [100, 1, 1]
    assert encoder.classes.tolist() == ["no", "yes"] and encoder.labels(data).tolist() == [0, 1]
    assert encoder(data.to_pandas()).tolist() == encoder(data).tolist()
    again = Encoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again == encoder and again(data).tolist() == encoder(data).tolist()
    rows = Scaling(encoder.low, encoder.high, unit_rows=False)(encoder(data))
    np.testing.assert_allclose(rows * 2, [[0.17, 0, 1, 1], [0.2, 1, 0, 1]])


@pytest.mark.parametrize("age", [[17.0, 20.0, 30.0], [17.0, None, 30.0], [17, 20, 30], ["17", "20", "30"]])
def test_rows_of_a_slice_are_their_own(age):
    """Files are read in blocks that are cut further: a cell must not be that of a row before the cut."""
    encoder = Encoder(Schema((AGE, JOB, LABEL), "y"))
    whole = batch(age=age, job=["farmer", "clerk", "clerk"], y=["no", "yes", "no"])
    for start in range(3):
        part = whole.slice(start, 1)
        assert encoder(part).tolist() == encoder(whole)[start : start + 1].tolist()
        assert encoder.labels(part).tolist() == encoder.labels(whole)[start : start + 1].tolist()


@pytest.mark.parametrize("word", ["", " ", "NA", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "?", ".", None])
def test_what_is_missing(word):
    assert encode(NUMBER, ["1", word]) == [[1], [5]]
    assert encode(Column("x", "number", 0, 10, missing=2), ["1", word]) == [[1], [2]]
    assert encode(JOB, ["clerk", word]) == [[1, 0], [0, 0]]
    assert encode(Column("job", "category", categories=("clerk", "farmer"), missing="farmer"), ["clerk", word]) == [
        [1, 0],
        [0, 1],
    ]


def test_nan_is_missing_and_infinity_is_not():
    assert encode(NUMBER, [np.nan, 3.0, None]) == [[5], [3], [5]]
    assert encode(NUMBER, ["inf", "-inf"]) == [[np.inf], [-np.inf]]  # clamped by the scaling
    assert encode(Column("x", "category", categories=(1, 2)), [np.nan, 2.0, None]) == [[0, 0], [0, 1], [0, 0]]


def test_a_declared_category_is_never_missing():
    region = Column("region", "category", categories=("NA", "EU", ""), missing="EU")
    assert encode(region, ["NA", "EU", "", None, "?"]) == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0]]


ONES = [
    pa.array(["1", "1.0", "1.00", "+1", " 1 ", "1e0"]), pa.array([1, 1], pa.int8()), pa.array([1.0, 1.0], pa.float32()),
    pa.array([1], pa.uint64()), pa.array([decimal.Decimal("1.00")]), pa.array(["1", "1.0"]).dictionary_encode(),
    pa.array(["1"], pa.large_string()), pa.array([np.float16(1)], pa.float16()), pa.array(["1"], pa.string_view()),
]  # fmt: skip


@pytest.mark.parametrize("cells", ONES, ids=lambda cells: str(cells.type))
@pytest.mark.parametrize("declared", [1, 1.0, "1", "1.0"])
def test_one_is_one_in_every_type(cells, declared):
    column = Column("x", "category", categories=("0", declared, True))
    assert encode(column, cells) == [[0, 1, 0]] * len(cells)
    assert encode(NUMBER, cells) == [[1]] * len(cells)


@pytest.mark.parametrize("cells", [pa.array([True, False, None]), pa.array(["TRUE", "false ", ""])], ids=str)
def test_booleans(cells):
    assert encode(Column("x", "category", categories=("true", False, 1)), cells) == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert encode(NUMBER, cells) == [[1], [0], [5]]


def test_codes_and_single_precision_keep_their_meaning():
    assert encode(Column("x", "category", categories=("01", 1)), ["01", "1"]) == [[1, 0], [0, 1]]
    assert encode(Column("x", "category", categories=(0.1, 2)), pa.array([0.1, 2], pa.float32())) == [[1, 0], [0, 1]]


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(max_size=6), st.floats().map(str), st.sampled_from(["+1", "1.", "nan(1)", "-NaN", "0x1", "1_0", "infinit"])), min_size=1, max_size=5))  # fmt: skip
def test_a_number_is_read_the_same_way_in_any_company(texts):
    wanted = [5.0 if is_missing_word(text) else number_of(text) for text in texts]
    wanted = [5.0 if number is not None and np.isnan(number) else number for number in wanted]
    for company in ([], ["true"], [" "]):
        if None in wanted:
            with pytest.raises(ValueError, match="column 'x' holds text where numbers are needed"):
                encode(NUMBER, texts + company)
        else:
            assert [row[0] for row in encode(NUMBER, texts + company)][: len(texts)] == wanted


@pytest.mark.parametrize(
    ("column", "cells", "told"),
    [
        (NUMBER, ["1", "Eve-4711"], "holds text where numbers are needed"),
        (NUMBER, ["1,5"], "write numbers as 1.5"),
        (JOB, ["Eve-4711"], 'add every value that can occur, or set unknown = "missing"'),
        (JOB, ["Clerk"], "not among its categories"),
        (JOB, [4711], "not among its categories"),
        (NUMBER, [datetime.date(2000, 1, 1)], "is a date; turn it into a number"),
        (JOB, [["Eve-4711"]], "lists or records"),
    ],
)
def test_cells_that_are_not_foreseen(column, cells, told):
    for data in (batch(**{column.name: cells}), pd.DataFrame({column.name: cells})):
        with pytest.raises(ValueError, match=told) as refused:
            Encoder(Schema((column,)))(data)
        message = str(refused.value)
        assert repr(column.name) in message and "4711" not in message and "\n" not in message


def test_an_unknown_category_may_count_as_missing():
    lenient = Column("job", "category", categories=("clerk", "farmer"), missing="clerk", unknown="missing")
    assert encode(lenient, ["Eve", "farmer"]) == [[1, 0], [0, 1]]


def test_frames_of_any_kind():
    encoder = Encoder(Schema((NUMBER, Column("1", "category", categories=(1, "a", True)))))
    frame = pd.DataFrame({"x": [1, "2", None, 4.0], 1: [1, "a", True, "1.0"]}, index=[3, 3, 9, 0])
    assert Encoder(Schema((Column("x", "category", categories=(2**70, 1)),)))(
        pd.DataFrame({"x": [2**70, "1"]})
    ).tolist() == [[1, 0], [0, 1]]
    assert Encoder(Schema((Column("x", "category", categories=(2**70,)),)))(pd.DataFrame({"x": [2**70]})).tolist() == [
        [1]
    ]
    assert encoder(frame).tolist() == [[1, 1, 0, 0], [2, 0, 1, 0], [5, 0, 0, 1], [4, 1, 0, 0]]
    kinds = pd.DataFrame({"x": pd.array([1, None], "Int64"), 1: pd.Categorical(["a", None])})
    assert encoder(kinds).tolist() == [[1, 0, 1, 0], [5, 0, 0, 0]]
    with pytest.raises(ValueError, match="'x' twice"):
        encoder(pd.DataFrame([[1, 2, 3]], columns=["x", "x", "1"]))


def test_columns_that_lack_or_are_too_many():
    encoder = Encoder(Schema((AGE, JOB, Column("name", "ignore"), LABEL), "y"))
    encoder.check(["y", "job", "age"])
    for names, told in [
        (["age", "y"], "lacks the column 'job'"), (["age", "job"], "lacks the target 'y'"),
        (["age", "job", "y", "pay"], "has the column 'pay' that the schema does not name; add it with kind = \"ignore\""),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=told):
            encoder.check(names)
    encoder.check(["age", "job", "pay"], predict=True)
    with pytest.raises(ValueError, match="lacks the column 'age'"):
        encoder.check(["job"], predict=True)
    with pytest.raises(ValueError, match="'pay'"):
        encoder(batch(age=["1"], job=["clerk"], pay=["3"]))
    assert encoder(batch(age=["1"], job=["clerk"], pay=["3"]), predict=True).tolist() == [[1, 1, 0]]
    with pytest.raises(ValueError, match="lacks the target 'y'"):
        encoder.labels(batch(age=["1"]))


@pytest.mark.parametrize(
    ("declared", "classes", "cells", "codes"),
    [
        (("yes", "no"), ["no", "yes"], ["yes", " no"], [1, 0]),
        ((10, 9), [9, 10], ["10", "9.0"], [1, 0]),
        ((True, False), [False, True], ["false", "TRUE"], [0, 1]),
        ((1, "b", True), ["1", "b", "true"], ["b", "true", "1.0"], [1, 2, 0]),
        ((1.5, -2), [-2, 1.5], [1.5, -2.0], [1, 0]),
    ],
)
def test_classes_are_sorted_and_labels_are_their_positions(declared, classes, cells, codes):
    encoder = Encoder(Schema((NUMBER, Column("y", "category", categories=declared)), "y"))
    assert encoder.classes.tolist() == classes and encoder.labels(batch(y=cells)).tolist() == codes
    assert encoder.labels(batch(y=cells)).dtype == np.int64


def test_bad_labels():
    classes = Encoder(Schema((NUMBER, LABEL), "y"))
    for cells, told in [
        (["yes", None], "missing labels; correct"),
        (["yes", "?"], "missing"),
        (["Eve-4711"], "every class"),
    ]:
        with pytest.raises(ValueError, match=told) as refused:
            classes.labels(batch(y=cells))
        assert "'y'" in str(refused.value) and "Eve" not in str(refused.value)
    numbers = Encoder(Schema((NUMBER, Column("y", "number", 0, 10)), "y"))
    assert numbers.classes is None
    assert numbers.labels(batch(y=["-3", "5", "inf"])).tolist() == [0, 5, 10]
    assert numbers.labels(batch(y=["-3", "5", "inf"]), clamp=False).tolist() == [-3, 5, np.inf]
    for cells in ([1.0, np.nan], ["1", ""], [1, None]):
        with pytest.raises(ValueError, match="missing labels"):
            numbers.labels(batch(y=cells))
    with pytest.raises(ValueError, match="holds text"):
        numbers.labels(batch(y=["Eve"]))


def test_a_schema_with_gaps_encodes_nothing():
    with pytest.raises(ValueError, match="not complete: column 'a' lacks bounds"):
        Encoder(Schema((Column("a", "number"),)))
    with pytest.raises(ValueError, match="names no target"):
        Encoder(Schema((NUMBER,))).labels(batch(x=["1"]))
