"""Attacks that once worked, kept as tests."""

from __future__ import annotations

import math

import numpy as np
import pytest

import noisewise as nw
from noisewise.accounts import AdditiveMeter, PlanMeter
from noisewise.curator import Curator
from noisewise.trusted.events import ApproximateDP
from noisewise.trusted.losses import Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.totals import Drawn
from noisewise.trusted.walks.iterations import Perturbed, rows_of
from noisewise.trusted.walks.objective import PerturbedObjective, objective_terms
from noisewise.trusted.walks.oneshot import Descent, OnePass, descent_unit, pass_noise


def facts(features=1, size=100.0, loss=None):
    model = Linear(features, loss or Logistic())
    meter = AdditiveMeter(nw.Budget(1.0, 1e-6, "replace_one"), "gdp")
    curator = Curator(np.zeros((3, features)), np.ones(3), model=model, meter=meter, size=size, row_bound=1.0)
    return curator.facts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((784, 20, 2), Softmax(), "step"), "pass one of relu, sigmoid, softplus, tanh"),
        (((3, 2), Squared()), "one per class"),
        (((3, 2, 1), Softmax()), "one per class"),
    ],
)
def test_a_perceptron_takes_known_parts_of_matching_shape_only(arguments, message):
    with pytest.raises(ValueError, match=message):
        MLP(*arguments)


@pytest.mark.parametrize("features", [50, 784])
def test_a_row_of_zeros_changes_nothing_for_the_squared_loss_at_a_small_clip(features):
    """Scores near their labels, where rounding once decided slopes: fifteen rows were summed otherwise than sixteen."""
    rng = np.random.default_rng(0)
    model, clip = Linear(features, Squared()), 1e-3
    X = rng.normal(size=(15, features))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    theta = rng.normal(size=features)
    y = (X @ theta) + 1e-4 * rng.normal(size=15)
    joined = np.concatenate([X, np.zeros((1, features))]), np.concatenate([y, np.zeros(1)])
    one, other = (records_of(model, *data).gradients(Drawn(), theta, clip).values for data in ((X, y), joined))
    assert one.tolist() == other.tolist()


def test_a_walk_whose_noise_rounding_would_swallow_is_refused():
    """120 public rows and a strong pull left noise below the last bit of theta: the release told the private label."""
    walk = OnePass(
        start=np.array([999.0]), public_rows=np.full((120, 1), 2.0**-9), public_labels=-np.ones(120),
        step_size=4.0, noise_multiplier=72.6, l2=0.0625,
    )  # fmt: skip
    noise = pass_noise(walk, facts(size=1.0))
    assert 4.0 * noise > 1e-5, "far above the rounding of 999"
    with pytest.raises(ValueError, match="lost to rounding"):
        descent_unit(
            Descent(np.array([999.0]), steps=10, step_size=9e-7, noise_multiplier=1.0, l2=1e6), facts(size=1e6), 1e6
        )
    with pytest.raises(ValueError, match="usual size"):
        Descent(np.array([1e6]), steps=10, step_size=0.1, noise_multiplier=1.0)


@pytest.mark.parametrize("l2", [1e12, 1e14])
def test_a_step_at_the_edge_of_rounding_is_refused(l2):
    """The tolerance of the check let the weight of the records turn negative: 359 times the stated sensitivity."""
    step = (1 + 9e-13) / (0.25 + l2)
    with pytest.raises(ValueError, match="step_size"):
        descent_unit(Descent(np.zeros(1), steps=1, step_size=step, noise_multiplier=1e20, l2=l2), facts(), 100.0)


def test_the_solver_of_a_perturbed_objective_has_no_way_to_fail():
    """It once gave up after 5,000 rounds and returned the start: a bit that one record decided."""
    known = facts(features=2, size=20_000.0)
    far = PerturbedObjective(start=np.array([1e3, 1e3]), epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match="scores beyond"):
        objective_terms(far, known, 20_000.0)
    start = np.array([29.0, 0.0])
    objective = PerturbedObjective(start=start, epsilon=5.0, delta=1e-5)
    chosen = objective_terms(objective, known, 20_000.0)
    model = Linear(2, Logistic())
    rows = np.tile([1.0, 0.0], (20_000, 1))
    for last in ([0.0, 0.0], [math.sqrt(0.5), -math.sqrt(0.5)]):
        rows[-1] = last
        batch = records_of(model, rows, -np.ones(20_000)).float_rows()
        b = np.zeros(2)
        theta = Perturbed(model, rows_of(batch, 1.0), b, chosen.strong_convexity, start).minimiser(chosen.gamma, 0.25)
        slopes = 1 / (1 + np.exp(-rows @ theta))
        gradient = slopes @ rows + chosen.strong_convexity * (theta - start)
        assert np.linalg.norm(gradient) <= chosen.gamma * 1.01


def test_a_row_bound_of_zero_is_refused():
    meter = PlanMeter(nw.Budget(1.0, 1e-6, "replace_one"), [ApproximateDP(0.5, 1e-7)])
    with pytest.raises(ValueError, match="row_bound"):
        Curator(np.zeros((3, 1)), np.ones(3), model=Linear(1, Logistic()), meter=meter, size=3, row_bound=0.0)
