"""Sparse rows: the compiled kernels give the bits of the reference, and both keep the laws of privacy, in integers."""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np
import pytest
from pairs import pairwise

from noisewise.trusted.fast.kernels import VARIABLE
from noisewise.trusted.losses import ClassWeighted, Hinge, HuberHinge, Logistic, Softmax, Squared
from noisewise.trusted.stores import grid, linear
from noisewise.trusted.stores.grid import BOUND, DIRECTION, Mapped
from noisewise.trusted.stores.linear import FINE, ROW, LinearRecords
from noisewise.trusted.stores.sparse import MAX_FULL_COLUMNS, SparseRecords, lay_out_sparse
from noisewise.trusted.stores.sparse_reference import MAX_WEIGHT
from noisewise.trusted.stores.totals import Drawn

pytest.importorskip("numba")
import_module("noisewise.trusted.fast.sparse_kernels")

LOSSES = {
    "logistic": (Logistic(), 1), "hinge": (Hinge(), 1), "huber": (HuberHinge(), 1), "squared": (Squared(), 1),
    "weighted": (ClassWeighted(Logistic(), (0.3, 2.0)), 1), "softmax": (Softmax(), 7),
    "weighted softmax": (ClassWeighted(Softmax(), tuple(range(1, 8))), 7), "heavy": (ClassWeighted(Softmax(), (1e12, 0.0)), 2),
}  # fmt: skip
SHAPES = ((300, 5, 17), (33, 30, 300), (65, 1, 3), (5, 7, 7), (1, 1, 1), (0, 3, 4))
CENTRES = ("none", "middle", "a row", "far")
HOSTILE = 24  # rows from which on some are


def table(n, entries, width, outputs, seed=0, hostile=True):
    """Places, values and labels; the first rows are hostile."""
    rng = np.random.default_rng(seed)
    places = np.array([rng.permutation(width)[:entries] for _ in range(n)], np.int64).reshape(n, entries)
    values = rng.normal(size=(n, entries)) * rng.choice([0.05, 0.3, 1.0], (n, 1))
    y = rng.integers(0, outputs, n) if outputs > 1 else np.sign(rng.normal(size=n))
    if hostile and n >= HOSTILE:
        values[3], values[4], values[5], values[6], values[7] = math.nan, 1e-40, 1e11, 1e30, 0.0
        values[8, 0], values[9], values[10, -1] = math.inf, -1e300, -math.inf
        values[14], values[15] = 1 / math.sqrt(entries), -1.0
        places[16, 0], places[17, -1], places[18, 0], places[19, 0] = width, -1, 1 << 40, -(1 << 62)
        places[20, 0] = places[20, -1] if entries > 1 else width
        values[21], values[22] = 0.0, values[23]
        values[21, 0], places[22] = 1.0, places[23]
        if outputs == 1:
            y[11], y[12], y[13] = math.nan, 3e38, -math.inf
        else:
            y[11], y[12] = -1, outputs
    return places, values, y


def laid_out(places, values, y, outputs, width, store=grid.in_memory):
    return lay_out_sparse(
        lambda start, length: (places[start : start + length], values[start : start + length]), y,
        entries=places.shape[1], width=width, classes=outputs if outputs > 1 else None, store=store,
    )  # fmt: skip


def moved(records, centre):
    width = records.columns
    if centre == "none":
        return records
    if centre == "a row" and len(records) > 23:  # so that a row lies in the very centre
        whole = np.zeros(width)
        whole[records.rows.places[23]] = records.rows.values[23] / DIRECTION
        return records.centred(whole, 3.0)
    m = np.random.default_rng(5).normal(size=width)
    length = 1.0 if centre == "far" else 0.4
    return records.centred(m * length / np.linalg.norm(m), 1e4 if centre == "far" else 1.7)


def records_for(name, shape, centre="none", seed=0, hostile=True):
    loss, outputs = LOSSES[name]
    places, values, y = table(*shape, outputs, seed, hostile)
    return moved(SparseRecords(laid_out(places, values, y, outputs, shape[2]), loss, outputs), centre)


def thetas(dimension, seed=1):
    theta = np.random.default_rng(seed).normal(size=dimension)
    spike = np.full(dimension, 1e-9)
    spike[0] = 1e29
    return [0 * theta, 0.1 * theta, 10 * theta, 1e20 * theta, 1e-161 * theta, spike]


def both(monkeypatch):
    for which in ("reference", "compiled"):
        monkeypatch.setenv(VARIABLE, which)
        yield which


def square(vector):
    return sum(int(entry) ** 2 for entry in vector)


# --- layout -----------------------------------------------------------------------------------------------------------


@pytest.mark.sample(20)
@pytest.mark.parametrize("shape", [*SHAPES, (70000, 2, 9)])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("centre", CENTRES)
def test_rows_are_laid_out_alike(monkeypatch, shape, outputs, centre, tmp_path):
    places, values, y = table(*shape, outputs)
    found = []
    for _ in both(monkeypatch):
        for store in (grid.in_memory, Mapped(tmp_path)):
            rows = laid_out(places, values, y, outputs, shape[2], store)
            found.append(moved(SparseRecords(rows, Logistic()), centre).rows)
    for other in found[1:]:
        for name in ("places", "values", "reach", "squares", "most", "y", "alive", "centre"):
            assert np.array_equal(getattr(found[0], name), getattr(other, name)), name


def test_numbers_of_a_row_are_what_they_are_said_to_be():
    rows = records_for("logistic", (300, 5, 17), "a row").rows
    dead = {3, 6, 8, 9, 10, 11, 13, 16, 17, 18, 19, 20}
    assert {*np.flatnonzero(~rows.alive).tolist()} == dead
    for i, full in enumerate(rows.directions(slice(None))):
        assert square(rows.values[i]) <= DIRECTION**2 and square(full) == rows.squares[i]
        most, norm = int(rows.most[i]), int(rows.squares[i])
        assert most**2 * norm <= BOUND**2 and (most == MAX_WEIGHT or norm == 0 or (most + 1) ** 2 * norm > BOUND**2)
        if i in dead:
            assert not full.any() and most == 0 and rows.reach[i] == 0
        else:
            assert len({*rows.places[i].tolist()}) == 5
    assert rows.squares[23] == rows.squares[22] == 0 and rows.most[22] == 0
    assert np.abs(rows.values[14]).min() > 0.999 * DIRECTION / math.sqrt(5)  # of norm 1, and stays so but for a unit


def test_a_row_is_near_to_what_was_given_and_long_ones_keep_their_direction():
    places, values, y = table(200, 6, 40, 1, hostile=False)
    rows = laid_out(places, values, y, 1, 40)
    length = np.maximum(np.linalg.norm(values, axis=1), 1)
    assert np.abs(rows.values / DIRECTION - values / length[:, None]).max() <= 1.001 / DIRECTION


def test_what_cannot_be_laid_out_is_refused():
    places, values, y = table(4, 3, 9, 1)
    for width in (2, 1 << 21):
        with pytest.raises(ValueError, match="entries"):
            laid_out(places, values, y, 1, width)
    for wrong in ((places[:, :2], values), (places, values[1:]), (places.astype(float), values)):
        with pytest.raises(ValueError, match="part of the rows"):
            lay_out_sparse(lambda start, length, wrong=wrong: wrong, y, entries=3, width=9, classes=None)
    records = records_for("logistic", (4, 3, 9))
    for centre in (np.zeros(8), np.full(9, 0.4), np.full(9, math.nan), [0.0] * 9):
        with pytest.raises(ValueError, match="centre"):
            records.centred(centre, 1.0)
    for scale in (0.0, -1.0, math.nan, 1e9):
        with pytest.raises(ValueError, match="scale"):
            records.centred(np.zeros(9), scale)


# --- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, shape, centre", pairwise(list(LOSSES), SHAPES, ["none", "a row", "far"]))
def test_sums_are_alike_for_any_kernel_and_number_of_threads(monkeypatch, name, shape, centre):
    records, n = records_for(name, shape, centre), shape[0]
    chosen = np.sort(np.random.default_rng(3).choice(n, n // 2, replace=False)) if n else None
    for theta in thetas(shape[2] * records.outputs):
        for clip in (1e-4, 0.7, 1e12):
            for rows in (None, chosen):
                monkeypatch.setenv(VARIABLE, "reference")
                expected = records.gradients(Drawn(rows), theta, clip).values
                monkeypatch.setenv(VARIABLE, "compiled")
                assert np.array_equal(records.gradients(Drawn(rows), theta, clip).values, expected)
                with monkeypatch.context() as many:
                    many.setattr(linear, "MIN_PARALLEL_ENTRIES", 1)
                    for threads in "24":
                        many.setenv("OMP_NUM_THREADS", threads)
                        assert np.array_equal(records.gradients(Drawn(rows), theta, clip).values, expected)


@pytest.mark.sample(22)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("centre", CENTRES)
@pytest.mark.parametrize("kernels", ["reference", "compiled"])
def test_a_record_adds_its_own_part_of_norm_at_most_the_bound(monkeypatch, name, centre, kernels):
    """In Python's integers: each part is short (so replacing one moves twice that), and totals are the sums of parts."""
    monkeypatch.setenv(VARIABLE, kernels)
    records, n = records_for(name, (40, 5, 19), centre), 40
    longest = 0
    for theta in thetas(19 * records.outputs):
        for clip in (1e-4, 0.7, 1e12):
            parts = [records.gradients(Drawn(np.array([i])), theta, clip).values for i in range(n)]
            longest = max(longest, *map(square, parts))
            assert longest <= BOUND**2
            exact = [sum(int(part[j]) for part in parts) for j in range(len(parts[0]))]
            assert records.gradients(Drawn(), theta, clip).values.tolist() == exact
            shuffled = np.random.default_rng(4).permutation(n)
            assert records.gradients(Drawn(shuffled), theta, clip).values.tolist() == exact
            for i in (0, 3, 14, 22):
                others = np.delete(np.arange(n), i)
                without = records.gradients(Drawn(others), theta, clip).values
                assert (without + parts[i]).tolist() == exact
    assert longest > 0.99 * BOUND**2


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", ["logistic", "squared", "softmax", "heavy"])
@pytest.mark.parametrize("centre", CENTRES)
def test_rare_questions_are_bounded_and_add_up(monkeypatch, name, centre):
    records = records_for(name, (40, 5, 19), centre)
    d, rng, each = 19 * records.outputs, np.random.default_rng(5), [Drawn(np.array([i])) for i in range(40)]
    seen = [
        {"scale": 10 ** rng.uniform(-6, 6, d), "basis": None},
        {"scale": None, "basis": np.linalg.qr(rng.normal(size=(d, 5)))[0]},
    ]
    for theta in thetas(d)[1::2]:
        for clip in (1e-4, 0.7):
            asked = [(records.short, (theta, clip), {}), (records.losses, ([theta], clip), {})]
            asked += [(method, (theta, clip), way) for way in seen for method in (records.vectors, records.short)]
            for method, arguments, options in asked:
                parts = [method(one, *arguments, **options).values for one in each]
                assert all(square(part) <= FINE**2 for part in parts)
                exact = [sum(int(part[j]) for part in parts) for j in range(len(parts[0]))]
                for _ in both(monkeypatch):
                    assert method(Drawn(), *arguments, **options).values.tolist() == exact


@pytest.mark.parametrize("centre", CENTRES)
def test_the_sum_of_rows_is_bounded_adds_up_and_is_that_of_unit_rows(monkeypatch, centre):
    records = records_for("logistic", (60, 5, 19), centre)
    full = np.concatenate([rows for rows, _, _ in records.unit_rows(Drawn())])
    assert all(square(row) <= ROW**2 for row in full)
    for _ in both(monkeypatch):
        parts = [records.row_sum(Drawn(np.array([i]))) for i in range(60)]
        assert all(square(part.values) <= BOUND**2 and part.ones == BOUND and part.one == 1.0 for part in parts)
        whole = records.row_sum(Drawn()).values
        assert whole.tolist() == [sum(int(part.values[j]) for part in parts) for j in range(19)]
        if centre != "far":  # scaled by 10^4 there, so that rows in the centre are cut more than they need
            assert np.abs(whole / BOUND - full.sum(0) / ROW).max() < 60 * 2.0**-13


# --- against rows that are written out --------------------------------------------------------------------------------


def dense(records, loss=None):
    """The same records as rows of a linear model."""
    rows = records.rows
    X = (rows.directions(slice(None)) * rows.reach[:, None]).astype(np.float32)
    y = np.where(rows.alive, rows.y, math.nan if records.outputs == 1 else -1)
    classes = records.outputs if records.outputs > 1 else None
    laid = grid.lay_out(X, y if classes is None else y.astype(np.int64), columns=rows.columns, classes=classes)
    return LinearRecords(laid, loss or records.loss, records.outputs)


def close(one, other, most):
    one, other = one.values * one.worth, other.values * other.worth
    return np.linalg.norm(one - other) <= most * (np.linalg.norm(one) + 1e-9)


@pytest.mark.parametrize("name", ["logistic", "huber", "squared", "weighted", "softmax", "weighted softmax"])
@pytest.mark.parametrize("centre", ["none", "middle"])
def test_totals_are_those_of_a_linear_model_up_to_rounding(name, centre):
    records = records_for(name, (500, 5, 17), centre, hostile=False)
    other, d = dense(records), 17 * records.outputs
    theta, rng = np.random.default_rng(6).normal(size=d) * 0.3, np.random.default_rng(7)
    scale, basis = rng.uniform(0.5, 2, d), np.linalg.qr(rng.normal(size=(d, 5)))[0]
    asked = [
        lambda r: r.gradients(Drawn(), theta, 0.3),
        lambda r: r.gradients(Drawn(), theta, 30.0),
        lambda r: r.vectors(Drawn(), theta, 0.3, scale=scale, basis=None),
        lambda r: r.vectors(Drawn(), theta, 0.3, scale=None, basis=basis),
        lambda r: r.short(Drawn(), theta, 0.3),
        lambda r: r.losses(Drawn(), [theta, 0 * theta], 1.0),
        lambda r: r.row_sum(Drawn()),
        lambda r: r.in_basis(np.linalg.qr(rng.normal(size=(17, 17)))[0]).losses(Drawn(), [0 * theta], 1.0),
    ]
    for question in asked:
        assert close(question(records), question(other), 2e-3)
    for (ours, labels, alive), (theirs, same, as_well) in zip(
        records.scored(Drawn(), theta), other.scored(Drawn(), theta), strict=True
    ):
        assert np.allclose(ours, theirs, atol=2e-3) and np.array_equal(labels, same) and np.array_equal(alive, as_well)
    turn = np.linalg.qr(np.random.default_rng(8).normal(size=(17, 17)))[0]
    in_turn, theirs = (r.in_basis(turn).gradients(Drawn(), theta, 0.3) for r in (records, other))
    assert close(in_turn, theirs, 2e-3)
    rows, labels = records.float_rows()
    assert np.allclose(rows, other.float_rows().rows, atol=1e-3) and len(labels) == 500


def test_wide_rows_are_not_written_out():
    records = records_for("logistic", (40, 5, MAX_FULL_COLUMNS + 1), "middle")
    for refused in (records.float_rows, lambda: records.in_basis(np.ones((MAX_FULL_COLUMNS + 1, 2)))):
        with pytest.raises(ValueError, match="write out"):
            refused()
    assert len(records.row_sum(Drawn()).values) == MAX_FULL_COLUMNS + 1


def test_the_widest_rows_are_summed_alike(monkeypatch):
    """2^20 columns, a centre of norm 1 whose rounded entries are longer than 1, and a theta along it."""
    width = 1 << 20
    records = records_for("squared", (40, 7, width))
    centre = np.full(width, 2.0**-10)
    totals = [
        records.centred(centre, 1.0).gradients(Drawn(), sign * centre, 1e-4).values
        for _ in both(monkeypatch) for sign in (1.0, -1e9)
    ]  # fmt: skip
    assert np.array_equal(totals[0], totals[2]) and np.array_equal(totals[1], totals[3])


def test_a_loss_without_a_kernel_goes_through_the_reference(monkeypatch):
    monkeypatch.setenv(VARIABLE, "compiled")

    class Foreign(Logistic):
        """The logistic loss, of another house."""

    assert Foreign().kernel is None
    ours = records_for("logistic", (300, 5, 17), "middle")
    theirs = SparseRecords(ours.rows, Foreign())
    theta = np.random.default_rng(9).normal(size=17)
    assert np.array_equal(*(records.gradients(Drawn(), theta, 0.5).values for records in (ours, theirs)))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_loss_that_is_not_finite_moves_nothing_by_more_than_the_bound(value, outputs):
    class Broken(Logistic):
        """Not finite where a score is positive."""

        def row_slope(self, z, y):
            return np.where(z > 0, value, 1.0)

    places, values, y = table(40, 5, 19, outputs)
    records = moved(SparseRecords(laid_out(places, values, y, outputs, 19), Broken(), outputs), "middle")
    theta = np.random.default_rng(10).normal(size=19 * outputs)
    with np.errstate(all="ignore"):
        for i in range(40):
            drawn = Drawn(np.array([i]))
            assert square(records.gradients(drawn, theta, 0.5).values) <= BOUND**2
            assert square(records.vectors(drawn, theta, 0.5, scale=np.ones(19 * outputs), basis=None).values) <= FINE**2
            assert abs(int(records.short(drawn, theta, 0.5).values[0])) <= FINE
