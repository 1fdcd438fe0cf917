"""Accuracy on pictures: what the bench command trains, on made-up pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import noisewise as nw
from noisewise.faces.cli.main import app
from noisewise_lab import pictures


def made_up(folder: Path, *, colours: bool = False) -> Path:
    """Bars that lie or stand, in noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 700)
    X = rng.integers(0, 60, (700, 20, 20, 3) if colours else (700, 20, 20))
    for at, stands in enumerate(y):
        place = rng.integers(4, 15)
        bar = (at, slice(2, 18), place) if stands else (at, place, slice(2, 18))
        X[bar] += 190
    X = X.astype(np.uint8)
    np.savez(folder / "bars.npz", X_train=X[:600], y_train=y[:600], X_test=X[600:], y_test=y[600:])
    return folder / "bars.npz"


@pytest.mark.parametrize("colours", [False, True])
def test_gradients_are_learned_from(tmp_path: Path, colours: bool) -> None:
    read = pictures.read(made_up(tmp_path, colours=colours))
    assert read.shape == (20, 20, 3 if colours else 1) and 0 <= read.train.min() <= read.train.max() <= 1
    (row,) = pictures.picture_rows(read, ways=["gradients"], epsilons=[50.0], delta=1e-5, seeds=2)
    assert row["model"] == "gradients" and row["accuracy"] > 0.9
    assert row["standard_error"] is not None and row["seeds"] == 2
    assert pictures.network(read.shape, 5)(torch.zeros(2, read.shape[2], 20, 20)).shape == (2, 5)


def test_a_network_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "BATCH_SIZE", 128)
    read = pictures.read(made_up(tmp_path))
    (row,) = pictures.picture_rows(read, ways=["cnn"], epsilons=[50.0], delta=1e-5, seeds=1, epochs=12)
    assert row["accuracy"] > 0.7, row


def test_a_network_keeps_to_its_epochs_and_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifteen Poisson batches for three epochs, in a run whose statement has the budget that was asked for."""
    seen = []

    def fit(*given, **settings):
        seen.append(fitted := real(*given, **settings))
        return fitted

    real = nw.fit
    monkeypatch.setattr(nw, "fit", fit)
    monkeypatch.setattr(pictures, "BATCH_SIZE", 20)
    budget, module = nw.Budget(2.0, 1e-5), nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    pictures.trained(module, torch.rand(100, 1, 2, 2), torch.arange(100) % 2, budget, 0, epochs=3)
    trace = [line for line in seen[0].trace if "radient" in line.question]
    noise = nw.calibrate(budget, steps=15, sampling=("poisson", 0.2))
    assert len(trace) == 15 and all(line.clip == pictures.CLIP for line in trace)
    assert all(f"noise_multiplier={noise}" in repr(line.event) for line in trace)


def test_the_command_prints_rows_and_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    file = made_up(tmp_path)
    asked = ["bench", "pictures", "--data", str(file), "--epsilon", "20", "--seeds", "1", "--models", "gradients"]
    told = CliRunner().invoke(app, [*asked, "--json"])
    rows = json.loads(told.stdout)["rows"]
    assert told.exit_code == 0 and rows[0]["seeds"] == 1 and rows[0]["standard_error"] is None
    for other, said in (("trees", "--models is 'trees'"), ("", "--models is ''")):
        refused = CliRunner().invoke(app, [*asked[:-1], other])
        assert said in str(refused.exception or "") + refused.output
    with pytest.raises(ValueError, match="with X_train, y_train, X_test and y_test"):
        np.savez(tmp_path / "other.npz", X=np.zeros(3))
        pictures.read(tmp_path / "other.npz")
