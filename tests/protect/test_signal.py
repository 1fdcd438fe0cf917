"""The signal: its running average, the noise known to be on it, and the norm it estimates."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from noisewise.protect.signal import BETA, first_signal, next_step, with_answer

RARE = 1e-5


def started(copies, dimension, horizon=10):
    return first_signal(copies, dimension, horizon=horizon, ratio=torch.ones(copies), typical_clip=0.5)


def hear_all(signal, gradients, stds):
    for gradient, std in zip(gradients, stds, strict=True):
        signal = next_step(with_answer(signal, gradient, std, torch.ones(len(gradient)), torch.ones(len(gradient))))
    return signal


def weights(steps):
    """(1 - b) b^(t - i) for i = 1 .. t, over their sum."""
    raw = torch.tensor([(1 - BETA) * BETA ** (steps - 1 - i) for i in range(steps)], dtype=torch.float64)
    return raw / raw.sum()


def test_before_the_first_answer():
    signal = started(3, 5)
    assert (signal.step, signal.horizon, signal.copies, signal.dimension) == (0, 10, 3, 5)
    assert signal.groups == (5,)
    assert not signal.gradient.any() and not signal.average.any()
    assert torch.equal(signal.norm, torch.ones(3)) and torch.equal(signal.remaining, torch.ones(3))
    assert torch.equal(signal.clip, torch.full((3,), 0.5))
    assert signal.paid_norm is None


@pytest.mark.parametrize("steps", [1, 2, 5, 30])
def test_the_average_and_its_noise_against_the_sum_over_all_gradients(steps):
    g = torch.Generator().manual_seed(steps)
    gradients, stds = torch.randn(steps, 2, 4, generator=g), torch.rand(steps, 2, generator=g) + 0.1
    signal = hear_all(started(2, 4), gradients, stds)
    w = weights(steps)
    average = torch.einsum("t,trd->rd", w, gradients.double())
    std = torch.einsum("t,tr->r", w.square(), stds.double().square()).sqrt()
    assert torch.allclose(signal.average.double(), average, atol=1e-5)
    assert torch.allclose(signal.average_std.double(), std, rtol=1e-5)
    assert signal.sum_weight == pytest.approx(1 - BETA**steps)
    assert torch.equal(signal.gradient, gradients[-1]) and torch.equal(signal.noise_std, stds[-1])


def test_the_stated_noise_is_the_noise():
    """4,000 copies of the same run: a chi-square test accepts average_std and rejects 5 % more or less."""
    copies, d, steps = 4000, 3, 6
    g = torch.Generator().manual_seed(0)
    truth = torch.randn(steps, 1, d, generator=g)
    stds = torch.tensor([0.3, 2.0, 0.1, 1.0, 0.7, 0.2])[:, None].expand(-1, copies)
    noisy = truth + stds[:, :, None] * torch.randn(steps, copies, d, generator=g)
    signal = hear_all(started(copies, d), noisy, stds)
    off = signal.average.double() - torch.einsum("t,trd->rd", weights(steps), truth.double())

    def accepted(std):
        p = stats.chi2.cdf(float((off / std).square().sum()), off.numel())
        return RARE / 2 <= p <= 1 - RARE / 2

    std = float(signal.average_std[0])
    assert accepted(std) and not accepted(0.95 * std) and not accepted(1.05 * std)
    assert float(off.mean().abs()) < 5 * std / math.sqrt(off.numel())


def test_the_squared_norm_is_unbiased():
    """||m||^2 minus what noise adds has the true squared norm as its mean, while ||m||^2 itself has not."""
    copies, d = 20_000, 8
    g = torch.Generator().manual_seed(1)
    truth = torch.full((1, d), 0.5)
    std = torch.full((copies,), 0.2)
    gradients = [truth + 0.2 * torch.randn(copies, d, generator=g) for _ in range(3)]
    signal = hear_all(started(copies, d), gradients, [std] * 3)
    exact, squares = float(truth.square().sum()), signal.norm.double().square()
    error = 5 * float(squares.std()) / math.sqrt(copies)
    assert float(squares.min()) > 1e-5, "far from the clamp, where it would be biased"
    assert abs(float(squares.mean()) - exact) < error
    assert float(signal.average.double().square().sum(1).mean()) > exact + 3 * error


def test_noise_alone_has_almost_no_norm_but_never_none():
    g = torch.Generator().manual_seed(2)
    signal = hear_all(started(2000, 50), [torch.randn(2000, 50, generator=g)], [torch.ones(2000)])
    assert float((signal.norm <= 1.001e-3).float().mean()) > 0.3
    assert float(signal.norm.min()) > 0
    assert float(signal.norm.median()) < math.sqrt(50) / 3


def test_a_paid_norm_is_for_one_step():
    signal = started(1, 2)._replace(paid_norm=torch.tensor([3.0]))
    after = with_answer(signal, torch.zeros(1, 2), torch.ones(1), torch.ones(1), torch.tensor([0.5]))
    assert after.paid_norm is not None and after.step == 0
    assert next_step(after).paid_norm is None and next_step(after).step == 1
    assert torch.equal(after.remaining, torch.tensor([0.5]))
