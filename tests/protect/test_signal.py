"""The signal: its running average, the noise known to be on it, and the norm it estimates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from noisewise.protect.signal import BETA, first_signal, next_step, with_answer

RARE = 1e-5


def started(copies, dimension, horizon=10):
    return first_signal(copies, dimension, horizon=horizon, ratio=np.ones(copies), typical_clip=0.5)


def hear_all(signal, gradients, stds):
    for gradient, std in zip(gradients, stds, strict=True):
        signal = next_step(with_answer(signal, gradient, std, np.ones(len(gradient)), np.ones(len(gradient))))
    return signal


def weights(steps):
    """(1 - b) b^(t - i) for i = 1 .. t, over their sum."""
    raw = np.array([(1 - BETA) * BETA ** (steps - 1 - i) for i in range(steps)])
    return raw / raw.sum()


def test_before_the_first_answer():
    signal = started(3, 5)
    assert (signal.step, signal.horizon, signal.copies, signal.dimension) == (0, 10, 3, 5)
    assert signal.groups == (5,)
    assert not signal.gradient.any() and not signal.average.any()
    assert np.array_equal(signal.norm, np.ones(3)) and np.array_equal(signal.remaining, np.ones(3))
    assert np.array_equal(signal.clip, np.full(3, 0.5))
    assert signal.paid_norm is None


@pytest.mark.parametrize("steps", [1, 2, 5, 30])
def test_the_average_and_its_noise_against_the_sum_over_all_gradients(steps):
    rng = np.random.default_rng(steps)
    gradients, stds = rng.normal(size=(steps, 2, 4)), rng.random((steps, 2)) + 0.1
    signal = hear_all(started(2, 4), gradients, stds)
    w = weights(steps)
    average = np.einsum("t,trd->rd", w, gradients)
    std = np.einsum("t,tr->r", w**2, stds**2) ** 0.5
    assert np.allclose(signal.average, average, atol=1e-5)
    assert np.allclose(signal.average_std, std, rtol=1e-5)
    assert signal.sum_weight == pytest.approx(1 - BETA**steps)
    assert np.array_equal(signal.gradient, gradients[-1]) and np.array_equal(signal.noise_std, stds[-1])


def test_the_stated_noise_is_the_noise():
    """4,000 copies of the same run: a chi-square test accepts average_std and rejects 5 % more or less."""
    copies, d, steps = 4000, 3, 6
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(steps, 1, d))
    stds = np.array([0.3, 2.0, 0.1, 1.0, 0.7, 0.2])[:, None].repeat(copies, 1)
    noisy = truth + stds[:, :, None] * rng.normal(size=(steps, copies, d))
    signal = hear_all(started(copies, d), noisy, stds)
    off = signal.average - np.einsum("t,trd->rd", weights(steps), truth)

    def accepted(std):
        p = stats.chi2.cdf(((off / std) ** 2).sum(), off.size)
        return RARE / 2 <= p <= 1 - RARE / 2

    std = signal.average_std[0]
    assert accepted(std) and not accepted(0.95 * std) and not accepted(1.05 * std)
    assert abs(off.mean()) < 5 * std / math.sqrt(off.size)


def test_the_squared_norm_is_unbiased():
    """||m||^2 minus what noise adds has the true squared norm as its mean, while ||m||^2 itself has not."""
    copies, d = 20_000, 8
    rng = np.random.default_rng(1)
    truth = np.full((1, d), 0.5)
    std = np.full(copies, 0.2)
    gradients = [truth + 0.2 * rng.normal(size=(copies, d)) for _ in range(3)]
    signal = hear_all(started(copies, d), gradients, [std] * 3)
    exact, squares = (truth**2).sum(), signal.norm**2
    error = 5 * squares.std() / math.sqrt(copies)
    assert squares.min() > 1e-5, "far from the clamp, where it would be biased"
    assert abs(squares.mean() - exact) < error
    assert (signal.average**2).sum(1).mean() > exact + 3 * error


def test_noise_alone_has_almost_no_norm_but_never_none():
    rng = np.random.default_rng(2)
    signal = hear_all(started(2000, 50), [rng.normal(size=(2000, 50))], [np.ones(2000)])
    assert (signal.norm <= 1.001e-3).mean() > 0.3
    assert signal.norm.min() > 0
    assert np.median(signal.norm) < math.sqrt(50) / 3


def test_a_paid_norm_is_for_one_step():
    signal = started(1, 2)._replace(paid_norm=np.array([3.0]))
    after = with_answer(signal, np.zeros((1, 2)), np.ones(1), np.ones(1), np.array([0.5]))
    assert after.paid_norm is not None and after.step == 0
    assert next_step(after).paid_norm is None and next_step(after).step == 1
    assert np.array_equal(after.remaining, np.array([0.5]))
