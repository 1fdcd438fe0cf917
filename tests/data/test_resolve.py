"""Where a schema comes from: declared, public or bought, and never from private values."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from noisewise.accounts import Budget
from noisewise.accounts.purse import Purse
from noisewise.tables.resolve import FROM_LABELS, resolve
from noisewise.tables.schema import gaps, read_schema

BUDGET = Budget(1.0, 1e-6)
SCHEMA = """format = "noisewise-schema/1"
target = "y"
[columns.a]
kind = "number"
low = 0
high = 9
[columns.b]
kind = "category"
categories = ["u", "v"]
[columns.y]
kind = "category"
categories = ["no", "yes"]
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": ["u", "v", "u", "w"], "y": ["no", "yes", "no", "yes"]})
    frame.to_csv("private.csv", index=False)
    frame.assign(a=[-5, 5, 0, 0], b=["u", "v", "v", "u"]).to_csv("public.csv", index=False)
    Path("s.toml").write_text(SCHEMA)


def found(data="private.csv", *, target=None, schema=None, public=(), bounds_epsilon=None, regression=False):
    return resolve(
        [Path(data)], target=target, schema=None if schema is None else Path(schema), public=[Path(p) for p in public],
        bounds_epsilon=bounds_epsilon, budget=BUDGET, regression=regression,
    )  # fmt: skip


def test_a_complete_schema_is_taken_as_it_is():
    got = found(schema="s.toml")
    assert got.schema == read_schema("s.toml") and got.classes == "declared" and got.preparation is None
    assert found(schema="s.toml", public=["public.csv"]).schema == got.schema  # public rows only help to train


def test_public_rows_fill_in_what_is_not_declared():
    got = found(target="y", public=["public.csv"])
    assert (got.schema["a"].low, got.schema["a"].high, got.schema["b"].categories) == (-5, 5, ("u", "v"))
    assert got.words == "bounds and categories, taken from public rows" and "public" in got.classes
    Path("s.toml").write_text(SCHEMA.replace("low = 0\nhigh = 9\n", ""))
    got = found(schema="s.toml", public=["public.csv"])
    assert (
        got.schema["a"].low == -5
        and got.words == "bounds and categories, declared in a schema or taken from public rows"
    )


def test_texts_are_classes_for_the_squared_loss_too():
    got = found(target="y", public=["public.csv"], regression=True)
    assert got.schema["y"].categories == ("no", "yes")


def test_a_target_may_be_named_beside_the_schema():
    assert found(schema="s.toml", target="b").schema.target == "b"
    Path("s.toml").write_text(SCHEMA.replace('target = "y"\n', ""))
    assert found(schema="s.toml", target="y").schema.target == "y"
    for target, told in (("z", "does not describe"), (None, "name the column to predict")):
        with pytest.raises(ValueError, match=told):
            found(schema="s.toml", target=target)


def test_nothing_is_guessed_from_private_values():
    for values in ("1,u,no\n2,v,yes\n", "x,y,z\n" * 50):
        Path("private.csv").write_text("a,b,y\n" + values)
        with pytest.raises(
            ValueError, match=r"column 'a' has no kind; .* \(and 2 more\)\. Private values may not tell"
        ):
            found(target="y")


def test_buying_takes_numbers_for_granted_and_classes_from_the_labels():
    pd.read_csv("private.csv").drop(columns="b").to_csv("private.csv", index=False)
    got = found(target="y", bounds_epsilon=0.5)
    assert (
        got.schema["a"].kind == "number" and got.schema["y"].categories == ("no", "yes") and got.classes == FROM_LABELS
    )
    assert [gap.column for gap in gaps(got.schema)] == ["a"] and got.preparation is None and gaps(got.imagined) == []
    assert got.look() == 4
    done = got.bought(Purse(BUDGET), seed=1)
    assert gaps(done.schema) == [] and done.preparation is not None and "bounds bought" in done.words
    assert found(target="y", public=["public.csv"], data="public.csv").bought(Purse(BUDGET)).preparation is None


def test_a_regression_buys_bounds_of_its_target():
    pd.DataFrame({"a": [1, 2, 3], "y": [1.5, 2.5, 9.0]}).to_csv("private.csv", index=False)
    got = found(target="y", bounds_epsilon=0.5, regression=True)
    assert got.schema["y"].kind == "number" and [gap.column for gap in gaps(got.schema)] == ["a", "y"]
    Path("n.toml").write_text(
        'format = "noisewise-schema/1"\ntarget = "y"\n[columns.a]\nkind = "number"\n[columns.y]\nkind = "number"\n'
    )
    assert found(schema="n.toml", bounds_epsilon=0.5).schema["y"].kind == "number"  # somebody wrote that down


def test_what_money_cannot_buy():
    pd.read_csv("private.csv").to_parquet("typed.parquet")
    with pytest.raises(
        ValueError, match=r"column 'b' lacks categories.*Two ways out.*buying bounds does not help with 'b'"
    ):
        found("typed.parquet", target="y", bounds_epsilon=0.5)
    with pytest.raises(ValueError, match=r"buying bounds \(--bounds-epsilon\) would not help with 'b'"):
        found("typed.parquet", target="y")
    with pytest.raises(ValueError, match=r"Three ways out.*that helps if all of these columns are numbers"):
        found(target="y")
    pd.read_csv("private.csv").assign(b=pd.Timestamp("2020-01-01")).to_parquet("dates.parquet")
    with pytest.raises(ValueError, match="'b' is a date"):
        found("dates.parquet", target="y", bounds_epsilon=0.5)
    with pytest.raises(ValueError, match="leave --bounds-epsilon out"):
        found(schema="s.toml", bounds_epsilon=0.5)
    with pytest.raises(ValueError, match="part of epsilon"):
        found(target="y", bounds_epsilon=1.0)


def test_a_look_finds_what_would_fail_after_paying():
    got = found(target="y", bounds_epsilon=0.5)  # column b holds text
    with pytest.raises(ValueError, match="column 'b' holds text") as told:
        got.look()
    assert "'u'" not in str(told.value) and got.preparation is None
