"""Losses: the slope is the derivative of the value, and the stated constants bound it and are nearly reached."""

from __future__ import annotations

import math

import pytest
import torch

from noisewise.trusted.losses import LOSSES, ClassWeighted, Hinge, HuberHinge, Logistic, Softmax, Squared, loss_named
from noisewise.trusted.models import MLP, Linear

SCALAR = [Logistic(), Hinge(), HuberHinge(), HuberHinge(0.05), HuberHinge(3.0), Squared()]
SCALAR += [ClassWeighted(Logistic(), (0.5, 3.0))]
Z = torch.linspace(-8, 8, 1601, dtype=torch.float64)
STEP = 1e-6


def _scalar_cases(loss):
    labels = (-1.0, 1.0) if loss.task == "binary" else (-1.0, 0.3, 1.0)
    for label in labels:
        y = torch.full_like(Z, label)
        smooth = (1 - y * Z).abs() > 1e-3 if isinstance(loss, Hinge) else torch.ones_like(Z, dtype=torch.bool)
        yield Z[smooth], y[smooth]


def _is_derivative(loss, slope) -> bool:
    """Whether slope is the central difference of the loss's value at every z, to 1e-5."""
    return all(
        torch.allclose(slope(z, y), (loss.value(z + STEP, y) - loss.value(z - STEP, y)) / (2 * STEP), atol=1e-5)
        for z, y in _scalar_cases(loss)
    )


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_slope_is_the_derivative_of_the_value_and_a_wrong_one_is_noticed(loss):
    assert _is_derivative(loss, loss.slope)
    assert not _is_derivative(loss, lambda z, y: 1.0001 * loss.slope(z, y))
    assert not _is_derivative(loss, lambda z, y: loss.slope(z + 1e-3, y) if loss.name != "hinge" else -y)


def test_softmax_slope_is_the_derivative_of_the_value():
    torch.manual_seed(0)
    z, y = 3 * torch.randn(40, 4, dtype=torch.float64), torch.arange(40) % 4
    slope, loss = Softmax().slope(z, y), Softmax()
    for k in range(4):
        step = STEP * torch.eye(4, dtype=torch.float64)[k]
        difference = (loss.value(z + step, y) - loss.value(z - step, y)) / (2 * STEP)
        assert torch.allclose(slope[:, k], difference, atol=1e-8)
        assert not torch.allclose(slope[:, k] * 1.05, difference, atol=1e-8)


@pytest.mark.parametrize("loss", [loss for loss in SCALAR if math.isfinite(loss.lipschitz)], ids=repr)
def test_lipschitz_constant_bounds_the_slope_and_is_nearly_reached(loss):
    largest = max(float(loss.slope(z * 10, y).abs().max()) for z, y in _scalar_cases(loss))
    assert 0.99 * loss.lipschitz <= largest <= loss.lipschitz


@pytest.mark.parametrize("loss", [loss for loss in SCALAR if math.isfinite(loss.smoothness)], ids=repr)
def test_smoothness_constant_bounds_the_change_of_the_slope_and_is_nearly_reached(loss):
    largest = max(float((torch.diff(loss.slope(z, y)) / torch.diff(z)).abs().max()) for z, y in _scalar_cases(loss))
    assert 0.99 * loss.smoothness <= largest <= loss.smoothness * (1 + 1e-9)


def test_softmax_constants_bound_slope_and_hessian_and_are_nearly_reached():
    torch.manual_seed(1)
    loss = Softmax()
    z = torch.cat([3 * torch.randn(200, 3, dtype=torch.float64), torch.tensor([[0.0, 0.0, -30.0], [30.0, 0.0, 0.0]])])
    y = torch.ones(len(z), dtype=torch.int64)
    norms = torch.linalg.vector_norm(loss.slope(z, y), dim=1)
    assert 0.999 * loss.lipschitz <= float(norms.max()) <= loss.lipschitz * (1 + 1e-12)
    steps = STEP * torch.eye(3, dtype=torch.float64)
    hessians = torch.stack([(loss.slope(z + s, y) - loss.slope(z - s, y)) / (2 * STEP) for s in steps], dim=2)
    largest = float(torch.linalg.matrix_norm(hessians, ord=2).max())
    assert 0.999 * loss.smoothness <= largest <= loss.smoothness * (1 + 1e-6)


def test_infinite_constants_are_really_infinite():
    one = torch.ones(1, dtype=torch.float64)
    assert float(Squared().slope(1e9 * one, one)) > 1e9
    just_below, just_above = one - 1e-12, one + 1e-12
    assert float((Hinge().slope(just_above, one) - Hinge().slope(just_below, one)) / 2e-12) > 1e11


def test_huber_hinge_is_the_hinge_away_from_its_corner():
    y = torch.ones_like(Z)
    far = (1 - Z).abs() > 0.05
    assert torch.allclose(HuberHinge(0.05).value(Z, y)[far], Hinge().value(Z, y)[far])
    assert not torch.allclose(HuberHinge(0.5).value(Z, y)[far], Hinge().value(Z, y)[far])


@pytest.mark.parametrize("loss", LOSSES.values(), ids=repr)
def test_values_are_never_negative(loss):
    torch.manual_seed(2)
    if loss.task == "classes":
        assert float(loss.value(30 * torch.randn(500, 3), torch.arange(500) % 3).min()) >= 0
    else:
        assert float(loss.value(30 * torch.randn(500), (torch.arange(500) % 2 * 2 - 1).float()).min()) >= 0


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
