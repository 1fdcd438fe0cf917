"""Effects of columns: what changing a value does to a score, centred, with a band as wide as the noise."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise.methods.additive import AdditiveDescent
from noisewise.methods.preparation.choices import main_blocks, scales_of
from noisewise.tables.fit.effects import effects_of
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.features import Codes, Features, Hats, Product, TableColumn

rng = np.random.default_rng(0)
AGE = TableColumn("age", (0.0, 20.0, 100.0), (0.0, 0.5, 1.0))
JOB = TableColumn("job", groups=(0, 1, 2, 2), words=("clerk", "nurse", "=1+1", "rare"))
COLUMNS = (AGE, JOB)


def features(*, pairs: bool, knots: int = 17) -> Features:
    blocks = main_blocks(COLUMNS, scales_of(COLUMNS), knots, 1.0)
    if pairs:
        blocks = (*blocks, Product(Hats(0, AGE.points, AGE.ranks, 4), Codes(1, (0, 1, 1, 1))))
    return Features(blocks, np.random.default_rng(1).uniform(0.5, 1, sum(block.width for block in blocks) + 1))


def of(made: Features, outputs: int = 1, *, shares: bool = True, noise: float | None = 1.0):
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(outputs, made.width))
    frequencies = rng.uniform(0, 0.2, made.width)
    deviations = None if noise is None else noise * rng.uniform(0.5, 2, weights.shape)
    names = tuple("abc"[:outputs]) if outputs > 1 else None
    found = effects_of(made, COLUMNS, weights, deviations, frequencies if shares else None, names)
    return found, weights, deviations, frequencies


def scores(made: Features, weights: np.ndarray, table: list[list[float]]) -> np.ndarray:
    return made.scores(weights / made.gains, np.array(table, float))


def test_without_pairs_effects_are_differences_of_scores():
    made = features(pairs=False)
    found, weights, _, _ = of(made, 2)
    age, job = found.columns
    assert age.values[-1] == job.values[-1] == "missing" and age.values[0] == 0 and age.values[-2] == 100
    assert job.values[:-1] == JOB.words
    expected = scores(made, weights, [[value, 1.0] for value in (*age.values[:-1], np.nan)]).T
    np.testing.assert_allclose(np.diff(age.effect), np.diff(expected), atol=1e-12)
    expected = scores(made, weights, [[30.0, code] for code in (0, 1, 2, 3, np.nan)]).T
    np.testing.assert_allclose(np.diff(job.effect), np.diff(expected), atol=1e-12)
    assert job.effect[0, 2] == job.effect[0, 3]  # they share a coordinate


def test_pairs_are_averaged_over_the_other_column_and_the_mean_is_zero():
    """Over independent columns with the released frequencies, a score is the sum of effects and what is left of pairs."""
    made = features(pairs=True)
    found, weights, _, shares = of(made)
    ages, jobs = made.blocks[0].knot_values().tolist(), [0.0, 1.0, 2.0]
    p, q = (shares[span] / shares[span].sum() for span in (made.spans[0], made.spans[2]))
    grid = scores(made, weights, [[a, j] for a in (*ages, np.nan) for j in (*jobs, np.nan)])[:, 0].reshape(len(p), -1)
    means = grid @ q, p @ grid
    age, job = found.columns
    at = [age.values.index(float(f"{value:.10g}")) for value in ages] + [-1]
    np.testing.assert_allclose(age.effect[0, at], means[0] - p @ grid @ q, atol=1e-9)
    np.testing.assert_allclose(job.effect[0, [0, 1, 2, -1]], means[1] - p @ grid @ q, atol=1e-9)
    assert age.effect[0, at] @ p == pytest.approx(0, abs=1e-9)
    assert age.strength == pytest.approx(float(np.sqrt(age.effect[0, at] ** 2 @ p)))
    left = grid - means[0][:, None] - means[1] + p @ grid @ q
    (pair,) = found.pairs
    assert (pair.first, pair.second) == ("age", "job")
    # hats of a pair are fewer than those of its column: between their knots a line averages what stands at them
    assert np.sqrt(p @ left**2 @ q) <= pair.strength * 1.001 and pair.strength < 3 * np.sqrt(p @ left**2 @ q)


def test_the_band_is_as_wide_as_effects_scatter_when_noise_is_drawn_anew():
    made = features(pairs=True)
    found, weights, deviations, shares = of(made)
    drawn = [
        effects_of(made, COLUMNS, weights + deviations * rng.normal(size=weights.shape), deviations, shares)
        for _ in range(600)
    ]
    for i, column in enumerate(found.columns):
        scatter = np.std([again.columns[i].effect for again in drawn], axis=0)
        np.testing.assert_allclose(column.std, scatter, rtol=0.15)
        if column.course is not None:
            scatter = np.std([again.columns[i].course.effect for again in drawn], axis=0)
            np.testing.assert_allclose(column.course.std, scatter, rtol=0.15)
    alone = [
        effects_of(made, COLUMNS, deviations * rng.normal(size=weights.shape), None, shares).pairs[0]
        for _ in range(600)
    ]
    assert np.sqrt(np.mean([one.strength**2 for one in alone])) == pytest.approx(found.pairs[0].noise, rel=0.1)
    assert alone[0].noise is None


def test_rows_are_plain_and_say_nothing_that_is_not_known():
    found, *_ = of(features(pairs=False), 3, shares=False, noise=None)
    rows = list(found.rows())
    assert list(rows[0]) == ["feature", "value", "effect", "noise_low", "noise_high", "output"]
    assert rows[0]["noise_low"] is rows[0]["noise_high"] is None and {row["output"] for row in rows} == {*"abc"}
    json.dumps(rows, allow_nan=False)
    known = found.columns[0].effect[:, :-1]
    assert known.shape[1] > 3
    found, *_ = of(features(pairs=True))
    row = next(found.rows())
    assert row["noise_high"] - row["effect"] == pytest.approx(1.96 * found.columns[0].std[0, 0])
    assert json.loads(json.dumps(found.pair_rows()))[0].keys() == {"first", "second", "strength", "noise"}


@pytest.mark.parametrize("knots", [3, 17, 64, 300])
def test_there_are_never_too_many_values(knots):
    found, *_ = of(features(pairs=True, knots=knots))
    values = found.columns[0].values[:-1]
    assert 3 <= len(values) <= 64 and list(values) == sorted(values) and (values[0], values[-1]) == (0, 100)


def test_where_a_scale_bends_between_knots_there_are_values_between_them():
    few, *_ = of(features(pairs=False, knots=4))
    values = few.columns[0].values[:-1]
    assert 30 < len(values) <= 64 and min(abs(value - 20) for value in values) < 1  # where its slope changes
    straight = (TableColumn("age", (0.0, 100.0), (0.0, 1.0)), JOB)
    blocks = main_blocks(straight, scales_of(straight), 3, 1.0)
    made = Features(blocks, np.ones(sum(block.width for block in blocks) + 1))
    found = effects_of(made, straight, np.ones((1, made.width)), None, None)
    assert found.columns[0].values[:-1] == (0, 50, 100)


def test_where_few_records_take_most_of_the_scale_a_course_leaves_them_out():
    made = features(pairs=False, knots=33)
    shares = np.full(made.width, 1e-6)
    shares[:8] = 0.1
    found = effects_of(made, COLUMNS, rng.normal(size=(1, made.width)), None, shares)
    course = found.columns[0].course
    assert course.ends[0] == 0 and course.ends[1] < 30 and course.std is None
    assert (np.diff(course.values) > 0).all() and course.values[-1] <= course.ends[1]


N = 3000
TABLE = pd.DataFrame({"age": rng.uniform(17, 90, N), "job": rng.choice(["clerk", "nurse"], N)})
SCHEMA = Schema(
    (
        Column("age", "number", low=17, high=90),
        Column("job", "category", categories=("clerk", "nurse")),
    )
)
NUMBERS = 1000 * (TABLE.age > 50) + 300 * (TABLE.job == "nurse")
METHOD = AdditiveDescent(steps=12, knots=6, pairs=2)


def regressor(**settings):
    settings = {"method": METHOD, "target_bounds": [0, 2000], "random_state": 0, "schema": SCHEMA, **settings}
    return nw.PrivateRegressor(20.0, 1e-5, **settings).fit(TABLE, NUMBERS)


def classifier(classes: int = 2):
    y = pd.cut(NUMBERS + np.random.default_rng(3).normal(0, 50, N), classes, labels=False)
    return nw.PrivateClassifier(20.0, 1e-5, method=METHOD, schema=SCHEMA, random_state=0).fit(TABLE, y)


def test_a_regression_has_effects_in_the_unit_of_its_target():
    model = regressor(method=AdditiveDescent(steps=60, knots=6, pairs=0))
    frame = model.effects_
    assert list(frame) == ["feature", "value", "effect", "noise_low", "noise_high"] and len(model.pairs_) == 0
    assert list(model.pairs_) == ["first", "second", "strength", "noise"]
    assert (frame.noise_low < frame.effect).all() and (frame.effect < frame.noise_high).all()
    ages = frame[(frame.feature == "age") & (frame.value != "missing")]
    assert ages.value.min() == 17 and ages.value.max() == 90
    old, young = (ages.effect[test].mean() for test in (ages.value > 60, ages.value < 40))
    assert 300 < old - young < 1300
    fitted, jobs = model.fitted_, frame[frame.feature == "job"].set_index("value").effect
    cells = np.array([[40.0, 0.0], [40.0, 1.0]])
    assert jobs["nurse"] - jobs["clerk"] == pytest.approx(1000 * np.diff(fitted.scores(cells))[0])


def test_several_classes_have_effects_each():
    model = classifier(3)
    frame = model.effects_
    assert list(frame)[-1] == "output" and {*frame.output} == {"0", "1", "2"}
    assert model.coef_.shape == model.coef_std_.shape == (3, len(model.get_feature_names_out()))


def test_coefficients_are_of_the_coordinates_themselves():
    model = classifier()
    names, fitted = model.get_feature_names_out().tolist(), model.fitted_
    assert names[0] == "age~17" and "job=nurse" in names and "job missing" in names and "(intercept)" not in names
    assert any(" x " in name for name in names) and len(set(names)) == len(names)
    assert model.coef_.shape == model.coef_std_.shape == (1, len(names)) and (model.coef_std_ > 0).all()
    places, entries = fitted.made(np.array([[40.0, 1.0]]))
    raw = np.zeros(fitted.made.width)
    np.add.at(raw, places[0], entries[0] / fitted.made.gains[places[0]])
    score = raw[:-1] @ model.coef_[0] + model.intercept_[0]
    assert score == pytest.approx(model.decision_function(pd.DataFrame({"age": [40.0], "job": ["nurse"]}))[0])
    assert len(model.pairs_) == 1


def test_linear_models_have_names_and_no_effects():
    X = rng.uniform(-1, 1, (200, 2))
    model = nw.PrivateClassifier(5.0, 1e-5, method="dpsgd", bounds=(-1, 1), random_state=0).fit(X, X[:, 0] > 0)
    assert model.get_feature_names_out().tolist() == ["x0", "x1"] and model.coef_.shape == (1, 2)
    assert not hasattr(model, "effects_") and not hasattr(model, "pairs_")
    with pytest.raises(AttributeError, match="method='additive'"):
        model.fitted_.effects()


@pytest.mark.parametrize("make", [classifier, lambda: classifier(3), regressor])
def test_a_folder_holds_the_same_model_bit_for_bit(tmp_path, make):
    model = make()
    nw.save(model, tmp_path / "run")
    again = nw.load(tmp_path / "run")
    told = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    assert getattr(again, told)(TABLE).tobytes() == getattr(model, told)(TABLE).tobytes()
    assert np.array_equal(again.coef_, model.coef_) and np.array_equal(again.coef_std_, model.coef_std_)
    pd.testing.assert_frame_equal(again.effects_, model.effects_, check_exact=True)
    pd.testing.assert_frame_equal(again.pairs_, model.pairs_, check_exact=True)
    assert again.fitted_.to_dict() == model.fitted_.to_dict()
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert document["features"] == ["age", "job"]
    rows = document["coefficients"]
    assert len(rows) == model.fitted_.network.dimension
    np.testing.assert_allclose([row["value"] for row in rows], model.fitted_.weights().ravel(), rtol=1e-6)
    assert (tmp_path / "run" / "run.json").stat().st_size < 20_000 + 250 * len(rows)


@pytest.mark.parametrize("shares", [[0.5], "all", 7, [[0.1]]])
def test_shares_that_do_not_go_with_the_features_are_refused(shares):
    fitted = regressor().fitted_
    document = fitted.to_dict()
    document["preprocessing"]["shares"] = shares
    with pytest.raises((ValueError, TypeError)):
        type(fitted).from_dict(document, fitted.theta, fitted.statement, fitted.trace)
    document["preprocessing"]["shares"] = (-fitted.shares).tolist()
    with pytest.raises(ValueError, match="shares"):
        type(fitted).from_dict(document, fitted.theta, fitted.statement, fitted.trace)
    del document["preprocessing"]["shares"]
    bare = type(fitted).from_dict(document, fitted.theta, fitted.statement, fitted.trace)
    assert bare.shares is None and len(bare.effects().columns) == 2


def test_shares_of_a_stranger_are_checked():
    class Odd(AdditiveDescent):
        def shares(self, state):
            return super().shares(state) - 2

    with pytest.raises(TypeError, match="from 0 to 1"):
        regressor(method=Odd(steps=3, knots=3, pairs=0))
