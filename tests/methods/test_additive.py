"""Effects of columns and pairs: what it learns, what it spends, and what it leaves when it is stopped."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise.accounts import BudgetExhausted
from noisewise.evidence import runs
from noisewise.methods import method_named
from noisewise.methods.additive import AdditiveDescent
from noisewise.statements.verify import verify
from noisewise.tables.schema import Column, Schema
from noisewise.train import Recording, Records, train
from noisewise.trusted.facts import facts_of
from noisewise.trusted.features import TableColumn
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Additive, Linear

BUDGET = (2.0, 1e-5)


@cache
def wavy(n=4000, seed=0):
    """Two classes along a wave of one column; the others say little."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    return X, (np.sin(5 * X[:, 0]) + 0.3 * X[:, 1] + rng.normal(0, 0.2, n) > 0).astype(int)


@cache
def crossed(n=6000, seed=1):
    """An exclusive or of two columns of four, with a little of each."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    return X, (X[:, 1] * X[:, 3] + 0.15 * (X[:, 1] + X[:, 3]) + rng.normal(0, 0.1, n) > 0).astype(int)


def classifier(method="additive", **settings):
    return nw.PrivateClassifier(*BUDGET, method=method, **{"bounds": (-1, 1), "random_state": 0, **settings})


def spends_its_budget(face):
    assert face.trace_[-1].spent == pytest.approx(1.0, abs=0.01)
    assert all(line.spent <= 1 for line in face.trace_)
    assert verify(face.fitted_.statement).reason.startswith("the arithmetic holds")  # a seed makes it a simulation


def test_it_beats_descent_on_a_wave():
    X, y = wavy()
    T, t = wavy(seed=5)
    wave, line = classifier().fit(X, y), classifier("descent").fit(X, y)
    assert wave.score(T, t) > 0.85 > line.score(T, t) + 0.05
    spends_its_budget(wave)


def test_it_finds_a_pair():
    X, y = crossed()
    T, t = crossed(seed=7)
    alone = classifier(AdditiveDescent(pairs=0)).fit(X, y)
    paired = classifier(AdditiveDescent(pairs=3)).fit(X, y)
    assert paired.score(T, t) > 0.8 > alone.score(T, t)
    pairs = [block.columns for block in paired.fitted_.made.blocks if len(block.columns) == 2]
    assert (1, 3) in pairs and len(pairs) == 3
    assert all(len(block.columns) == 1 for block in alone.fitted_.made.blocks)
    spends_its_budget(paired)
    spends_its_budget(alone)


def test_a_seed_makes_it_the_same_and_none_does_not():
    X, y = wavy(800)
    one, same, other = (classifier(random_state=seed).fit(X, y) for seed in (3, 3, 4))
    assert one.fitted_.theta.tobytes() == same.fitted_.theta.tobytes()
    assert one.fitted_.theta.tobytes() != other.fitted_.theta.tobytes()
    assert [line.noise_std for line in one.trace_] == [line.noise_std for line in same.trace_]


def test_a_regression():
    X, _ = wavy()
    target = np.clip(np.sin(4 * X[:, 0]) + 0.1 * np.random.default_rng(2).normal(size=len(X)), -1, 1)
    face = nw.PrivateRegressor(*BUDGET, method="additive", bounds=(-1, 1), target_bounds=(-1, 1), random_state=0)
    assert face.fit(X, target).score(X, target) > 0.5
    spends_its_budget(face)


def test_several_classes():
    X, _ = wavy()
    y = np.digitize(np.sin(4 * X[:, 0]), [-0.5, 0.5])
    face = classifier(loss="softmax").fit(X, y)
    assert face.score(X, y) > 0.6 and face.predict_proba(X[:5]).shape == (5, 3)
    np.testing.assert_allclose(face.predict_proba(X[:50]).sum(1), 1.0)
    spends_its_budget(face)


def test_replaced_records_and_a_declared_size():
    X, y = wavy()
    for settings in ({"adjacency": "replace_one"}, {"size_is_public": True}):
        face = classifier(**settings).fit(X, y)
        assert face.score(X, y) > 0.7
        spends_its_budget(face)


def test_persons_with_several_rows():
    X, y = wavy()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(person=np.arange(len(X)) // 2)
    face = classifier(unit="person", rows_per_unit=2, bounds=(-1, 1)).fit(frame, y)
    assert face.fitted_.statement.data["promise"]["unit"] == "one person, at most 2 rows"
    assert face.fitted_.cap == math.inf  # rows of a person are cut elsewhere
    assert face.score(frame, y) > 0.6
    spends_its_budget(face)


def test_enough_public_rows_give_ranks_for_nothing():
    """The same private rows and noise: what was for ranks goes to the steps, and hats follow the public quantiles."""
    X, y = wavy()
    skewed = X**3
    many, few = (skewed, y), (skewed[:50], y[:50])
    bought, told, too_few = (classifier().fit(skewed, y, public=public) for public in (None, many, few))
    asked = [[line.question for line in face.trace_ if line.question != "gradient"] for face in (bought, told, too_few)]
    assert asked[0] == asked[2] == ["Count", "column levels", "FirstMoment", "FirstMoment"][: len(asked[0])]
    assert asked[1] == [name for name in asked[0] if name != "column levels"]
    spends_its_budget(told)
    points = next(block.points for block in told.fitted_.made.blocks if block.columns == (0,))
    assert points[len(points) // 2 + 8] == pytest.approx(np.quantile(skewed[:, 0], 0.5 + 8 / 64), abs=0.01)
    again = classifier().fit(skewed, y, public=many)
    assert (again.fitted_.theta == told.fitted_.theta).all()


def test_public_ranks_know_nothing_of_private_rows():
    public = (wavy(seed=3)[0] ** 3, wavy(seed=3)[1])
    X, y = wavy()
    hats = [
        [block.points for block in classifier(AdditiveDescent(pairs=0)).fit(rows, y, public=public).fitted_.made.blocks]
        for rows in (X, X / 2)
    ]
    assert hats[0] == hats[1]


def test_public_rows_are_where_it_starts():
    X, y = wavy()
    few = classifier(AdditiveDescent(steps=2, pairs=0)).set_params(epsilon=0.1)
    assert few.fit(X, y, public=wavy(500, seed=9)).score(X, y) > 0.67 > few.fit(X, y).score(X, y)


SMALL = {
    "one column": (lambda: (wavy(300)[0][:, :1], wavy(300)[1])),
    "five records": (lambda: (wavy(300)[0][:5], np.array([0, 1, 0, 1, 0]))),
    "a constant": (lambda: (np.zeros((300, 2)), wavy(300)[1])),
    "nothing but missing": (lambda: (np.full((300, 2), math.nan), wavy(300)[1])),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_and_empty_tables(name):
    X, y = SMALL[name]()
    face = classifier().fit(X, y)
    assert face.predict(X).shape == y.shape and np.isfinite(face.predict_proba(X)).all()
    spends_its_budget(face)


def test_no_records_at_all():
    """Faces refuse an empty table; a run on one spends and releases as any other."""
    columns = tuple(TableColumn(name, (0.0, 1.0), (0.0, 1.0)) for name in "ab")
    model, records = Additive(1, Logistic(), columns=columns), Records(np.zeros((0, 2)), np.zeros(0), None, 1.0)
    run = train(method_named("additive"), records, model=model, budget=nw.Budget(*BUDGET), seed=0)
    assert run.theta.shape == (run.features.width,) and np.isfinite(run.theta).all()
    assert run.meter.spent_fraction == pytest.approx(1.0, abs=0.01)


def table(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "job": rng.choice(["a", "b", "c", "d"], n),
            "town": rng.choice(["x", "y", "z"], n),
            "pay": np.exp(rng.normal(3, 1, n)).round(2),
        }
    )
    high = (frame["job"] == "b") | ((frame["pay"] > 30) & (frame["town"] == "x"))
    return frame, np.where(high, "yes", "no")


def schema_of(*names, **changes):
    known = {
        "job": Column("job", "category", categories=("a", "b", "c", "d"), rare=("d",), unknown="missing"),
        "town": Column("town", "category", categories=("x", "y", "z")),
        "pay": Column("pay", "number", 0.01, 1e5, scale="log"),
        **changes,
    }
    target = Column("high", "category", categories=("no", "yes"))
    return Schema((*(known[name] for name in names), target), "high")


def test_categories_alone_and_mixed_with_numbers_that_are_missing():
    frame, y = table()
    alone = classifier(bounds=None, schema=schema_of("job", "town"))
    assert alone.fit(frame[["job", "town"]], y).score(frame[["job", "town"]], y) > 0.6
    spends_its_budget(alone)
    frame.loc[::7, "pay"] = math.nan
    frame.loc[::9, "job"] = "new"
    mixed = classifier(bounds=None, schema=schema_of("job", "town", "pay")).fit(frame, y)
    assert mixed.score(frame, y) > 0.7
    assert {"job=d", "town missing", "pay missing", "(intercept)"} <= {*mixed.fitted_.features()}
    spends_its_budget(mixed)


def test_declared_knots_are_kept_and_their_ranks_not_bought():
    frame, y = table()
    knots = Column("pay", "number", 0, 1e5, knots=(0, 10, 30, 100, 1e5))
    face = classifier(bounds=None, schema=schema_of("pay", pay=knots)).fit(frame[["pay"]], y)
    hats = face.fitted_.made.blocks[0]
    assert hats.knot_values().tolist() == [0, 10, 30, 100, 1e5]
    assert "column levels" not in {line.question for line in face.trace_}


def test_ranks_are_bought_unless_they_are_not_wanted():
    X, y = wavy(1000)
    bought, declared = (classifier(AdditiveDescent(ranks=ranks)).fit(X, y) for ranks in (None, False))
    asked = [[line.question for line in face.trace_].count("column levels") for face in (bought, declared)]
    assert asked == [1, 0]
    assert declared.fitted_.made.blocks[0].points == (-1.0, 1.0)


@pytest.mark.parametrize("at", [0, 1, 2, 3, 20, 51, 52, 53, 54, 70])
def test_a_budget_that_ends_early_leaves_a_model(at, monkeypatch):
    """Whenever the meter refuses, theta and features go together."""
    X, y = wavy()
    asked, ask = [], Recording.ask

    def refusing(self, *question, **terms):
        asked.append(question)
        if len(asked) > at:
            raise BudgetExhausted("no more")
        return ask(self, *question, **terms)

    monkeypatch.setattr(Recording, "ask", refusing)
    face = classifier(AdditiveDescent(pairs=3), size_is_public=True).fit(X, y)
    fitted = face.fitted_
    assert fitted.theta.shape == (fitted.made.width,) == (fitted.network.features,)
    assert face.predict(X[:3]).shape == (3,) and np.isfinite(fitted.theta).all()
    assert fitted.errors().shape == (1, fitted.made.width)


def test_a_run_is_saved_and_predicts_the_same_bits(tmp_path):
    frame, y = table()
    for face, rows in (
        (classifier(bounds=None, schema=schema_of("job", "town", "pay")).fit(frame, y), frame),
        (classifier(AdditiveDescent(pairs=2), random_state=None).fit(*wavy(1500)), wavy(1500)[0]),
    ):
        folder = runs.save(face.fitted_, tmp_path / str(len(list(tmp_path.iterdir()))))
        again = runs.load(folder)
        assert verify(folder).holds == (face.random_state is None)
        assert verify(folder).reason.startswith("the arithmetic holds" if face.random_state == 0 else "")
        cells = face._scaled_rows(rows)
        assert again.scores(cells).tobytes() == face.fitted_.scores(cells).tobytes()
        assert again.probabilities(cells).tobytes() == face.fitted_.probabilities(cells).tobytes()
        assert again.to_dict() == face.fitted_.to_dict() and again.cap == face.fitted_.cap


def test_it_asks_for_a_table():
    facts = facts_of(Linear(3, Logistic()), nw.Budget(*BUDGET), size=1.0, row_bound=1.0)
    with pytest.raises(ValueError, match="additive needs a table"):
        method_named("additive").init(None, facts, None)


@pytest.mark.parametrize(
    "settings", [{"steps": 0}, {"knots": 0}, {"knots": 2.5}, {"pairs": -1}, {"max_grad_norm": -1.0}]
)
def test_settings_are_checked(settings):
    with pytest.raises((TypeError, ValueError)):
        AdditiveDescent(**settings)
