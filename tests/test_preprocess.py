"""Rows are bounded by declared facts only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from noisewise.tables.rows import Scaling, declared_bounds, interval

ANY = st.floats(allow_nan=True, allow_infinity=True)
FINITE = st.floats(-1e100, 1e100)


@given(arrays(float, (5, 3), elements=ANY), st.booleans(), FINITE, st.floats(1e-50, 1e100))
def test_every_row_is_finite_and_of_norm_at_most_one(X, unit_rows, low, width):
    high = max(low + width, np.nextafter(low, np.inf))
    rows = Scaling(np.full(3, low), np.full(3, high), unit_rows)(X)
    assert rows.shape == (5, 4) and np.isfinite(rows).all()
    assert (np.linalg.norm(rows, axis=1) <= 1 + 1e-12).all()


@given(arrays(float, (2, 3), elements=ANY), st.booleans())
def test_a_row_is_scaled_alone(X, unit_rows):
    scaling = Scaling(np.array([0.0, -1.0, 2.0]), np.array([1.0, 1.0, 30.0]), unit_rows)
    np.testing.assert_array_equal(scaling(X), np.vstack([scaling(X[:1]), scaling(X[1:])]))


def test_known_values():
    low, high = np.array([0.0, -2.0]), np.array([4.0, 6.0])
    rows = Scaling(low, high, unit_rows=False)(np.array([[0.0, 2.0], [4.0, 6.0], [np.nan, np.nan], [-np.inf, np.inf]]))
    np.testing.assert_allclose(
        rows * np.sqrt(3), [[0, 0, 1], [1, 1, 1], [0.5, 0, 1], [0, 1, 1]], err_msg="0 stays 0, the middle is the middle"
    )
    units = Scaling(low, high, unit_rows=True)(np.array([[4.0, 6.0]]))
    np.testing.assert_allclose(units, np.full((1, 3), 1 / np.sqrt(3)))


def test_the_rows_passed_in_are_left_alone():
    X = np.array([[np.nan, 9.0]])
    Scaling(np.zeros(2), np.ones(2), True)(X)
    assert np.isnan(X[0, 0]) and X[0, 1] == 9.0


def test_bounds_for_all_columns_by_column_and_by_name():
    for given_bounds in ({"bounds": (0, 2)}, {"bounds": [[0, 2], [0, 2]]}, {"schema": {"b": (0, 2), "a": (0, 2)}}):
        low, high = declared_bounds(2, ["a", "b"], **({"bounds": None, "schema": None} | given_bounds))
        assert low.tolist() == [0, 0] and high.tolist() == [2, 2]


def test_two_columns_and_two_numbers_per_column_are_not_mixed_up():
    low, high = declared_bounds(2, None, bounds=[(0, 1), (5, 9)], schema=None)
    assert low.tolist() == [0, 5] and high.tolist() == [1, 9]


def test_an_interval():
    assert interval("target_bounds", [0, 2]) == (0.0, 2.0)
    for bad in ((2, 0), (0, np.inf), 3, "a", (1, 2, 3), None):
        with pytest.raises(ValueError, match=r"target_bounds is .*; pass"):
            interval("target_bounds", bad)
