"""Rows in a mapped file: the very same totals and answers, nothing left on disk, little anonymous memory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from noisewise.accounts import Budget
from noisewise.accounts.choosing import choose_meter
from noisewise.curator import QUESTIONS, CrossMoment, Curator, FirstMoment, SecondMoment, SquaredLength
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import Softmax, loss_named
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.questions import HowAsked
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.grid import ROWS_PER_CHUNK, Mapped
from noisewise.trusted.stores.totals import Drawn

ROWS = ROWS_PER_CHUNK + 1000  # more than one chunk
LOGISTIC = loss_named("logistic")
MODELS = {"linear": Linear(5, LOGISTIC), "softmax": Linear(5, Softmax(), 3), "mlp": MLP((5, 3, 1), LOGISTIC)}
MATRIX = np.eye(5) + 0.1


def _records(model: Linear | MLP, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, model.features), np.float32)
    y = np.where(X[:, 0] + rng.standard_normal(rows) > 0, 1.0, -1.0)
    X[7, 2], X[rows - 1, 0] = np.nan, np.inf
    return X, (y > 0) * 2 if model.outputs > 1 else y


def _curator(model: Linear | MLP, X: np.ndarray, y: np.ndarray, **options: object) -> Curator:
    meter = choose_meter(Budget(50.0, 1e-6), adaptive=True)
    return Curator(X, y, model=model, meter=meter, size=float(len(X)), seed=3, **options)


@pytest.mark.parametrize("kind", MODELS)
def test_mapped_records_give_the_very_same_totals(kind: str, tmp_path: Path) -> None:
    """Every question of the registry, on all records and on a batch, before and after a change of basis."""
    model = MODELS[kind]
    X, y = _records(model)
    here, there = records_of(model, X, y), records_of(model, X, y, Mapped(tmp_path))
    changed = here.in_basis(MATRIX), there.in_basis(MATRIX, Mapped(tmp_path))
    facts = facts_of(model, Budget(1.0, 1e-6), size=float(ROWS), row_bound=1.0)
    how = HowAsked("add_remove", ("full",), 1.0, float(ROWS), 5)
    batch = np.arange(3, ROWS, 97)
    asked = 0
    for question in QUESTIONS.values():
        if (
            question.__name__ == "Histograms" or question.sharded
        ):  # columns as they came are never kept; shards: test_meta
            continue
        case = question.cases(model.dimension)[0]
        try:
            case.check(facts)
        except ValueError:  # this model has no such question
            continue
        for drawn in (Drawn(None, ROWS), Drawn(batch, len(batch))):
            for one, other in ((here, there), changed):
                found = [case.totals(records, drawn, how) for records in (one, other)]
                for a, b in zip(*found, strict=True):
                    assert a.values.tolist() == b.values.tolist() and a.ones == b.ones
        asked += 1
    assert asked >= 10


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_mapped_curator_gives_the_very_same_answers(kind: str, tmp_path: Path) -> None:
    model = MODELS[kind]
    X, y = _records(model)
    here, there = _curator(model, X, y), _curator(model, X, y, store=Mapped(tmp_path))
    answers = []
    for curator in (here, there):
        found = [curator.gradient(model.start(), clip=0.5, noise_multiplier=50.0).value]
        for what in (FirstMoment(), SquaredLength(), SecondMoment(), CrossMoment()):
            found.append(curator.statistic(what, noise_multiplier=50.0).value)
        curator.change_basis(MATRIX)
        found.append(curator.gradient(model.start(), clip=0.5, noise_multiplier=50.0).value)
        answers.append(found)
    for one, other in zip(*answers, strict=True):
        assert np.array_equal(one, other)


def test_statistics_in_chunks_are_those_of_the_whole() -> None:
    model = MODELS["linear"]
    X, y = _records(model)
    curator = _curator(model, X, y)
    rows = np.nan_to_num(X.astype(np.float64), posinf=0.0)
    rows[7] = rows[ROWS - 1] = 0.0
    rows /= np.linalg.norm(rows, axis=1, keepdims=True).clip(min=1)
    answer = curator.statistic(SecondMoment(), noise_multiplier=2.0)
    assert np.abs(answer.value - rows.T @ rows).max() < 20  # noise of 2 on each
    answer = curator.statistic(CrossMoment(), noise_multiplier=2.0)
    assert np.abs(answer.value - rows.T @ y).max() < 20


def test_the_file_has_no_name(tmp_path: Path) -> None:
    rows = Mapped(tmp_path)(1000, 8, np.int16)
    rows[:] = 2
    assert list(tmp_path.iterdir()) == []
    assert int(rows.sum()) == 16000
    assert Mapped(tmp_path)(0, 8).shape == (0, 8)


@pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="/proc is missing: anonymous memory is read from it"
)
def test_laying_out_in_a_file_takes_little_anonymous_memory(tmp_path: Path) -> None:
    rows, columns = 1_000_000, 50  # 200 MB in single precision, half of that on the grid
    X = Mapped(tmp_path)(rows, columns)
    np.random.default_rng(0).standard_normal(out=X, dtype=np.float32)
    before = _anonymous()
    curator = _curator(Linear(columns, LOGISTIC), X, np.ones(rows), store=Mapped(tmp_path))
    curator.change_basis(np.eye(columns) * 0.5)
    curator.statistic(FirstMoment(), noise_multiplier=50.0)
    assert _anonymous() - before < 150e6


def _anonymous() -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(1024 * float(line.split()[1]) for line in file if line.startswith("RssAnon"))
