"""Ids, constants, heavy tails and rare categories: told from public rows or the schema, never from private rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise.accounts import Budget
from noisewise.tables.fill import fill_from_public, public_doubts
from noisewise.tables.resolve import resolve
from noisewise.tables.schema import Column, Schema

ROWS = 3000
BUDGET = Budget(1.0, 1e-6)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    jobs = ["clerk", "farmer", "smith", "baker", "bishop", "queen"]
    return pd.DataFrame(
        {
            "age": rng.integers(17, 90, ROWS),
            "pay": np.exp(rng.normal(8, 1.2, ROWS)).round(2),
            "job": rng.choice(jobs, ROWS, p=[0.5, 0.3, 0.15, 0.048, 0.001, 0.001]),
            "half": np.where(rng.random(ROWS) < 0.5, "x", ""),
            "exact": rng.random(ROWS),
            "y": rng.choice(["no", "yes"], ROWS),
        }
    )


ODD = {
    "id": lambda n: np.arange(n) + 1000,
    "shuffled": lambda n: np.random.default_rng(1).permutation(n),
    "name": lambda n: [f"p{i}" for i in range(n)],
    "year": lambda n: [2020] * n,
    "site": lambda n: ["A"] * n,
}


def test_ordinary_columns_are_not_doubted_and_rare_ones_share_a_coordinate(tmp_path, table):
    table.to_csv(tmp_path / "public.csv", index=False)
    made = fill_from_public(None, tmp_path / "public.csv", "y")
    assert public_doubts(made, tmp_path / "public.csv") == {}
    assert made["job"].rare == ("bishop", "queen") and made["half"].rare == () and made["y"].rare == ()
    assert 'scale = "log"' in made["pay"].note and made["pay"].scale == "linear"
    assert [column.name for column in made.columns if column.note] == ["pay"]
    assert 'scale = "log" may suit it' in made.to_toml() and 'rare = ["bishop", "queen"]' in made.to_toml()


def test_one_rare_category_keeps_its_own_coordinate_and_a_target_has_none(tmp_path, table):
    table["job"] = ["queen"] + ["clerk", "smith"] * ((ROWS - 1) // 2) + ["clerk"]
    table["y"] = ["a", "b"] + ["c"] * (ROWS - 2)
    table.to_csv(tmp_path / "public.csv", index=False)
    made = fill_from_public(None, tmp_path / "public.csv", "y")
    assert made["job"].rare == () and made["y"].rare == () and made["y"].categories == ("a", "b", "c")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("name", ODD)
def test_ids_and_constants_are_refused_with_the_fix(tmp_path, table, name, kind):
    public, private = tmp_path / f"public.{kind}", tmp_path / f"private.{kind}"
    odd = table.assign(**{name: ODD[name](ROWS)})
    getattr(odd, f"to_{kind}")(public, index=False)
    getattr(odd, f"to_{kind}")(private, index=False)
    made = fill_from_public(None, public, "y")
    assert made[name].kind != "ignore" and 'set kind = "ignore"' in made[name].note
    assert list(public_doubts(made, public)) == [name]
    options = {"target": "y", "public": [public], "bounds_epsilon": None, "budget": BUDGET, "regression": False}
    with pytest.raises(ValueError, match=f"column '{name}' .*set kind = \"ignore\""):
        resolve([private], schema=None, **options)
    (tmp_path / "schema.toml").write_text(made.with_column(Column(name, "ignore")).to_toml())
    assert resolve([private], schema=tmp_path / "schema.toml", **options).notes == ()


def test_what_a_schema_declares_is_noted_not_refused(tmp_path, table):
    odd = table.assign(id=ODD["id"](ROWS), year=2020)
    odd.to_csv(tmp_path / "d.csv", index=False)
    made = fill_from_public(None, tmp_path / "d.csv", "y")
    made = made.with_column(Column("year", "number", 1900, 2100)).with_column(Column("id", "number", 0, 10**6))
    (tmp_path / "schema.toml").write_text(made.to_toml())
    options = {"target": None, "bounds_epsilon": None, "budget": BUDGET, "regression": False}
    told = resolve([tmp_path / "d.csv"], schema=tmp_path / "schema.toml", public=[tmp_path / "d.csv"], **options).notes
    assert [note.split()[1] for note in told] == ["'id'", "'year'"] and all('kind = "ignore"' in note for note in told)
    assert resolve([tmp_path / "d.csv"], schema=tmp_path / "schema.toml", public=[], **options).notes == ()


def test_few_public_rows_prove_nothing(tmp_path, table):
    odd = table.assign(**{name: make(ROWS) for name, make in ODD.items()})[:19]
    odd.to_csv(tmp_path / "public.csv", index=False)
    assert public_doubts(fill_from_public(None, tmp_path / "public.csv", "y"), tmp_path / "public.csv") == {}


def test_a_category_that_is_alone_is_refused_before_anything_is_spent():
    X, y = pd.DataFrame({"a": [0.5] * 50, "c": ["x"] * 50}), [0, 1] * 25
    schema = Schema((Column("a", "number", 0, 1), Column("c", "category", categories=("x",))))
    for method in ("auto", "descent"):
        with pytest.raises(ValueError, match="column 'c' has one category") as refused:
            nw.PrivateClassifier(1.0, 1e-6, schema=schema, method=method, classes=[0, 1]).fit(X, y)
        assert 'kind = "ignore"' in str(refused.value) and "\n" not in str(refused.value)
    others = schema.with_column(Column("c", "category", categories=("x",), unknown="missing"))
    nw.PrivateClassifier(1.0, 1e-6, schema=others, classes=[0, 1]).fit(X, y)


def test_more_categories_than_any_model_needs_are_an_id():
    with pytest.raises(ValueError, match="an id tells nothing about others: set kind to ignore"):
        Column("c", "category", categories=tuple(range(100_000)))
