"""What private loops cost: a plan's price so far, a filter's cap, a counter's warning; and their statements."""

from __future__ import annotations

import json
import math

import pytest
import torch
from private_loop import Loop
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR

import noisewise as nw
from noisewise.faces.pytorch import (
    ExponentialNoise,
    LambdaGradClip,
    LambdaNoise,
    PrivacyEngine,
    StepGradClip,
    StepNoise,
)
from noisewise.statements.statement import verify_data
from noisewise.trusted.events import FixedBatch, Gaussian, Poisson, Repeated


def verdict(loop, delta=None):
    return verify_data(json.loads(loop.engine.statement(delta).to_json()))


def test_a_plan_has_the_price_so_far_and_states_the_whole():
    loop = Loop()
    event = Poisson(1 / 3, Gaussian(1.0))
    assert loop.engine.get_epsilon(1e-5) == 0 and loop.engine.statement().data["promise"] is None
    loop.epoch()
    assert loop.engine.get_epsilon(1e-5) == nw.epsilon(Repeated(event, 3), delta=1e-5)
    assert loop.engine.get_epsilon(delta=1e-6) == nw.epsilon(Repeated(event, 3), delta=1e-6)
    for delta in (None, 1e-6):
        stated = verdict(loop, delta)
        assert stated.holds and stated.arithmetic == "assumed"
        assert stated.epsilon == nw.epsilon(Repeated(event, 6), delta=delta or 1e-5)
    loop.epoch()
    with pytest.raises(nw.BudgetExhausted):
        loop.epoch()
    assert loop.engine.get_epsilon(1e-5) == verdict(loop).epsilon


def test_a_statement_says_what_is_assumed():
    loop = Loop()
    loop.epoch()
    words = str(loop.engine.statement())
    for said in (
        "len(dataset)",
        "what it prints",
        "mean or sum of each record's own",
        "floats taken for real numbers",
        "Poisson batches",
    ):
        assert said in words
    declared = Loop(public_size=100)
    declared.epoch()
    assert "len(dataset)" not in str(declared.engine.statement()) and declared.loader.sample_rate == 0.2


def test_a_target_is_met():
    loop = Loop(target_epsilon=2.0, target_delta=1e-5, epochs=4)
    expected = nw.calibrate(nw.Budget(2.0, 1e-5), steps=12, sampling=("poisson", 1 / 3))
    assert loop.optimizer.noise_multiplier == expected
    for _ in range(4):
        loop.epoch()
    assert 1.99 < loop.engine.get_epsilon(1e-5) <= 2.0
    assert verdict(loop).holds and verdict(loop).epsilon == 2.0
    assert loop.engine.accountant.get_epsilon(1e-5) == loop.engine.get_epsilon(1e-5)


def test_a_filter_costs_its_cap():
    loop = Loop(epochs=None, budget=nw.Budget(2.0, 1e-5), noise_multiplier=3.0)
    loop.epoch()
    assert loop.engine.get_epsilon(1e-5) == 2.0 and verdict(loop).epsilon == 2.0 and verdict(loop).holds
    assert loop.engine.statement().data["meter"]["name"] == "rdp"
    with pytest.raises(ValueError, match="cap was fixed at delta"):
        loop.engine.get_epsilon(1e-6)


def test_a_filter_lets_about_as_many_steps_through_as_its_best_order():
    loop = Loop(epochs=None, budget=nw.Budget(2.0, 1e-5), noise_multiplier=2.0, batch_size=3)
    with pytest.raises(nw.BudgetExhausted):
        for _ in range(100):
            loop.epoch()
    ((_, rate, steps),) = loop.engine.accountant.history
    alone = nw.epsilon(Repeated(Poisson(rate, Gaussian(2.0)), steps), delta=1e-5)
    assert 1.6 < alone < 2.0  # PLD would let more through, but is no filter


def test_a_schedule_of_noise_makes_a_plan_a_filter():
    loop = Loop(target_epsilon=2.0, target_delta=1e-5, epochs=5)
    first = loop.optimizer.noise_multiplier
    schedule = ExponentialNoise(loop.optimizer, gamma=1.1)
    assert loop.engine.get_epsilon(1e-5) == 2.0
    for epoch in range(3):
        loop.epoch()
        schedule.step()
        assert loop.optimizer.noise_multiplier == pytest.approx(first * 1.1 ** (epoch + 1))
    assert len(loop.engine.accountant.history) == 3
    assert loop.engine.get_epsilon(1e-5) == 2.0 and verdict(loop).holds
    assert loop.engine.statement().data["meter"]["name"] == "rdp"


def test_a_counter_warns_once_and_says_so():
    with pytest.warns(nw.BudgetWarning, match="stopping by looking at results") as seen:
        loop = Loop(epochs=None)
        loop.epoch()
    assert [one.category for one in seen] == [nw.BudgetWarning, UserWarning]
    assert loop.engine.get_epsilon(1e-5) == nw.epsilon(Repeated(Poisson(1 / 3, Gaussian(1.0)), 3), delta=1e-5)
    assert "nothing capped it" in str(loop.engine.statement()) and verdict(loop).holds


def test_no_noise_is_not_private():
    loop = Loop(noise_multiplier=0.0, epochs=None)
    loop.epoch()
    assert loop.engine.get_epsilon(1e-5) == math.inf
    assert not verdict(loop).holds and "without privacy" in str(loop.engine.statement())


def test_full_batches_and_fixed_ones():
    full = Loop(batch_size=60)
    full.epoch()
    assert len(full.loader) == 1
    assert full.engine.get_epsilon(1e-5) == nw.epsilon(Gaussian(1.0), delta=1e-5) and verdict(full).holds
    fixed = Loop(engine=PrivacyEngine(adjacency="replace_one"), poisson_sampling=False, noise_multiplier=4.0)
    for x, y in fixed.loader:
        assert len(x) == 20
        fixed.passed(x, y)
        fixed.optimizer.step()
    event = Repeated(FixedBatch(1 / 3, Gaussian(4.0)), 3)
    assert fixed.engine.get_epsilon(1e-5) == nw.epsilon(event, delta=1e-5, adjacency="replace_one")
    assert verdict(fixed).adjacency == "replace_one"


def test_an_account_pays():
    with nw.spending(3.0, 2e-5, dataset="patients") as account:
        loop = Loop(target_epsilon=2.0, target_delta=1e-5)
        loop.epoch()
        with pytest.raises(nw.BudgetExhausted, match="patients"):
            Loop(target_epsilon=2.0, target_delta=1e-5)
        with pytest.raises(ValueError, match="no cap"):
            Loop(epochs=None)
        other = Loop(target_epsilon=1.0, target_delta=1e-5)
        ExponentialNoise(other.optimizer, gamma=0.9)
        other.epoch()
    assert [entry.terms["epsilon"] for entry in account.entries if entry.state != "failed"] == [2.0, 1.0]
    assert "patients" in str(loop.engine.statement()) and verdict(loop).holds


def test_learning_rates_and_schedules_survive_a_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.pt"

    def made():
        loop = Loop(lr=1.0, epochs=None, budget=nw.Budget(30.0, 1e-5))
        noise = StepNoise(loop.optimizer, step_size=1, gamma=0.5)
        clip = StepGradClip(loop.optimizer, step_size=2, gamma=0.5)
        return loop, {
            "noise_scheduler": noise,
            "grad_clip_scheduler": clip,
            "lr_scheduler": ExponentialLR(loop.optimizer, gamma=0.5),
        }

    loop, schedules = made()
    for _ in range(2):
        loop.epoch()
        for schedule in schedules.values():
            schedule.step()
    saved = {"module": loop.module, "optimizer": loop.optimizer, **schedules}
    loop.engine.save_checkpoint(path=path, checkpoint_dict={"note": 7}, **saved)
    resumed, schedules = made()
    restored = resumed.engine.load_checkpoint(
        path=path, module=resumed.module, optimizer=resumed.optimizer, **schedules
    )
    assert restored["note"] == 7
    assert resumed.optimizer.noise_multiplier == 0.25 and resumed.optimizer.max_grad_norm == 0.25
    assert resumed.optimizer.param_groups[0]["lr"] == 0.25
    assert sorted(resumed.engine.accountant.history) == sorted(loop.engine.accountant.history)
    for one, other in zip(loop.module.parameters(), resumed.module.parameters(), strict=True):
        assert torch.equal(one, other)
    schedules["noise_scheduler"].step()
    assert resumed.optimizer.noise_multiplier == 0.125
    own = Loop(lr=1.0, epochs=None, budget=nw.Budget(30.0, 1e-5))  # by the state of the optimizer alone
    own.optimizer.load_state_dict(loop.optimizer.state_dict())
    assert own.optimizer.noise_multiplier == 0.25 and own.optimizer.param_groups[0]["lr"] == 0.25


def test_schedules_of_functions_and_schedulers_of_torch():
    loop = Loop(lr=0.1, epochs=None, budget=nw.Budget(30.0, 1e-5))
    assert isinstance(loop.optimizer, torch.optim.Optimizer)
    LambdaNoise(loop.optimizer, noise_lambda=lambda epoch: 2.0 + epoch).step()
    assert loop.optimizer.noise_multiplier == 3.0
    LambdaGradClip(loop.optimizer, scheduler_function=lambda epoch: 1 / (1 + epoch)).step()
    assert loop.optimizer.max_grad_norm == 0.25
    cycle, seen = OneCycleLR(loop.optimizer, max_lr=1.0, total_steps=6), []
    loop.optimizer.attach_step_hook(lambda optimizer: seen.append(optimizer.param_groups[0]["lr"]))
    for x, y in loop.loader:
        loop.passed(x, y)
        loop.optimizer.step()
        cycle.step()
    assert len(set(seen)) == 3


def test_a_closure_runs_once():
    loop = Loop(lr=0.1)
    for x, y in loop.loader:
        loss = loop.optimizer.step(lambda x=x, y=y: loop.passed(x, y))
        assert loss is not None
    assert loop.optimizer.run.steps == 3
