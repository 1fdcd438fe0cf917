"""Loops that would get more out of a batch than was paid for, or draw noise twice: each is refused, or gets its noise."""

from __future__ import annotations

import copy
import multiprocessing
import pickle

import pytest
import torch
from private_loop import Loop, by_hand, records, small
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import noisewise as nw
from noisewise.faces.pytorch import BatchMemoryManager, ExponentialNoise, PrivacyEngine


def paid(loop):
    return sum(count for _, _, count in loop.engine.accountant.history)


def test_two_steps_on_one_batch():
    loop = Loop()
    batch = next(iter(loop.loader))
    loop.passed(*batch)
    loop.optimizer.step()
    with pytest.raises(RuntimeError, match="one batch, one step"):
        loop.optimizer.step()
    loop.passed(*batch)  # and again with a second pass over the same rows
    with pytest.raises(RuntimeError, match="one batch, one step"):
        loop.optimizer.step()


def test_a_step_without_a_batch_and_without_a_pass():
    loop = Loop()
    with pytest.raises(RuntimeError, match="no batch"):
        loop.optimizer.step()
    loop.passed(*loop.dataset[:10])  # rows that nobody drew
    with pytest.raises(RuntimeError, match="no batch"):
        loop.optimizer.step()
    next(iter(loop.loader))
    with pytest.raises(RuntimeError, match="has not gone through"):
        loop.optimizer.step()


def test_a_record_that_would_count_twice():
    loop = Loop()
    x, y = next(iter(loop.loader))
    loop.criterion(loop.module(x), y).backward()
    with pytest.raises(ValueError, match="counts once"):
        loop.criterion(loop.module(x), y).backward()
    loop.optimizer.zero_grad()
    loss = loop.criterion(loop.module(x), y)
    loss.backward(retain_graph=True)
    with pytest.raises(ValueError, match="counts once"):
        loss.backward()
    loop.optimizer.zero_grad()
    with pytest.raises(ValueError, match="other rows"):
        loop.criterion(loop.module(torch.cat([x, x])), torch.cat([y, y])).backward()
    with pytest.raises(ValueError, match="other rows"):
        loop.criterion(loop.module(x[1:]), y[1:]).backward()


def test_noise_or_clip_changed_after_the_draw():
    cap = nw.Budget(30.0, 1e-5)
    for name in ("noise_multiplier", "max_grad_norm"):
        loop = Loop(epochs=None, budget=cap)
        batches = iter(loop.loader)
        x, y = next(batches)
        loop.passed(x, y)
        before = getattr(loop.optimizer, name)
        setattr(loop.optimizer, name, before / 2)
        with pytest.raises(RuntimeError, match=f"{name} was changed after the batch was drawn"):
            loop.optimizer.step()
        setattr(loop.optimizer, name, before)
        loop.optimizer.step()
        setattr(loop.optimizer, name, before / 2)  # now it is for the next batch
        x, y = next(batches)
        loop.passed(x, y)
        loop.optimizer.step()
    loop = Loop(epochs=None, budget=cap)
    x, y = next(iter(loop.loader))
    loop.optimizer.max_grad_norm = 100.0
    with pytest.raises(RuntimeError, match="max_grad_norm was changed"):
        loop.passed(x, y)


def test_noise_of_a_plan_or_a_counter_does_not_change():
    loop = Loop()
    next(iter(loop.loader))
    with pytest.raises(RuntimeError, match="needs a cap"):
        loop.optimizer.noise_multiplier = 0.1
    loop = Loop(target_epsilon=2.0, target_delta=1e-5)
    next(iter(loop.loader))
    with pytest.raises(RuntimeError, match="before the first batch"):
        loop.optimizer.noise_multiplier = 0.1
    with pytest.raises(RuntimeError, match="before the first batch"):
        ExponentialNoise(loop.optimizer, gamma=0.9)
    with pytest.warns(nw.BudgetWarning):
        loop = Loop(epochs=None)
    with pytest.raises(RuntimeError, match="needs a cap"):
        ExponentialNoise(loop.optimizer, gamma=0.9)


def test_copies_and_pickles():
    loop = Loop()
    for thing in (loop.optimizer, loop.loader, loop.optimizer.run):
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="not copied or pickled"):
                attempt(thing)
    twin = pickle.loads(
        pickle.dumps(copy.deepcopy(loop.module))
    )  # a module may be copied; its copy is no part of the run
    x, y = next(iter(loop.loader))
    loop.criterion(twin(x), y).backward()
    assert all(parameter.grad is not None for parameter in twin.parameters())
    with pytest.raises(RuntimeError, match="has not gone through"):
        loop.optimizer.step()
    assert (
        torch.load(_saved({"module": loop.module}), weights_only=False)["module"].state_dict().keys()
        == twin.state_dict().keys()
    )


def _saved(thing):
    import io

    into = io.BytesIO()
    torch.save(thing, into)
    into.seek(0)
    return into


def test_a_checkpoint_restored_to_draw_the_same_noise(tmp_path):
    """Twice the same batch, parameters and state: what differs is the noise, and both are paid for."""
    path, found = tmp_path / "checkpoint.pt", []
    first = Loop(batch_size=60)
    first.engine.save_checkpoint(path=path, module=first.module, optimizer=first.optimizer)
    for _ in range(2):
        first.engine.load_checkpoint(path=path, module=first.module, optimizer=first.optimizer)
        first.epoch()
        found.append(first.gradient)
    assert not torch.equal(*found) and paid(first) == 2
    with pytest.raises(nw.BudgetExhausted):
        first.epoch()
    first.engine.save_checkpoint(path=path, module=first.module, optimizer=first.optimizer)
    second = Loop(batch_size=60)  # another process, after the plan was used up
    for _ in range(2):
        second.engine.load_checkpoint(path=path, module=second.module, optimizer=second.optimizer)
    assert paid(second) == 2
    with pytest.raises(nw.BudgetExhausted):
        second.epoch()
    assert "thrown away unseen" in str(second.engine.statement())


def test_a_budget_that_ends_in_the_middle_of_an_epoch():
    loop = Loop(epochs=None, budget=nw.Budget(1.0, 1e-5), noise_multiplier=2.0, batch_size=6, lr=0.1)
    epochs = 0
    with pytest.raises(nw.BudgetExhausted):
        while True:
            loop.epoch()
            epochs += 1
    many = paid(loop)
    assert epochs == many // 10 and many % 10 and loop.optimizer.run.steps == many
    before = [parameter.clone() for parameter in loop.module.parameters()]
    with pytest.raises(RuntimeError, match="no batch"):
        loop.optimizer.step()
    for _ in range(2):
        with pytest.raises(nw.BudgetExhausted):
            next(iter(loop.loader))
    assert paid(loop) == many
    assert all(torch.equal(one, other) for one, other in zip(before, loop.module.parameters(), strict=True))


def test_a_batch_that_is_waiting_when_the_budget_ends_is_not_released():
    loop = Loop(batch_size=60, epochs=1)
    loop.passed(*next(iter(loop.loader)))
    with pytest.raises(nw.BudgetExhausted):
        next(iter(loop.loader))
    with pytest.raises(RuntimeError, match="no batch"):
        loop.optimizer.step()


def test_batches_that_are_accumulated_have_each_their_noise():
    module = nn.Linear(100, 100, bias=False)
    data = TensorDataset(torch.zeros(40, 100), torch.zeros(40, dtype=torch.int64))
    loop = Loop(module, data, batch_size=10, epochs=2)
    for x, y in loop.loader:
        loop.criterion(module(x), y).backward()
    loop.optimizer.step()
    noise = float(loop.gradient.std()) * 10 * 4 / 0.5  # over four expected batches
    assert abs(noise / 2 - 1) < 0.05 and paid(loop) == 4  # four batches: twice the noise of one


def test_a_batch_that_was_stepped_on_does_not_come_back():
    """Without zero_grad: released a second time, with other noise, it would be cheaper than it was paid for."""
    loop = Loop(noise_multiplier=0.0, epochs=None)
    for x, y in loop.loader:
        loop.criterion(loop.module(x), y).backward()
        loop.optimizer.step()
        torch.testing.assert_close(loop.gradient, by_hand(loop.module, x, y, 0.5) / 20, rtol=1e-4, atol=1e-5)


def test_batches_drawn_and_not_used_are_paid_and_dropped():
    module = nn.Linear(100, 100, bias=False)
    data = TensorDataset(torch.zeros(40, 100), torch.zeros(40, dtype=torch.int64))
    loop = Loop(module, data, batch_size=10, epochs=2)
    for _ in range(3):
        x, y = next(iter(loop.loader))
    loop.criterion(module(x), y).backward()
    loop.optimizer.step()
    assert abs(float(loop.gradient.std()) * 10 / 0.5 - 1) < 0.05 and paid(loop) == 3


def test_gradients_that_a_loop_puts_there_are_not_used():
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    module[0].requires_grad_(False)
    loop = Loop(module, lr=1.0)
    frozen = module[0].weight.clone()
    x, y = next(iter(loop.loader))
    loop.passed(x, y)
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, 1e6)
    loop.optimizer.step()
    assert torch.equal(module[0].weight, frozen) and module[0].weight.grad is None
    assert float(module[2].weight.detach().abs().max()) < 100


def test_what_trains_is_fixed():
    module = small()
    module[0].requires_grad_(False)
    loop = Loop(module)
    x, y = next(iter(loop.loader))
    module[0].requires_grad_(True)
    with pytest.raises(ValueError, match="frozen or set free"):
        loop.passed(x, y)
    with pytest.raises(RuntimeError, match="fixed by make_private"):
        loop.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(ValueError, match="differ"):
        PrivacyEngine().validate(
            module=small(), optimizer=torch.optim.SGD(small().parameters(), lr=1.0), data_loader=None
        )


def test_parameters_used_outside_of_the_module():
    loop = Loop()
    x, y = next(iter(loop.loader))
    loss = loop.criterion(loop.module(x), y) + loop.module[0].weight.square().sum()
    with pytest.raises(ValueError, match="not clipped"):
        loss.backward()


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(6), 0


def test_loaders_without_a_price():
    data = records()
    batches = BatchSampler(RandomSampler(data), 20, drop_last=False)
    for loader, why in (
        (DataLoader(data, batch_size=20, sampler=WeightedRandomSampler([1.0] * 60, 60)), "WeightedRandomSampler"),
        (DataLoader(data, batch_sampler=_Own(batches)), "_Own"),
        (DataLoader(Endless(), batch_size=20), "IterableDataset"),
        (Loop().loader, "private already"),
    ):
        with pytest.raises(ValueError, match=why):
            Loop(loader=loader)
    with pytest.warns(UserWarning, match="drop_last=True is not needed"):
        loop = Loop(loader=DataLoader(data, batch_size=50, drop_last=True))
    assert len(loop.loader) == 2
    with pytest.warns(UserWarning, match="generator"):
        Loop(loader=DataLoader(data, batch_size=20, shuffle=True, generator=torch.Generator()))


class _Own(BatchSampler):
    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return len(self.inner)


def test_what_is_refused_by_name():
    for settings, why in (
        ({"poisson_sampling": False}, "shuffling is not Poisson"),
        ({"noise_generator": torch.Generator()}, "not private"),
        ({"batch_first": False}, "records first"),
        ({"clipping": "adaptive"}, "clipping"),
        ({"grad_sample_mode": "no_op"}, "grad_sample_mode"),
        ({"max_grad_norm": -1.0}, "max_grad_norm"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"budget": nw.Budget(0.1, 1e-6)}, "more than the budget"),
    ):
        with pytest.raises(ValueError, match=why):
            Loop(**settings)
    with pytest.raises(ValueError, match="approximation from below"):
        PrivacyEngine(accountant="gdp")
    with pytest.raises(RuntimeError, match="this engine has a run"):
        Loop(engine=Loop().engine)


def _child(loop, answers):
    try:
        next(iter(loop.loader))
        answers.put("drawn")
    except RuntimeError as error:
        answers.put(str(error))


def test_a_forked_process_draws_nothing():
    loop, context = Loop(), multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_child, args=(loop, answers))
    child.start()
    assert "another process" in answers.get()
    child.join()


def test_two_iterators_at_once():
    """A record of the older batch that counted in the newer one could be in that already."""
    loop = Loop(batch_size=60, epochs=5)
    with BatchMemoryManager(data_loader=loop.loader, max_physical_batch_size=30, optimizer=loop.optimizer) as pieces:
        older = iter(pieces)
        x, y = next(older)
        late = loop.criterion(loop.module(x), y)
        next(iter(pieces))
        with pytest.raises(RuntimeError, match="one iterator at a time"):
            next(older)
        with pytest.raises(ValueError, match="earlier batch"):
            late.backward()


def test_a_pass_over_an_earlier_piece():
    """The first piece would count twice: in its own place, and in the second one's, which has as many rows."""
    loop = Loop(batch_size=60)
    with BatchMemoryManager(data_loader=loop.loader, max_physical_batch_size=30, optimizer=loop.optimizer) as pieces:
        order = iter(pieces)
        x, y = next(order)
        losses = [loop.criterion(loop.module(x), y) for _ in range(2)]
        losses[0].backward()
        loop.optimizer.step()
        next(order)
        with pytest.raises(ValueError, match="earlier batch"):
            losses[1].backward()


def test_a_loop_in_several_processes_would_spend_several_times(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match="one of several processes"):
        Loop()
