"""What rounding does to the sensitivity: nothing. A record's part is the same integers in any company, of norm at most C."""

from __future__ import annotations

import math

import pytest
import torch

from noisewise.trusted.losses import Hinge, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.totals import Drawn


def total(model, theta, X, y, clip=1.0) -> tuple[list[int], int]:
    """A clipped sum of private records in integers, and what stands for the clip."""
    found = records_of(model, X, y).gradients(Drawn(), theta.double().numpy(), clip)
    return [int(value) for value in found.values], found.ones


def times(n: int, part: list[int]) -> list[int]:
    return [n * value for value in part]


def test_a_score_does_not_depend_on_who_else_is_in_the_batch():
    """Otherwise one record more changes the slopes of others, by as much as the loss allows: see the next test."""
    g = torch.Generator().manual_seed(0)
    for features in (3, 10, 31, 100):
        model = Linear(features, Hinge())  # the loss whose slope jumps
        x, theta = torch.randn(features, generator=g).abs(), -torch.rand(features, generator=g)

        def loss(n, model=model, x=x, theta=theta):
            records = records_of(model, x.repeat(n, 1), torch.ones(n))
            return int(records.losses(Drawn(), [theta.double().numpy()], 100.0).values[0])

        assert [loss(n) for n in range(1, 40)] == [n * loss(1) for n in range(1, 40)] and loss(1) > 0


@pytest.mark.parametrize("model", [Linear(3, Hinge()), MLP((3, 2, 1), Hinge(), "relu")], ids=["linear", "perceptron"])
def test_a_corner_of_the_hinge_does_not_multiply_the_sensitivity(model):
    """Records exactly at the margin, and at the corner of a relu: their slope is 0 or -y by the last bit of a score."""
    g = torch.Generator().manual_seed(0)
    linear = isinstance(model, Linear)
    for _ in range(30 if linear else 5):
        x, direction = torch.randn(3, generator=g), torch.randn(3, generator=g)
        for scale in torch.linspace(0.999999, 1.000001, 7).tolist():
            theta = (direction / (x.double() @ direction.double()) * scale).float()
            if not linear:  # one unit at its corner, one whose output is the margin
                theta = torch.cat([theta, theta, torch.tensor([-1.0, 0.0, 1.0, 1.0, 0.0])])
            alone, ones = total(model, theta, x[None], torch.ones(1))
            assert sum(value**2 for value in alone) <= ones**2
            for n in (4, 7, 8, 12, 16, 17):
                assert total(model, theta, x.repeat(n, 1), torch.ones(n))[0] == times(n, alone)


@pytest.mark.parametrize("n", [511, 512, 513, 4097, 50_000])
@pytest.mark.parametrize("model", [Linear(1, Logistic()), Linear(10, Squared()), MLP((2, 3, 1), Logistic())], ids=repr)
def test_a_record_in_front_of_many_moves_the_sum_by_its_own_part(model, n):
    """All gradients point the same way and are clipped, so that partial sums and their rounding are as large as can be."""
    g = torch.Generator().manual_seed(n)
    X = 1 + torch.rand(n, model.features, generator=g)
    y, theta = -torch.ones(n), torch.zeros(model.dimension) if isinstance(model, Linear) else model.start()
    first = 1 + torch.rand(1, model.features, generator=g)
    without, ones = total(model, theta, X, y, 0.7)
    joined, same = total(model, theta, torch.cat([first, X]), torch.cat([y[:1], y]), 0.7)
    alone, _ = total(model, theta, first, y[:1], 0.7)
    assert [a - b for a, b in zip(joined, without, strict=True)] == alone and ones == same
    assert 0 < sum(value**2 for value in alone) <= ones**2


@pytest.mark.parametrize("length", [1e-30, 1.0, 1e6, 1e11])
@pytest.mark.parametrize("model", [Linear(7, Logistic()), Linear(7, Softmax(), 3), MLP((7, 3), Softmax())], ids=repr)
def test_one_record_alone_never_exceeds_the_clip(model, length):
    """Norms are rounded too: hundreds of directions, each gradient alone in its sum."""
    g = torch.Generator().manual_seed(1)
    theta = (torch.randn(model.dimension, generator=g) / length).clamp(-1e29, 1e29)
    y = torch.ones(1) if model.outputs == 1 else torch.ones(1, dtype=torch.int64)
    largest = 0.0
    for x in torch.randn(100, 7, generator=g) * length:
        part, ones = total(model, theta, x[None], y, 0.01)
        square = sum(value**2 for value in part)
        assert square <= ones**2
        largest = max(largest, math.sqrt(square) / ones)
    assert largest >= (0.998 if length >= 1 or isinstance(model, MLP) else 0)


@pytest.mark.parametrize("model", [Linear(2, Logistic()), Linear(2, Softmax(), 3)], ids=["one output", "three"])
def test_small_and_large_clips_of_long_and_short_rows_are_kept(model):
    """A clip factor C / ||x|| far from one, either way."""
    y = torch.ones(1) if model.outputs == 1 else torch.ones(1, dtype=torch.int64)
    for entry in (3e38, 1e12, 1e6, 1.0, 1e-20, 1e-40):
        for exponent in range(-4, 13):
            part, ones = total(model, torch.zeros(model.dimension), torch.tensor([[entry, 0.0]]), y, 10.0**exponent)
            assert sum(value**2 for value in part) <= ones**2
            seen = 0.99e-4 * 10.0**exponent < entry < 2.0**40  # shorter than 2^-15 clips rounds to nothing
            assert any(part) == seen


def test_without_a_clip_a_gradient_that_overflows_counts_as_zero():
    """In the floats that public records are summed in."""
    model = Linear(2, Squared())
    batch = model.lay_out(torch.tensor([[1e15, 0.0], [1.0, 1.0]]), torch.ones(2))
    assert torch.isfinite(model.clipped_sum(torch.tensor([1e20, 0.0]), batch, math.inf)).all()
