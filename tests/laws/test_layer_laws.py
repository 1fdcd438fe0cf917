"""What every layer must pass, found in the registry: a derivative that is one, and exact sums that keep their bound."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noisewise.trusted.losses import Softmax
from noisewise.trusted.models import MLP
from noisewise.trusted.models.layers import LAYERS
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.totals import Drawn

every = pytest.mark.parametrize("name", LAYERS)
Z = torch.linspace(-6, 6, 1000)  # none of them at a kink


@every
def test_the_derivative_is_autograds_and_the_two_ways_back_and_forth_agree(name):
    layer, z = LAYERS[name], Z.double().requires_grad_(True)
    value = layer.forward(z * 1.0)
    (autograd,) = torch.autograd.grad(value.sum(), z)
    a = value.detach()
    assert torch.allclose(layer.derivative(a), autograd, atol=1e-9)
    assert np.allclose(layer.by_entry(Z.double().numpy()), a.numpy(), atol=1e-9)
    b = torch.linspace(-3, 3, 1000, dtype=torch.float64)
    given = b.clone()
    assert layer.backward(given, a) is given  # in place
    assert torch.allclose(given, b * autograd, atol=1e-9)
    assert not torch.allclose(given, b * autograd * 1.01, atol=1e-6)


@every
def test_entries_do_not_feel_each_other(name):
    layer = LAYERS[name]
    together = layer.forward(Z[:64].clone())
    for place in (0, 17, 63):
        moved = Z[:64].flip(0)
        moved[place] = Z[place]
        assert torch.equal(layer.forward(moved)[place], together[place])


@every
@pytest.mark.parametrize("sizes", [(5, 4, 3), (5, 6, 4, 3)])
def test_exact_sums_are_those_of_each_record_alone_and_close_to_autograds(name, sizes):
    model, rng = MLP(sizes, Softmax(), name), np.random.default_rng(0)
    X, y = rng.normal(size=(40, 5)), rng.integers(3, size=40)
    theta = model.start() + 0.3 * rng.normal(size=model.dimension)
    records = records_of(model, X, y)
    for clip in (0.1, 3.0):
        total = records.gradients(Drawn(np.arange(40), 16), theta, clip)
        alone = [records.gradients(Drawn(np.array([i]), 16), theta, clip).values for i in range(40)]
        assert total.values.tolist() == np.sum(alone, axis=0).tolist()
        assert all(sum(int(entry) ** 2 for entry in part) <= total.ones**2 for part in alone)
        right = autograds(model, theta, X, y, clip)
        assert np.linalg.norm(total.values * total.worth - right) <= 0.01 * np.linalg.norm(right)


def autograds(model, theta, X, y, clip):
    """The clipped sum, record by record, by autograd in double precision."""
    total = np.zeros(model.dimension)
    for x, label in zip(torch.from_numpy(X), torch.from_numpy(y), strict=True):
        at = torch.from_numpy(theta).requires_grad_(True)
        (gradient,) = torch.autograd.grad(model.loss.value(model.scored(at, x[None]), label[None]).sum(), at)
        total += (gradient * min(1.0, clip / float(gradient.norm()))).numpy()
    return total
