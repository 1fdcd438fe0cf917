"""Influence formulas against simulation, and the schedule against every other one."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.evidence import theory
from noisewise.protect import schedules


@pytest.mark.parametrize("steps, gamma, beta", [(5, 0.5, 0.0), (40, 0.9, 0.9), (40, 0.81, 0.9), (100, 0.97, 0.5)])
def test_the_optimal_schedule_beats_every_other_of_the_same_cost(steps, gamma, beta):
    rng = np.random.default_rng(0)
    for q in (theory.descent_influence(steps, gamma), schedules.debiased_momentum(steps, gamma, beta)):
        best = theory.optimal_schedule(q, 3.0)
        least = (q * best**2).sum()
        assert (best**-2).sum() == pytest.approx(3.0)
        assert least == pytest.approx(np.sqrt(q).sum() ** 2 / 3.0)
        for spread in (0.01, 0.1, 1.0, 3.0):
            for _ in range(50):
                other = best * np.exp(rng.normal(scale=spread, size=steps))
                other *= np.sqrt((other**-2).sum() / 3.0)
                assert (other**-2).sum() == pytest.approx(3.0)
                assert (q * other**2).sum() > least
        np.testing.assert_allclose(schedules.noise_shape(q) * best.min(), best, rtol=1e-9)


def test_momentum_influence_is_that_of_the_recursion():
    """The noise of step t, followed through Algorithm 2, enters the squared error with weight q_t."""
    steps, gamma, beta = 12, 0.8, 0.7
    for t in range(1, steps + 1):
        v, total = 0.0, 0.0
        for s in range(1, steps + 1):
            v = beta * v + (1 - beta) * (s == t)
            total += gamma ** (steps - s) * (v / (1 - beta**s)) ** 2
        assert schedules.debiased_momentum(steps, gamma, beta)[t - 1] == pytest.approx(total)


def test_limits():
    np.testing.assert_allclose(schedules.debiased_momentum(9, 0.8, 0.0), theory.descent_influence(9, 0.8))
    np.testing.assert_allclose(schedules.debiased_momentum(30, 0.8, 0.7), theory.momentum_influence(30, 0.8, 0.7))
    np.testing.assert_allclose(schedules.noise_shape(theory.descent_influence(7, 1.0)), 1.0)
    forgotten = schedules.noise_shape(theory.descent_influence(1000, 0.1))
    assert forgotten.max() == pytest.approx(1000)  # a step that hardly matters still gets finite noise


@pytest.mark.parametrize("gamma, beta", [(0.0, 0.5), (1.1, 0.5), (0.5, 1.0), (0.5, -0.1), (float("nan"), 0.5)])
def test_what_makes_no_sense_is_refused(gamma, beta):
    with pytest.raises(ValueError, match=r"gamma is|beta is"):
        schedules.debiased_momentum(5, gamma, beta)
    for bad in ([], [0.0, 0.0], [1.0, -1.0], [1.0, float("nan")]):
        with pytest.raises(ValueError, match="influence must hold"):
            schedules.noise_shape(bad)
