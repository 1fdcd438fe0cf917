"""Calibration: scores that are too large or shifted are found out from gradients, also noisy ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import expit

from noisewise.protect.calibration import STEPS, changed, moved, start
from noisewise.trusted.losses import Logistic, Softmax
from noisewise.trusted.models import MLP

X = np.random.default_rng(0).normal(size=(4000, 3)).astype(np.float32)


@pytest.mark.parametrize("model", [MLP((3, 5, 1), Logistic()), MLP((3, 5, 3), Softmax())], ids=repr)
def test_the_changed_theta_has_the_scores_it_should(model):
    theta, shift = model.start(), np.arange(float(model.outputs)) + 0.5
    scores = model.scores(changed(theta, model.groups[-1], 0.7, shift), X)
    wanted = 2.0138 * model.scores(theta, X) + (shift if model.outputs > 1 else shift[0])
    assert np.allclose(scores, wanted, atol=1e-3)


@pytest.mark.parametrize("factor, offset, noise", [(6.0, 0.0, 0.0), (0.4, 0.0, 0.0), (4.0, 1.0, 0.02)])
def test_it_finds_scale_and_shift(factor, offset, noise):
    rng = np.random.default_rng(1)
    model = MLP((3, 5, 1), Logistic())
    last = model.groups[-1]
    true = changed(model.start(), last, 1.2, np.array([0.3]))
    y = np.where(rng.random(size=len(X)) < expit(model.scores(true, X)), 1.0, -1.0)
    theta = changed(true, last, math.log(factor), np.array([offset]))
    now = start(1)
    for _ in range(STEPS):
        at = torch.from_numpy(changed(theta, last, now.log_scale, now.shift)).requires_grad_()
        losses = model.loss.value(model.scored(at, torch.from_numpy(X)), torch.from_numpy(y))
        gradient = torch.autograd.grad(losses.mean(), at)[0].numpy()
        now = moved(now, theta, last, gradient + noise * rng.normal(size=gradient.shape))
    mended = changed(theta, last, *now.settled())
    before, off = (np.abs(expit(model.scores(at, X)) - expit(model.scores(true, X))).mean() for at in (theta, mended))
    assert off < 0.06 and off < before
