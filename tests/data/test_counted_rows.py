"""Which rows of a person count: at most k, by coins of the row alone; ids of any kind, and nobody's rows."""

from __future__ import annotations

import datetime
import uuid
from collections import Counter
from decimal import Decimal
from itertools import permutations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisewise.tables.files import open_source
from noisewise.tables.persons import PersonCoins, PersonColumn, persons_of
from noisewise.tables.refusal import Refusal
from noisewise.tables.schema import Column, Schema, read_schema


def counted(ids, rows=1, seed=0):
    return PersonColumn("who", rows).in_table(pd.DataFrame({"x": 0.0, "who": ids}), seed=seed)


@pytest.mark.parametrize("rows", [1, 2, 3, 50])
def test_at_most_so_many_rows_of_a_person_count_and_all_of_who_has_fewer(rows):
    ids = np.random.default_rng(0).integers(0, 300, 2000)
    for seed in (None, 1, 2):
        there = Counter(ids[counted(ids, rows, seed)].tolist())
        assert there == {person: min(rows, have) for person, have in Counter(ids.tolist()).items()}


def test_every_row_of_a_person_has_the_same_chance():
    """Four rows, two count: each 1,000 times of 2,000; 5 standard deviations are 112."""
    times = sum(counted(["a", "b", "a", "a", "b", "a"], 2, seed).astype(int) for seed in range(2000))
    assert times[[1, 4]].tolist() == [2000, 2000]
    assert np.abs(times[[0, 2, 3, 5]] - 1000).max() < 112


def chosen_with(words, ids, rows):
    coins = PersonCoins(0)
    coins._take = lambda count: np.array(words[:count])
    return coins.choose(coins.digests(pd.Series(ids, dtype=object)), rows)


@pytest.mark.sample(2)
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_person_who_joins_changes_nothing_for_the_others(rows, place):
    """Exactly: over all orders of the words, the others' rows have the same distribution with and without her."""
    others = ["a", "b", "a", "a"]
    joined = [*others[:place], *["x"] * 3, *others[place:]]
    mine = [name == "x" for name in joined]

    def distribution(ids, keep):
        orders = list(permutations(range(len(ids))))
        found = Counter(tuple(chosen_with(order, ids, rows)[keep].tolist()) for order in orders)
        return {which: times / len(orders) for which, times in found.items()}

    without = distribution(others, np.ones(4, bool))
    with_her = distribution(joined, ~np.array(mine))
    assert without.keys() == with_her.keys()
    assert all(abs(without[which] - with_her[which]) < 1e-12 for which in without)


def test_with_the_same_words_the_others_rows_are_the_same_rows():
    ids, words = ["a", "x", "a", "b", "x", "a", "b"], [5, 0, 3, 9, 1, 4, 2]
    others = [name != "x" for name in ids]
    left = [name for name in ids if name != "x"]
    kept = [word for word, other in zip(words, others, strict=True) if other]
    for rows in (1, 2, 3):
        with_her = chosen_with(words, ids, rows)
        assert with_her[others].tolist() == chosen_with(kept, left, rows).tolist()
        assert with_her[~np.array(others)].sum() == min(rows, 2)


ONE = [1, 1.0, "1", " 1 ", "1.00", np.float32(1), np.int8(1), Decimal(1), "+1"]
NOBODY = [None, np.nan, pd.NA, pd.NaT, "", "  ", "NA", "nan", "?", "null", float("nan"), Decimal("NaN")]
SOMEBODY = [
    *("01", "Ann", "ann", "é", "e\u0301", "\U0001f600", "\ud800", "0", "a b", "1-1", "-1", "true", "x" * 5000),
    *(b"Ann", uuid.UUID(int=7), datetime.date(2020, 1, 1), (1, 2), 10**40, 0.5, float("inf")),
]


def test_ids_are_compared_as_categories_are():
    assert counted(ONE).sum() == 1
    assert counted([True, "TRUE", "true", np.True_]).sum() == 1
    assert counted(SOMEBODY).all()  # all of them different
    assert counted([*SOMEBODY, *ONE, *SOMEBODY], 1).sum() == len(SOMEBODY) + 1


def test_rows_of_nobody_do_not_count():
    assert not counted(NOBODY, 100).any()
    assert counted([*NOBODY, "somebody"], 100).tolist() == [False] * len(NOBODY) + [True]
    assert counted(pd.array([1, None, 1], dtype="Int64"), 5).tolist() == [True, False, True]
    assert counted(np.array([1.0, np.nan, 1.0, 2.0]), 5).tolist() == [True, False, True, True]


@pytest.mark.parametrize(
    "ids",
    [
        pd.Series([1, 2, 1]),
        pd.Series([1.0, 2.0, 1.0]),
        pd.Series(["a", "b", "a"], dtype="category"),
        pd.Series(["a", "b", "a"], dtype="string"),
        pd.Series([True, False, True]),
        pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01", "2020-01-01"])),
        pd.Series(pd.period_range("2020", periods=2, freq="Y")[[0, 1, 0]]),
        pd.Series(pd.interval_range(0, 2)[[0, 1, 0]]),
        pd.Series([0.5 + 1j, 0j, 0.5 + 1j]),
    ],
    ids=lambda ids: str(ids.dtype),
)
def test_columns_of_any_type_are_ids(ids):
    assert counted(ids, 1).sum() == 2 and counted(ids, 2).all()


def test_a_seed_repeats_the_choice_and_nothing_else_does():
    ids = ["a"] * 200
    assert (counted(ids, 20, 3) == counted(ids, 20, 3)).all()
    assert (counted(ids, 20, 3) != counted(ids, 20, 4)).any()
    assert (counted(ids, 20, None) != counted(ids, 20, None)).any()


def test_ids_go_over_batches_files_and_formats(tmp_path):
    numbers = np.arange(90_000) % 30_000
    pq.write_table(pa.table({"x": np.zeros(len(numbers)), "who": numbers}), tmp_path / "a.parquet", row_group_size=7000)
    lines = "\n".join(f"{number}.0,0" for number in (*range(30_000), *range(30_000, 30_010)))
    (tmp_path / "b.csv").write_text(f"who,x\n{lines}\n,0\n")
    source = open_source([tmp_path / "a.parquet", tmp_path / "b.csv"])
    for rows in (1, 2, 4):
        there = PersonColumn("who", rows).in_files(source, seed=None)
        ids = np.concatenate([numbers, np.arange(30_010)])
        assert len(there) == 120_011 and not there[-1]
        times = np.bincount(ids[there[:-1]])
        assert (times[:30_000] == min(rows, 4)).all() and (times[30_000:] == 1).all()


def test_what_cannot_be_is_refused_in_one_line_without_an_id(tmp_path):
    for rows in (0, -1, 1.5, True, "3", 1 << 21):
        with pytest.raises(ValueError, match="rows_per_unit"):
            persons_of("who", rows)
    with pytest.raises(ValueError, match="go together"):
        persons_of("who", None)
    with pytest.raises(ValueError, match="go together"):
        persons_of(None, 3)
    with pytest.raises(ValueError, match="unit must be the name"):
        persons_of(7, 3)
    with pytest.raises(Refusal, match="no names of columns"):
        PersonColumn("who", 1).in_table(np.zeros((3, 2)), seed=None)
    with pytest.raises(Refusal, match="one column 'who'"):
        PersonColumn("who", 1).in_table(pd.DataFrame({"x": [1]}), seed=None)
    twice = pd.DataFrame([["secret", "secret"]], columns=["who", "who"])
    with pytest.raises(Refusal, match="one column 'who'") as caught:
        PersonColumn("who", 1).in_table(twice, seed=None)
    assert "secret" not in str(caught.value)
    (tmp_path / "a.csv").write_text("x\n1\n")
    with pytest.raises(Refusal, match="lacks the column 'who'"):
        PersonColumn("who", 1).in_files(open_source(tmp_path / "a.csv"), seed=None)


class Loud:
    def __str__(self) -> str:
        raise RuntimeError("the secret id 4711")


def test_an_id_that_raises_is_not_passed_on():
    with pytest.raises(Refusal) as caught:
        counted([Loud(), 1])
    assert "4711" not in str(caught.value) and caught.value.__context__ is None and caught.value.__cause__ is None


# --- in a schema ------------------------------------------------------------------------------------------------------

AGE = Column("age", "number", 0, 100)


def test_a_schema_says_whose_rows_they_are(tmp_path):
    schema = Schema((AGE,), None, "who", 3)
    assert schema["who"].kind == "ignore" and [column.name for column in schema.features] == ["age"]
    assert schema.persons == PersonColumn("who", 3)
    assert Schema.from_dict(schema.to_dict()) == schema
    (tmp_path / "s.toml").write_text(schema.to_toml())
    assert read_schema(tmp_path / "s.toml") == schema
    assert Schema((AGE, Column("who"))).with_column(AGE).persons is None
    assert "unit" not in Schema((AGE,)).to_dict() and "unit" not in Schema((AGE,)).to_toml()
    assert Schema((Column("who"), AGE), None, "who", 1)["who"].kind == "ignore"


def test_a_schema_refuses_an_odd_unit(tmp_path):
    with pytest.raises(ValueError, match="is no feature"):
        Schema((AGE,), None, "age", 2)
    with pytest.raises(ValueError, match="unit and target are both"):
        Schema((AGE,), "age", "age", 2)
    with pytest.raises(ValueError, match="go together"):
        Schema((AGE,), None, "who")
    with pytest.raises(ValueError, match="go together"):
        Schema((AGE,), None, None, 2)
    for line in ("unit = 3\nrows_per_unit = 1", 'unit = "who"\nrows_per_unit = 0', 'unit = "who"\nrows_per_unit = "3"'):
        (tmp_path / "s.toml").write_text(f'format = "noisewise-schema/1"\n{line}\n')
        with pytest.raises(ValueError, match="unit"):
            read_schema(tmp_path / "s.toml")
