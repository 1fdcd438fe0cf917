"""Calibration: scores that are too large or shifted are found out from gradients, also noisy ones."""

from __future__ import annotations

import pytest
import torch

from noisewise.protect.calibration import STEPS, changed, moved, start
from noisewise.trusted.losses import Logistic, Softmax
from noisewise.trusted.models import MLP

X = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("model", [MLP((3, 5, 1), Logistic()), MLP((3, 5, 3), Softmax())], ids=repr)
def test_the_changed_theta_has_the_scores_it_should(model):
    theta, shift = model.start(), torch.arange(float(model.outputs)) + 0.5
    scores = model.scores(changed(theta, model.groups[-1], 0.7, shift), X)
    wanted = 2.0138 * model.scores(theta, X) + (shift if model.outputs > 1 else shift[0])
    assert torch.allclose(scores, wanted, atol=1e-3)


@pytest.mark.parametrize("factor, offset, noise", [(6.0, 0.0, 0.0), (0.4, 0.0, 0.0), (4.0, 1.0, 0.02)])
def test_it_finds_scale_and_shift(factor, offset, noise):
    generator = torch.Generator().manual_seed(1)
    model = MLP((3, 5, 1), Logistic())
    last = model.groups[-1]
    true = changed(model.start(), last, 1.2, torch.tensor([0.3]))
    y = torch.where(torch.rand(len(X), generator=generator) < model.scores(true, X).sigmoid(), 1.0, -1.0)
    theta = changed(true, last, float(torch.tensor(factor).log()), torch.tensor([offset]))
    now = start(1)
    for _ in range(STEPS):
        at = changed(theta, last, now.log_scale, now.shift).requires_grad_()
        gradient = torch.autograd.grad(model.loss.value(model.scores(at, X), y).mean(), at)[0]
        now = moved(now, theta, last, gradient + noise * torch.randn(gradient.shape, generator=generator))
    mended = changed(theta, last, *now.settled())
    off = (model.scores(mended, X).sigmoid() - model.scores(true, X).sigmoid()).abs().mean()
    assert off < 0.06 and off < (model.scores(theta, X).sigmoid() - model.scores(true, X).sigmoid()).abs().mean()
