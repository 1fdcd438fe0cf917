"""Losses: the slope is the derivative of the value, and the stated constants bound it and are nearly reached."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.trusted.losses import LOSSES, ClassWeighted, Hinge, HuberHinge, Logistic, Softmax, Squared, loss_named
from noisewise.trusted.models import MLP, Linear

SCALAR = [Logistic(), Hinge(), HuberHinge(), HuberHinge(0.05), HuberHinge(3.0), Squared()]
SCALAR += [ClassWeighted(Logistic(), (0.5, 3.0))]
Z = np.linspace(-8, 8, 1601)
STEP = 1e-6


def _scalar_cases(loss):
    labels = (-1.0, 1.0) if loss.task == "binary" else (-1.0, 0.3, 1.0)
    for label in labels:
        y = np.full_like(Z, label)
        smooth = np.abs(1 - y * Z) > 1e-3 if isinstance(loss, Hinge) else np.ones_like(Z, bool)
        yield Z[smooth], y[smooth]


def _is_derivative(loss, slope) -> bool:
    """Whether slope is the central difference of the loss's value at every z, to 1e-5."""
    return all(
        np.allclose(slope(z, y), (loss.row_value(z + STEP, y) - loss.row_value(z - STEP, y)) / (2 * STEP), atol=1e-5)
        for z, y in _scalar_cases(loss)
    )


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_slope_is_the_derivative_of_the_value_and_a_wrong_one_is_noticed(loss):
    assert _is_derivative(loss, loss.row_slope)
    assert not _is_derivative(loss, lambda z, y: 1.0001 * loss.row_slope(z, y))
    assert not _is_derivative(loss, lambda z, y: loss.row_slope(z + 1e-3, y) if loss.name != "hinge" else -y)


def test_softmax_slope_is_the_derivative_of_the_value():
    z, y = 3 * np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 4
    slope, loss = Softmax().row_slope(z, y), Softmax()
    for k in range(4):
        step = STEP * np.eye(4)[k]
        difference = (loss.row_value(z + step, y) - loss.row_value(z - step, y)) / (2 * STEP)
        assert np.allclose(slope[:, k], difference, atol=1e-8)
        assert not np.allclose(slope[:, k] * 1.05, difference, atol=1e-8)


@pytest.mark.parametrize("loss", [loss for loss in SCALAR if math.isfinite(loss.lipschitz)], ids=repr)
def test_lipschitz_constant_bounds_the_slope_and_is_nearly_reached(loss):
    largest = max(np.abs(loss.row_slope(z * 10, y)).max() for z, y in _scalar_cases(loss))
    assert 0.99 * loss.lipschitz <= largest <= loss.lipschitz


@pytest.mark.parametrize("loss", [loss for loss in SCALAR if math.isfinite(loss.smoothness)], ids=repr)
def test_smoothness_constant_bounds_the_change_of_the_slope_and_is_nearly_reached(loss):
    largest = max(np.abs(np.diff(loss.row_slope(z, y)) / np.diff(z)).max() for z, y in _scalar_cases(loss))
    assert 0.99 * loss.smoothness <= largest <= loss.smoothness * (1 + 1e-9)


def test_softmax_constants_bound_slope_and_hessian_and_are_nearly_reached():
    loss, rng = Softmax(), np.random.default_rng(1)
    z = np.concatenate([3 * rng.normal(size=(200, 3)), [[0.0, 0.0, -30.0], [30.0, 0.0, 0.0]]])
    y = np.ones(len(z), np.int64)
    norms = np.linalg.norm(loss.row_slope(z, y), axis=1)
    assert 0.999 * loss.lipschitz <= norms.max() <= loss.lipschitz * (1 + 1e-12)
    steps = STEP * np.eye(3)
    hessians = np.stack([(loss.row_slope(z + s, y) - loss.row_slope(z - s, y)) / (2 * STEP) for s in steps], axis=2)
    largest = np.linalg.norm(hessians, ord=2, axis=(1, 2)).max()
    assert 0.999 * loss.smoothness <= largest <= loss.smoothness * (1 + 1e-6)


def test_infinite_constants_are_really_infinite():
    one = np.ones(1)
    assert Squared().row_slope(1e9 * one, one) > 1e9
    just_below, just_above = one - 1e-12, one + 1e-12
    assert (Hinge().row_slope(just_above, one) - Hinge().row_slope(just_below, one)) / 2e-12 > 1e11


def test_huber_hinge_is_the_hinge_away_from_its_corner():
    y = np.ones_like(Z)
    far = np.abs(1 - Z) > 0.05
    assert np.allclose(HuberHinge(0.05).row_value(Z, y)[far], Hinge().row_value(Z, y)[far])
    assert not np.allclose(HuberHinge(0.5).row_value(Z, y)[far], Hinge().row_value(Z, y)[far])


@pytest.mark.parametrize("loss", LOSSES.values(), ids=repr)
def test_values_are_never_negative(loss):
    rng = np.random.default_rng(2)
    if loss.task == "classes":
        assert loss.row_value(30 * rng.normal(size=(500, 3)), np.arange(500) % 3).min() >= 0
    else:
        assert loss.row_value(30 * rng.normal(size=500), np.arange(500) % 2 * 2 - 1).min() >= 0


def test_names_find_losses_and_a_wrong_one_is_refused_with_the_right_ones():
    assert {name: loss_named(name) for name in LOSSES} == LOSSES
    assert loss_named(HuberHinge(0.1)) == HuberHinge(0.1)
    with pytest.raises(ValueError, match="logistic, hinge, huber_hinge, squared, softmax"):
        loss_named("0-1")
    for width in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="width"):
            HuberHinge(width)


def test_weights_are_one_for_each_class():
    for model in (lambda loss: Linear(3, loss, 4), lambda loss: MLP((3, 5, 4), loss)):
        assert model(ClassWeighted(Softmax(), (1.0, 2.0, 3.0, 4.0))).outputs == 4
        with pytest.raises(ValueError, match="2 for 4 classes"):
            model(ClassWeighted(Softmax(), (1.0, 2.0)))
