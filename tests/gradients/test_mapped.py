"""Rows in a mapped file: the same answers, nothing left on disk, little anonymous memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from noisewise.budget import Budget
from noisewise.choice import choose_meter
from noisewise.curator import Curator
from noisewise.curator.statistics import CrossMoment, FirstMoment, SecondMoment, SquaredLength
from noisewise.gradients import MLP, Linear
from noisewise.gradients.batches import CHUNK, Mapped
from noisewise.losses import loss_named

ROWS = CHUNK + 1000  # more than one chunk


def _records(rows: int = ROWS, columns: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(rows, columns, generator=generator)
    y = torch.where(X[:, 0] + torch.randn(rows, generator=generator) > 0, 1.0, -1.0)
    X[7, 2], X[CHUNK + 1, 0] = torch.nan, torch.inf
    return X, y


def _curator(model: Linear | MLP, X: torch.Tensor, y: torch.Tensor, **options: object) -> Curator:
    meter = choose_meter(Budget(50.0, 1e-6), adaptive=True)
    return Curator(X, y, model=model, meter=meter, size=float(len(X)), seed=3, **options)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_mapped_curator_gives_the_very_same_answers(kind: str, tmp_path: Path) -> None:
    X, y = _records()
    loss = loss_named("logistic")
    model = Linear(5, loss) if kind == "linear" else MLP((5, 3, 1), loss)
    here, there = _curator(model, X, y), _curator(model, X, y, store=Mapped(tmp_path))
    matrix = torch.eye(5) + 0.1 * torch.ones(5, 5)
    answers = []
    for curator in (here, there):
        found = [curator.gradient(model.start(), clip=0.5, noise_multiplier=50.0).value]
        for what in (FirstMoment(), SquaredLength(), SecondMoment(), CrossMoment()):
            found.append(curator.statistic(what, noise_multiplier=50.0).value)
        curator.change_basis(matrix)
        found.append(curator.gradient(model.start(), clip=0.5, noise_multiplier=50.0).value)
        answers.append(found)
    for one, other in zip(*answers, strict=True):
        assert torch.equal(one, other)


def test_statistics_in_chunks_are_those_of_the_whole() -> None:
    X, y = _records()
    curator = _curator(Linear(5, loss_named("logistic")), X, y)
    rows = torch.nan_to_num(X.double(), nan=0.0, posinf=0.0)
    rows[7] = rows[CHUNK + 1] = 0.0
    rows /= torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp(min=1)
    answer = curator.statistic(SecondMoment(), noise_multiplier=2.0)
    assert float((answer.value - rows.T @ rows).abs().max()) < 20  # noise of 2 on each
    answer = curator.statistic(CrossMoment(), noise_multiplier=2.0)
    assert float((answer.value - rows.T @ y.double()).abs().max()) < 20


def test_the_file_has_no_name(tmp_path: Path) -> None:
    rows = Mapped(tmp_path)(1000, 8)
    rows.fill_(2.0)
    assert list(tmp_path.iterdir()) == []
    assert float(rows.sum()) == 16000.0
    assert Mapped(tmp_path)(0, 8).shape == (0, 8)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="anonymous memory is read from Linux's /proc")
def test_laying_out_in_a_file_takes_little_anonymous_memory(tmp_path: Path) -> None:
    rows, columns = 1_000_000, 50  # 200 MB in single precision, twice that in double
    X = Mapped(tmp_path)(rows, columns)
    X.normal_(generator=torch.Generator().manual_seed(0))
    before = _anonymous()
    curator = _curator(Linear(columns, loss_named("logistic")), X, torch.ones(rows), store=Mapped(tmp_path))
    curator.change_basis(torch.eye(columns) * 0.5)
    curator.statistic(FirstMoment(), noise_multiplier=50.0)
    assert _anonymous() - before < 150e6


def _anonymous() -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(1024 * float(line.split()[1]) for line in file if line.startswith("RssAnon"))
