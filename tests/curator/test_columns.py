"""Histograms of columns: no record reaches further than the noise allows for, and none can stop or steer anything."""

from __future__ import annotations

import copy
import math
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from noisewise.accounts import AdditiveMeter, Budget, BudgetExhausted
from noisewise.trusted import gate as room
from noisewise.trusted.curator import ColumnCurator
from noisewise.trusted.events import Gaussian

EDGES = np.array([-10.0, -1.0, 0.0, 1.0, 10.0])
ODD = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 1e300]


def curator(rows, *, adjacency="add_remove", seed=0, epsilon=1.0, pieces=None, columns=None):
    table = np.asarray(rows, dtype=float)
    meter = AdditiveMeter(Budget(epsilon, 1e-6, adjacency=adjacency), "gdp")
    return ColumnCurator(pieces or (lambda: [table]), columns or table.shape[1], meter=meter, seed=seed)


def exact(table, columns=None):
    """The counts before noise: what the stream is asked to noise."""
    rows = np.asarray(table, dtype=float)
    held = []

    class Open:
        def __init__(self, seed, use=""):
            pass

        def released(self, total, std, worth, dtype=float):
            held.append(total.copy())
            return total * worth

    old, room.Stream = room.Stream, Open
    try:
        made = curator(rows, columns=columns)
        made.histograms(np.tile(EDGES, (columns or rows.shape[1], 1)), noise_multiplier=50.0)
    finally:
        room.Stream = old
    return held[0]


def test_the_worst_neighbours_reach_the_stated_sensitivity_and_no_more():
    for m in (1, 2, 7):
        rows = np.zeros((5, m))
        added = exact(np.vstack([rows, np.full(m, 0.5)])) - exact(rows)
        assert np.linalg.norm(added) == pytest.approx(math.sqrt(m))
        replaced = exact(np.vstack([rows[1:], np.full(m, -5.0)])) - exact(rows)
        assert np.linalg.norm(replaced) == pytest.approx(math.sqrt(2 * m))


VALUE = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([*ODD, *EDGES.tolist(), 0.5]))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4).flatmap(lambda m: st.lists(st.lists(VALUE, min_size=m, max_size=m), min_size=2, max_size=6)))
def test_no_neighbours_reach_further(rows):
    table = np.array(rows, dtype=float)
    m = table.shape[1]
    assert np.linalg.norm(exact(table) - exact(table[1:])) <= math.sqrt(m)
    assert np.linalg.norm(exact(table[:-1]) - exact(table[1:])) <= math.sqrt(2 * m)


@pytest.mark.parametrize(("adjacency", "unit"), [("add_remove", 2.0), ("replace_one", math.sqrt(2))])
def test_noise_has_the_stated_scale(adjacency, unit):
    """Four columns: sqrt(4), and sqrt(8)/2 under replace_one. One percent off is rejected."""
    edges = np.tile(np.linspace(0, 1, 40_001), (4, 1))
    asked = curator(np.full((3, 4), 7.0), adjacency=adjacency, epsilon=5.0, seed=3)
    noisy, std = asked.histograms(edges, noise_multiplier=20.0)
    assert std == pytest.approx(20 * unit) and noisy.shape == (4, 40_000)

    def fits(scale):
        return 1e-4 < stats.chi2.cdf(np.square(noisy).sum() / scale**2, noisy.size) < 1 - 1e-4

    assert fits(std) and not fits(1.01 * std) and not fits(0.99 * std)


def test_counts_are_those_of_half_open_bins_in_any_number_of_pieces():
    rng = np.random.default_rng(0)
    table = rng.normal(0, 4, (999, 2))
    table[:5, 0] = EDGES
    expected = [[np.sum((column >= a) & (column < b)) for a, b in pairwise(EDGES)] for column in table.T]
    assert exact(table).reshape(2, 4).tolist() == expected
    asked = curator(table, pieces=lambda: np.array_split(table, 17), epsilon=50.0, columns=2)
    noisy, _ = asked.histograms(np.tile(EDGES, (2, 1)), noise_multiplier=0.2)
    assert np.abs(noisy - expected).max() < 2


def test_it_is_charged_before_the_records_are_touched():
    touched = []

    def pieces():
        touched.append(True)
        return [np.zeros((2, 1))]

    asked = curator([[0.0]], pieces=pieces)
    with pytest.raises(BudgetExhausted):
        asked.histograms(EDGES[None], noise_multiplier=0.1)
    assert not touched and asked.trace == () and not asked.meter.events
    sigma = asked.meter.noise_for(1.0)
    asked.histograms(EDGES[None], noise_multiplier=sigma)
    assert touched == [True] and asked.meter.events == {Gaussian(sigma): 1} and asked.trace[0].question == "histograms"
    with pytest.raises(BudgetExhausted):
        asked.histograms(EDGES[None], noise_multiplier=sigma)
    assert touched == [True]


def test_no_value_raises_or_warns():
    table = np.array([[a, b] for a in ODD for b in ODD])
    counts, _ = curator(table).histograms(np.tile(EDGES, (2, 1)), noise_multiplier=20.0)
    assert np.isfinite(counts).all()
    curator(np.zeros((0, 2)), columns=2).histograms(np.tile(EDGES, (2, 1)), noise_multiplier=20.0)


@pytest.mark.parametrize(
    "edges",
    [EDGES, np.tile(EDGES, (3, 1)), [[0.0], [0.0]], [[0.0, 0.0]] * 2, [[1.0, 0.0]] * 2, [[0.0, math.nan]] * 2,
     [[0.0, math.inf]] * 2, [[]] * 2],
)  # fmt: skip
def test_edges_must_be_edges(edges):
    asked = curator(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="edges must be"):
        asked.histograms(np.array(edges), noise_multiplier=20.0)
    assert not asked.meter.events


def test_far_edges_are_edges():
    counts, _ = curator(np.zeros((3, 1))).histograms(np.array([[-1e308, 1e308]]), noise_multiplier=20.0)
    assert counts.shape == (1, 1)


def test_noise_must_be_noise_and_columns_columns():
    asked = curator(np.zeros((3, 1)))
    for sigma in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError):
            asked.histograms(EDGES[None], noise_multiplier=sigma)
    with pytest.raises(ValueError, match="at least one"):
        ColumnCurator(list, 0, meter=asked.meter)


def test_it_is_never_copied_or_saved_and_shows_no_records():
    asked = curator([[1234567.0]])
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="never copied"):
            way(asked)
    assert "1234567" not in repr(asked) and not hasattr(asked, "pieces") and not hasattr(asked, "__dict__")
