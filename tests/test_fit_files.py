"""``fit_files``: the same model as from a table in memory, and nothing of the files stays behind."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from noisewise import PrivateClassifier, PrivateRegressor, verify
from noisewise.accounts import Budget, BudgetExhausted
from noisewise.accounts.purse import Purse
from noisewise.faces.sklearn import Origin
from noisewise.tables.bought import purchase
from noisewise.tables.files import open_source
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.events import leaves

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.uniform(-3, 9, 500).round(3), "b": RNG.choice(["u", "v", "w"], 500)})
FRAME["y"] = np.where(FRAME["a"] > 3, "yes", "no")
SCHEMA = Schema(
    (Column("a", "number", 0, 9), Column("b", "category", categories=("u", "v", "w")), Column("y", "category", categories=("no", "yes"))),
    "y",
)  # fmt: skip


@pytest.fixture
def path(tmp_path):
    FRAME.to_csv(tmp_path / "d.csv", index=False)
    return tmp_path / "d.csv"


def unfitted(**changes):
    return PrivateClassifier(3.0, 1e-6, **({"schema": SCHEMA, "method": "dpsgd", "random_state": 1} | changes))


def test_a_file_and_a_table_give_the_same_model(path):
    from_file = unfitted().fit_files(path)
    from_table = unfitted().fit(FRAME[["a", "b"]], FRAME["y"])
    assert np.allclose(from_file.coef_, from_table.coef_, atol=1e-4)
    assert from_file.predict(FRAME).tolist() == from_table.predict(FRAME[["b", "a"]]).tolist()
    assert from_file.classes_.tolist() == ["no", "yes"] and from_file.n_features_in_ == 2
    assert "files checked against the schema before training" in from_file.statement_.data["assumed"]


def test_a_cache_changes_nothing_and_leaves_nothing(path, tmp_path):
    (tmp_path / "cache").mkdir()
    cached, plain = unfitted().fit_files(path, cache=tmp_path / "cache"), unfitted().fit_files(path)
    assert np.array_equal(cached.fitted_.theta, plain.fitted_.theta) and list((tmp_path / "cache").iterdir()) == []
    with pytest.raises(ValueError, match="existing folder"):
        unfitted().fit_files(path, cache=tmp_path / "none")


def test_public_files_help(path, tmp_path):
    FRAME[:50].to_parquet(tmp_path / "public.parquet")
    fitted = unfitted(method="descent").fit_files(path, public=tmp_path / "public.parquet")
    assert "50 public rows, disjoint from the private ones" in fitted.statement_.data["assumed"]


def test_progress_hears_shares_of_files_and_of_the_budget(path):
    read, steps = [], []
    unfitted().watch(lambda *facts: steps.append(facts)).fit_files(path, reading=read.append)
    assert read and all(0 <= share <= 1 for share in read) and read == sorted(read)
    assert steps[-1][0] == steps[-1][1] == len(steps) and steps[-1][2] <= 1


@pytest.mark.parametrize("schema", [None, {"a": (0, 9)}, Schema(SCHEMA.columns)])
def test_a_schema_with_a_target_is_needed(path, schema):
    with pytest.raises(ValueError, match="a Schema with a target"):
        unfitted(schema=schema).fit_files(path)


def test_a_failed_fit_leaves_the_old_model(path, tmp_path):
    fitted = unfitted().fit_files(path)
    before = fitted.coef_.copy()
    FRAME.assign(b="x").to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(ValueError, match="column 'b'"):
        fitted.fit_files(tmp_path / "bad.csv")
    assert np.array_equal(fitted.coef_, before)


def bought(budget, path, schema):
    filled, paid = purchase(schema, epsilon=0.5, budget=budget).bounds(open_source(path), Purse(budget))
    return filled, Origin("bounds bought", "declared", paid)


def test_bought_bounds_are_part_of_the_promise(path):
    open_schema = SCHEMA.with_column(Column("a", "number"))
    schema, origin = bought(Budget(3.0, 1e-6), path, open_schema)
    told = unfitted(schema=schema, random_state=None).fit_files(path, origin=origin).statement_.data
    assert verify(told).holds and (told["promise"]["epsilon"], told["promise"]["delta"]) == (3.0, 1e-6)
    assert told["preparation"]["epsilon"] == 0.5 and "bounds bought" in told["assumed"]


def test_a_regression_does_not_call_bought_bounds_declared(tmp_path):
    frame = pd.DataFrame({"a": FRAME["a"], "y": 2 * FRAME["a"]})
    frame.to_csv(tmp_path / "n.csv", index=False)
    open_schema = Schema((Column("a", "number"), Column("y", "number")), "y")
    schema, origin = bought(Budget(3.0, 1e-6), tmp_path / "n.csv", open_schema)
    fitted = PrivateRegressor(3.0, 1e-6, schema=schema, method="dpsgd").fit_files(tmp_path / "n.csv", origin=origin)
    assert "bounds of the target, declared" not in fitted.statement_.data["assumed"]
    assert verify(fitted.statement_).holds
    plain = PrivateRegressor(3.0, 1e-6, bounds=(0, 9), target_bounds=(0, 9), method="dpsgd").fit(
        frame[["a"]], frame["y"]
    )
    assert "bounds of the target, declared" in plain.statement_.data["assumed"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_whatever_stops_a_run_says_what_was_spent(path, error):
    def stop(step, steps, spent):
        if step == 2:
            raise error

    face = unfitted(random_state=None)
    purse = Purse(Budget(face.epsilon, face.delta))
    with pytest.raises(error):
        face.watch(stop).fit_files(path, purse=purse)
    (entry,) = purse.entries
    assert entry.state == "failed" and entry.spent == entry.reserved and entry.spent.cost == face.epsilon
    assert leaves(entry.events).total() == 3  # the size and two gradients
    with pytest.raises(BudgetExhausted):
        face.watch(None).fit_files(path, purse=purse)


def test_a_run_that_asked_nothing_gives_back_what_it_reserved(path):
    def stop(*_, **__):
        raise RuntimeError("before the first question")

    face = unfitted(random_state=None)
    purse = Purse(Budget(face.epsilon, face.delta))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("noisewise.train.Curator", stop)
        with pytest.raises(RuntimeError):
            face.fit_files(path, purse=purse)
    assert purse.spent_fraction == 0
    assert verify(face.fit_files(path, purse=purse).statement_).holds and purse.spent_fraction == 1


def test_coefficients_have_standard_errors_where_the_noise_is_known(path):
    fitted = unfitted(method="descent", random_state=None).fit_files(path)
    assert fitted.coef_std_.shape == fitted.coef_.shape and (fitted.coef_std_ > 0).all()
