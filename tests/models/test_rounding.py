"""What rounding does to the sensitivity: nothing. A record's part is the same integers in any company, of norm at most C."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.trusted.losses import Hinge, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.totals import Drawn


def total(model, theta, X, y, clip=1.0) -> tuple[list[int], int]:
    """A clipped sum of private records in integers, and what stands for the clip."""
    found = records_of(model, X, y).gradients(Drawn(), theta, clip)
    return [int(value) for value in found.values], found.ones


def times(n: int, part: list[int]) -> list[int]:
    return [n * value for value in part]


def test_a_score_does_not_depend_on_who_else_is_in_the_batch():
    """Otherwise one record more changes the slopes of others, by as much as the loss allows: see the next test."""
    rng = np.random.default_rng(0)
    for features in (3, 10, 31, 100):
        model = Linear(features, Hinge())  # the loss whose slope jumps
        x, theta = np.abs(rng.normal(size=features)), -rng.random(features)

        def loss(n, model=model, x=x, theta=theta):
            records = records_of(model, np.tile(x, (n, 1)), np.ones(n))
            return int(records.losses(Drawn(), [theta], 100.0).values[0])

        assert [loss(n) for n in range(1, 40)] == [n * loss(1) for n in range(1, 40)] and loss(1) > 0


@pytest.mark.parametrize("model", [Linear(3, Hinge()), MLP((3, 2, 1), Hinge(), "relu")], ids=["linear", "perceptron"])
def test_a_corner_of_the_hinge_does_not_multiply_the_sensitivity(model):
    """Records exactly at the margin, and at the corner of a relu: their slope is 0 or -y by the last bit of a score."""
    rng = np.random.default_rng(0)
    linear = isinstance(model, Linear)
    for _ in range(30 if linear else 5):
        x, direction = rng.standard_normal((2, 3), np.float32)
        for scale in np.linspace(0.999999, 1.000001, 7):
            theta = (direction / (x.astype(float) @ direction.astype(float)) * scale).astype(np.float32)
            if not linear:  # one unit at its corner, one whose output is the margin
                theta = np.concatenate([theta, theta, [-1.0, 0.0, 1.0, 1.0, 0.0]])
            alone, ones = total(model, theta, x[None], np.ones(1))
            assert sum(value**2 for value in alone) <= ones**2
            for n in (4, 7, 8, 12, 16, 17):
                assert total(model, theta, np.tile(x, (n, 1)), np.ones(n))[0] == times(n, alone)


@pytest.mark.parametrize("n", [511, 512, 513, 4097, 50_000])
@pytest.mark.parametrize("model", [Linear(1, Logistic()), Linear(10, Squared()), MLP((2, 3, 1), Logistic())], ids=repr)
def test_a_record_in_front_of_many_moves_the_sum_by_its_own_part(model, n):
    """All gradients point the same way and are clipped, so that partial sums and their rounding are as large as can be."""
    rng = np.random.default_rng(n)
    X = 1 + rng.random((n, model.features))
    y, theta = -np.ones(n), np.zeros(model.dimension) if isinstance(model, Linear) else model.start()
    first = 1 + rng.random((1, model.features))
    without, ones = total(model, theta, X, y, 0.7)
    joined, same = total(model, theta, np.concatenate([first, X]), np.append(y[:1], y), 0.7)
    alone, _ = total(model, theta, first, y[:1], 0.7)
    assert [a - b for a, b in zip(joined, without, strict=True)] == alone and ones == same
    assert 0 < sum(value**2 for value in alone) <= ones**2


@pytest.mark.parametrize("length", [1e-30, 1.0, 1e6, 1e11])
@pytest.mark.parametrize("model", [Linear(7, Logistic()), Linear(7, Softmax(), 3), MLP((7, 3), Softmax())], ids=repr)
def test_one_record_alone_never_exceeds_the_clip(model, length):
    """Norms are rounded too: hundreds of directions, each gradient alone in its sum."""
    rng = np.random.default_rng(1)
    theta = (rng.normal(size=model.dimension) / length).clip(-1e29, 1e29)
    y = np.ones(1) if model.outputs == 1 else np.ones(1, np.int64)
    largest = 0.0
    for x in rng.normal(size=(100, 7)) * length:
        part, ones = total(model, theta, x[None], y, 0.01)
        square = sum(value**2 for value in part)
        assert square <= ones**2
        largest = max(largest, math.sqrt(square) / ones)
    assert largest >= (0.998 if length >= 1 or isinstance(model, MLP) else 0)


@pytest.mark.parametrize("model", [Linear(2, Logistic()), Linear(2, Softmax(), 3)], ids=["one output", "three"])
def test_small_and_large_clips_of_long_and_short_rows_are_kept(model):
    """A clip factor C / ||x|| far from one, either way."""
    y = np.ones(1) if model.outputs == 1 else np.ones(1, np.int64)
    for entry in (3e38, 1e12, 1e6, 1.0, 1e-20, 1e-40):
        for exponent in range(-4, 13):
            part, ones = total(model, np.zeros(model.dimension), np.array([[entry, 0.0]]), y, 10.0**exponent)
            assert sum(value**2 for value in part) <= ones**2
            seen = 0.99e-4 * 10.0**exponent < entry < 2.0**40  # shorter than 2^-15 clips rounds to nothing
            assert any(part) == seen


def test_without_a_clip_a_gradient_that_overflows_counts_as_zero():
    """In the floats that public records are summed in."""
    model = Linear(2, Squared())
    batch = model.lay_out(np.array([[1e15, 0.0], [1.0, 1.0]]), np.ones(2))
    assert np.isfinite(model.clipped_sum(np.array([1e20, 0.0]), batch, math.inf)).all()
