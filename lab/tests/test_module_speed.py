"""Modules are trained privately in what is timed, every engine on the same work; nothing here is timed."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from noisewise_lab import module_memory, module_speed, peers, speed
from noisewise_lab.works import ModuleWorkload, module_workloads, perceptron

TINY = ModuleWorkload("tiny", 40, 8, perceptron(3, 4, 2), (3,), 2, 1)


def test_the_six_networks():
    sizes = {work.name: sum(value.numel() for value in work.module().parameters()) for work in module_workloads()}
    known = {"cnn-mnist": 26010, "cnn": 20490, "transformer": 690114, "mlp-large-module": 269322, "lstm": 33930}
    assert sizes == known | {"gpt2-tiny": 929536}
    assert [work.batch for work in module_workloads()] == [256, 256, 64, 256, 64, 8]
    for work in module_workloads():
        rows, targets = replace(work, rows=2).tensors()
        assert work.module()(rows).shape == (2, work.outputs, *work.labels) and targets.shape == (2, *work.labels)
        assert rows.dtype == (torch.int64 if work.words else torch.float32)


def test_end_to_end_reads_an_epoch_of_eight_batches():
    assert [work.name for work in module_speed.loops()] == ["cnn-mnist-loader", "cnn-loader", "transformer-loader"]
    assert all(len(work.loader()) == 8 for work in module_speed.loops())


def test_persons_and_pictures_by_pixel():
    assert [*module_speed.persons_engines(TINY, each=2)] == ["records", "persons"]
    for step in module_speed.persons_engines(TINY, each=2).values():
        step()
    pictures = replace(
        TINY, module=lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 2)), shape=(1, 3, 3)
    )
    steps = module_speed.module_engines(pictures, [])
    assert [*steps] == ["plain", "noisewise", "noisewise-own-loss", "plain-channels-last"]
    steps["plain-channels-last"]()


def test_rows_of_modules(monkeypatch):
    monkeypatch.setattr(speed, "workloads", list)
    monkeypatch.setattr(speed, "DRAWS", 10)
    monkeypatch.setattr(speed, "module_workloads", lambda: [TINY])
    monkeypatch.setattr(speed, "loops", lambda: [replace(TINY, name="tiny-loader")])
    rows = speed.speed_rows(rounds=1)
    expected = [(n, e) for n in ("tiny", "tiny-loader", "noise-10") for e in ("plain", "noisewise")]
    expected.insert(2, ("tiny", "noisewise-own-loss"))
    assert [(row["workload"], row["engine"]) for row in rows] == expected
    assert all(row["ratio"] > 0 and row["seconds"] > 0 for row in rows)


def test_what_is_timed_is_private(monkeypatch):
    module, optimizer, criterion, loader = module_speed.made_private(TINY)
    monkeypatch.setattr(module_speed, "made_private", lambda work: (module, optimizer, criterion, loader))
    step, moved = module_speed.private_module_step(TINY), []
    for _ in range(20):
        before = [value.detach().clone() for value in module.parameters()]
        step()
        moved += [(new - old).detach().flatten() for new, old in zip(module.parameters(), before, strict=True)]
    spread = speed.LEARNING_RATE * peers.NOISE * peers.CLIP / TINY.batch  # of the noise in every entry
    assert len(torch.cat(moved)) == 20 * 26 and 0.75 * spread < float(torch.cat(moved).std()) < 1.33 * spread


class Engine:
    """A library that keeps what it was made with."""

    made: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, accountant):
        assert accountant == "gdp"

    def make_private(self, **how):
        Engine.made.append(how)
        ghost = [how["criterion"]] if how["grad_sample_mode"] == "ghost" else []
        return how["module"], how["optimizer"], *ghost, how["data_loader"]


def test_a_peer_trains_what_its_validator_made_of_the_module(monkeypatch):
    opacus, replaced = types.ModuleType("opacus"), nn.Linear(3, 2)
    validator = types.SimpleNamespace(fix=lambda module: replaced)
    opacus.PrivacyEngine, opacus.validators = Engine, types.SimpleNamespace(ModuleValidator=validator)
    monkeypatch.setitem(sys.modules, "opacus", opacus)
    (peer,), _ = peers.installed(["opacus"])
    Engine.made = []
    steps = module_speed.loader_engines(TINY, [peer])
    assert list(steps) == ["plain", "noisewise", "opacus", "opacus-ghost"]
    assert [how["grad_sample_mode"] for how in Engine.made] == ["hooks", "ghost"]
    assert all(how["optimizer"].param_groups[0]["params"] == [*replaced.parameters()] for how in Engine.made)
    before = replaced.weight.detach().clone()
    steps["opacus"]()
    assert not torch.equal(before, replaced.weight)


@pytest.mark.slow
def test_memory_is_that_of_steps_at_their_peak(monkeypatch):
    """A step that holds 64 MB for a moment has them counted; what was freed before has not."""
    held = bytearray(64 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    del held

    def step_of(work, engine):
        def step():
            if work.name == "cnn" and work.module is not TINY.module and work.rows > 20:
                torch.ones(16 * 2**20)

        return step

    monkeypatch.setattr(module_memory, "step_of", step_of)
    before = torch.get_num_threads()
    try:
        assert 60 < module_memory.growth("cnn", "plain") < 80
        assert module_memory.growth("lstm", "plain") < 10
    finally:
        torch.set_num_threads(before)


def test_engines_by_name(monkeypatch):
    assert callable(module_memory.step_of(TINY, "plain")) and callable(module_memory.step_of(TINY, "noisewise"))
    monkeypatch.setitem(peers.PEERS, "opacus", replace(peers.PEERS["opacus"], step=lambda work: work.name))
    assert module_memory.step_of(TINY, "opacus-ghost") == "tiny"


@pytest.mark.slow
def test_a_process_that_fails_is_named():
    with pytest.raises(RuntimeError, match="plain could not train nothing"):
        module_memory.in_own_process("nothing", "plain")
