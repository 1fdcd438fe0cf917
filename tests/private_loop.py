"""A small training loop made private, for the tests of noisewise.faces.pytorch."""

from __future__ import annotations

import warnings

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

from noisewise.faces.pytorch import PrivacyEngine

RECORDS = 60


def records(many: int = RECORDS, features: int = 6, seed: int = 0) -> TensorDataset:
    made = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(many, features, generator=made), torch.randint(3, (many,), generator=made))


def small() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


class Loop:
    """Module, optimizer, loader and engine; ``epochs=2`` fixes the length, so that nothing warns."""

    def __init__(self, module=None, dataset=None, *, batch_size=20, lr=0.0, engine=None, loader=None, **settings):
        self.module = small() if module is None else module
        self.dataset = records() if dataset is None else dataset
        self.engine = PrivacyEngine() if engine is None else engine
        optimizer = optim.SGD(self.module.parameters(), lr=lr)
        given = {"noise_multiplier": 1.0, "max_grad_norm": 0.5, "epochs": 2} | settings
        given = {name: value for name, value in given.items() if value is not None}
        make = self.engine.make_private
        if "target_epsilon" in given:
            make = self.engine.make_private_with_epsilon
            given.pop("noise_multiplier")
        loader = loader if loader is not None else DataLoader(self.dataset, batch_size=batch_size, shuffle=True)
        with warnings.catch_warnings():
            if given.get("noise_multiplier") == 0:
                warnings.simplefilter("ignore")
            made = make(module=self.module, optimizer=optimizer, data_loader=loader, **given)
        self.made, self.optimizer, self.loader = made, made[1], made[-1]
        self.criterion = nn.CrossEntropyLoss()

    def passed(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.module(x), y)
        loss.backward()
        return loss

    def epoch(self):
        for x, y in self.loader:
            self.passed(x, y)
            self.optimizer.step()

    @property
    def gradient(self):
        return torch.cat([parameter.grad.reshape(-1) for parameter in self.optimizer.params])


def by_hand(module, x, y, clip, criterion=None):
    """The sum of clipped gradients, one record at a time; ``clip`` is one norm or one for each parameter."""
    criterion = criterion or nn.CrossEntropyLoss()
    parameters = [one for one in module.parameters() if one.requires_grad]
    total = [torch.zeros_like(one) for one in parameters]
    for row in range(len(x)):
        found = torch.autograd.grad(criterion(module(x[row : row + 1]), y[row : row + 1]), parameters)
        norms = [part.norm() for part in found]
        if isinstance(clip, float):
            norms = [torch.stack(norms).norm()] * len(found)
        clips = [clip] * len(found) if isinstance(clip, float) else clip
        for into, part, norm, most in zip(total, found, norms, clips, strict=True):
            if torch.isfinite(norm):
                into += part * min(1.0, most / float(norm))
    return torch.cat([part.reshape(-1) for part in total])
