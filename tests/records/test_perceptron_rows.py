"""A perceptron's rows as numbers, and products of its small layers: compiled and in numpy, the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.trusted.stores import perceptron as exact

kernels = pytest.importorskip("noisewise.trusted.fast.perceptron_kernels")
rng = np.random.default_rng(0)


@pytest.mark.parametrize("columns", [1, 31, 32, 100])
@pytest.mark.parametrize("here", [slice(3, 40), np.array([0, 5, 6, 59], dtype=np.int64), np.empty(0, np.int64)])
def test_rows_are_directions_times_reach_in_single_precision(columns, here):
    X = rng.integers(-(1 << 14), 1 << 14, (60, 128)).astype(np.int16)
    reach = (rng.uniform(0, 1, 60) * 10.0 ** rng.integers(-38, 8, 60)).astype(np.float32)
    rows = exact.PerceptronRows(X, reach, np.zeros(60), np.zeros(60), np.ones(60, bool))
    expected = X[here, :columns].astype(np.float32) * reach[here][:, None]
    for ways in (kernels, None):
        found = np.full((len(expected), columns), np.nan, np.float32)
        exact._fill(ways, rows, here, found)
        assert np.array_equal(found.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("fresh", [True, False])
def test_products_of_small_layers_are_exact(fresh):
    a, b = (rng.integers(-(1 << 13), 1 << 13, (300, width)).astype(np.float32) for width in (20, 7))
    before = rng.integers(-(1 << 40), 1 << 40, 140)
    found = before.copy()
    kernels.put_small(a, b, found, fresh)
    expected = (b.astype(np.int64).T @ a.astype(np.int64)).reshape(-1)
    assert np.array_equal(found, expected if fresh else before + expected)
