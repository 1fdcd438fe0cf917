"""What floating point does to the sensitivity: the stated one must hold for the numbers that are really added."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from noisewise.gradients import MLP, SLACK, Linear
from noisewise.losses import Hinge, Logistic, Softmax, Squared


def moved(model, theta, X, y, extra, label, clip) -> float:
    """How far, in clips, the sum moves when one record joins at the front (where every other one shifts)."""
    without = model.clipped_sum(theta, model.lay_out(X, y), clip).double()
    joined = model.lay_out(torch.cat([extra[None], X]), torch.cat([label[None], y]))
    return float(torch.linalg.vector_norm(model.clipped_sum(theta, joined, clip).double() - without)) / clip


def test_a_score_does_not_depend_on_who_else_is_in_the_batch():
    """Otherwise one record more changes the slopes of others, by as much as the loss allows: see the next test."""
    g = torch.Generator().manual_seed(0)
    for features in (3, 10, 31, 100):
        model = Linear(features, Hinge())  # the loss whose slope jumps
        x, theta = torch.randn(features, generator=g), -torch.rand(model.dimension, generator=g)
        losses = [model.losses(theta, model.lay_out(x.abs().repeat(n, 1), torch.ones(n))) for n in range(1, 40)]
        assert len(torch.cat(losses).unique()) == 1, features


def test_a_corner_of_the_hinge_does_not_multiply_the_sensitivity():
    """Records exactly at the margin: their slope is 0 or -y by the last bit of their score."""
    g = torch.Generator().manual_seed(0)
    worst = 0.0
    for _ in range(60):
        model, x = Linear(3, Hinge()), torch.randn(3, generator=g)
        direction = torch.randn(3, generator=g)
        for scale in torch.linspace(0.999999, 1.000001, 21).tolist():
            theta = (direction / (x.double() @ direction.double()) * scale).float()
            sums = [model.clipped_sum(theta, model.lay_out(x.repeat(n, 1), torch.ones(n)), 1.0) for n in range(4, 13)]
            steps = [float(torch.linalg.vector_norm((b - a).double())) for a, b in pairwise(sums)]
            worst = max(worst, *steps)
    assert worst <= 1.0, f"one record moved the sum by {worst:.3f} clips"


@pytest.mark.parametrize("n", [511, 512, 513, 4096, 4097, 50_000])
@pytest.mark.parametrize("model", [Linear(1, Logistic()), Linear(10, Squared()), MLP((2, 3, 1), Logistic())], ids=repr)
def test_summing_many_records_in_single_precision_stays_within_the_slack(model, n):
    """All gradients point the same way and are clipped, so that partial sums and their rounding are as large as can be."""
    g = torch.Generator().manual_seed(n)
    X = 1 + torch.rand(n, model.features, generator=g)
    y, theta = -torch.ones(n), torch.zeros(model.dimension) if isinstance(model, Linear) else model.start()
    for _ in range(3):
        assert moved(model, theta, X, y, 1 + torch.rand(model.features, generator=g), y[0], 0.7) <= 1.0


@pytest.mark.parametrize("length", [1e-30, 1.0, 1e6, 1e11])
@pytest.mark.parametrize("model", [Linear(7, Logistic()), Linear(7, Softmax(), 3), MLP((7, 3), Softmax())], ids=repr)
def test_one_record_alone_never_exceeds_the_clip(model, length):
    """Norms are rounded too: a thousand directions, each gradient alone in its sum."""
    g = torch.Generator().manual_seed(1)
    theta = torch.randn(model.dimension, generator=g) / length
    y = torch.ones(1) if model.outputs == 1 else torch.ones(1, dtype=torch.int64)
    largest = 0.0
    for x in torch.randn(300, 7, generator=g) * length:
        norm = float(torch.linalg.vector_norm(model.clipped_sum(theta, model.lay_out(x[None], y), 0.01).double()))
        largest = max(largest, norm / 0.01)
    assert largest <= 1.0
    assert largest >= (1 - 2 * SLACK if length >= 1 or isinstance(model, MLP) else 0)


@pytest.mark.parametrize("model", [Linear(2, Logistic()), Linear(2, Softmax(), 3)], ids=["one output", "three"])
def test_small_clips_of_large_rows_do_not_drown_in_denormals(model):
    """A clip factor C / ||x|| below 1e-38 loses its digits in single precision, and can round up to twice its value."""
    y = torch.ones(1) if model.outputs == 1 else torch.ones(1, dtype=torch.int64)
    batch, theta = model.lay_out(torch.tensor([[3e38, 0.0]]), y), torch.zeros(model.dimension)
    for exponent in range(80):
        clip = 10.0 ** (-exponent / 10)
        assert float(torch.linalg.vector_norm(model.clipped_sum(theta, batch, clip).double())) <= clip


def test_without_a_clip_a_gradient_that_overflows_counts_as_zero():
    model = Linear(2, Squared())
    batch = model.lay_out(torch.tensor([[1e15, 0.0], [1.0, 1.0]]), torch.ones(2))
    assert torch.isfinite(model.clipped_sum(torch.tensor([1e20, 0.0]), batch, math.inf)).all()
