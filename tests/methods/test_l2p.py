"""The l2p method: it learns, says which protector it used, and asks nothing before it has one."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest

import noisewise as nw
import noisewise.train as loop
from noisewise.curator import Curator, PublicCurator
from noisewise.evidence.runs import verify
from noisewise.methods import registry
from noisewise.methods.l2p import L2P
from noisewise.protect.learned import zoo
from noisewise.protect.learned.parts import new_weights
from noisewise.protect.learned.weights import Design, zero_weights
from noisewise.protect.learned.zoo import OutsideRange, named, names
from noisewise.tables.generated import census, measurements
from noisewise.train import Records, train
from noisewise.trusted.accountants.gdp import mu_of
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear

N, D = 400, 4
ANYWHERE = {name: [1e-9, 1e12] for name in zoo.RANGES}
outside_is_fine = pytest.mark.filterwarnings("ignore::noisewise.protect.learned.zoo.OutsideRange")


@pytest.fixture
def zero(tmp_path):
    """The path of a zero-weight protector that does not mind where it is used."""
    design = Design(units=3)
    header = {"name": "zero", "horizon": 8, "ranges": ANYWHERE}
    zoo.save_protector(tmp_path / "zero.safetensors", zero_weights(design), design, header)
    return str(tmp_path / "zero.safetensors")


def rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    X[:, -1] = 1.0
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X[:, 0] > 0, 1.0, -1.0)


def run(method, *, model=None, public=None, size=float(N), budget=None, seed=0, data=None):
    records = Records(*(data or rows()), size, row_bound=1.0)
    return train(
        method, records, model=model or Linear(D, Logistic()), budget=budget or nw.Budget(1.0, 1e-6), public=public,
        seed=seed,
    )  # fmt: skip


def test_it_learns_a_census():
    """Well above the majority at epsilon 1, and not much below a fit without privacy."""
    table = census(12_000, seed=5)
    X, y = table.X.to_numpy(), table.y
    classifier = nw.PrivateClassifier(
        epsilon=1.0, delta=1e-8, method="l2p", bounds=list(table.schema.values()), size_is_public=True, random_state=0
    )
    classifier.fit(X[:10_000], y[:10_000])
    majority = max(y[10_000:].mean(), 1 - y[10_000:].mean())
    assert classifier.score(X[10_000:], y[10_000:]) > majority + 0.05


@outside_is_fine
def test_it_does_not_get_worse_with_more_budget():
    """Long steps once went to and fro along the mean of such rows: .667 at epsilon 0.1, .559 at 1, .563 at 16."""
    table = measurements(18_000, seed=1)
    X, y, right = table.X.to_numpy(), table.y, {}
    for epsilon in (0.1, 1.0, 16.0):
        face = nw.PrivateClassifier(
            epsilon=epsilon, delta=1e-6, method="l2p", bounds=list(table.schema.values()), size_is_public=True, random_state=0
        )  # fmt: skip
        right[epsilon] = face.fit(X[:14_000], y[:14_000]).score(X[14_000:], y[14_000:])
    assert right[0.1] + 0.01 < right[1.0] < right[16.0] + 0.01, right


def test_it_fits_a_regression(zero):
    """With steps that are small enough for the curvature of squared errors."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 3))
    y = X @ [1.0, -0.5, 0.2]
    regressor = nw.PrivateRegressor(
        epsilon=1.0, delta=1e-6, method=L2P(protector=zero, steps=300), bounds=(-1, 1), target_bounds=(-2, 2),
        random_state=0,
    )  # fmt: skip
    assert regressor.fit(X, y).score(X, y) > 0.8


@outside_is_fine
def test_both_faces_take_it_by_name():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 3))
    shared = {"epsilon": 1.0, "delta": 1e-6, "method": "l2p", "bounds": (-1, 1)}
    regressor = nw.PrivateRegressor(**shared, target_bounds=(-2, 2)).fit(X, X[:, 0])
    classifier = nw.PrivateClassifier(**shared, model=(4,)).fit(X, X[:, 0] > 0)
    assert np.isfinite(regressor.predict(X)).all() and set(classifier.predict(X)) <= {True, False}
    for face in (regressor, classifier):
        stated = json.loads(face.statement_.to_json())
        assert stated["method"]["name"] == "l2p" and verify(stated).holds


@outside_is_fine
@pytest.mark.parametrize("model", [Linear(D, Softmax(), 3), MLP((D, 3, 1), Logistic())], ids=repr)
def test_it_runs_on_classes_and_layers(model):
    X, y = rows()
    result = run(L2P(steps=5), model=model, data=(X, (y > 0).astype(np.int64)) if model.outputs > 1 else (X, y))
    assert result.steps == 5 and np.isfinite(result.theta).all()
    assert not np.array_equal(result.theta, model.start())


@pytest.mark.parametrize(
    "model, name",
    [
        (Linear(3, Logistic()), "noisy"),
        (Linear(3, Softmax(), 4), "noisy"),
        (MLP((3, 2, 1), Logistic()), "perceptron"),
        (MLP((3, 4), Softmax()), "noisy"),
        (MLP((3, 1, 4), Softmax()), "perceptron"),
        (Linear(3, Squared()), "squared"),
    ],
    ids=repr,
)
def test_the_rule_picks_by_public_facts(model, name):
    facts = facts_of(model, nw.Budget(1.0, 1e-6), size=20.0, row_bound=1.0)
    assert L2P().learned(facts) is named(name)


def test_the_rule_goes_by_how_clear_the_gradient_is():
    """n mu / sqrt(d), in which size, budget and dimension come together; a size that is not known yet counts as 1."""
    for size, epsilon, dimension, name in [
        (30_000.0, 0.1, 50, "clear"), (10_000.0, 0.05, 784, "wide"), (3_000.0, 0.05, 299, "noisy"), (10_000.0, 0.4, 784, "clear"), (None, 0.1, 50, "noisy")
    ]:  # fmt: skip
        facts = facts_of(Linear(dimension, Logistic()), nw.Budget(epsilon, 1e-8), size=size, row_bound=1.0)
        assert L2P().learned(facts) is named(name)


def test_the_horizon_is_the_protectors_unless_another_is_asked_for(zero):
    assert run(L2P(protector=zero)).steps == 8
    assert run(L2P(protector=zero, steps=3)).steps == 3


def test_the_basis_is_bought_and_the_rest_is_spent_evenly(zero):
    result = run(L2P(protector=zero))
    assert [line.question for line in result.trace] == ["FirstMoment", "SquaredLength"] + ["gradient"] * 8
    assert result.meter.spent_fraction == pytest.approx(1, abs=1e-9) and result.meter.spent_fraction <= 1
    noise = [line.event.noise_multiplier for line in result.trace[2:]]
    assert noise == pytest.approx([noise[0]] * 8, rel=1e-5)
    assert all(line.clip == pytest.approx(0.5) for line in result.trace[2:])
    plain = run(L2P(protector=zero, deflate=False))
    assert [line.question for line in plain.trace] == ["gradient"] * 8
    wide = run(L2P(protector=zero, max_grad_norm=2.0))
    assert all(line.clip == pytest.approx(2.0) for line in wide.trace[2:])


def test_public_rows_give_a_free_basis(zero):
    """Enough public rows: no statistic is bought, and all of the budget goes into gradients."""
    model = Linear(D, Logistic())
    many = PublicCurator(*rows(40_000, seed=3), model=model, seed=0)
    free = run(L2P(protector=zero), public=many)
    assert [line.question for line in free.trace] == ["gradient"] * 8
    bought = run(L2P(protector=zero))
    assert free.trace[0].event.noise_multiplier < bought.trace[2].event.noise_multiplier
    few = PublicCurator(*rows(3, seed=3), model=model, seed=0)
    large = run(L2P(protector=zero), public=few, size=1e6)
    assert [line.question for line in large.trace[:2]] == ["FirstMoment", "SquaredLength"]


def test_the_steps_are_the_closed_form_of_zero_weights(zero, monkeypatch):
    """theta moves along what was released, in units of the clip norm, by n mu / T."""
    answers, ask = [], Curator.ask

    def spied(self, question, **how):
        answer = ask(self, question, **how)
        if question.name == "gradient":
            answers.append((question.theta, answer.value / question.clip))
        return answer

    monkeypatch.setattr(Curator, "ask", spied)
    result = run(L2P(protector=zero, deflate=False))
    theta = np.zeros(D)
    for asked_at, gradient in answers:
        assert np.allclose(asked_at, theta, rtol=1e-4, atol=1e-4)
        theta = theta - min(N * mu_of(1.0, 1e-6) / 8, 30) * gradient
    assert np.allclose(result.theta, theta, rtol=1e-4, atol=1e-4)


def test_theta_is_released_in_the_basis_of_the_rows(zero):
    """Scores of rows as they came: what was learned separates them."""
    result = run(L2P(protector=zero), budget=nw.Budget(100.0, 1e-3))
    X, y = rows(seed=9)
    assert ((X @ result.theta > 0) == (y > 0)).mean() > 0.9


def test_a_missing_or_spoiled_protector_is_refused_before_anything_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "Curator", lambda *a, **k: pytest.fail("a curator was made"))
    (tmp_path / "spoiled").write_bytes(b"nothing")
    for path in (tmp_path / "missing", tmp_path / "spoiled"):
        with pytest.raises(ValueError, match=path.name):
            run(L2P(protector=str(path)), size=None)


def test_the_statement_names_the_protector_by_its_hash(zero):
    table = census(1000, seed=1)
    classifier = nw.PrivateClassifier(
        epsilon=1.0, delta=1e-6, method=L2P(protector=zero, steps=3), bounds=list(table.schema.values())
    )
    classifier.fit(table.X.to_numpy(), table.y)
    stated = json.loads(classifier.statement_.to_json())
    assert stated["method"]["settings"]["sha256"] == named(zero).digest
    assert verify(stated).holds
    assert L2P(protector="clear").settings()["sha256"] == named("clear").digest
    assert L2P().settings()["sha256"] == {name: named(name).digest for name in names()}


def test_outside_its_ranges_it_warns_once_and_names_released_facts_only(tmp_path):
    """With a private size the text holds the bought one; other records with the same noise get the same text."""
    design = Design(units=3)
    ranges = {"size": [1e6, 1e7], "dimension": [1, 9], "epsilon": [0.1, 2], "horizon": [1, 9]}
    zoo.save_protector(tmp_path / "p", new_weights(design), design, {"name": "p", "horizon": 3, "ranges": ranges})
    with pytest.warns(OutsideRange) as caught:
        result = run(L2P(protector=str(tmp_path / "p")), size=None)
    assert len(caught) == 1
    assert result.facts.size is not None and result.facts.size != N
    text = str(caught[0].message)
    assert f"size {result.facts.size:.6g} is outside 1e+06 to 1e+07" in text
    assert f" {N} " not in text and "dimension" not in text
    X, y = rows()
    with pytest.warns(OutsideRange) as again:
        run(L2P(protector=str(tmp_path / "p")), size=None, data=(-X, -y))
    assert str(again[0].message) == text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(L2P(protector=str(tmp_path / "p")), size=2e6)


@pytest.mark.parametrize(
    "wrong", [{"protector": None}, {"protector": 3}, {"steps": 0}, {"steps": 2.5}, {"max_grad_norm": 0.0},
              {"max_grad_norm": math.nan}]
)  # fmt: skip
def test_wrong_settings_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        L2P(**wrong)


def test_it_is_registered():
    assert registry()["l2p"] is L2P and L2P.adaptive and not L2P.needs_public
