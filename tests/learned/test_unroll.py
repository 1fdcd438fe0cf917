"""Unrolled runs on public tasks are private runs: the same noise, the same budget, many copies, with a graph."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

import noisewise as nw
from noisewise.learned.unroll import PublicTask, TaskRows, advance, calibrated_losses, detached, start
from noisewise.methods.l2p import L2P
from noisewise.protect.learned import zoo
from noisewise.protect.learned.parts import new_weights, protector
from noisewise.protect.learned.weights import Design, weights_from, zero_weights
from noisewise.protect.optimizers import Sgd
from noisewise.protect.protector import by_hand
from noisewise.train import Records, train
from noisewise.trusted.accountants.gdp import mu_of
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import MLP, Linear

N, D, T = 200, 4, 6
RARE = 1e-5


def rows(n=N, seed=0):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, D, generator=g)
    X /= torch.linalg.vector_norm(X, dim=1, keepdim=True)
    return X, torch.sign(X[:, 0] + 0.2 * torch.randn(n, generator=g))


def a_task(copies=3, mu=1.0, model=None, size=float(N)):
    task_rows = TaskRows.of(model or Linear(D, Logistic()), *rows())
    return PublicTask("test", task_rows, size, torch.linspace(0.5, 1.5, copies) * mu, T)


def learned(seed=0, size=1.0, **design):
    design = Design(units=3, **design)
    tensors = {name: size * weight for name, weight in new_weights(design, seed).tensors().items()}
    return protector(weights_from(tensors), design)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("model", [Linear(D, Logistic()), MLP((D, 3, 1), Logistic())], ids=repr)
def test_a_track_says_what_happened(model):
    task, part = a_task(model=model), learned()
    run, track = advance(part, task, start(part, task), T, generator())
    assert track.losses.shape == track.spent.shape == track.clips.shape == (T, 3)
    assert torch.allclose(track.losses[-1], task.rows.mean_losses(run.thetas))
    assert torch.allclose(track.spent.sum(0), torch.ones(3), atol=1e-5)
    assert torch.allclose(run.signal.remaining, torch.zeros(3), atol=1e-6)
    assert run.signal.step == T and run.signal.groups == model.groups


def test_a_run_in_two_spans_is_the_run_in_one():
    task, part, g = a_task(), learned(), generator()
    whole, _ = advance(part, task, start(part, task), T, generator())
    half, _ = advance(part, task, start(part, task), 2, g)
    rest, _ = advance(part, task, detached(half), T - 2, g)
    assert torch.equal(whole.thetas, rest.thetas)


def test_copies_run_as_they_would_alone():
    """Without noise to tell them apart: the copies' budgets are huge."""
    task, part = a_task(mu=1e9), learned(size=0.5)
    together, _ = advance(part, task, start(part, task), T, generator())
    for copy in range(3):
        single = task._replace(mu=task.mu[copy : copy + 1])
        alone, _ = advance(part, single, start(part, single), T, generator())
        assert torch.allclose(together.thetas[copy], alone.thetas[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("squared", [False, True], ids=["direct", "squared"])
@pytest.mark.parametrize("norm_share", [0.0, 0.4])
def test_the_noise_is_that_of_a_private_run(norm_share, squared, tmp_path):
    """Zero weights, the same budget and size: each step and each norm has the noise that the curator charges for."""
    design = Design(units=3, norm_share=norm_share, squared_norm=squared)
    header = {"name": "zero", "horizon": T, "ranges": {name: [1e-9, 1e9] for name in zoo.RANGES}}
    zoo.save_protector(tmp_path / "zero.safetensors", zero_weights(design), design, header)
    budget, model = nw.Budget(1.0, 1e-6), Linear(D, Logistic())
    method = L2P(protector=str(tmp_path / "zero.safetensors"), deflate=False)
    private = train(method, Records(*rows(), float(N), 1.0), model=model, budget=budget, seed=0)
    task = a_task()._replace(mu=torch.tensor([mu_of(1.0, 1e-6)]))
    part = protector(zero_weights(design), design)
    run, stds, remaining = start(part, task), [], []
    for _ in range(T):
        run, _ = advance(part, task, run, 1, generator())
        stds.append(float(run.signal.noise_std))
        remaining.append(float(run.signal.remaining))
    gradients = [line for line in private.trace if line.question == "gradient"]
    assert stds == pytest.approx([line.noise_std / line.clip for line in gradients], rel=1e-4)
    assert remaining == pytest.approx([1 - line.spent for line in gradients], abs=1e-5)


@pytest.mark.parametrize("squared", [False, True], ids=["direct", "squared"])
def test_a_paid_norm_has_its_noise_and_its_price(squared):
    """4,000 copies: the released norms scatter around the truth as the price says; 6 % more or less is rejected."""
    copies, share = 4000, 0.5
    task = a_task(copies)._replace(mu=torch.full((copies,), 2.0))
    seen = []

    class Watching:
        def init(self, copies, dimension):
            return None

        def __call__(self, signal, memory):
            seen.append(signal)
            return torch.full((signal.copies,), 0.5), None

    part = by_hand(Sgd(0.1))
    part = type(part)(part.clip, Watching(), part.projector, norm_share=share, squared_norm=squared)
    run, track = advance(part, task, start(part, task), 1, generator())
    clip = 0.5
    mean = task.rows.clipped_means(torch.zeros(1, D), torch.tensor([clip])) / clip
    norm, std = float(mean.norm()), 1 / (2.0 * math.sqrt(share / T) * N)
    paid = seen[0].paid_norm.double()
    off = (paid.square() - norm**2) / 2 if squared else paid - norm

    def accepted(scale):
        p = stats.chi2.cdf(float((off / (scale * std)).square().sum()), copies)
        return RARE / 2 <= p <= 1 - RARE / 2

    assert accepted(1.0) and not accepted(0.94) and not accepted(1.06)
    assert torch.allclose(seen[0].remaining, torch.full((copies,), 1 - share / T))
    assert torch.allclose(track.spent[0], torch.full((copies,), 0.5 * (1 - share / T)))
    assert torch.allclose(run.signal.remaining, torch.full((copies,), 0.5 * (1 - share / T)))


def test_the_open_form_is_seen_to_overspend():
    design = Design(units=3, form="open")
    weights = zero_weights(design)
    weights.scheduler.bias[:] = math.log(2) / 2
    task, part = a_task(), protector(weights, design)
    run, track = advance(part, task, start(part, task), T, generator())
    assert torch.allclose(track.spent, torch.full((T, 3), 2 / T))
    assert torch.allclose(run.signal.remaining, torch.full((3,), -1.0), atol=1e-5)
    assert torch.isfinite(run.thetas).all()


def test_the_graph_is_the_derivative():
    """The final loss in the step size, against central differences."""
    design, task = Design(units=3), a_task(mu=20.0)
    weights = zero_weights(design)

    def loss(rate):
        part = protector(weights._replace(rate=rate), design)
        return advance(part, task, start(part, task), T, generator())[1].losses[-1].sum()

    rate = torch.tensor([-0.5], requires_grad=True)
    (slope,) = torch.autograd.grad(loss(rate), rate)
    with torch.no_grad():
        by_differences = (loss(torch.tensor([-0.48])) - loss(torch.tensor([-0.52]))) / 0.04
    assert float(slope) == pytest.approx(float(by_differences), rel=0.03)


def test_constants_cut_the_tasks_own_gradient_out_of_the_graph():
    design, task = Design(units=3), a_task(mu=20.0)
    weights, slopes, ends = zero_weights(design), [], []
    for constants in (False, True):
        rate = torch.tensor([0.0], requires_grad=True)
        part = protector(weights._replace(rate=rate), design)
        run, track = advance(part, task, start(part, task), T, generator(), constants=constants)
        slopes.append(float(torch.autograd.grad(track.losses[-1].sum(), rate)[0]))
        ends.append(run.thetas.detach())
    assert torch.equal(*ends), "the same run either way"
    assert slopes[0] != pytest.approx(slopes[1], rel=1e-2)


def test_detached_keeps_the_place_and_drops_the_graph():
    design = Design(units=3)
    weights = weights_from({k: w.requires_grad_(True) for k, w in new_weights(design).tensors().items()})
    task, part = a_task(), protector(weights, design)
    run, _ = advance(part, task, start(part, task), 2, generator())
    assert run.thetas.requires_grad
    cut = detached(run)

    def tensors(value):
        if isinstance(value, torch.Tensor):
            return [value]
        return [t for part in value for t in tensors(part)] if isinstance(value, tuple) else []

    assert tensors(cut) and not any(tensor.requires_grad for tensor in tensors(cut))
    assert all(torch.equal(a, b) for a, b in zip(tensors(run), tensors(cut), strict=True))
    assert type(cut) is type(run) and type(cut.signal) is type(run.signal) and cut.signal.groups == run.signal.groups


def test_a_calibrated_loss_is_that_of_the_best_multiple():
    task = a_task()
    thetas = torch.tensor([[1.0, 0, 0, 0], [300.0, 1, 1, 1], [-1.0, 0, 0, 0]], requires_grad=True)
    best = calibrated_losses(task, thetas)
    grid = torch.stack([task.rows.mean_losses(thetas.detach() * c) for c in torch.logspace(-2, 1.5, 200)])
    assert torch.allclose(best, grid.min(0).values, rtol=0.02)
    assert bool((best <= task.rows.mean_losses(thetas) + 1e-6).all())
    (gradient,) = torch.autograd.grad(best.sum(), thetas)
    along = (gradient * thetas.detach()).sum(1).abs()
    assert float(along[0]) < 0.06, "at a minimiser over multiples nothing is gained by rescaling"
