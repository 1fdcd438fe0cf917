"""The gradient of a private step: the clipped sum of a loop over records, with the noise that was paid for."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from private_loop import Loop, by_hand, records, small
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import noisewise as nw
from noisewise.faces.pytorch import DPLSTM, BatchMemoryManager
from noisewise.trusted.events import Gaussian, Poisson, Repeated
from noisewise.trusted.noise import Stream


def compare(loop, clip, divisor):
    """One epoch without noise, each step against the loop over records; the parameters change in between."""
    steps = 0
    for x, y in loop.loader:
        plain = copy.deepcopy(loop.module)
        loop.passed(x, y)
        loop.optimizer.step()
        expected = by_hand(plain, x, y, clip, loop.criterion) / divisor
        torch.testing.assert_close(loop.gradient, expected, rtol=1e-4, atol=1e-5)
        steps += 1
    assert steps == len(loop.loader)


def test_a_step_has_the_clipped_mean_over_the_expected_size():
    loop = Loop(noise_multiplier=0.0, epochs=None, lr=0.5)
    assert loop.optimizer.expected_batch_size == 20
    compare(loop, 0.5, 20)


@pytest.mark.parametrize("at_once", [1, 20, 35, 60])
def test_parameters_get_their_noise_in_groups(at_once, monkeypatch):
    """30 + 5 and 15 + 3 numbers: one by one, or several at once."""
    monkeypatch.setattr("noisewise.faces.pytorch.run.NUMBERS_PER_CALL", at_once)
    loop = Loop(noise_multiplier=0.0, epochs=None)
    sizes = [len(loop.optimizer.params[some]) for some in loop.optimizer.run._groups]
    assert sizes == {1: [1, 1, 1, 1], 20: [1, 2, 1], 35: [2, 2], 60: [4]}[at_once]
    compare(loop, 0.5, 20)


def test_sums_are_not_divided():
    loop = Loop(noise_multiplier=0.0, epochs=None, loss_reduction="sum")
    loop.criterion = nn.CrossEntropyLoss(reduction="sum")
    compare(loop, 0.5, 1)


def test_each_parameter_has_its_own_clip():
    clips = [0.3, 0.01, 0.2, 0.1]
    loop = Loop(noise_multiplier=0.0, epochs=None, clipping="per_layer", max_grad_norm=clips)
    compare(loop, clips, 20)
    even = Loop(noise_multiplier=0.0, epochs=None, clipping="per_layer", max_grad_norm=1.0)
    assert even.optimizer.max_grad_norm == (0.5,) * 4
    with pytest.raises(ValueError, match="one for each of 4"):
        Loop(clipping="per_layer", max_grad_norm=[1.0])


def test_pictures_and_a_loop_that_reshapes():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.out = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4 * 16, 3)

        def forward(self, x):
            return self.out(torch.relu(self.norm(self.conv(x))).view(x.size(0), -1))

    made = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(30, 36, generator=made), torch.randint(3, (30,), generator=made))
    torch.manual_seed(0)
    loop = Loop(Net(), data, batch_size=10, noise_multiplier=0.0, epochs=None)
    for x, y in loop.loader:  # the data set's rows do not fit the module: its first call is rehearsed
        x = x.view(-1, 1, 6, 6)
        plain = copy.deepcopy(loop.module)
        loop.passed(x, y)
        loop.optimizer.step()
        torch.testing.assert_close(loop.gradient, by_hand(plain, x, y, 0.5) / 10, rtol=1e-4, atol=1e-5)


def test_records_that_are_not_finite_count_as_zero():
    data = records()
    data.tensors[0][3] = math.inf
    data.tensors[0][4] = math.nan
    loop = Loop(dataset=data, batch_size=60, noise_multiplier=0.0, epochs=None)
    ((x, y),) = loop.loader
    loop.passed(x, y)
    loop.optimizer.step()
    good = torch.isfinite(x).all(1)
    assert int(good.sum()) == 58
    expected = by_hand(loop.module, x[good], y[good], 0.5) / 60
    torch.testing.assert_close(loop.gradient, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sigma, clip", [(2.0, 0.5), (0.7, 3.0)])
def test_noise_has_its_deviation(sigma, clip):
    made = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.zeros(40, 100), torch.randint(2, (40,), generator=made))
    module = nn.Linear(100, 100, bias=False)  # rows of zeros: gradients are zero, and what is left is noise
    loop = Loop(module, data, batch_size=10, noise_multiplier=sigma, max_grad_norm=clip, epochs=1)
    for x, y in loop.loader:
        loop.passed(x, y)
        loop.optimizer.step()
        found = float(loop.gradient.std()) * 10 / (sigma * clip)
        assert abs(found - 1) < 0.05  # 10,000 draws: seven deviations; sqrt(2) or 2 times the noise is far outside
        assert abs(float(loop.gradient.mean())) * 10 < 7 * sigma * clip / 100


class Awkward(nn.Module):
    """Reshapes by the size of the batch, which fails on an empty one; and torch's LSTM refuses empty batches."""

    def __init__(self):
        super().__init__()
        self.lstm, self.out = DPLSTM(3, 4, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        states, _ = self.lstm(x.view(x.size(0), 2, -1))
        return self.out(states.reshape(len(states), -1))


def test_empty_batches_work_and_have_noise_and_cost(monkeypatch):
    monkeypatch.setattr(Stream, "each_with_probability", lambda *_: np.empty(0, np.int64))  # one in 170 has a record
    loop = Loop(Awkward(), batch_size=1, public_size=10**4, epochs=1, lr=1.0)
    before = [parameter.clone() for parameter in loop.module.parameters()]
    for steps, (x, y) in enumerate(loop.loader):
        if steps == 5:
            break
        loss = loop.passed(x, y)
        if steps == 1:  # scripts forget gradients before the forward pass, or after it
            loss = loop.criterion(loop.module(x), y)
            loop.optimizer.zero_grad()
            loss.backward()
        if steps == 0:
            assert x.shape == (0, 6) and x.dtype == torch.float32 and y.shape == (0,) and y.dtype == torch.int64
            assert math.isnan(loss.item()) and loop.module(x).argmax(1).shape == (0,)
        loop.optimizer.step()
        assert torch.isfinite(loop.gradient).all()
    assert all(not torch.equal(one, other) for one, other in zip(before, loop.module.parameters(), strict=True))
    ((sigma, rate, count),) = loop.engine.accountant.history
    assert (sigma, rate, count) == (1.0, 1e-4, 6)


def test_pieces_give_what_the_whole_batch_gives():
    whole, cut = (Loop(batch_size=60, noise_multiplier=0.0, epochs=None, lr=0.3) for _ in range(2))
    whole.epoch()
    with BatchMemoryManager(data_loader=cut.loader, max_physical_batch_size=7, optimizer=cut.optimizer) as pieces:
        sizes = []
        for x, y in pieces:
            cut.passed(x, y)
            cut.optimizer.step()
            sizes.append(len(x))
    assert sizes == [7] * 8 + [4] and cut.optimizer.run.steps == 1
    for one, other in zip(whole.module.parameters(), cut.module.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_pieces_of_poisson_batches_cost_one_event_each():
    loop = Loop()
    with BatchMemoryManager(data_loader=loop.loader, max_physical_batch_size=4, optimizer=loop.optimizer) as pieces:
        for x, y in pieces:
            assert len(x) <= 4
            loop.passed(x, y)
            loop.optimizer.step()
    assert loop.optimizer.run.steps == len(loop.loader) == 3
    assert loop.engine.get_epsilon(1e-5) == nw.epsilon(Repeated(Poisson(1 / 3, Gaussian(1.0)), 3), delta=1e-5)


def test_batches_are_poisson():
    loop = Loop(small(), records(200), batch_size=20, epochs=30, noise_multiplier=0.0)
    sizes, times = [], torch.zeros(200)
    place = {tuple(row.tolist()): number for number, row in enumerate(loop.dataset.tensors[0])}
    for _ in range(30):
        seen = torch.zeros(200)
        for x, _ in loop.loader:
            sizes.append(len(x))
            seen[[place[tuple(row.tolist())] for row in x]] += 1
        assert seen.max() > 1 and seen.min() == 0  # an epoch is no partition
        times += seen
    mean, variance = torch.tensor(sizes).float().mean(), torch.tensor(sizes).float().var()
    assert len(sizes) == 300 and abs(float(mean) - 20) < 7 * math.sqrt(18 / 300)
    assert abs(float(variance) / 18 - 1) < 0.6  # of 200 coins of 1/10: 7 deviations; shuffled batches have none
    assert abs(float(times.var()) / (300 * 0.1 * 0.9) - 1) < 0.7


def test_a_part_of_a_data_set_is_read_as_torch_reads_it():
    part = torch.utils.data.Subset(records(30), [7, 3, 11])
    for collate in (None, lambda rows: torch.utils.data.default_collate(rows)):
        loop = Loop(dataset=part, loader=DataLoader(part, batch_size=3, collate_fn=collate))
        ((x, y),) = loop.loader
        assert torch.equal(x, part.dataset.tensors[0][[7, 3, 11]])
        assert torch.equal(y, part.dataset.tensors[1][[7, 3, 11]])


def test_a_forward_pass_that_fails_leaves_nothing_behind():
    loop = Loop()
    x, y = next(iter(loop.loader))
    module = loop.module
    handle = module[1].register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyError("mine")))
    with pytest.raises(KeyError, match="mine"):
        module(x)
    assert torch._C._len_torch_function_stack() == 0
    handle.remove()
    loop.passed(x, y)
    loop.optimizer.step()


def test_workers_read_the_records_of_a_batch():
    data = Listed(records(30))
    loop = Loop(dataset=data, loader=DataLoader(data, batch_size=10, num_workers=2), epochs=1, noise_multiplier=0.0)
    for x, y in loop.loader:
        plain = copy.deepcopy(loop.module)
        loop.passed(x, y)
        loop.optimizer.step()
        torch.testing.assert_close(loop.gradient, by_hand(plain, x, y, 0.5) / 10, rtol=1e-4, atol=1e-5)
    assert loop.optimizer.run.steps == 3


class Listed(torch.utils.data.Dataset):
    """Records one by one; notes which were read in this process."""

    def __init__(self, data):
        self.data, self.read = data, []

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        self.read.append(index)
        return self.data[index]


def test_a_module_that_mixes_records_is_refused_before_one_is_read():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(6, 3)

        def forward(self, x):
            return self.out(x - x.mean(0))

    data = Listed(records())
    with pytest.raises(ValueError, match="mixes records"):
        Loop(Centred(), data)
    assert data.read == [0]  # its shape


def test_a_data_set_of_dicts_and_a_module_with_names():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(6, 3)

        def forward(self, mask=None, values=None):
            return self.out(values * mask)

    class Dicts(torch.utils.data.Dataset):
        data = records()

        def __len__(self):
            return 60

        def __getitem__(self, row):
            values, label = self.data[row]
            return {"values": values, "mask": (values > 0).float(), "labels": label, "name": "secret"}

    torch.manual_seed(0)
    loop = Loop(Named(), Dicts(), batch_size=60, noise_multiplier=0.0, epochs=None)
    (batch,) = loop.loader
    loop.criterion(loop.module(values=batch["values"], mask=batch["mask"]), batch["labels"]).backward()
    loop.optimizer.step()

    class Plain(nn.Module):
        def __init__(self, named):
            super().__init__()
            self.out = named.out

        def forward(self, x):
            return self.out(x * (x > 0))

    expected = by_hand(Plain(loop.module), batch["values"], batch["labels"], 0.5) / 60
    torch.testing.assert_close(loop.gradient, expected, rtol=1e-4, atol=1e-5)
