"""The differentiable clipped means are the curator's own numbers, and their graph is the true derivative."""

from __future__ import annotations

import pytest
import torch

from noisewise.learned.unroll import TaskRows, starts
from noisewise.trusted.losses import LOSSES, ClassWeighted, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear

FEATURES, CLASSES, N, COPIES = 4, 3, 37, 3
SMOOTH = ("logistic", "huber_hinge", "squared", "softmax")
CLIPS = [(0.05, 0.02, 0.3), (0.4, 0.97, 0.7), (50.0, 1e3, 20.0)]


def outputs(loss):
    return CLASSES if loss.task == "classes" else 1


MODELS = [
    *(Linear(FEATURES, loss, outputs(loss)) for loss in LOSSES.values()),
    Linear(FEATURES, Squared(signs=True)),
    Linear(FEATURES, ClassWeighted(Logistic(), (0.5, 2.0))),
    Linear(FEATURES, ClassWeighted(Softmax(), (0.5, 2.0, 1.0)), CLASSES),
    *(
        MLP((FEATURES, *hidden, outputs(LOSSES[name])), LOSSES[name], activation)
        for hidden in ((5,), (5, 3))
        for name in SMOOTH
        for activation in ("tanh", "sigmoid", "softplus", "relu")
    ),
]
SMOOTH_MODELS = [model for model in MODELS if model.loss.name != "hinge"]


def rows_for(model, n=N, seed=0):
    """Rows of all lengths, one of them zero: for the graph, and as the model lays them out."""
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, FEATURES, generator=g) * torch.rand(n, 1, generator=g) * 2
    X[0] = 0.0
    if model.loss.task == "classes":
        y = torch.randint(CLASSES, (n,), generator=g)
    else:
        y = torch.where(X.sum(1) + 0.5 * torch.randn(n, generator=g) > 0, 1.0, -1.0)
    return TaskRows.of(model, X, y), model.lay_out(X.numpy(), y.numpy())


def thetas_for(model, seed=1):
    g = torch.Generator().manual_seed(seed)
    return starts(model) + torch.randn(COPIES, model.dimension, generator=g)


def in_double(rows):
    y = rows.y.double() if rows.y.is_floating_point() else rows.y
    return TaskRows(rows.model, rows.X.double(), y, rows.lengths.double())


@pytest.mark.parametrize("clips", CLIPS, ids=["small", "middle", "large"])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_means_are_the_clipped_sums_over_n(model, clips):
    (rows, batch), thetas = rows_for(model), thetas_for(model)
    means = rows.clipped_means(thetas, torch.tensor(clips))
    assert means.shape == (COPIES, model.dimension)
    for mean, theta, clip in zip(means, thetas, clips, strict=True):
        exact = torch.from_numpy(model.clipped_sum(theta.numpy(), batch, clip)).float() / N
        assert torch.allclose(mean, exact, rtol=1e-4, atol=2e-6 * min(clip, 1.0)), (mean - exact).abs().max()
        assert float(exact.norm()) > 0


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_losses_are_the_mean_losses(model):
    (rows, batch), thetas = rows_for(model), thetas_for(model)
    losses = rows.mean_losses(thetas)
    assert losses.shape == (COPIES,)
    assert torch.allclose(
        losses, torch.tensor([float(model.losses(theta.numpy(), batch).mean()) for theta in thetas]), rtol=1e-5
    )


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_copy_does_not_feel_the_others(model):
    (rows, _), thetas, clips = rows_for(model), thetas_for(model), torch.tensor([0.05, 0.6, 30.0])
    together = rows.clipped_means(thetas, clips)
    alone = torch.cat([rows.clipped_means(thetas[i : i + 1], clips[i : i + 1]) for i in range(COPIES)])
    assert torch.allclose(together, alone, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("clips", CLIPS, ids=["small", "middle", "large"])
@pytest.mark.parametrize("model", SMOOTH_MODELS, ids=repr)
def test_the_graph_is_the_derivative_in_thetas_and_clip(model, clips):
    """Along random directions, against central differences in double precision."""
    rows = in_double(rows_for(model)[0])
    thetas = thetas_for(model).double().requires_grad_(True)
    clip = torch.tensor(clips, dtype=torch.float64, requires_grad=True)
    g = torch.Generator().manual_seed(2)
    weights = torch.randn(COPIES, model.dimension, generator=g, dtype=torch.float64)
    along = torch.randn(COPIES, model.dimension, generator=g, dtype=torch.float64)

    def value(at, bound):
        return (rows.clipped_means(at, bound) * weights).sum()

    by_theta, by_clip = torch.autograd.grad(value(thetas, clip), (thetas, clip))
    h = 1e-6
    with torch.no_grad():
        slope = (value(thetas + h * along, clip) - value(thetas - h * along, clip)) / (2 * h)
        in_clip = (value(thetas, clip * (1 + h)) - value(thetas, clip * (1 - h))) / (2 * h)
    assert float((by_theta * along).sum()) == pytest.approx(float(slope), rel=1e-4, abs=1e-6)
    assert float((by_clip * clip).sum().detach()) == pytest.approx(float(in_clip), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_the_loss_has_the_unclipped_gradient(model):
    (rows, batch), thetas = rows_for(model), thetas_for(model).requires_grad_(True)
    (gradients,) = torch.autograd.grad(rows.mean_losses(thetas).sum(), thetas)
    sums = [torch.from_numpy(model.clipped_sum(theta.numpy(), batch, 1e6)) for theta in thetas.detach()]
    unclipped = torch.stack(sums).float() / N
    assert torch.allclose(gradients, unclipped, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("model", [MODELS[0], MODELS[4], MODELS[8]], ids=repr)
def test_without_a_graph_to_keep_there_is_none(model):
    (rows, _), thetas = rows_for(model), thetas_for(model)
    assert not rows.clipped_means(thetas, torch.ones(COPIES)).requires_grad
    with torch.no_grad():
        assert not rows.clipped_means(thetas.clone().requires_grad_(True), torch.ones(COPIES)).requires_grad
