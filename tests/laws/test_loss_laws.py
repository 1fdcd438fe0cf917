"""What every loss must pass, found in the registry: constants that hold, one formula in two arithmetics, exact sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from noisewise.trusted.losses import LOSSES, ClassWeighted, Logistic, Softmax
from noisewise.trusted.models import Linear
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.totals import Drawn

WEIGHTED = {
    "weighted": ClassWeighted(Logistic(), (0.5, 3.0)),
    "weighted softmax": ClassWeighted(Softmax(), (1.0, 0.5, 2.0)),
}
KNOWN = {**LOSSES, **WEIGHTED}
every = pytest.mark.parametrize("loss", KNOWN.values(), ids=list(KNOWN))
CLASSES = 3


def labels(loss, n, rng):
    if loss.task == "classes":
        return rng.integers(CLASSES, size=n)
    return rng.choice([-1.0, 1.0], n) if loss.task == "binary" else rng.uniform(-1, 1, n)


def scores(loss, n, rng):
    return 4 * rng.standard_normal((n, CLASSES) if loss.task == "classes" else n)


@every
def test_rows_and_tensors_say_the_same_and_the_slope_is_autograds(loss):
    rng = np.random.default_rng(0)
    z, y = scores(loss, 500, rng), labels(loss, 500, rng)
    tensors = torch.from_numpy(z).requires_grad_(True), torch.from_numpy(y)
    value = loss.value(*tensors)
    (autograd,) = torch.autograd.grad(value.sum(), tensors[0])
    slope = loss.slope(tensors[0].detach(), tensors[1])
    assert torch.allclose(slope, autograd, atol=1e-9)
    assert np.allclose(loss.row_slope(z, y), slope, atol=1e-9)
    assert np.allclose(loss.row_value(z, y), value.detach(), atol=1e-9)
    assert not np.allclose(loss.row_slope(1.5 * z, y), slope, atol=1e-3)


@every
def test_a_loss_is_convex_and_keeps_within_its_constants(loss):
    rng = np.random.default_rng(1)
    first, second, y = scores(loss, 2000, rng), scores(loss, 2000, rng), labels(loss, 2000, rng)
    rise, run = (
        part.reshape(2000, -1) for part in (loss.row_slope(second, y) - loss.row_slope(first, y), second - first)
    )
    assert (rise * run).sum(1).min() >= -1e-12  # slopes rise along every line
    slopes = np.linalg.norm(loss.row_slope(first, y).reshape(2000, -1), axis=1)
    assert slopes.max() <= loss.lipschitz * (1 + 1e-12)
    if math.isfinite(loss.smoothness):
        assert (np.linalg.norm(rise, axis=1) / np.linalg.norm(run, axis=1)).max() <= loss.smoothness * (1 + 1e-9)


@every
def test_exact_sums_are_those_of_each_record_alone_and_close_to_floats(loss):
    rng = np.random.default_rng(2)
    model = Linear(5, loss, CLASSES if loss.task == "classes" else 1)
    X, y = rng.standard_normal((40, 5)), labels(loss, 40, rng)
    records, theta = records_of(model, X, y), rng.standard_normal(model.dimension)
    for clip in (0.1, 5.0):
        total = records.gradients(Drawn(), theta, clip)
        alone = [records.gradients(Drawn(np.array([i])), theta, clip).values for i in range(40)]
        assert total.values.tolist() == np.sum(alone, axis=0).tolist()
        assert all(sum(int(entry) ** 2 for entry in part) <= total.ones**2 for part in alone)
        floats = model.clipped_sum(theta, model.lay_out(X, y), clip)
        assert np.linalg.norm(total.values * total.worth - floats) <= 2e-3 * clip * 40


@every
def test_probabilities_are_there_exactly_where_they_are_promised(loss):
    z = scores(loss, 20, np.random.default_rng(3))
    if not loss.has_probabilities:
        with pytest.raises(ValueError, match="no probabilities"):
            loss.probabilities(z)
        return
    chances = loss.probabilities(z)
    assert np.allclose(chances.sum(1), 1) and (chances > 0).all()
    likeliest = z.argmax(1) if z.ndim == 2 else (z > 0).astype(int)
    assert (chances.argmax(1) == likeliest).all()
