"""Records that are not finite count as zero and reach nobody else; huge ones are clipped like any other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.trusted.losses import Hinge, HuberHinge, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.totals import Drawn

MODELS = [
    *(Linear(4, loss) for loss in (Logistic(), Hinge(), HuberHinge(), Squared())),
    Linear(4, Softmax(), 3),
    *(MLP((4, 5, 3), Softmax(), activation) for activation in ("softplus", "tanh", "sigmoid", "relu")),
    MLP((4, 5, 1), Logistic(), "softplus"),
    MLP((4, 5, 5, 1), Squared(), "softplus"),
]
LINEAR = [model for model in MODELS if isinstance(model, Linear)]
LAYERED = [model for model in MODELS if isinstance(model, MLP)]


def name(model) -> str:
    return f"{getattr(model, 'sizes', 'linear')}-{getattr(model, 'activation', '')}-{model.loss.name}"


def records(model, n=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, model.features), np.float32)
    classes = model.loss.task == "classes"
    y = rng.integers(model.outputs, size=n) if classes else rng.choice([-1.0, 1.0], n)
    return X, y, np.float32(0.5) * rng.standard_normal(model.dimension, np.float32)


def same(a, b) -> bool:
    return bool(np.isfinite(a).all()) and np.allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e39], ids=str)
@pytest.mark.parametrize("model", MODELS, ids=name)
def test_a_row_that_is_not_finite_counts_as_absent(model, bad):
    X, y, theta = records(model)
    spoiled = X.astype(np.float64)  # 1e39 is finite in double precision and infinite in single
    spoiled[7, 2] = bad
    spoiled[19] = bad
    kept = [i for i in range(len(X)) if i not in (7, 19)]
    for clip in (0.4, math.inf):
        left_out = model.clipped_sum(theta, model.lay_out(X[kept], y[kept]), clip)
        assert same(model.clipped_sum(theta, model.lay_out(spoiled, y), clip), left_out)
        assert not same(model.clipped_sum(theta, model.lay_out(X, y), clip), left_out)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("model", [m for m in MODELS if m.loss.name in ("logistic", "squared")], ids=name)
def test_a_label_that_is_not_finite_reaches_nobody_else(model, bad):
    X, y, theta = records(model)
    y[7] = bad
    kept = [i for i in range(len(X)) if i != 7]
    ours = model.clipped_sum(theta, model.lay_out(X, y), 0.4)
    assert same(ours, model.clipped_sum(theta, model.lay_out(X[kept], y[kept]), 0.4))


def exact(model, theta, X, y, clip=0.4):
    """A clipped sum of private records in integers, and what stands for the clip."""
    total = records_of(model, X, y).gradients(Drawn(), theta.astype(np.float64), clip)
    return [int(value) for value in total.values], total.ones


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e39, 1e13], ids=str)
@pytest.mark.parametrize("model", MODELS, ids=name)
def test_private_records_that_cannot_be_used_count_as_absent_exactly(model, bad):
    """Rows that are not finite or too long, and labels that are none."""
    X, y, theta = records(model)
    spoiled, labels = X.astype(np.float64), y.copy()
    spoiled[7, 2], spoiled[19] = bad, bad
    labels[23] = -3 if model.loss.task == "classes" else math.nan
    kept = [i for i in range(len(X)) if i not in (7, 19, 23)]
    assert exact(model, theta, spoiled, labels) == exact(model, theta, X[kept], y[kept]) != exact(model, theta, X, y)


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_a_huge_private_row_moves_the_sum_by_at_most_the_clip_in_integers(model):
    X, y, theta = records(model)
    for size in (1e10, 1e12, 1e18, 3e38, 1e-45, 1e-31):
        huge = size * np.array([[1.0, -1.0, 1.0, 1.0]], np.float32)
        for scale in (0.0, 1.0, 1e5, 1e20, 1e29):
            without, ones = exact(model, theta * scale, X, y)
            joined, _ = exact(model, theta * scale, np.concatenate([X, huge]), np.append(y, y[:1]))
            assert sum((a - b) ** 2 for a, b in zip(joined, without, strict=True)) <= ones**2


def with_and_without(model, size, scale):
    X, y, theta = records(model)
    huge = size * np.array([[1.0, -1.0, 1.0, 1.0]], np.float32)
    batches = model.lay_out(X, y), model.lay_out(np.concatenate([X, huge]), np.append(y, y[:1]))
    with np.errstate(over="ignore"):
        theta = theta * scale
    return [model.clipped_sum(theta, batch, 0.4) for batch in batches]


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_a_huge_row_moves_the_sum_by_at_most_the_clip(model):
    for size in (1e10, 1e18, 1e25, 1e38):
        for scale in (0.0, 1.0, 1e5, 1e30, 3e38):
            without, with_it = with_and_without(model, size, scale)
            assert np.isfinite(with_it).all()
            assert np.linalg.norm(with_it - without) <= 0.4 * (1 + 1e-5)


@pytest.mark.parametrize(
    "model",
    [
        *(pytest.param(m) for m in LINEAR),
        *LAYERED,
    ],
    ids=name,
)
def test_a_finite_row_whose_norm_overflows_single_precision_does_not_spoil_the_sum(model):
    """Entries of 3e38 are finite, their norm 6e38 is so in double only; 0 * inf is NaN in everybody's sum."""
    for scale in (0.0, 1.0, 3e38):
        without, with_it = with_and_without(model, 3e38, scale)
        assert np.isfinite(with_it).all()
        assert np.linalg.norm(with_it - without) <= 0.4 * (1 + 1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e38, 3.4e38], ids=str)
@pytest.mark.parametrize("model", MODELS, ids=name)
def test_any_theta_is_answered_with_a_finite_sum(model, value):
    X, y, theta = records(model)
    theta[1] = value
    total = model.clipped_sum(theta, model.lay_out(X, y), 0.4)
    assert np.isfinite(total).all()
    assert np.linalg.norm(total) <= 0.4 * len(X)


@pytest.mark.parametrize("model", LAYERED, ids=name)
def test_an_overflowing_hidden_layer_reaches_nobody_else(model):
    """Hidden units of one record overflow (softplus) or saturate; the others' sum must not see it."""
    X, y, theta = records(model)
    theta = np.abs(theta) * 3
    X[7] = 3e38  # finite, but its squared gradient norm is not, nor are its softplus units
    kept = [i for i in range(len(X)) if i != 7]
    ours = model.clipped_sum(theta, model.lay_out(X, y), 0.4)
    assert same(ours, model.clipped_sum(theta, model.lay_out(X[kept], y[kept]), 0.4))
    assert np.isfinite(model.norms(theta, model.lay_out(X, y))[kept]).all()


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_rows_of_zeros_and_denormals_are_ordinary(model):
    X, y, theta = records(model)
    for tiny in (0.0, 1e-45, 1e-40, 1e-31, 1e-20):
        X[3] = tiny
        without = model.clipped_sum(theta, model.lay_out(np.delete(X, 3, axis=0), np.delete(y, 3)), 0.4)
        with_it = model.clipped_sum(theta, model.lay_out(X, y), 0.4)
        assert np.isfinite(with_it).all()
        moved = np.linalg.norm(with_it - without)
        assert moved <= 0.4 * (1 + 1e-5)
        if isinstance(model, Linear):
            assert moved <= 1e-4  # a gradient is slope * row, and the row is next to nothing
