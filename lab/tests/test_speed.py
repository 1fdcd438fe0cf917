"""The benchmark measures what it says; nothing here is timed."""

from __future__ import annotations

import sys
import time
import types
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from torch import nn

from noisewise_lab import peers, second_thread, speed

NAMES = ["logistic-batch", "logistic-full", "softmax-batch", "softmax-full", "mlp-small", "mlp-large"]


@pytest.fixture
def small(monkeypatch):
    """The six workloads on few rows, one step each, no modules, and few draws of noise."""
    works = [replace(work, rows=600, steps=1) for work in speed.workloads()]
    monkeypatch.setattr(speed, "workloads", lambda: works)
    monkeypatch.setattr(speed, "module_workloads", list)
    monkeypatch.setattr(speed, "loops", list)
    monkeypatch.setattr(speed, "DRAWS", 1000)
    return works


def test_a_row_per_workload_and_engine(small):
    rows = speed.speed_rows(rounds=1)
    expected = [(n, e) for n in [*NAMES, "noise-1000"] for e in ("plain", "noisewise")]
    assert [(row["workload"], row["engine"]) for row in rows] == expected
    assert all(row["ratio"] == 1.0 for row in rows if row["engine"] == "plain")
    assert all(row["ratio"] > 0 and row["seconds"] > 0 for row in rows)


def test_the_number_of_threads_is_put_back(small):
    before = torch.get_num_threads()
    speed.speed_rows(rounds=1)
    assert torch.get_num_threads() == before


def test_both_engines_train_models_of_the_same_size():
    for work in speed.workloads():
        parameters = sum(parameter.numel() for parameter in work.module().parameters())
        assert parameters == work.model.dimension, work.name


def test_the_noise_row_draws_as_many_numbers_on_both_sides():
    steps = speed.noise_steps()
    whole, grid = steps["noisewise"]()
    assert len(steps["plain"]()) == len(whole) == 269_322
    assert float(whole.std()) * grid == pytest.approx(speed.NOISE_STD, rel=0.01)


@pytest.mark.slow
def test_a_second_thread_is_compared_with_two_processes(monkeypatch):
    monkeypatch.setattr(second_thread, "ROWS", 2000)
    threads = torch.get_num_threads()
    found = second_thread.second_thread(rounds=1)
    assert (found["rows"], found["columns"]) == (2000, 50) and found["two processes"] > 0
    assert found["faster"] == pytest.approx(found["one"] / found["two"]) and torch.get_num_threads() == threads


def test_ratios_are_medians_of_rounds_to_the_first(monkeypatch):
    seconds = iter([9.0, 9.0, 1.0, 2.0, 2.0, 2.0, 1.0, 4.0])  # a round to warm up, then ratios 2, 1 and 4
    monkeypatch.setattr(speed, "timed", lambda step, times: next(seconds))
    plain, ours = speed.compare("work", {"plain": None, "noisewise": None}, 1, 3)
    assert (plain["seconds"], plain["ratio"]) == (1.0, 1.0)
    assert (ours["seconds"], ours["ratio"]) == (2.0, 2.0)


def test_what_is_timed_is_the_time_of_the_processor():
    clock = iter([1.0, 3.0])
    assert speed.timed(lambda: None, 4, lambda: next(clock)) == 0.5
    assert speed.timed(lambda: time.sleep(0.5), 1) < 0.4  # asleep, it has used none


class Engine:
    """A library that keeps what it was made with."""

    made: ClassVar[list[dict]] = []

    def __init__(self, module=None, **how):
        Engine.made.append(how)

    def make_private(self, **how):
        Engine.made.append(how)
        ghost = [how["criterion"]] if how["grad_sample_mode"] == "ghost" else []
        return how["module"], how["optimizer"], *ghost, how["data_loader"]

    def attach(self, optimizer):
        assert isinstance(optimizer, torch.optim.Optimizer)


class Fixing:
    """A validator that replaces nothing."""

    class ModuleValidator:
        @staticmethod
        def fix(module):
            return module


@pytest.mark.parametrize(("name", "engine"), [("opacus", "opacus-ghost"), ("fastdp", "fastdp")])
def test_a_peer_gets_the_same_work(small, monkeypatch, name, engine):
    module = types.ModuleType(peers.PEERS[name].module)
    module.PrivacyEngine, module.validators, Engine.made = Engine, Fixing, []
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found, missing = peers.installed([name])
    assert missing == []
    for work in small:
        Engine.made = []
        found[0].step(work)()
        how = Engine.made[-1]
        assert (how["noise_multiplier"], how["max_grad_norm"]) == (5.0, 1.0)
        if name == "opacus":
            assert how["grad_sample_mode"] == "ghost" and how["data_loader"].batch_size == (work.batch or 600)
            assert isinstance(how["criterion"], nn.BCEWithLogitsLoss if work.binary else nn.CrossEntropyLoss)
        else:
            assert (how["batch_size"], how["sample_size"]) == (work.batch or 600, 600)
    rows = speed.speed_rows(rounds=1, against=found)
    assert {row["workload"] for row in rows if row["engine"] == engine} == set(NAMES)


def test_an_absent_peer_is_named_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus", None)
    found, (line,) = peers.installed(["opacus"])
    assert found == [] and "pip install opacus" in line and "left out" in line and "\n" not in line


def test_unknown_peers_are_refused():
    with pytest.raises(ValueError, match="pass opacus or fastdp"):
        peers.installed(["tensorflow"])
