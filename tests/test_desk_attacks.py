"""Attacks on what lies between raw private files and a release: each of these once broke a stated sensitivity or leaked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from noisewise import PrivateClassifier
from noisewise.curator import Correct
from noisewise.faces.cli.main import app
from noisewise.tables.encode import Encoder, numbers_of
from noisewise.tables.rows import Scaling, read_rows
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import MLP
from noisewise.trusted.models.linear import Linear
from noisewise.trusted.questions import HowAsked
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.grid import BOUND
from noisewise.trusted.stores.totals import Drawn

Floats = NDArray[np.float32]
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": torch.nn.functional.softplus,
}


BLOCK = 512
HOW = HowAsked("add_remove", ("full",), 1.0, 1.0, 1)


def _right(what: Correct, model: Linear | MLP, rows: Floats) -> int:
    """Right answers less wrong ones, in whole numbers: one record moves it by one."""
    total = what.total(records_of(model, rows, np.ones(len(rows), np.float32)), Drawn(), HOW)
    assert (total.ones, total.one) == (1, 0.5)
    return int(total.values[0])


def _worst_pattern() -> Floats:
    """A block of coefficients whose sum in single precision changes most when every record moves on by one place."""
    rng = np.random.default_rng(0)
    ones, best, found = np.ones((BLOCK, 1), np.float32), 0.0, np.ones(BLOCK, np.float32)
    for _ in range(3000):
        period = 2 ** int(rng.integers(1, 7))
        block = np.tile(rng.random(period, np.float32), BLOCK // period)
        moved = float((np.roll(block, 1) @ ones - block @ ones)[0])
        if abs(moved) > abs(best):
            best, found = moved, block
    assert best, "no block rounds otherwise when it moves on"
    return found if best > 0 else np.roll(found, 1)


def test_a_record_in_front_of_a_periodic_file_moves_the_clipped_sum_by_the_clip_exactly() -> None:
    # In blocks of single precision, rounding is the same in every block of a periodic file, so that errors add up instead
    # of cancelling: this once moved a sum by 1.12 clip norms. Integers do not round.
    model, clip, blocks = Linear(2, Logistic()), 0.5, 1024

    def clipped_sum(lengths: Floats, labels: Floats) -> list[int]:
        rows = np.stack([lengths, np.zeros_like(lengths)], 1)  # at theta = 0 a gradient is -label length / 2
        total = records_of(model, rows, labels).gradients(Drawn(), np.zeros(2), clip)
        assert (total.ones, total.one) == (BOUND, clip)
        return [int(value) for value in total.values]

    lengths = np.tile(_worst_pattern(), blocks)
    labels, first = -np.ones(blocks * BLOCK, np.float32), np.ones(1, np.float32)
    without = clipped_sum(lengths, labels)
    alone = clipped_sum(first, -first)
    assert 0.999 * BOUND < alone[0] <= BOUND and alone[1] == 0
    for label, sign in ((-first, 1), (first, -1)):
        joined = clipped_sum(np.concatenate([first, lengths]), np.concatenate([label, labels]))
        assert [a - b for a, b in zip(joined, without, strict=True)] == [sign * value for value in alone]


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_one_record_more_moves_a_perceptrons_right_answers_by_no_more_than_stated(activation: str) -> None:
    # torch computes the last few entries of a tensor by another routine (a scalar one) than the rest: a row's activation
    # depends on how many rows there are.
    model, random = MLP((1, 1, 1), Logistic(), activation), torch.Generator().manual_seed(0)
    for _ in range(40):
        x = torch.rand(1, 1, generator=random)
        value = float(ACTIVATIONS[activation](x.double())[0, 0])
        for sign in (1.0, -1.0):
            what = Correct((1.0, 0.0, sign, -sign * value))  # the score of x is 0, but for rounding
            found = [_right(what, model, x.expand(n, 1).numpy()) for n in (7, 8, 15, 16)]
            assert abs(found[1] - found[0]) == abs(found[3] - found[2]) == 1


@pytest.mark.parametrize("columns", [31, 9001])
def test_one_record_more_moves_right_answers_by_one_however_wide_it_is(columns: int) -> None:
    # Float products sum a wide row otherwise when it is alone, and a row whose score is 0 but for rounding changes sides.
    rng, model = np.random.default_rng(0), Linear(columns, Logistic())
    for _ in range(20):
        rows, theta = rng.standard_normal((2, columns), np.float32), rng.standard_normal(columns)
        for _ in range(5):  # until the first row's score is 0, but for rounding
            theta[-1] -= float(rows[0].astype(np.float64) @ theta) / float(rows[0, -1])
        what = Correct(tuple(theta.tolist()))
        alone, other = _right(what, model, rows[:1]), _right(what, model, rows[1:])
        assert _right(what, model, rows) == alone + other


def test_the_type_of_one_cell_does_not_change_how_other_records_are_encoded() -> None:
    # [np.float32, ...] becomes Arrow's float, one Python float more makes it a double, and 0.1 is no longer 0.1.
    encoder = Encoder(Schema((Column("a", "category", categories=("0.1", "0.5"), unknown="missing"),)))
    cells = [np.float32(0.1)] * 3
    before = encoder(pd.DataFrame({"a": pd.Series(cells, dtype=object)}))
    after = encoder(pd.DataFrame({"a": pd.Series([*cells, 0.5], dtype=object)}))
    assert np.array_equal(after[:3], before)


def test_a_cell_that_is_a_number_alone_is_one_in_any_company_and_is_never_shown() -> None:
    column = Column("a", "number", 0, 1)
    assert np.isnan(numbers_of(pa.array(["nan(dinf)"]), column)).all()
    try:
        found = numbers_of(pa.array(["nan(dinf)", "true"]), column)
    except ValueError as error:
        pytest.fail(f"refused because of another record's cell, and shown: {error}")
    assert np.isnan(found[0])


@pytest.mark.parametrize("where", ["job", "y"])
def test_text_that_is_not_utf8_in_parquet_is_refused_without_its_bytes(tmp_path: Path, where: str) -> None:
    texts = {"job": [b"clerk"] * 4, "y": [b"no", b"yes"] * 2}
    texts[where] = [*texts[where][:-1], b"secr\xe9t"]
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({name: _strings(cells) for name, cells in texts.items()}), path)
    job, y = (
        Column("job", "category", categories=("clerk", "farmer")),
        Column("y", "category", categories=("no", "yes")),
    )
    encoder = Encoder(Schema((job, y), "y"))
    with pytest.raises(ValueError) as refused:
        read_rows(path, encoder, Scaling(encoder.low, encoder.high, True))
    assert "0xe9" not in str(refused.value) and "position" not in str(refused.value)


def _strings(cells: list[bytes]) -> pa.Array:
    ends = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(cells))]
    return pa.Array.from_buffers(pa.string(), len(cells), buffers)


def test_the_text_of_a_statement_never_promises_more_than_its_numbers() -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    model = PrivateClassifier(1.0000004, 1e-6, bounds=(-1, 1), random_state=0).fit(rows, rows[:, 0] > 0)
    shown = str(model.statement_).split("(epsilon, delta) = (")[1].split(",")[0]
    assert float(shown) >= model.statement_.data["promise"]["epsilon"]


def test_a_dry_run_says_so_when_it_has_read_the_classes_from_private_labels(tmp_path: Path) -> None:
    path = tmp_path / "private.csv"
    path.write_text("age,y\n" + "30,no\n40,yes\n" * 5)
    command = ["train", str(path), "--target", "y", "--bounds-epsilon", "0.1", "--epsilon", "1", "--delta", "1e-6"]
    shown = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "run"), "--dry-run"])
    assert shown.exit_code == 0
    assert "labels" in shown.output  # a record with another label would change what is shown
