"""Clipped gradient sums against torch autograd, record by record, clipped by hand in double precision.

Public records are summed in floats and clipped a little short; private ones in integers, and clipped to C.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from noisewise.trusted.losses import Hinge, HuberHinge, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear, batches
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.totals import Drawn

MODELS = [
    *(Linear(5, loss) for loss in (Logistic(), Hinge(), HuberHinge(), HuberHinge(2.0), Squared())),
    Linear(5, Softmax(), 3),
    *(MLP((5, 4, 3), Softmax(), activation) for activation in ("softplus", "tanh", "sigmoid", "relu")),
    *(MLP((5, 4, 1), loss, "tanh") for loss in (Logistic(), Hinge(), HuberHinge(), Squared())),
    MLP((5, 4, 1), Logistic(), "softplus"),
    MLP((5, 6, 4, 3), Softmax(), "softplus"),
    MLP((5, 6, 4, 3), Softmax(), "sigmoid"),
    MLP((5, 3, 4, 2, 1), Squared(), "tanh"),
    MLP((5, 3), Softmax()),
    MLP((5, 1), Logistic()),
]
CLIPS = (0.01, 0.3, 2.0, math.inf)


def name(model) -> str:
    shape = f"{model.sizes}-{model.activation}" if isinstance(model, MLP) else f"linear{model.outputs}"
    return f"{shape}-{model.loss!r}"


def a_loss(loss, z, y):
    """The loss once more, from its textbook formula."""
    match loss:
        case Softmax():
            return F.cross_entropy(z, y)
        case Logistic():
            return F.binary_cross_entropy_with_logits(z[0], (y + 1) / 2)
        case Hinge():
            return torch.clamp(1 - y * z[0], min=0)
        case Squared():
            return F.mse_loss(z[0], y)
        case HuberHinge(h):
            m = 1 - y * z[0]
            return torch.where(m > h, m, torch.where(m < -h, 0 * m, (m + h) ** 2 / (4 * h)))
    raise AssertionError(loss)


def network(model, theta, x):
    if isinstance(model, Linear):
        return theta.view(model.outputs, model.features) @ x
    sizes, at = list(pairwise(model.sizes)), 0
    for number, (into, out) in enumerate(sizes):
        weights, bias = theta[at : at + into * out].view(out, into), theta[at + into * out : at + out * (into + 1)]
        x, at = F.linear(x, weights, bias), at + out * (into + 1)
        if number < len(sizes) - 1:
            x = {"softplus": F.softplus, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}[
                model.activation
            ](x)
    return x


def per_record(model, theta, X, y):
    """Every record's gradient by autograd in double precision, one row each."""
    gradient = torch.func.grad(lambda t, x, label: a_loss(model.loss, network(model, t, x), label))
    return torch.func.vmap(gradient, in_dims=(None, 0, 0))(*map(doubles, (theta, X, y))).numpy()


def doubles(values):
    """As a tensor, in double precision; numbers of classes as they are."""
    return torch.from_numpy(values.astype(np.float64) if values.dtype.kind == "f" else values)


def by_hand(G, clip):
    """Clip each row to norm ``clip``, then add."""
    return (G * np.minimum(1.0, clip / norms(G))[:, None]).sum(0)


def norms(G):
    return np.linalg.norm(G, axis=1).clip(min=1e-300)


def records(model, n, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    X = spread * rng.normal(size=(n, model.features)) * np.exp(rng.normal(size=(n, 1)))
    if model.loss.task == "classes":
        y = rng.integers(model.outputs, size=n)
    elif model.loss.task == "binary":
        y = rng.choice([-1.0, 1.0], n)
    else:
        y = rng.normal(size=n).astype(np.float32)
    return X.astype(np.float32), y, 0.7 * rng.standard_normal(model.dimension, np.float32)


def close(a, b, rtol=1e-4):
    return bool(np.linalg.norm(a - b) <= rtol * np.linalg.norm(b) + 1e-12)


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_norms_and_clipped_sums_are_autograds(model):
    X, y, theta = records(model, 83)
    G, batch = per_record(model, theta, X, y), model.lay_out(X, y)
    assert np.allclose(model.norms(theta, batch), norms(G), rtol=1e-3, atol=1e-4)
    at, rows = doubles(theta), zip(doubles(X), doubles(y), strict=True)
    values = [a_loss(model.loss, network(model, at, x), label).item() for x, label in rows]
    assert np.allclose(model.losses(theta, batch), values, rtol=1e-3, atol=1e-4)
    for clip in CLIPS:
        ours = model.clipped_sum(theta, batch, clip)
        assert ours.shape == (model.dimension,)
        assert close(ours, by_hand(G, clip))
        assert close(ours, by_hand(G, clip), rtol=0.05)  # the slack costs a thousandth of each record


RELU = [MLP((5, 4, 3), Softmax(), "relu"), MLP((5, 4, 1), Hinge(), "relu")]


def exact(model, theta, X, y, clip):
    """A clipped sum of private records as real numbers."""
    total = records_of(model, X, y).gradients(Drawn(), theta.astype(np.float64), clip)
    return total.values * total.worth


@pytest.mark.parametrize("model", [*MODELS, *RELU], ids=name)
def test_exact_sums_are_autograds(model):
    """A record is off by no more than its grid: 2^-14 of a row's length, 2^-15 of theta's, and its share of C."""
    X, y, theta = records(model, 83)
    G = per_record(model, theta, X, y)
    kinks = (
        0.05 if isinstance(model.loss, Hinge) or model in RELU else 0.0
    )  # a slope that jumps may fall on either side
    for clip in (0.01, 0.3, 2.0):
        off = np.linalg.norm(exact(model, theta, X, y, clip) - by_hand(G, clip))
        assert off <= (2e-3 + kinks) * norms(G).clip(max=clip).sum()
        wrong = np.linalg.norm(by_hand(G, 1.1 * clip) - by_hand(G, clip))
        assert kinks or wrong > 10 * off or not (norms(G) > clip).any()


@pytest.mark.parametrize("model", [MODELS[0], MODELS[5], MODELS[6]], ids=name)
def test_the_check_rejects_wrong_ways_of_clipping(model):
    X, y, theta = records(model, 83)
    G, ours = per_record(model, theta, X, y), model.clipped_sum(theta, model.lay_out(X, y), 0.3)
    right = by_hand(G, 0.3)
    assert close(ours, right)
    after_the_sum = G.sum(0) * min(1.0, 0.3 / np.linalg.norm(G.sum(0)))
    per_coordinate = G.clip(-0.3, 0.3).sum(0)
    normalised = (0.3 * G / norms(G)[:, None]).sum(0)
    for wrong in (by_hand(G, 0.3 * 1.05), by_hand(G, 0.3 * 0.99), G.sum(0), after_the_sum, per_coordinate, normalised):
        assert not close(ours, wrong)


@pytest.mark.parametrize("n", [1, 127, 128, 129, 257])
@pytest.mark.parametrize("model", [Linear(5, Logistic()), Linear(5, Softmax(), 3), MLP((5, 4, 3), Softmax(), "tanh")])
def test_boundaries_of_chunks_lose_and_repeat_nobody(model, n, monkeypatch):
    monkeypatch.setattr(batches, "ROWS_PER_CHUNK", 128)
    X, y, theta = records(model, n, seed=n)
    X[[0, -1]] = np.sign(X[[0, -1]])  # of usual length, with labels that are wrong: gradients that would be missed
    scores = model.scores(theta, X[[0, -1]])
    y[[0, -1]] = -np.sign(scores) if model.outputs == 1 else scores.argmin(1)
    G, batch = per_record(model, theta, X, y), model.lay_out(X, y)
    for clip in (0.5, math.inf):
        ours = model.clipped_sum(theta, batch, clip)
        assert close(ours, by_hand(G, clip))
        if n > 1 and math.isfinite(clip):  # without a clip one record may be too small to be missed
            assert not close(ours, by_hand(G[:-1], clip))
            assert not close(ours, by_hand(G[1:], clip))


def test_a_batch_of_nobody_sums_to_zero():
    for model in MODELS:
        X, y, theta = records(model, 3)
        assert not exact(model, theta, X[:0], y[:0], 1.0).any()
        nobody = model.lay_out(X, y).take(np.zeros(0, np.int64))
        assert np.array_equal(model.clipped_sum(theta, nobody, 1.0), np.zeros(model.dimension))


def test_a_batch_takes_the_rows_it_is_given():
    model = Linear(5, Logistic())
    X, y, theta = records(model, 40)
    rows = [3, 3, 7, 39, 0]
    taken, direct = model.lay_out(X, y).take(rows), model.lay_out(X[rows], y[rows])
    assert np.array_equal(model.clipped_sum(theta, taken, 0.2), model.clipped_sum(theta, direct, 0.2))


@pytest.mark.parametrize("sizes", [(5,), (5, 0, 1), ()])
def test_an_mlp_without_layers_or_units_is_refused(sizes):
    with pytest.raises(ValueError, match="sizes"):
        MLP(sizes, Logistic())
    with pytest.raises(ValueError, match="activation"):
        MLP((5, 1), Logistic(), "gelu")
