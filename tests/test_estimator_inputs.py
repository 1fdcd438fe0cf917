"""What an estimator is given: bounds in every shape or bought, categories, weights, sparse rows, and what stands before it."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, StandardScaler

import noisewise as nw
from noisewise.statements.statement import verify_data
from noisewise.tables import bought

RNG = np.random.default_rng(0)
X = pd.DataFrame({"age": RNG.uniform(17, 90, 4000), "hours": RNG.uniform(1, 99, 4000)})
Y = X["age"] > X["hours"]
Z = (X["age"] * 100 - X["hours"]).to_numpy()


def classifier(**settings):
    return nw.PrivateClassifier(**{"epsilon": 2.0, "random_state": 0, "method": "descent", **settings})


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_regressor_wants_the_bounds_of_its_target():
    for bounds in ((0, 1), [(17, 90), (1, 99)], {"age": (17, 90), "hours": (1, 99)}):
        with pytest.raises(ValueError, match=r"target_bounds is missing.*pass target_bounds=\(low, high\)"):
            nw.PrivateRegressor(1.0, 1e-6, bounds=bounds, random_state=0).fit(X, Z)
    model = nw.PrivateRegressor(5.0, 1e-6, bounds=(0, 100), target_bounds=(0, 10_000), random_state=0).fit(X, Z)
    assert model.score(X, Z) > 0.5


def test_bounds_by_name_are_bounds_in_order():
    named = classifier(bounds={"hours": (1, 99), "age": (17, 90)}).fit(X, Y)
    listed = classifier(bounds=[(17, 90), (1, 99)]).fit(X, Y)
    assert named.fitted_.theta.tobytes() == listed.fitted_.theta.tobytes()
    with pytest.raises(ValueError, match=r"bounds has no bounds for column 'hours'.*did you mean 'hour'"):
        classifier(bounds={"hour": (1, 99), "age": (17, 90)}).fit(X, Y)
    with pytest.raises(ValueError, match="X has no column names"):
        classifier(bounds={"hours": (1, 99), "age": (17, 90)}).fit(X.to_numpy(), Y)
    with pytest.raises(ValueError, match=r"for categories pass schema=noisewise\.Schema"):
        classifier(schema={"hours": ["few", "many"], "age": (17, 90)}).fit(X, Y)


def test_a_category_is_named_with_its_way_out():
    table = X.assign(job=pd.Categorical(np.where(X["age"] > 50, "clerk", "farmer")))
    for values in (table["job"], table["job"].cat.rename_categories([1, 2])):
        with pytest.raises(ValueError, match=r"column 'job' of X is a category.*schema=noisewise\.Schema"):
            classifier(bounds=(0, 100)).fit(table.assign(job=values), Y)
    schema = nw.Schema(age=(17, 90), hours=(1, 99), job=["clerk", "farmer"])
    assert classifier(schema=schema).fit(table, Y).score(table, Y) > 0.7


def test_weights_and_sparse_rows_are_refused_by_name():
    for model in (classifier(bounds=(0, 100)), nw.PrivateRegressor(bounds=(0, 100), target_bounds=(0, 1e4))):
        with pytest.raises(ValueError, match="sample_weight is not supported"):
            model.fit(X, Z > 0, sample_weight=np.ones(len(X)))
    with pytest.raises(ValueError, match=r"class_weight=\{class: weight\}"):
        make_pipeline(classifier(bounds=(0, 100))).fit(X, Y, privateclassifier__sample_weight=np.ones(len(X)))
    assert classifier(bounds=(0, 100)).fit(X, Y, sample_weight=None).score(X, Y) > 0.5
    with pytest.raises(TypeError, match=r"no argument 'publc' \(did you mean 'public'"):
        classifier(bounds=(0, 100)).fit(X, Y, publc=None)
    with pytest.raises(ValueError, match=r"sparse matrix; pass a dense array, X\.toarray\(\)"):
        classifier(bounds=(0, 100)).fit(csr_matrix(X.to_numpy()), Y)


# --- bought bounds ----------------------------------------------------------------------------------------------------


def paid(model):
    before = model.statement_.data["preparation"]
    assert model.statement_.data["promise"]["epsilon"] == model.epsilon
    return before


@pytest.mark.parametrize("rows", [X, X.to_numpy()])
def test_bounds_are_bought_from_the_budget(rows, tmp_path):
    model = classifier(bounds="buy", epsilon=4.0).fit(rows, Y)
    low, high = model.fitted_.scaling.low, model.fitted_.scaling.high
    assert (low > [5, -10]).all() and (low < [30, 20]).all() and (high > [75, 80]).all() and (high < [130, 130]).all()
    before = paid(model)
    assert before["epsilon"] == pytest.approx(0.8) and "bounds of 2 columns" in before["what"]
    assumed = model.statement_.data["assumed"]
    assert not [one for one in assumed if "bounds of the features" in one]
    assert model.bounds == "buy" and model.score(rows, Y) > 0.8
    nw.save(model, tmp_path / "run")
    again = nw.load(tmp_path / "run")
    assert np.array_equal(again.predict(rows), model.predict(rows)) and "bounds_epsilon" not in json.dumps(
        dict(again.fitted_.settings)
    )


def test_a_target_is_bought_along_and_a_schema_keeps_what_it_declares():
    model = nw.PrivateRegressor(8.0, 1e-6, bounds="buy", target_bounds="buy", bounds_epsilon=2.0, random_state=0).fit(
        X, Z
    )
    assert model.fitted_.labels.high > 7000 and "bounds of 3 columns" in paid(model)["what"]
    assert not [one for one in model.statement_.data["assumed"] if "bounds of the target" in one]
    half = nw.PrivateRegressor(8.0, 1e-6, bounds="buy", target_bounds=(0, 9000), random_state=0).fit(X, Z)
    assert half.fitted_.labels.high == 9000 and "bounds of the target, declared" in half.statement_.data["assumed"]
    table = nw.Schema(age="number", hours=(1, 99), y="number", target="y")
    both = nw.PrivateRegressor(8.0, 1e-6, bounds="buy", schema=table, target_bounds=(0, 9000), random_state=0).fit(X, Z)
    assert both.fitted_.labels.high == 9000 and "bounds of 1 columns" in paid(both)["what"]
    all_of_it = nw.PrivateRegressor(8.0, 1e-6, bounds="buy", schema=table, random_state=0).fit(X, Z)
    assert all_of_it.fitted_.labels.high > 7000 and "bounds of 2 columns" in paid(all_of_it)["what"]
    with pytest.raises(ValueError, match="target_bounds is missing"):
        nw.PrivateRegressor(8.0, 1e-6, bounds="buy", random_state=0).fit(X, Z)
    schema = nw.Schema(age=(17, 90), hours="number", y=[False, True], target="y")
    part = classifier(bounds="buy", schema=schema, bounds_epsilon=0.5).fit(X, Y)
    assert part.fitted_.encoder.schema["age"].high == 90 and part.fitted_.encoder.schema["hours"].high > 80
    assert part.predict(X).shape == (len(X),) and paid(part)["epsilon"] == 0.5
    with pytest.raises(ValueError, match="every bound is declared already"):
        classifier(bounds="buy", schema=nw.Schema(age=(17, 90), hours=(1, 99))).fit(X, Y)
    with pytest.raises(ValueError, match="only bounds of numbers can be bought"):
        classifier(bounds="buy", schema=nw.Schema(age="number", hours="category")).fit(X, Y)
    with pytest.raises(ValueError, match="bounds-epsilon is 9"):
        classifier(bounds="buy", bounds_epsilon=9.0).fit(X, Y)


def test_bought_bounds_are_priced_for_persons_wherever_they_are_named(tmp_path, monkeypatch):
    seen = []

    class Spy(bought.ColumnCurator):
        def __init__(self, pieces, columns, **settings):
            seen.append((settings["rows_per_unit"], sum(len(piece) for piece in pieces())))
            super().__init__(pieces, columns, **settings)

    monkeypatch.setattr(bought, "ColumnCurator", Spy)
    people = X.assign(who=np.arange(len(X)) % 1500)
    people.assign(y=np.where(Y, "yes", "no")).to_csv(tmp_path / "d.csv", index=False)
    schema = nw.Schema(age="number", hours="number", y=["no", "yes"], target="y")
    theirs = {"unit": "who", "rows_per_unit": 2}
    for model in (
        classifier(bounds="buy", epsilon=8.0, **theirs).fit(people, Y),
        classifier(bounds="buy", epsilon=8.0, schema=schema, **theirs).fit(people, np.where(Y, "yes", "no")),
        classifier(bounds="buy", epsilon=8.0, schema=schema, **theirs).fit_files(tmp_path / "d.csv"),
        classifier(bounds="buy", epsilon=8.0, schema=replace(schema, **theirs)).fit_files(tmp_path / "d.csv"),
    ):
        assert model.statement_.data["promise"]["unit"] == "one person, at most 2 rows"
    assert seen == [(2, 3000)] * 4


def test_bought_bounds_of_files_and_accounts(tmp_path):
    X.assign(y=np.where(Y, "yes", "no")).to_csv(tmp_path / "d.csv", index=False)
    schema = nw.Schema(age="number", hours="number", y=["no", "yes"], target="y")
    files = classifier(bounds="buy", schema=schema).fit_files(tmp_path / "d.csv")
    assert files.fitted_.encoder.schema["age"].high > 70 and paid(files)["epsilon"] == pytest.approx(0.4)
    with nw.spending(2.0, 1e-6, dataset="patients") as account:
        real = classifier(bounds="buy", random_state=None).fit(X, Y)
        assert verify_data(real.statement_.data).holds
        with pytest.raises(nw.BudgetExhausted):
            classifier(bounds="buy", random_state=None, epsilon=0.1).fit(X, Y)
    assert account.spent.cost == pytest.approx(2.0)


def test_nothing_is_paid_for_rows_that_cannot_be_trained_on_and_a_search_does_not_buy():
    with nw.spending(2.0, 1e-6, dataset="patients") as account, pytest.raises(ValueError, match="inconsistent numbers"):
        classifier(bounds="buy", random_state=None).fit(X, Y[:-1])
    assert account.spent.cost == 0
    with pytest.raises(ValueError, match="not in a search"):
        nw.PrivateSearchCV(classifier(bounds="buy"), [{"max_grad_norm": 1.0}], how="none").fit(X, Y)


def test_bounds_are_not_bought_once_by_every_process_that_torchrun_started(tmp_path, monkeypatch):
    X.assign(y=np.where(Y, "yes", "no")).to_csv(tmp_path / "d.csv", index=False)
    schema = nw.Schema(age="number", hours="number", y=["no", "yes"], target="y")
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with nw.spending(2.0, 1e-6, dataset="patients") as account:
        with pytest.raises(RuntimeError, match="each would spend the whole budget"):
            classifier(bounds="buy", random_state=None).fit(X, Y)
        with pytest.raises(RuntimeError, match="each would spend the whole budget"):
            classifier(bounds="buy", random_state=None, schema=schema).fit_files(tmp_path / "d.csv")
    assert account.spent.cost == 0
    assert classifier(bounds="buy").fit(X, Y).fitted_.statement is not None  # a simulation


# --- pipelines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([StandardScaler()], r"StandardScaler stands before .*Instead, declare bounds= or schema="),
        ([PCA(1)], r"PCA .*Instead, fit it on public rows and pass sklearn\.frozen\.FrozenEstimator"),
        ([SimpleImputer()], "SimpleImputer .*leave missing values as they are"),
        ([make_column_transformer((StandardScaler(), ["age"]), remainder="drop")], "StandardScaler stands before"),
    ],
)
def test_a_step_that_learns_from_private_rows_is_named(steps, told):
    pipeline = make_pipeline(*steps, classifier(bounds=(-5, 5)))
    with pytest.warns(nw.PrivacyWarning, match=told):
        pipeline.fit(X, Y)
    search = nw.PrivateSearchCV(classifier(bounds=(-5, 5)), [{"max_grad_norm": 1.0}], how="none")
    with pytest.warns(nw.PrivacyWarning, match=told):
        make_pipeline(*steps, search).fit(X, Y)


def test_steps_that_learn_nothing_are_left_alone():
    public = FrozenEstimator(PCA(1).fit(X[:100]))
    steps = [FunctionTransformer(np.sqrt), Normalizer(), SimpleImputer(strategy="constant", fill_value=0.0), public]
    frame = pd.DataFrame({"job": np.where(Y, "a", "b")})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in steps:
            make_pipeline(step, classifier(bounds=(-5, 5))).fit(X, Y)
        named = OneHotEncoder(categories=[["a", "b"]], sparse_output=False)
        make_pipeline(named, classifier(bounds=(0, 1))).fit(frame, Y)
        classifier(bounds=(0, 100)).fit(X, Y)
