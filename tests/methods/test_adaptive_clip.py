"""The clip norm finds the gradients' scale, whatever unit they come in."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from noisewise.accounts import Budget
from noisewise.curator import Answer
from noisewise.methods.adaptive_clip import AdaptiveClip, rescaled
from noisewise.methods.dpsgd import DpSgd
from noisewise.train import Records, train
from noisewise.trusted.events import Gaussian, Poisson
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import MLP, Linear

D = 20
MODEL = Linear(D, Logistic())


def problem(length, n=6000, seed=0):
    """Rows of a given length, labelled by a plane; the last 2,000 are for testing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 2000, D))
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    y = np.sign(X @ rng.normal(size=D) + 0.1 * rng.normal(size=len(X)))
    return (length * X[:n], y[:n]), (length * X[n:], y[n:])


def run(method, rows, epsilon=0.5, model=MODEL, seed=0, adjacency="add_remove"):
    records = Records(*rows, float(len(rows[0])), row_bound=1.0)
    return train(method, records, model=model, budget=Budget(epsilon, 1e-6, adjacency), seed=seed)


def accuracy(theta, rows):
    return (np.sign(MODEL.scores(theta, rows[0])) == rows[1]).mean()


@pytest.mark.parametrize("form", ["quantile", "adaclip"])
def test_it_learns_from_short_rows_which_a_fixed_clip_drowns_in_noise(form):
    """Not against a clip that fits: with max_grad_norm=0.025, known beforehand, DP-SGD is as good (0.96 each)."""
    rows, test = problem(0.05)
    fixed = accuracy(run(DpSgd(), rows).theta, test)
    follows = accuracy(run(AdaptiveClip(form=form), rows).theta, test)
    fitting = accuracy(run(DpSgd(max_grad_norm=0.025), rows).theta, test)
    assert follows > fixed + 0.05
    assert follows == pytest.approx(fitting, abs=0.03)


def test_the_clip_settles_at_the_quantile():
    rows, _ = problem(0.05)
    method = AdaptiveClip(target_quantile=0.7, learning_rate=1e-6, optimizer="sgd")  # theta stays: norms are 0.025
    clips = [line.clip for line in run(method, rows, epsilon=5.0).trace]
    assert clips[0] == 1.0
    assert clips[-1] == pytest.approx(0.025, rel=0.15)
    assert all(a / b < math.exp(0.2) for a, b in pairwise(clips))


def test_the_unit_of_the_rows_does_not_matter_once_the_clip_starts_in_it():
    """Rows a hundredth as long, a clip that starts at a hundredth: the same walk times a hundred."""
    (X, y), _ = problem(1.0, n=300)
    long = run(AdaptiveClip(steps=5, learning_rate=0.01), (X, y)).theta
    short = run(AdaptiveClip(steps=5, learning_rate=0.01, max_grad_norm=2.0**-7), (X * 2.0**-7, y)).theta
    assert np.allclose(long, short, atol=0.03 * np.linalg.norm(long))


@pytest.mark.parametrize("sampling, kind", [(("full",), Gaussian), (("poisson", 0.1), Poisson)])
def test_the_plan_is_made_of_joint_events(sampling, kind):
    method = AdaptiveClip(steps=40, sampling=sampling)
    rows, _ = problem(1.0, n=100)
    result = run(method, rows)
    facts = facts_of(MODEL, Budget(0.5, 1e-6), size=100.0, row_bound=1.0)
    plain = DpSgd(steps=40, sampling=sampling).noise_multiplier(facts)
    (event,) = result.meter.events
    assert isinstance(event, kind)
    assert (event.event if kind is Poisson else event).noise_multiplier == pytest.approx(plain, rel=1e-9)
    sigma, tau = method.noise(facts)
    assert sigma == pytest.approx(plain / math.sqrt(0.99))
    assert tau == pytest.approx(plain / math.sqrt(0.01))


def test_the_scale_follows_the_spread_of_released_gradients():
    method = AdaptiveClip(form="adaclip")
    facts = facts_of(MODEL, Budget(0.5, 1e-6), size=100.0, row_bound=1.0)
    state = method.init(np.zeros(D), facts, None)
    rng = np.random.default_rng(0)
    spread = np.logspace(0, -2, D)
    for _ in range(200):
        state = rescaled(state, Answer(spread * rng.normal(size=D), 1e-4, 0.5))
    assert (state.scale**2).mean() == pytest.approx(1.0, rel=1e-3)
    assert state.scale[0] > 2 * state.scale[-1]
    for _ in range(200):  # nothing but noise: what is left looks alike
        state = rescaled(state, Answer(np.zeros(D), 1e3, 0.5))
    assert np.isfinite(state.scale).all()


def test_a_perceptron_takes_the_quantile_form_and_refuses_the_other():
    model = MLP((D, 3, 1), Logistic())
    rows, _ = problem(1.0, n=100)
    assert np.isfinite(run(AdaptiveClip(steps=3), rows, model=model).theta).all()
    with pytest.raises(ValueError, match="quantile"):
        run(AdaptiveClip(steps=3, form="adaclip"), rows, model=model)


@pytest.mark.parametrize(
    "wrong", [{"form": "other"}, {"target_quantile": 1.0}, {"count_share": 0.0}, {"clip_learning_rate": 0.0}]
)
def test_wrong_settings_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        AdaptiveClip(**wrong)
