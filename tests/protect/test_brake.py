"""The brake: it sees steps that are too long, takes noise for noise, and leaves every other direction alone."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.protect.optimizers import MAX_DIRECTIONS, Brake, ReleasedGradient

CURVATURES = np.array([1.0, 0.6, 0.01])


def walked(rate, noise=0.0, steps=60, braked=True, seed=0):
    """Descent on a quadratic with noisy gradients; the last theta and the brake."""
    rng, theta, brake = np.random.default_rng(seed), np.ones(3), Brake()
    for _ in range(steps):
        asked = ReleasedGradient(CURVATURES * theta + noise * rng.normal(size=3), noise, theta)
        brake, step = brake.seen(asked), -rate * asked.gradient
        theta = theta + (brake.braked(asked, step) if braked else step)
    return theta, brake


def test_a_run_that_would_go_to_and_fro_settles_and_the_flat_direction_is_learned():
    assert np.abs(walked(3.0, braked=False)[0]).max() > 1e3
    theta, brake = walked(3.0)
    assert np.abs(theta[:2]).max() < 1e-3 and theta[2] == pytest.approx(0.97**60, rel=0.1)
    assert 1 <= len(brake.held) <= 2
    directions = np.array([held.along for held in brake.held])
    assert directions @ directions.T == pytest.approx(np.eye(len(directions)), abs=1e-9)


def test_steps_that_are_short_enough_are_left_alone():
    theta, brake = walked(1.0)
    assert not brake.held and np.array_equal(theta, walked(1.0, braked=False)[0])


def test_noise_is_not_taken_for_a_contradiction():
    """Three standard deviations: about one in 700 pairs of answers that are noise alone."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(3000):
        pair = [ReleasedGradient(0.1 * rng.normal(size=20), 0.1, rng.normal(size=20)) for _ in range(2)]
        found += bool(Brake().seen(pair[0]).seen(pair[1]).held)
    assert found <= 12


def test_it_holds_a_bounded_number_of_directions():
    rng, brake = np.random.default_rng(0), Brake()
    for _ in range(200):
        gradient, theta = rng.normal(size=40), rng.normal(size=40)
        brake = brake.seen(ReleasedGradient(gradient, 0.0, theta)).seen(
            ReleasedGradient(-gradient, 0.0, theta - gradient)
        )
    assert len(brake.held) <= MAX_DIRECTIONS
