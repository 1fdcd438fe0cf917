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
from noisewise.cli.main import app
from noisewise.engine import Spec, probed
from noisewise.noise import Stream
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
    monkeypatch.setattr(pictures, "BATCH", 128)
    read = pictures.read(made_up(tmp_path))
    (row,) = pictures.picture_rows(read, ways=["cnn"], epsilons=[50.0], delta=1e-5, seeds=1, epochs=20)
    assert row["accuracy"] > 0.7, row


def test_a_clipped_sum_is_that_of_single_records() -> None:
    torch.manual_seed(0)
    module, loss = pictures.network((20, 20, 1), 3), nn.CrossEntropyLoss()
    X, y = torch.rand(4, 1, 20, 20), torch.tensor([0, 1, 2, 1])
    layout = probed(module, [Spec((1, 20, 20), torch.float32)], [Spec((), torch.int64, 3)], loss)
    total = pictures.clipped_sum(module, layout, loss, X, y)
    singly = torch.zeros_like(total)
    for row, label in zip(X, y, strict=True):
        parts = torch.autograd.grad(loss(module(row[None]), label[None]), list(module.parameters()))
        gradient = torch.cat([part.flatten() for part in parts]).double()
        singly += gradient * min(1.0, pictures.CLIP / float(gradient.norm()))
    assert torch.allclose(total, singly, atol=1e-6) and float(total.norm()) <= 4 * pictures.CLIP
    assert not pictures.clipped_sum(module, layout, loss, X[:0], y[:0]).any()


def test_noise_is_that_of_the_whole_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step draws a Poisson batch and adds the noise that the plan was calibrated for."""
    asked: list[float] = []

    class Watched(Stream):
        def noised(self, total, std, **others):
            asked.append(std)
            return super().noised(total, std, **others)

    monkeypatch.setattr(pictures, "BATCH", 20)
    budget, module = nw.Budget(2.0, 1e-5), nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    pictures.trained(module, torch.rand(100, 1, 2, 2), torch.arange(100) % 2, budget, Watched(0), epochs=3)
    assert asked == [nw.calibrate(budget, steps=15, sampling=("poisson", 0.2)) * pictures.CLIP] * 15


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
