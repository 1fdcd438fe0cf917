"""What comes with the package does what its header says, on data that no one trained on."""

from __future__ import annotations

import numpy as np
import pytest

import noisewise as nw
from noisewise.tables.generated import census

pytestmark = pytest.mark.filterwarnings("ignore::noisewise.protect.learned.zoo.OutsideRange")


def test_a_classifier_learns_out_of_the_box():
    people = census(24_000, seed=5)
    rows, labels = people.X.to_numpy(), people.y
    model = nw.PrivateClassifier(
        epsilon=0.3, delta=1e-6, method="l2p", bounds=list(people.schema.values()), random_state=0
    ).fit(rows[:20_000], labels[:20_000])
    majority = 1 - labels[20_000:].mean()
    assert model.score(rows[20_000:], labels[20_000:]) > majority + 0.05


def test_a_regressor_learns_out_of_the_box():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 6))
    y = X @ [0.5, -0.25, 0.1, 0.0, 0.3, -0.1]
    model = nw.PrivateRegressor(
        epsilon=0.5, delta=1e-6, method="l2p", bounds=(-1, 1), target_bounds=(-1, 1), random_state=0
    ).fit(X, y)
    assert model.score(X, y) > 0.95


def test_a_perceptron_learns_out_of_the_box():
    """Two rings: no line tells them apart."""
    rng = np.random.default_rng(1)
    radius = np.where(np.arange(20_000) % 2, 0.35, 0.85) + 0.05 * rng.standard_normal(20_000)
    angle = rng.uniform(0, 2 * np.pi, 20_000)
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    y = np.arange(20_000) % 2
    model = nw.PrivateClassifier(
        epsilon=1.0, delta=1e-6, method="l2p", model=(20,), bounds=(-1, 1), random_state=0
    ).fit(X, y)  # fmt: skip
    assert model.score(X, y) > 0.75
