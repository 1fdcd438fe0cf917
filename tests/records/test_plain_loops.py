"""The kernels for processors with AVX2 and the plain loops for others give the same integers."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.trusted.fast import kernels

pytest.importorskip("numba")

from noisewise.trusted.fast import rows_compiled as compiled
from noisewise.trusted.stores import reference

COLUMNS = 96


@pytest.fixture
def block():
    """Where 32 rows of extreme entries start, theta, and weights whose sums over eight rows just fit into 32 bits."""
    rng = np.random.default_rng(0)
    X = rng.choice(np.array([-16384, -1, 0, 7, 16384], np.int16), (50, COLUMNS))
    at = rng.permutation(50)[: compiled.ROWS] * COLUMNS
    w = rng.choice(np.array([-16383, -3, 0, 16383], np.int16), (3, compiled.ROWS))
    theta = rng.integers(-1300, 1300, (3, COLUMNS)).astype(np.int16)
    return X, at, theta, w


def test_scores(block):
    X, at, theta, _ = block
    expected = X[at // COLUMNS].astype(np.int64) @ theta[1].astype(np.int64)
    for scores in (compiled.scores, compiled.scores_plainly):
        found = np.empty(compiled.ROWS, np.int32)
        scores(X, at, theta, 1, found)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("count", [32, 25, 24, 1])
def test_sums(block, count):
    X, at, _, w = block
    w[:, count:] = 0
    start = np.full((3, COLUMNS), 1 << 40)
    expected = start + w.astype(np.int64) @ X[at // COLUMNS].astype(np.int64)
    for add in (compiled.add_rows, compiled.add_rows_plainly):
        found = start.copy()
        add(X, at, count, w, found)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("size", [0.0, 1e-200, 1e-3, 1.0, 2.0**15 - 2 - 123**0.5, 1e29])
def test_theta_on_its_grid(size):
    theta = np.random.default_rng(1).normal(size=(4, 123))
    theta *= size / np.sqrt((theta * theta).sum(1).max())
    whole, grid = compiled.on_grid(theta, 128)
    same, as_well = reference.on_grid(theta, 128)
    assert grid == as_well and np.array_equal(whole, same) and whole.dtype == same.dtype == np.int16
    assert (whole.astype(np.int64) ** 2).sum(1).max() < 2**30
    assert np.abs(whole[:, :123] * grid - theta).max() <= grid / 2
    assert kernels.compiled()
