"""DYN: the schedule that is spent is the optimal one, under every way of pricing."""

from __future__ import annotations

import numpy as np
import pytest

import noisewise as nw
from noisewise.curator import PublicCurator
from noisewise.evidence import theory
from noisewise.methods.dynamic import GAMMA, Dynamic, least_curvature
from noisewise.protect import schedules
from noisewise.train import Records, train
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import Linear

BUDGET = nw.Budget(1.0, 1e-6)


def problem(n=4000, d=5, seed=0, loss="logistic"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.sign(X[:, 0] + 0.2 * rng.normal(size=n)), Linear(d, LOSSES[loss])


def run(method, size=4000.0, budget=BUDGET, public=0, loss="logistic"):
    X, y, model = problem(loss=loss)
    rows = PublicCurator(X[:public], y[:public], model=model) if public else None
    return train(method, Records(X, y, size, 1.0), model=model, budget=budget, public=rows, seed=1)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("size", [4000.0, None])
def test_the_noise_spent_is_the_optimal_schedule_of_the_budget(momentum, size):
    result = run(Dynamic(steps=30, momentum=momentum, gamma=0.9), size)
    noise = np.array([line.event.noise_multiplier for line in result.trace if line.question == "gradient"])
    q = schedules.debiased_momentum(30, 0.9, momentum)
    np.testing.assert_allclose(noise, theory.optimal_schedule(q, (noise**-2).sum()), rtol=1e-6)
    assert result.meter.spent_fraction == pytest.approx(1.0, abs=1e-6)
    assert nw.epsilon(list(result.meter.events.elements()), delta=1e-6) <= 1.0
    if not momentum:
        assert (np.diff(noise) < 0).all()  # the noise falls as the end comes nearer


@pytest.mark.slow  # a plan of two shapes is calibrated for seconds; plans of the full batch above catch the same
def test_sampled_plans_keep_the_shape_and_may_not_depend_on_a_bought_size():
    for size in (4000.0, None):
        result = run(Dynamic(steps=2, momentum=0.0, sampling=("poisson", 0.1)), size)
        noise = np.array([line.event.event.noise_multiplier for line in result.trace if line.question == "gradient"])
        expected = GAMMA ** (-0.25 * np.arange(1, -1, -1.0))
        np.testing.assert_allclose(noise / noise[-1], expected, rtol=1e-6)
        assert not result.meter.adaptive


def test_curvature_of_public_rows():
    X, y, model = problem(loss="squared")
    exact = 2 * np.linalg.eigvalsh((X.T @ X) / len(X))[0]
    assert least_curvature(PublicCurator(X, y, model=model), np.zeros(5)) == pytest.approx(exact, rel=1e-3)
    few = PublicCurator(X[:3], y[:3], model=model)  # fewer rows than dimensions: flat directions
    assert least_curvature(few, np.zeros(5)) == pytest.approx(0.0, abs=1e-5)
    method, facts = Dynamic(steps=20, learning_rate=0.1), facts_of(model, BUDGET, size=4000, row_bound=1.0)
    flat, curved = (method.noise_multipliers(facts, PublicCurator(X[:n], y[:n], model=model)) for n in (3, 4000))
    np.testing.assert_allclose(flat, Dynamic(steps=20, gamma=1.0).noise_multipliers(facts), rtol=1e-4)
    assert curved[0] > flat[0]


def test_falling_noise_beats_constant_noise_in_a_curved_valley():
    """Plain descent on a well-conditioned square: noise of early steps is forgotten, so late steps deserve the budget."""
    X, y, model = problem(loss="squared")
    exact = np.linalg.lstsq(X, y)[0]
    budget = nw.Budget(0.1, 1e-6)

    def excess(gamma, seed):
        method = Dynamic(steps=60, momentum=0.0, learning_rate=1.0, gamma=gamma, max_grad_norm=3.0)
        result = train(method, Records(X, y, 4000.0, 1.0), model=model, budget=budget, seed=seed)
        return ((X @ (result.theta - exact)) ** 2).mean()

    falling, constant = (np.mean([excess(gamma, seed) for seed in range(20)]) for gamma in (0.75, 1.0))
    assert falling < 0.6 * constant


@pytest.mark.parametrize("settings", [{"gamma": 0.0}, {"gamma": 1.5}, {"momentum": 1.0}, {"steps": 0}])
def test_bad_settings_are_refused_by_name(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Dynamic(**settings)
