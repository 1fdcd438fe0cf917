"""No noise and no clip: twenty steps on public rows are twenty steps of torch.optim on autograd's gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from noisewise.curator import Answer, PublicCurator
from noisewise.protect.optimizers import OPTIMIZERS, AdaGrad, Adam, AdamBC, DebiasedMomentum, Momentum, Sgd
from noisewise.trusted.losses import Logistic, Softmax
from noisewise.trusted.models import MLP, Linear

STEPS = 20
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
LINEAR = (Linear(4, Logistic()), RNG.choice(np.float32([-1, 1]), 60))
LAYERED = (MLP((4, 5, 3), Softmax(), "tanh"), RNG.integers(3, size=60))


class HandMade(torch.optim.Optimizer):
    """eta v / (1 - beta^t) with v <- beta v + (1 - beta) g, which torch.optim does not have."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
        self.t, self.v = 0, 0.0

    def step(self):
        (parameter,) = self.param_groups[0]["params"]
        self.t += 1
        self.v = 0.9 * self.v + 0.1 * parameter.grad
        parameter.data -= self.param_groups[0]["lr"] * self.v / (1 - 0.9**self.t)


CASES = {
    Sgd: lambda p: torch.optim.SGD(p, lr=0.05),
    Momentum: lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    DebiasedMomentum: lambda p: HandMade(p, lr=0.05),
    AdaGrad: lambda p: torch.optim.Adagrad(p, lr=0.05, eps=1e-8),
    Adam: lambda p: torch.optim.Adam(p, lr=0.05),
    AdamBC: lambda p: torch.optim.Adam(p, lr=0.05),
}


def mean_loss(model, theta, y):
    rows, labels = torch.from_numpy(X), torch.from_numpy(y)
    if isinstance(model, Linear):
        return F.softplus(-labels * (rows @ theta)).mean()
    (w1, b1), (w2, b2) = model.layers(theta)
    return F.cross_entropy(F.linear(torch.tanh(F.linear(rows, w1, b1)), w2, b2), labels)


def by_torch(model, y, make):
    theta = torch.from_numpy(model.start()).requires_grad_(True)
    optimizer, path = make([theta]), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        mean_loss(model, theta, y).backward()
        optimizer.step()
        path.append(theta.detach().numpy().copy())
    return np.stack(path)


def by_us(model, y, optimizer, **question):
    public, theta = PublicCurator(X, y, model=model, seed=0), model.start()
    state, path = optimizer.init(model.dimension), []
    for _ in range(STEPS):
        theta, state = optimizer(public.gradient(theta, **question), theta, state)
        path.append(theta)
    return np.stack(path)


def same(a, b, tolerance=1e-4) -> bool:
    return bool(np.abs(a - b).max() <= tolerance)


def test_every_optimizer_is_tested():
    assert set(OPTIMIZERS.values()) == set(CASES)


@pytest.mark.parametrize("model, y", [LINEAR, LAYERED], ids=["linear", "mlp"])
@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_without_clip_and_noise_it_is_torchs_optimizer(kind, model, y):
    expected, ours = by_torch(model, y, CASES[kind]), by_us(model, y, kind(0.05))
    assert same(ours, expected)
    assert not same(by_us(model, y, kind(0.05 * 1.01)), expected)
    assert not same(by_us(model, y, kind(0.05), clip=0.05), expected)


@pytest.mark.parametrize("model, y", [LINEAR, LAYERED], ids=["linear", "mlp"])
@pytest.mark.parametrize("sampling", [("poisson", 1.0), ("fixed", 1.0)], ids=str)
@pytest.mark.parametrize("clip", [math.inf, 0.05])
def test_a_batch_at_full_rate_is_the_full_batch(model, y, sampling, clip):
    full = by_us(model, y, Sgd(0.3), clip=clip)
    assert same(by_us(model, y, Sgd(0.3), clip=clip, sampling=sampling), full, 1e-5)
    assert not same(by_us(model, y, Sgd(0.3), clip=clip, sampling=(sampling[0], 0.9)), full, 1e-5)


def test_a_optimizer_changes_neither_theta_nor_its_old_state():
    """State is returned, not kept: a run may be resumed from any step."""
    for kind in CASES:
        optimizer, theta = kind(0.05), LINEAR[0].start()
        public = PublicCurator(X, LINEAR[1], model=LINEAR[0])
        first, state = optimizer(public.gradient(theta), theta, optimizer.init(4))
        answer = public.gradient(first)
        once, again = optimizer(answer, first, state)[0], optimizer(answer, first, state)[0]
        assert np.array_equal(once, again)
        assert np.array_equal(theta, LINEAR[0].start())


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_tensors_are_moved_as_arrays_are(kind):
    """Meta-training tries designed protectors on tensors, by the very same code."""
    rng, optimizer = np.random.default_rng(0), kind(0.05)
    theta, state, other, beside = np.zeros(3), optimizer.init(3), torch.zeros(3, dtype=torch.float64), optimizer.init(3)
    for _ in range(STEPS):
        gradient = rng.normal(size=3)
        theta, state = optimizer(Answer(gradient, 0.5), theta, state)
        other, beside = optimizer(Answer(torch.from_numpy(gradient), 0.5), other, beside)
    assert isinstance(other, torch.Tensor) and isinstance(theta, np.ndarray)
    np.testing.assert_allclose(other.numpy(), theta, rtol=1e-12)
    assert theta.all()


def test_adam_takes_the_bias_of_the_noise_off_its_second_moment():
    """Gradients of 0.1 and 0.01 under noise of 1: Adam moves both coordinates alike small steps, AdamBC tells how long each is."""
    rng, truth, std = np.random.default_rng(0), np.array([2.0, 0.5]), 1.0
    moments = {}
    for kind in (Adam, AdamBC):
        optimizer = kind(0.01, beta_squared=0.999)
        theta, state = np.zeros(2), optimizer.init(2)
        for _ in range(4000):
            noisy = truth + std * rng.normal(size=2)
            theta, state = optimizer(Answer(noisy, std), theta, state)
        moments[kind] = state
    whole = 1 - 0.999**4000
    assert np.allclose(moments[Adam].second / whole, truth**2 + std**2, rtol=0.1)
    assert np.allclose((moments[AdamBC].second - moments[AdamBC].noise) / whole, truth**2, rtol=0.3)
    assert moments[AdamBC].noise / whole == pytest.approx(std**2)


def test_adam_without_bias_never_divides_by_what_noise_has_made_of_nothing():
    optimizer, theta = AdamBC(0.01), np.zeros(3)
    state = optimizer.init(3)
    for _ in range(50):
        before = theta
        theta, state = optimizer(Answer(np.zeros(3), 1.0), theta, state)
        assert np.array_equal(theta, before)
    theta, state = optimizer(Answer(np.array([1.0, -1.0, 0.0]), 1.0), theta, state)
    assert np.isfinite(theta).all() and np.abs(theta).max() < 0.05
