"""Projected descent: iterates stay in the set, step sizes follow the rate, averages average."""

from __future__ import annotations

import math

import numpy as np
import pytest

import noisewise as nw
from noisewise.methods import projected_gd
from noisewise.methods.dpsgd import DpSgd
from noisewise.methods.projected_gd import ProjectedGd
from noisewise.methods.projected_sgd import ProjectedSgd
from noisewise.protect.projectors import SETS, set_named
from noisewise.train import Records, train
from noisewise.trusted.events import Poisson
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import Linear

BUDGET = nw.Budget(1.0, 1e-6)


def problem(n=2000, d=6, seed=0, loss="logistic"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.sign(X[:, 0] + 0.2 * rng.normal(size=n)), Linear(d, LOSSES[loss])


def run(method, budget=BUDGET, size=2000.0, seed=1):
    X, y, model = problem()
    return train(method, Records(X, y, size, 1.0), model=model, budget=budget, seed=seed)


@pytest.mark.parametrize("constraint", SETS)
@pytest.mark.parametrize("release", ["mean", "last"])
@pytest.mark.parametrize("kind", [ProjectedGd, ProjectedSgd])
def test_every_iterate_and_the_release_are_in_the_set(kind, release, constraint, monkeypatch):
    seen, inner = [], kind.step
    monkeypatch.setattr(kind, "step", lambda *args: seen.append(inner(*args)) or seen[-1])
    method = kind(steps=12, constraint=constraint, radius=0.7, release=release)
    released = run(method if kind is ProjectedGd else method.with_settings(sampling=("poisson", 0.3))).theta
    convex = set_named(constraint, 0.7)
    for state in seen:
        np.testing.assert_allclose(convex.project(state.theta), state.theta, atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(convex.project(released), released, atol=1e-6, rtol=1e-6)
    thetas = np.stack([state.theta for state in seen])
    np.testing.assert_allclose(released, thetas.mean(0) if release == "mean" else thetas[-1], rtol=1e-5)


def test_steps_are_diameter_over_gradient_bound_times_root_of_t():
    model = problem()[2]
    method = ProjectedGd(steps=9, radius=2.0, max_grad_norm=0.5, release="last")
    facts = facts_of(model, BUDGET, size=2000, row_bound=1.0)
    std = method.noise_multiplier(facts) * 0.5 / 2000
    state = method.init(np.zeros(6), facts, None)
    assert state.rate == pytest.approx(4.0 / math.sqrt(0.25 + 6 * std**2))

    class Slope:  # a curator that always answers the same gradient
        def gradient(self, theta, **kwargs):
            return nw.curator.Answer(np.full(6, 1e-3), std)

    for t in range(1, 5):
        after = method.step(state, Slope(), None)
        np.testing.assert_allclose(state.theta - after.theta, 1e-3 * state.rate / math.sqrt(t), rtol=1e-5)
        state = after


def test_one_record_a_step_is_a_poisson_batch_of_expected_size_one(monkeypatch):
    monkeypatch.setattr(projected_gd, "_calibrated", lambda *args: 3.0)  # more than the budget asks for, and fast
    result = run(ProjectedSgd(steps=50))
    (event,) = result.meter.events
    assert isinstance(event, Poisson)
    assert event.rate == 1 / 2000
    assert nw.epsilon(list(result.meter.events.elements()), delta=1e-6) <= 1.0
    facts = result.facts
    for batch in (1.0, 100.0):
        method = ProjectedSgd(steps=50, batch_size=batch)
        state = method.init(np.zeros(6), facts, None)
        noise = 6 * (state.noise_multiplier / batch) ** 2
        assert state.rate == pytest.approx(20.0 / math.sqrt(1 + 1 / batch + noise), rel=1e-6)


def test_a_private_size_needs_a_rate_fixed_beforehand():
    with pytest.raises(ValueError, match="a rate of batch_size/size would leak it"):
        run(ProjectedSgd(steps=5), size=None)
    result = run(ProjectedSgd(steps=5, sampling=("poisson", 0.3)), size=None)
    assert [line.question for line in result.trace] == ["Count"] + ["gradient"] * 5


def test_a_set_that_holds_the_truth_helps_when_noise_is_large():
    """The best point is on a small simplex in many dimensions: the constraint throws most of the noise away."""
    d, n = 60, 3000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    truth = np.zeros(d)
    truth[3] = 1.0
    y, model, budget = X @ truth, Linear(d, LOSSES["squared"]), nw.Budget(0.3, 1e-6)

    def error(method):
        runs = [train(method, Records(X, y, n, 1.0), model=model, budget=budget, seed=s).theta for s in range(5)]
        return sum(((X @ (theta - truth)) ** 2).mean() for theta in runs) / 5

    assert error(ProjectedGd(constraint="simplex", radius=1.0)) < 0.5 * error(DpSgd())


@pytest.mark.parametrize("kind", [ProjectedGd, ProjectedSgd])
@pytest.mark.parametrize("settings", [{"constraint": "cone"}, {"radius": -1.0}, {"release": "best"}, {"steps": 0}])
def test_bad_settings_are_refused_by_name(kind, settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        kind(**settings)
