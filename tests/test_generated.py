"""The embedded tables are what they say: generated, bounded by their schema, learnable."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.tables.generated import census, digits, measurements


@pytest.mark.parametrize(
    "table", [census(3000), digits(), measurements(3000)], ids=["census", "digits", "measurements"]
)
def test_every_value_is_within_the_declared_bounds(table):
    assert list(table.schema) == list(table.X.columns)
    assert len(table.X) == len(table.y)
    for name, (low, high) in table.schema.items():
        assert low < high
        assert table.X[name].between(low, high).all(), name


def test_census_is_reproducible_and_grows():
    first, again, other = census(500, seed=3), census(500, seed=3), census(500, seed=4)
    assert first.X.equals(again.X) and np.array_equal(first.y, again.y)
    assert not first.X.equals(other.X)
    assert set(np.unique(first.y)) == {0, 1}
    occupation = first.X.filter(like="occupation_")
    assert (occupation.sum(axis=1) == 1).all()


def test_digits_has_ten_classes():
    assert np.unique(digits().y).tolist() == list(range(10))
