"""Noise in a public subspace: less of it where the gradients live."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.accounts import Budget
from noisewise.curator import PublicCurator
from noisewise.methods.dpsgd import DpSgd
from noisewise.methods.public_subspace import PublicSubspace
from noisewise.train import Records, train
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import MLP, Linear

D, RANK = 400, 5
MODEL = Linear(D, Logistic())


def problem(n=1500, public=60, seed=0):
    """Rows near a subspace of 5 of 400 dimensions: private, public and 2,000 for testing."""
    rng = np.random.default_rng(seed)
    inside = np.linalg.qr(rng.normal(size=(D, RANK)))[0]
    Z = rng.normal(size=(n + public + 2000, RANK))
    X = Z @ inside.T / math.sqrt(RANK) + 0.7 * rng.normal(size=(len(Z), D)) / math.sqrt(D)
    X = X / np.linalg.norm(X, axis=1, keepdims=True).clip(1, None)
    y = np.sign(Z @ rng.normal(size=RANK) + 0.3 * rng.normal(size=len(Z)))
    return [(X[a:b], y[a:b]) for a, b in ((0, n), (n, n + public), (n + public, None))]


def run(method, private, public, model=MODEL, seed=0):
    records = Records(*private, float(len(private[0])), row_bound=1.0)
    known = PublicCurator(*public, model=model)
    return train(method, records, model=model, budget=Budget(0.5, 1e-6), public=known, seed=seed)


def test_it_beats_noise_in_all_dimensions_from_the_same_public_start():
    """Six problems gave 0.942 against 0.924 on average (public rows alone 0.921). With 500 private rows both are worse
    than the public start, 0.90 and 0.87 against 0.92; with 5,000 they are level."""

    def accuracies(seed):
        private, public, (X, y) = problem(seed=seed)
        thetas = (run(method, private, public, seed=seed).theta for method in (PublicSubspace(), DpSgd()))
        return [(np.sign(X @ theta) == y).mean() for theta in thetas]

    ours, theirs = np.mean([accuracies(seed) for seed in range(3)], axis=0)
    assert ours > theirs


def test_steps_stay_in_the_span_of_the_public_gradients():
    private, public, _ = problem(n=50, public=7)
    model = Linear(D, Logistic())
    known = PublicCurator(*public, model=model)
    start = PublicSubspace(steps=1).init(model.start(), facts(), known).walk.theta
    moved = run(PublicSubspace(steps=6, refresh=2), private, public).theta - start
    spanned = np.linalg.qr(public[0].T)[0]
    assert np.linalg.norm(moved) > 0
    assert np.linalg.norm(moved - spanned @ (spanned.T @ moved)) < 1e-3 * np.linalg.norm(moved)


def facts():
    return facts_of(MODEL, Budget(0.5, 1e-6), size=50.0, row_bound=1.0)


def test_a_perceptron_is_projected_too():
    private, public, _ = problem(n=50, public=10)
    model = MLP((D, 3, 1), Logistic())
    assert np.isfinite(run(PublicSubspace(steps=3), private, public, model=model).theta).all()


def test_it_refuses_to_run_without_public_rows():
    private, *_ = problem(n=50, public=10)
    records = Records(*private, 50.0, row_bound=1.0)
    with pytest.raises(ValueError, match="public"):
        train(PublicSubspace(), records, model=MODEL, budget=Budget(0.5, 1e-6))


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"refresh": 0}, {"steps": 0}])
def test_wrong_settings_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PublicSubspace(**wrong)
