"""Entries and counts that are compiled have the bits of the reference, and rows depend on their own cells alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.trusted.fast.kernels import VARIABLE
from noisewise.trusted.features import Codes, Features, Hats, Product, TableColumn, even, log_scale
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Additive
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.tables import maker
from noisewise.trusted.stores.totals import Drawn

pytest.importorskip("numba")

LINE, BENT = ((0.0, 1.0), (0.0, 1.0)), ((-5.0, -1.0, 0.0, 5.0), (0.0, 0.3, 0.4, 1.0))
MANY = log_scale(1e-3, 1e3)
COLUMNS = (
    TableColumn("a", *LINE),
    TableColumn("b", *BENT),
    TableColumn("c", groups=(0, 1, 2, 1)),
    TableColumn("d", *MANY),
)
SIDES = (
    Hats(0, *LINE, 2),
    Hats(0, *LINE, 9),
    Hats(1, *BENT, 5),
    Hats(1, *LINE, 3),
    Codes(2, (0, 1, 2, 1)),
    Hats(3, *MANY, 64),
)
BLOCKS = {
    "none": (),
    "sides": SIDES,
    "pairs": tuple(Product(a, b) for a in SIDES for b in SIDES if a is not b),
    "all": (*SIDES, Product(SIDES[1], SIDES[4]), Product(SIDES[4], SIDES[5]), Product(SIDES[2], SIDES[5])),
}
HOSTILE = (math.nan, math.inf, -math.inf, -0.0, 3e38, -3e38, 1e-45, 0.5, 1.0, 2.0, -1.0, 3.0, 4.0, 3.9999998, 1.5)


def cells(n=300):
    rng = np.random.default_rng(0)
    mixed = np.column_stack([rng.random(n), rng.normal(size=n), rng.integers(-1, 6, n), np.exp(3 * rng.normal(size=n))])
    mixed[: len(HOSTILE)] = np.array(HOSTILE)[:n, None]
    some = rng.random(mixed.shape) < 0.3
    mixed[some] = rng.choice([*HOSTILE, *BENT[0], *MANY[0]], some.sum())
    return mixed.astype(np.float32)


def records(table):
    labels = np.where(np.arange(len(table)) % 3 > 0, 1.0, -1.0)
    return records_of(Additive(1, Logistic(), columns=COLUMNS), table, labels)


def gained(blocks):
    features = even(blocks)
    return Features(features.blocks, features.gains * np.exp(np.random.default_rng(1).normal(size=features.width)))


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 300])
def test_compiled_entries_have_the_bits_of_the_reference(monkeypatch, name, n):
    features, table = gained(BLOCKS[name]), cells()[:n]
    found = []
    for which in ("reference", "compiled"):
        monkeypatch.setenv(VARIABLE, which)
        places, values = maker(features)(table)
        found.append((places.tolist(), values.tobytes()))
        assert places.dtype == np.int64 and places.shape == (n, features.entries)
    assert found[0] == found[1]


def test_a_row_of_entries_depends_on_its_own_cells_alone():
    features, table = gained(BLOCKS["all"]), cells()
    make = maker(features)
    whole = [part.copy() for part in make(table)]
    for some in ([0], [7, 3, 299], list(range(299, -1, -1)), list(range(64, 200))):
        for part, all_of_it in zip(make(table[some]), whole, strict=True):
            assert part.tobytes() == all_of_it[some].tobytes()


def test_rows_are_laid_out_alike_whatever_was_asked_before(monkeypatch):
    asked = [gained(BLOCKS[name]) for name in ("all", "sides", "pairs", "all")]
    found = []
    for which in ("reference", "compiled"):
        monkeypatch.setenv(VARIABLE, which)
        held = records(cells())
        found += [records(cells()).prepared(asked[0]).rows]
        for features in asked:
            held = held.prepared(features)
        found.append(held.rows)
    for other in found[1:]:
        for name in ("places", "values", "filled", "squares", "most", "alive"):
            assert np.array_equal(getattr(found[0], name), getattr(other, name)), name


@pytest.mark.parametrize("levels", [1, 2, 7, 16])
def test_counts_of_levels_are_alike_and_those_of_single_records_add_up(monkeypatch, levels):
    held, maps = records(cells()), [(0.0, *LINE), (1.0, *BENT), (3.0, *MANY), (1.0, *LINE)]
    chosen = np.array([5, 0, 299, 64, 63, 5])
    for drawn in (Drawn(), Drawn(chosen), Drawn(chosen[:0])):
        found = []
        for which in ("reference", "compiled"):
            monkeypatch.setenv(VARIABLE, which)
            found.append(held.levels(drawn, maps, levels))
        assert found[0].shape == (4, 2 ** (levels + 1) - 2) and np.array_equal(*found)
    for row, (column, _, _) in zip(held.levels(Drawn(), maps, levels), maps, strict=True):
        known = int((~np.isnan(cells()[:, int(column)])).sum())
        ends = np.cumsum([2**level for level in range(1, levels)])
        assert [int(part.sum()) for part in np.split(row, ends)] == [known] * levels
        for coarse, fine in zip(np.split(row, ends), np.split(row, ends)[1:], strict=False):
            assert np.array_equal(coarse, fine.reshape(-1, 2).sum(1))
    singly = sum(held.levels(Drawn(np.array([i])), maps, levels) for i in range(300))
    assert np.array_equal(singly, held.levels(Drawn(), maps, levels))
