"""The face for scikit-learn users, tried as a new user would: it fits in, leaks nothing, and refuses with a reason."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import noisewise as nw
from noisewise.methods.dpsgd import DpSgd
from noisewise.trusted.losses import LOSSES, HuberHinge, Logistic

torch.set_num_threads(1)  # two threads that wait for each other by spinning are ten times slower on a busy machine

QUICK = DpSgd(steps=10)
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (400, 3))
Y = (X[:, 0] > 0).astype(int)
WORDS = np.array(["no", "yes"])[Y]
THREE = np.digitize(X[:, 0], [-0.4, 0.4])
TARGET = X @ [0.5, -0.3, 0.0]
NAMED = pd.DataFrame(X, columns=["a", "b", "c"])


def classifier(**changes):
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "method": QUICK, "random_state": 0} | changes
    return nw.PrivateClassifier(**settings)


def regressor(**changes):
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "target_bounds": (-1, 1), "method": QUICK}
    return nw.PrivateRegressor(**(settings | {"random_state": 0} | changes))


# --- scikit-learn ----------------------------------------------------------------------------------------------------


CHECKS = parametrize_with_checks(
    [
        nw.PrivateClassifier(epsilon=1.0, delta=1e-6, bounds=(-5, 5), random_state=0),
        nw.PrivateClassifier(epsilon=0.1, delta=1e-6, bounds=(-1, 1), adjacency="replace_one"),
        nw.PrivateRegressor(epsilon=1.0, delta=1e-6, bounds=(-5, 5), target_bounds=(-5, 5), random_state=0),
        nw.PrivateRegressor(
            epsilon=10.0, delta=1e-6, bounds=(0, 5), target_bounds=(0, 5), size_is_public=True, random_state=1
        ),
    ]
)
NAMES, PAIRS = CHECKS.args


@pytest.mark.sample(110)
@pytest.mark.parametrize(  # check_array_api_input runs only where SCIPY_ARRAY_API is set before scipy is imported
    NAMES, [pair for pair in PAIRS if "check_array_api_input" not in str(pair[1])], **CHECKS.kwargs
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_clone_copies_parameters_and_nothing_fitted(make):
    fitted = make(epsilon=0.7, size_is_public=True).fit(X, Y)
    copy = clone(fitted)
    assert {k: repr(v) for k, v in copy.get_params().items()} == {k: repr(v) for k, v in fitted.get_params().items()}
    assert set(vars(copy)) == set(copy.get_params())
    with pytest.raises(NotFittedError):
        copy.predict(X)
    assert copy.fit(X, Y).statement_.data == fitted.statement_.data, "a clone has a whole budget of its own"


def test_pipeline_and_cross_validation():
    pipeline = make_pipeline(FunctionTransformer(np.sign), classifier(epsilon=50.0))
    assert pipeline.fit(X, Y).score(X, Y) > 0.9
    scores = cross_val_score(classifier(epsilon=50.0), X, WORDS, cv=3, scoring="roc_auc")
    assert scores.shape == (3,) and scores.mean() > 0.9


def test_grid_search_clones_it():
    search = GridSearchCV(classifier(), {"epsilon": [0.5, 50.0], "method": [QUICK, DpSgd(steps=5)]}, cv=2)
    search.fit(X, Y)
    assert search.best_estimator_.statement_.data["promise"]["epsilon"] == search.best_params_["epsilon"]


def test_grid_over_numpy_numbers_keeps_a_statement_that_can_be_written():
    for epsilon in (np.float32(1.0), np.float64(1.0), np.int64(1), 1):
        assert json.loads(classifier(epsilon=epsilon).fit(X, Y).statement_.to_json())["promise"]["epsilon"] == 1.0
    written = classifier(method=DpSgd(steps=5, learning_rate=np.float32(0.5))).fit(X, Y).statement_.to_json()
    assert json.loads(written)["method"]["settings"]["learning_rate"] == 0.5
    assert DpSgd(steps=np.int64(5)).steps == 5


def test_a_data_frame_keeps_its_names():
    schema = {"c": (-1, 1), "a": (-1, 1), "b": (-1, 1)}
    fitted = classifier(bounds=None, schema=schema).fit(NAMED, Y)
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(NAMED[["c", "b", "a"]])


def test_a_schema_is_read_by_name_not_by_place():
    wide = {"a": (-1, 1), "b": (-10, 10), "c": (-100, 100)}
    by_name = classifier(bounds=None, schema=dict(reversed(wide.items()))).fit(NAMED, Y)
    by_place = classifier(bounds=list(wide.values())).fit(X, Y)
    np.testing.assert_array_equal(by_name.coef_, by_place.coef_)


@pytest.mark.parametrize(
    "labels", [WORDS, WORDS.astype(object), pd.Series(WORDS, dtype="category"), Y.astype(bool), Y, 2.0 * Y, Y - 7]
)
def test_binary_labels_of_every_kind(labels):
    fitted = classifier(epsilon=50.0).fit(X, labels)
    classes = np.unique(np.asarray(labels))
    assert fitted.classes_.tolist() == classes.tolist()
    assert set(fitted.predict(X)) <= set(classes)
    assert fitted.score(X, labels) > 0.9
    scores, odds = fitted.decision_function(X), fitted.predict_proba(X)
    assert scores.shape == (400,) and odds.shape == (400, 2)
    np.testing.assert_allclose(odds.sum(axis=1), 1)
    np.testing.assert_allclose(odds[:, 1], 1 / (1 + np.exp(-scores)))
    np.testing.assert_array_equal(fitted.predict(X), classes[(scores > 0).astype(int)])
    assert fitted.coef_.shape == (1, 3) and fitted.intercept_.shape == (1,)


def test_several_classes():
    fitted = classifier(epsilon=200.0, method="dpsgd").fit(X, THREE)
    assert fitted.score(X, THREE) > 0.7
    assert fitted.decision_function(X).shape == fitted.predict_proba(X).shape == (400, 3)
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1)
    assert fitted.coef_.shape == (3, 3) and fitted.intercept_.shape == (3,)


def test_declared_classes_may_be_absent_from_the_labels():
    fitted = classifier(classes=["maybe", "no", "yes"]).fit(X, WORDS)
    assert fitted.classes_.tolist() == ["maybe", "no", "yes"]
    assert fitted.predict_proba(X).shape == (400, 3)
    assert "the classes, declared" in fitted.statement_.data["assumed"]
    assert "the classes, taken from the labels" in classifier().fit(X, WORDS).statement_.data["assumed"]


def test_declared_classes_in_any_order_do_not_turn_a_score_around():
    """scikit-learn's scorers take classes_ as sorted: the positive class is the last one of the sorted labels."""
    fitted = classifier(epsilon=50.0, classes=["yes", "no"]).fit(X, WORDS)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.score(X, WORDS) > 0.9
    assert get_scorer("roc_auc")(fitted, X, WORDS) > 0.9


def test_class_weights_are_declared():
    plain = classifier(epsilon=50.0).fit(X, Y)
    weighted = classifier(epsilon=50.0, class_weight={1: 20.0, 0: 0.05}).fit(X, Y)
    assert weighted.predict(X).mean() > plain.predict(X).mean()
    assert "weighted (0.0025, 1.0)" in weighted.statement_.data["model"]["loss"]
    assert classifier(class_weight={2: 3.0}).fit(X, THREE).classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"class_weight is 'balanced'.*leak.*\{class: weight\}"):
        classifier(class_weight="balanced").fit(X, Y)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_class_weights_do_what_they_do_without_privacy(loss):
    """A weight above 1 was once undone by the clip: 12 % were predicted positive where scikit-learn predicts 34 %."""
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1, 1, (20_000, 5))
    rare = (rows @ [2.6, -2.0, 1.3, 0.0, 0.0] - 3.1 + rng.logistic(size=20_000) > 0).astype(int)
    asked = {"epsilon": 1.0, "method": "descent", "loss": loss, "size_is_public": True}
    for weights in ({0: 1.0, 1: 9.0}, {0: 1 / 9, 1: 1.0}):
        wanted = LogisticRegression(C=1e4, class_weight=weights).fit(rows, rare).predict(rows).mean()
        assert classifier(**asked, class_weight=weights).fit(rows, rare).predict(rows).mean() == pytest.approx(
            wanted, abs=0.06
        )
    assert wanted > 2 * rare.mean()


@pytest.mark.parametrize("weights", [{"Yes": 5.0}, {"no": "a"}, {"no": -1.0}, {"no": math.nan}, {"no": 0, "yes": 0}])
def test_class_weights_that_make_no_sense(weights):
    with pytest.raises(ValueError, match="class_weight"):
        classifier(class_weight=weights).fit(X, WORDS)


@pytest.mark.parametrize("model", ["mlp", (8,), (8, 4)])
def test_perceptrons(model):
    fitted = classifier(epsilon=50.0, model=model, method=DpSgd(steps=50)).fit(X, WORDS)
    assert fitted.score(X, WORDS) > 0.8
    assert fitted.statement_.data["model"]["kind"] == "MLP"
    assert not hasattr(fitted, "coef_")
    assert regressor(epsilon=50.0, model=model).fit(X, TARGET).predict(X).shape == (400,)


def test_hidden_sizes_may_be_a_list():
    assert classifier(model=[8, 4]).fit(X, Y).statement_.data["model"]["shape"][1:-1] == [8, 4]


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_for_two_classes(loss):
    fitted = classifier(epsilon=50.0, loss=loss).fit(X, WORDS)
    assert fitted.score(X, WORDS) > 0.9
    assert fitted.decision_function(X).shape == (400,)
    assert hasattr(fitted, "predict_proba") == (loss in ("logistic", "softmax"))


def test_loss_objects_are_as_good_as_names():
    assert hasattr(classifier(loss=Logistic()).fit(X, Y), "predict_proba")
    described = classifier(loss=HuberHinge(0.1)).fit(X, Y).statement_.data["model"]["loss"]
    assert "0.1" in described, "the width of a Huberised hinge is named in the statement"


def test_regression():
    fitted = regressor(epsilon=50.0, method="dpsgd", target_bounds=(-2, 2)).fit(X, TARGET)
    assert fitted.score(X, TARGET) > 0.7
    assert fitted.coef_.shape == (3,) and fitted.intercept_.shape == ()
    assert (np.abs(fitted.predict(100 * X)) <= 2).all()


def test_targets_outside_their_bounds_count_as_the_bound():
    wild = np.where(TARGET > 0.1, 1e6, TARGET)
    tame = np.where(TARGET > 0.1, 1.0, TARGET)
    np.testing.assert_array_equal(regressor().fit(X, wild).coef_, regressor().fit(X, tame).coef_)


def test_public_rows_are_used_and_stated():
    public = (X[:50], WORDS[:50])
    fitted = classifier().fit(X[50:], WORDS[50:], public=public)
    assert any("50 public rows" in line for line in fitted.statement_.data["assumed"])
    assert not np.array_equal(fitted.coef_, classifier().fit(X[50:], WORDS[50:]).coef_)
    assert regressor().fit(X[50:], TARGET[50:], public=(X[:50], TARGET[:50])).coef_.shape == (3,)


def test_public_columns_are_matched_by_name():
    mixed, same = NAMED[["c", "b", "a"]], NAMED
    with_same = classifier().fit(NAMED, Y, public=(same[:50], Y[:50])).coef_
    try:
        with_mixed = classifier().fit(NAMED, Y, public=(mixed[:50], Y[:50])).coef_
    except ValueError as error:
        assert "public" in str(error)
    else:
        np.testing.assert_array_equal(with_mixed, with_same)


def test_what_a_fitted_estimator_offers():
    fitted = classifier().fit(X, Y)
    assert fitted.n_iter_ == 10 and fitted.n_features_in_ == 3
    assert [line.question for line in fitted.trace_] == ["Count", *["gradient"] * 10]
    assert fitted.trace_[-1].spent == 1
    assert fitted.statement_.data["format"] == "noisewise-statement/5"
    for attribute in ("coef_", "intercept_"):
        with pytest.raises(NotFittedError):
            getattr(classifier(), attribute)


def test_progress_is_told_after_every_step():
    seen = []
    fitted = classifier().watch(lambda *told: seen.append(told)).fit(X, Y)
    assert [(step, steps) for step, steps, _ in seen] == [(i, 10) for i in range(1, 11)]
    assert seen[-1][2] == 1
    assert pickle.loads(pickle.dumps(fitted)).coef_.tolist() == fitted.coef_.tolist(), "watching does not forbid saving"


def test_a_failed_fit_leaves_the_fitted_model_as_it_was():
    fitted = classifier(epsilon=50.0).fit(X, Y)
    before = fitted.predict(X)
    with pytest.raises(ValueError, match="method"):
        fitted.set_params(bounds=(-100, 100), method="unknown").fit(X, WORDS)
    np.testing.assert_array_equal(fitted.predict(X), before)


# --- randomness ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_private_run_differs_each_time(make):
    first, second = make(random_state=None).fit(X, Y), make(random_state=None).fit(X, Y)
    assert not np.array_equal(first.coef_, second.coef_)
    assert first.statement_.data["simulation"] is False
    assert "NOT PRIVATE" not in str(first.statement_)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_seed_reproduces_and_says_not_private(make):
    first, second = make(random_state=5).fit(X, Y), make(random_state=5).fit(X, Y)
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert not np.array_equal(first.coef_, make(random_state=6).fit(X, Y).coef_)
    assert first.statement_.data["simulation"] is True
    assert str(first.statement_).startswith("NOT PRIVATE")


@pytest.mark.parametrize("state", [np.random.RandomState(0), np.random.default_rng(0), np.int64(3)])
def test_generators_are_seeds(state):
    assert classifier(random_state=state).fit(X, Y).statement_.data["simulation"] is True


# --- nothing private is kept -----------------------------------------------------------------------------------------

SECRET = 0.7316529384756102  # one feature of every record
SIZE = 12347


def held(value, seen=None):
    """Every number, text and array reachable from a value, through containers, dataclasses, slots and __dict__."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type) or callable(value):
        return
    seen.add(id(value))
    yield value
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    for part in parts:
        yield from held(part, seen)


def large_fit(**changes):
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (SIZE, 3))
    rows[:, 1] = SECRET
    return classifier(random_state=None, method=DpSgd(steps=3), **changes).fit(rows, rows[:, 0] > 0)


def encodings(value):
    return (np.float64(value).tobytes(), np.float32(value).tobytes(), str(value).encode(), str(value)[:9].encode())


@pytest.mark.parametrize("changes", [{}, {"model": (4,)}, {"adjacency": "replace_one"}, {"size_is_public": True}])
def test_a_saved_estimator_holds_no_record_and_no_curator(changes):
    fitted = large_fit(**changes)
    saved = pickle.dumps(fitted)
    assert len(saved) < 16_000  # most of it is the list of code
    scaled = fitted.fitted_.scaling(np.array([[0.0, SECRET, 0.0]]))[0, 1]
    assert not any(code in saved for value in (SECRET, scaled) for code in encodings(value))
    assert not re.search(rb"curator\W*Curator|PublicCurator|Meter|Stream|Records", saved)
    loaded = pickle.loads(saved)
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert loaded.statement_.data == fitted.statement_.data


@pytest.mark.parametrize("model", ["linear", (4,)])
def test_a_private_size_is_nowhere(model):
    noisy = (large_fit(model=model) for _ in range(4))
    fitted = next(fit for fit in noisy if fit.fitted_.size != SIZE)  # noise may be zero, once in a hundred
    for value in held(fitted):
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert value != SIZE and value != SECRET, value
            assert value == 0 or not math.isclose(1 / value, SIZE, rel_tol=1e-9), value
        elif isinstance(value, torch.Tensor | np.ndarray):
            assert len(value) < 100
        elif isinstance(value, str):
            assert str(SIZE) not in value
    for text in (fitted.statement_.to_json(), str(fitted.statement_), repr(fitted), repr(fitted.trace_)):
        assert not re.search(rf"(?<![\d.]){SIZE}(?!\d)", text) and str(SECRET)[:9] not in text
    assert str(SIZE).encode() not in pickle.dumps(fitted)
    gradients = [line for line in fitted.trace_ if line.question == "gradient"]
    sizes = [line.clip * line.event.noise_multiplier / line.noise_std for line in gradients]
    assert all(size != pytest.approx(SIZE, abs=1e-6) for size in sizes), "only the noisy size divides"


def test_under_a_public_size_it_is_stated():
    for fitted in (large_fit(size_is_public=True), large_fit(adjacency="replace_one")):
        assert fitted.statement_.data["size"] == "public"
        assert any("the number of records" in line for line in fitted.statement_.data["assumed"])


def test_a_private_size_is_bought():
    bought, public = classifier().fit(X, Y), classifier(size_is_public=True).fit(X, Y)
    assert bought.trace_[0].question == "Count"
    assert bought.statement_.data["size"] == "bought"
    assert not any("number of records" in line for line in bought.statement_.data["assumed"])
    counts = [sorted(event["count"] for event in run.statement_.data["events"]) for run in (bought, public)]
    assert counts == [[1, 10], [10]]
    assert public.trace_[0].question == "gradient"
    replaced = classifier(adjacency="replace_one").fit(X, Y)
    assert [event["count"] for event in replaced.statement_.data["events"]] == [10]


# --- bad rows never matter, bad arguments are named ------------------------------------------------------------------


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize(("bad", "as_if"), [(np.inf, 1.0), (-np.inf, -1.0), (np.nan, 0.0), (1e300, 1.0), (-7.0, -1.0)])
def test_features_that_are_not_finite_count_as_bounded_ones(make, bad, as_if):
    broken, mended = X.copy(), X.copy()
    broken[::7, 1], mended[::7, 1] = bad, as_if
    fitted = make().fit(broken, Y)
    assert np.isfinite(fitted.coef_).all() and np.isfinite(fitted.intercept_).all()
    np.testing.assert_array_equal(fitted.coef_, make().fit(mended, Y).coef_)
    np.testing.assert_array_equal(fitted.predict(broken), fitted.predict(mended))


def test_rows_without_any_finite_feature():
    fitted = classifier().fit(np.full_like(X, np.nan), Y)
    assert np.isfinite(fitted.coef_).all()


BAD_ARGUMENTS = [
    ({"epsilon": 0}, r"epsilon is 0; pass a finite number > 0"),
    ({"epsilon": -1.0}, r"epsilon is -1.0; pass"),
    ({"epsilon": math.nan}, r"epsilon is nan; pass"),
    ({"epsilon": math.inf}, r"epsilon is inf; pass"),
    ({"epsilon": "1"}, r"epsilon is '1'; pass"),
    ({"epsilon": 1e300}, r"epsilon"),
    ({"epsilon": 1e-12, "delta": 1e-15}, r"epsilon=1e-12.*pass a larger epsilon"),
    ({"delta": 0}, r"delta is 0; pass a number strictly between 0 and 1"),
    ({"delta": 1.0}, r"delta is 1.0; pass"),
    ({"delta": 2}, r"delta is 2; pass"),
    ({"delta": math.nan}, r"delta is nan; pass"),
    ({"delta": "x"}, r"delta is 'x'; pass"),
    ({"delta": 0.01, "size_is_public": True}, r"delta is 0.01, above 1/size = 0.0025.*pass"),
    ({"delta": 0.01, "adjacency": "replace_one"}, r"delta is 0.01, above 1/size = 0.0025.*pass"),
    ({"bounds": None}, r"bounds are missing; pass bounds=\(low, high\).*schema"),
    ({"bounds": (1, -1)}, r"bounds.*low < high"),
    ({"bounds": (1, 1)}, r"bounds.*low < high"),
    ({"bounds": (0, math.inf)}, r"bounds.*finite"),
    ({"bounds": (math.nan, 1)}, r"bounds.*finite"),
    ({"bounds": [(0, 1), (0, 1)]}, r"bounds has shape \(2, 2\); pass .* each of 3 columns"),
    ({"bounds": (0, 1, 2)}, r"bounds has shape \(3,\); pass"),
    ({"bounds": "ab"}, r"bounds is 'ab'; pass"),
    ({"bounds": (-1e308, 1e308)}, r"bounds"),
    ({"schema": {"a": (0, 1)}}, r"bounds and schema are both given; pass one"),
    ({"bounds": None, "schema": {"a": (0, 1)}}, r"schema names columns but X has no column names; pass"),
    ({"max_grad_norm": 0}, r"max_grad_norm is 0; pass a finite number > 0"),
    ({"max_grad_norm": -1.0}, r"max_grad_norm is -1.0; pass"),
    ({"max_grad_norm": math.nan}, r"max_grad_norm is nan; pass"),
    ({"method": "sgd"}, r"method is 'sgd'; pass one of .*dpsgd, "),
    ({"loss": "log"}, r"loss is 'log'; pass one of logistic"),
    ({"loss": None}, r"loss is None; pass"),
    ({"model": "tree"}, r"model is 'tree'; pass 'linear', 'mlp' or"),
    ({"model": (0,)}, r"model is \(0,\); pass"),
    ({"model": ()}, r"model is \(\); pass"),
    ({"adjacency": "swap"}, r"adjacency is 'swap'; pass one of 'add_remove', 'replace_one'"),
    ({"random_state": "a"}, r"random_state is 'a'; pass None"),
    ({"size_is_public": "no"}, r"size_is_public is 'no'; pass"),
    ({"method": DpSgd(steps=5, sampling=("fixed", 0.1))}, r"no price under add_remove.*use Poisson.*replace_one"),
    ({"method": DpSgd(steps=5, sampling=("poisson", 256))}, r"rate is 256.0; pass"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS, ids=[str(changes) for changes, _ in BAD_ARGUMENTS])
def test_a_bad_argument_is_named_with_what_to_pass_instead(changes, message):
    with pytest.raises(ValueError, match=message):
        classifier(**changes).fit(X, Y)


def test_delta_is_compared_with_a_public_size_only():
    assert classifier(delta=0.01).fit(X, Y).statement_.data["promise"]["delta"] == 0.01


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "adamw"}, r"optimizer is 'adamw'; pass one of 'sgd'"),
        ({"steps": 0}, r"steps is 0; pass a whole number >= 1"),
        ({"learning_rate": 0.0}, r"learning_rate is 0.0; pass"),
        ({"tail": 0.0}, r"tail is 0.0; pass"),
        ({"l2": -1.0}, r"l2 is -1.0; pass"),
        ({"l2": math.nan}, r"l2 is nan; pass"),
        ({"sampling": "poisson"}, r"sampling is 'poisson'; pass"),
        ({"sampling": ("poisson", 2.0)}, r"rate is 2.0; pass"),
    ],
)
def test_bad_settings_of_dpsgd(settings, message):
    with pytest.raises(ValueError, match=message):
        classifier(method=DpSgd(**settings)).fit(X, Y)


def test_a_schema_lacks_a_column():
    with pytest.raises(ValueError, match=r"schema has no bounds for column 'c'; add 'c': \(low, high\)"):
        classifier(bounds=None, schema={"a": (-1, 1), "b": (-1, 1)}).fit(NAMED, Y)
    with pytest.raises(ValueError, match=r"'b'.*low < high"):
        classifier(bounds=None, schema={"a": (-1, 1), "b": (1, -1), "c": (0, 1)}).fit(NAMED, Y)


BAD_LABELS = [
    (np.where(Y, np.nan, 0.0), r"y contains NaN.*[Cc]orrect those labels"),
    (np.where(Y, np.inf, 0.0), r"y contains infinity.*[Cc]orrect those labels"),
    (np.where(Y, "a", None), r"y .*(missing|None|NaN)"),
    (np.zeros(400), r"y has one class only.*pass classes="),
    (Y[:-1], r"inconsistent numbers of samples; pass one label"),
    (X[:, 0], r"continuous"),
]


@pytest.mark.parametrize(("labels", "message"), BAD_LABELS)
def test_bad_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(X, labels)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["no"], r"classes"),
        (["no", "maybe"], r"y holds a label .* declare"),
        (["no", "yes", "yes"], r"classes .*(twice|once|distinct|repeat|duplicate)"),
        ("noyes", r"classes is 'noyes'; pass"),
        (5, r"classes is 5; pass"),
    ],
)
def test_bad_classes(classes, message):
    with pytest.raises(ValueError, match=message):
        classifier(classes=classes).fit(X, WORDS)


def test_classes_may_be_any_collection():
    assert classifier(classes={"no", "yes"}).fit(X, WORDS).classes_.tolist() == ["no", "yes"]


def test_bad_targets():
    for target in (np.where(Y, np.nan, 0.0), np.where(Y, np.inf, 0.0)):
        with pytest.raises(ValueError, match="y contains"):
            regressor().fit(X, target)
    with pytest.raises(ValueError, match="y"):
        regressor().fit(X, WORDS)
    with pytest.raises(ValueError, match="target_bounds is missing"):
        regressor(target_bounds=None, bounds=[(-1, 1)] * 3).fit(X, TARGET)
    with pytest.raises(ValueError, match=r"target_bounds is \(1, 0\); pass finite numbers with low < high"):
        regressor(target_bounds=(1, 0)).fit(X, TARGET)
    with pytest.raises(ValueError, match=r"loss is 'logistic'; pass loss='squared'"):
        regressor(loss="logistic").fit(X, TARGET)


def test_bad_rows():
    with pytest.raises(ValueError, match="0 sample"):
        classifier().fit(X[:0], Y[:0])
    with pytest.raises(ValueError, match="has 2 features"):
        classifier().fit(X, Y).predict(X[:, :2])
    with pytest.raises(ValueError, match=r"loss is 'hinge' but there are more than two classes; pass loss='softmax'"):
        classifier(loss="hinge").fit(X, THREE)


def test_an_error_about_the_shape_of_rows_shows_no_record():
    with pytest.raises(ValueError) as raised:
        classifier().fit(X[:, 0], Y)
    assert f"{X[0, 0]:.6f}" not in str(raised.value)


@pytest.mark.parametrize(
    ("public", "message"),
    [
        (X, r"public must be a pair"),
        ((X[:, :2], Y), r"public must be rows with 3 columns .* got \(400, 2\)"),
        ((X, Y[:3]), r"public must be .* one label each"),
        ((X[:0], Y[:0]), r"public"),
        ((X, Y + 5), r"public.* not among the .*classes"),
        ((X, np.where(Y, np.nan, 0.0)), r"public"),
        ((np.full((5, 3), "a"), [0] * 5), r"public"),
    ],
)
def test_bad_public_rows(public, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(X, Y, public=public)


def test_bad_public_targets():
    with pytest.raises(ValueError, match="public"):
        regressor().fit(X, TARGET, public=(X, np.full(400, np.nan)))


def test_the_non_private_reference_promises_nothing():
    fitted = classifier(method="nonprivate").fit(X, Y)
    assert fitted.score(X, Y) > 0.95
    assert "without privacy" in str(fitted.statement_)
    assert fitted.statement_.data["promise"] is None and fitted.trace_ == ()
