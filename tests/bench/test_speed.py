"""The benchmark measures what it says; nothing here is timed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from noisewise.bench import speed

NAMES = ["logistic-batch", "logistic-full", "mlp-small", "mlp-large"]


@pytest.fixture
def small(monkeypatch):
    """The four workloads on few rows, one step each."""
    works = [replace(work, rows=600, steps=1) for work in speed.workloads()]
    monkeypatch.setattr(speed, "workloads", lambda: works)
    return works


def test_a_row_per_workload_and_engine(small):
    rows = speed.speed_rows(rounds=1)
    assert [(row["workload"], row["engine"]) for row in rows] == [(n, e) for n in NAMES for e in ("plain", "noisewise")]
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
