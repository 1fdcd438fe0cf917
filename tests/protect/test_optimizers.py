"""No noise and no clip: twenty steps on public rows are twenty steps of torch.optim on autograd's gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from noisewise.curator import Answer, PublicCurator
from noisewise.protect.optimizers import OPTIMIZERS, AdaGrad, Adam, AdamBC, DebiasedMomentum, Momentum, Sgd
from noisewise.trusted.losses import Logistic, Softmax
from noisewise.trusted.models import MLP, Linear

STEPS = 20
G = torch.Generator().manual_seed(0)
X = torch.randn(60, 4, generator=G)
LINEAR = (Linear(4, Logistic()), torch.randint(2, (60,), generator=G).float() * 2 - 1)
LAYERED = (MLP((4, 5, 3), Softmax(), "tanh"), torch.randint(3, (60,), generator=G))


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
    if isinstance(model, Linear):
        return F.softplus(-y * (X @ theta)).mean()
    (w1, b1), (w2, b2) = model.layers(theta)
    return F.cross_entropy(F.linear(torch.tanh(F.linear(X, w1, b1)), w2, b2), y)


def by_torch(model, y, make):
    theta = model.start().clone().requires_grad_(True)
    optimizer, path = make([theta]), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        mean_loss(model, theta, y).backward()
        optimizer.step()
        path.append(theta.detach().clone())
    return torch.stack(path)


def by_us(model, y, optimizer, **question):
    public, theta = PublicCurator(X, y, model=model, seed=0), model.start()
    state, path = optimizer.init(model.dimension), []
    for _ in range(STEPS):
        theta, state = optimizer(public.gradient(theta, **question), theta, state)
        path.append(theta)
    return torch.stack(path)


def same(a, b, tolerance=1e-4) -> bool:
    return bool((a - b).abs().max() <= tolerance)


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
        assert torch.equal(once, again)
        assert torch.equal(theta, LINEAR[0].start())


def test_adam_takes_the_bias_of_the_noise_off_its_second_moment():
    """Gradients of 0.1 and 0.01 under noise of 1: Adam moves both coordinates alike small steps, AdamBC tells how long each is."""
    generator, truth, std = torch.Generator().manual_seed(0), torch.tensor([2.0, 0.5]), 1.0
    moments = {}
    for kind in (Adam, AdamBC):
        optimizer = kind(0.01, beta_squared=0.999)
        theta, state = torch.zeros(2), optimizer.init(2)
        for _ in range(4000):
            noisy = truth + std * torch.randn(2, generator=generator)
            theta, state = optimizer(Answer(noisy, std), theta, state)
        moments[kind] = state
    whole = 1 - 0.999**4000
    assert torch.allclose(moments[Adam].second / whole, truth**2 + std**2, rtol=0.1)
    assert torch.allclose((moments[AdamBC].second - moments[AdamBC].noise) / whole, truth**2, rtol=0.3)
    assert moments[AdamBC].noise / whole == pytest.approx(std**2)


def test_adam_without_bias_never_divides_by_what_noise_has_made_of_nothing():
    optimizer, theta = AdamBC(0.01), torch.zeros(3)
    state = optimizer.init(3)
    for _ in range(50):
        before = theta
        theta, state = optimizer(Answer(torch.zeros(3), 1.0), theta, state)
        assert torch.equal(theta, before)
    theta, state = optimizer(Answer(torch.tensor([1.0, -1.0, 0.0]), 1.0), theta, state)
    assert bool(torch.isfinite(theta).all()) and float(theta.abs().max()) < 0.05
