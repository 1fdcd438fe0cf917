"""Quantiles of a column from noisy dyadic counts."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.methods.preparation.bounds import POINTS, consistent, public_ranks, quantile_points
from noisewise.methods.preparation.choices import public_rows_tell
from noisewise.trusted.features import Hats, log_scale, positions

LINE = (0.0, 1.0), (0.0, 1.0)


def levels_of(leaves):
    depth = len(leaves).bit_length() - 1
    return [np.asarray(leaves, float).reshape(1 << level, -1).sum(1) for level in range(1, depth + 1)]


def counted(values, depth=10):
    return levels_of(np.histogram(values, np.linspace(0, 1, (1 << depth) + 1))[0])


def test_consistent_counts_are_exact_without_noise():
    leaves = np.random.default_rng(0).integers(0, 1000, 64)
    np.testing.assert_allclose(consistent(levels_of(leaves)), leaves, atol=1e-9)
    assert consistent([np.array([3.0, 4.0])]).tolist() == [3.0, 4.0]


def test_consistent_counts_agree_with_themselves_and_beat_the_leaves_for_ranges():
    rng = np.random.default_rng(1)
    leaves = rng.integers(0, 50, 256).astype(float)
    mine, plain, single = [], [], []
    for _ in range(200):
        noisy = [level + rng.normal(0, 10, level.shape) for level in levels_of(leaves)]
        best = consistent(noisy)
        mine.append(np.cumsum(best - leaves))
        plain.append(np.cumsum(noisy[-1] - leaves))
        single.append([best - leaves, noisy[-1] - leaves])
    assert np.std(mine) < 0.45 * np.std(plain)
    ours, theirs = (np.std([pair[i] for pair in single]) for i in (0, 1))
    assert ours < 0.9 * theirs


def test_consistent_counts_are_least_squares():
    rng = np.random.default_rng(2)
    noisy = levels_of(rng.normal(size=8))
    noisy = [level + rng.normal(size=level.shape) for level in noisy]
    design = np.vstack([np.kron(np.eye(1 << level), np.ones(8 >> level)) for level in (1, 2, 3)])
    expected = np.linalg.lstsq(design, np.concatenate(noisy), rcond=None)[0]
    np.testing.assert_allclose(consistent(noisy), expected, atol=1e-12)


def test_quantiles_make_ranks_even():
    values = np.random.default_rng(3).beta(2, 8, 20_000)
    points, ranks = quantile_points(consistent(counted(values)), *LINE)
    placed = positions(values, np.array(points), np.array(ranks))
    np.testing.assert_allclose(np.quantile(placed, [0.1, 0.25, 0.5, 0.75, 0.9]), [0.1, 0.25, 0.5, 0.75, 0.9], atol=0.03)


COLUMNS = {
    "empty": np.zeros(0),
    "constant": np.full(1000, 0.3),
    "at the low end": np.zeros(1000),
    "at the high end": np.ones(1000),
    "a spike": np.concatenate([np.full(5000, 0.5), np.random.default_rng(4).uniform(0, 1, 5000)]),
    "two values": np.repeat([0.0, 1.0], 500),
    "one value": np.array([0.77]),
}


@pytest.mark.parametrize("noise", [0.0, 5.0, 1e4, 1e9])
@pytest.mark.parametrize("name", COLUMNS)
def test_points_and_ranks_always_make_hats(name, noise):
    rng = np.random.default_rng(5)
    for scale in (LINE, log_scale(1e-3, 1e3), ((-1e300, 1e300), (0.0, 1.0)), ((1e9, 1e9 + 1e-6), (0.0, 1.0))):
        noisy = [level + rng.normal(0, noise, level.shape) for level in counted(COLUMNS[name], 8)]
        points, ranks = quantile_points(consistent(noisy), *scale)
        assert (points[0], points[-1]) == (scale[0][0], scale[0][-1])
        assert (ranks[0], ranks[-1]) == (0.0, 1.0) and 2 <= len(points) <= POINTS
        assert Hats(0, points, ranks, 5).width == 6


def test_a_spike_takes_no_more_than_its_share_of_ranks():
    points, ranks = quantile_points(consistent(counted(COLUMNS["a spike"])), *LINE)
    near = np.interp([0.45, 0.55], points, ranks)
    assert near[1] - near[0] < 0.2


def test_ranks_of_public_rows_are_their_quantiles_and_missing_values_count_nowhere():
    values = np.random.default_rng(4).beta(2, 5, 5000)
    cells = np.column_stack([values, np.where(values < 0.3, 0.0, 1.0), values])
    cells[::10, 0] = np.nan
    ranks = public_ranks(cells, [0, 1], [LINE, LINE, LINE], 12)
    assert ranks.two_valued == (1,) and [column for column, _ in ranks.scales] == [0]
    points, places = ranks.of([LINE, LINE, LINE])[0]
    assert ranks.of([LINE, LINE, LINE])[1:] == [LINE, LINE]
    known = np.nanquantile(cells[:, 0], places)
    np.testing.assert_allclose(points[1:-1], known[1:-1], atol=0.01)


def test_how_many_public_rows_are_enough():
    assert public_rows_tell(1280, 1e6, 10) and not public_rows_tell(1279, 1e6, 10)  # 64 hats
    assert public_rows_tell(100, 1e6, 10, knots=5) and not public_rows_tell(99, 1e6, 10, knots=5)
    assert public_rows_tell(60, 10.0, 10) and not public_rows_tell(59, 10.0, 10)
