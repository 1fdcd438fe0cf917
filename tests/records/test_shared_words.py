"""Sums by words are the sums of single entries, bit for bit, whatever words there are."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.trusted.fast.kernels import VARIABLE
from noisewise.trusted.losses import ClassWeighted, Hinge, HuberHinge, Logistic, Softmax, Squared
from noisewise.trusted.stores import linear
from noisewise.trusted.stores import sparse as words
from noisewise.trusted.stores.grid import Mapped
from noisewise.trusted.stores.sparse import SparseRecords, lay_out_sparse
from noisewise.trusted.stores.totals import Drawn

pytest.importorskip("numba")

LOSSES = (Logistic(), Hinge(), HuberHinge(), Squared(), ClassWeighted(Logistic(), (0.3, 2.0)))
SIZES = (1, 2, 4, 1, 3, 4, 2, 1)  # entries of each block
WIDE = 40  # coordinates of each block


def part_of(kinds, n=600, seed=0):
    """Rows that have one of so many different parts in each block; None: one of their own; with zeros among entries."""
    rng = np.random.default_rng(seed)
    places, values = [], []
    for b, (size, kind) in enumerate(zip(SIZES, kinds, strict=True)):
        which = np.arange(n) if kind is None else rng.integers(0, kind, n)
        where = np.array([rng.permutation(WIDE)[:size] for _ in range(which.max() + 1)])
        what = rng.normal(size=where.shape) * (rng.random(where.shape) < 0.8) * 0.1
        places.append(where[which] + b * WIDE)
        values.append(what[which])
    where, what = np.concatenate(places, 1), np.concatenate(values, 1)
    what[5], what[6], what[7, 3] = 0.0, np.nan, 1e9  # nothing, a dead row, and one that is cut: words of its own
    return where, what


def records(where, what, loss=LOSSES[0], starts=None, **options):
    n, outputs = len(where), 3 if isinstance(loss, Softmax) else 1
    y = np.arange(n) % 3 if outputs > 1 else np.where(np.arange(n) % 3 > 0, 1.0, -1.0)
    rows = lay_out_sparse(
        lambda start, length: (where[start : start + length], what[start : start + length]), y,
        entries=where.shape[1], width=WIDE * len(SIZES), classes=3 if outputs > 1 else None,
        starts=range(0, WIDE * len(SIZES), WIDE) if starts is None else starts,
    )  # fmt: skip
    centre = np.random.default_rng(3).normal(size=WIDE * len(SIZES))
    return SparseRecords(rows, loss, outputs).centred(0.3 * centre / np.linalg.norm(centre), 1.7, **options)


KINDS = {
    "few": (3, 2, 9, 2, 4, 5, 30, 1), "some of their own": (3, None, 9, 2, None, 5, 30, 1),
    "many": (2, 2, 70, 60, 50, 40, 74, 2), "first alone": (2, 3, 2, 3, None, 2, None, None),
}  # fmt: skip


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_sums_are_those_of_single_entries(monkeypatch, kinds, loss):
    held = records(*part_of(KINDS[kinds]), loss)
    assert held.rows.words is not None
    theta = np.random.default_rng(2).normal(size=held.columns)
    for at in (0 * theta, theta, 1e20 * theta):
        for clip in (1e-4, 0.7, 1e12):
            for drawn in (Drawn(), Drawn(np.array([5, 6, 7, 599, 0]))):
                monkeypatch.setenv(VARIABLE, "reference")
                expected = held.gradients(drawn, at, clip).values
                monkeypatch.setenv(VARIABLE, "compiled")
                assert np.array_equal(held.gradients(drawn, at, clip).values, expected)
                with monkeypatch.context() as many:
                    many.setattr(linear, "MIN_PARALLEL_ENTRIES", 1)
                    many.setenv("OMP_NUM_THREADS", "3")
                    assert np.array_equal(held.gradients(drawn, at, clip).values, expected)


def spelled_out(held):
    """The entries of each row, from its words and what is left."""
    found, rows = [], held.rows.words
    for i in range(len(held)):
        own = [(int(p), int(v)) for p, v in zip(rows.places[i], rows.values[i], strict=True)][: rows.filled[i]]
        for word in rows.codes[i]:
            span = slice(rows.ends[word], rows.ends[word + 1])
            own += zip(rows.word_places[span].tolist(), rows.word_values[span].tolist(), strict=True)
        found.append(sorted(own))
    return found


def entries_of(held):
    rows = held.rows
    return [
        sorted(zip(rows.places[i, :k].tolist(), rows.values[i, :k].tolist(), strict=True))
        for i, k in enumerate(rows.filled)
    ]


@pytest.mark.parametrize("kinds", KINDS)
def test_words_spell_out_every_row(kinds):
    held = records(*part_of(KINDS[kinds]))
    assert spelled_out(held) == entries_of(held)


def test_few_words_of_neighbouring_blocks_are_one():
    held = records(*part_of((2, 2, 2, 2, None, 2, 2, 2)))
    assert held.rows.words.codes.shape[1] == 2 and held.rows.words.filled.max() == 3


@pytest.mark.parametrize("most", [4, 20, 25, 60])
def test_all_words_have_a_number(monkeypatch, most):
    monkeypatch.setattr(words, "MAX_WORDS", most)
    monkeypatch.setattr(words, "SAVED", 2.0)
    held = records(*part_of(KINDS["few"]))
    assert len(held.rows.words.ends) <= most + 1 and spelled_out(held) == entries_of(held)


def test_rows_that_save_nothing_are_left_as_they_are(tmp_path):
    where, what = part_of((3,) * 8)
    assert records(where, what).rows.words is not None
    alone = part_of((None,) * 8)
    backwards = where[:, ::-1].copy(), what[:, ::-1].copy()
    for left in (
        records(*alone), records(*backwards), records(where, what, starts=(0,)), records(where[:10], what[:10]),
        records(where[:0], what[:0]), records(where, what, Softmax()), records(where, what, store=Mapped(tmp_path)),
    ):  # fmt: skip
        assert left.rows.words is None
        theta = np.random.default_rng(2).normal(size=left.columns * left.outputs)
        singly = [left.gradients(Drawn(np.array([i])), theta, 0.7).values for i in range(len(left))]
        assert np.array_equal(left.gradients(Drawn(), theta, 0.7).values, sum(singly, np.zeros(len(theta), np.int64)))
