"""Rows of a table as entries: hats, categories, products, and the scales that numbers are placed on."""

from __future__ import annotations

import json
import math
import pickle
from copy import deepcopy

import numpy as np
import pytest

from noisewise.methods.preparation.choices import Frequencies as Known
from noisewise.methods.preparation.choices import balanced, knots_for, main_blocks, names_of, pair_blocks, scales_of
from noisewise.tables.rows import columns_of, number_columns
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.features import (
    Codes,
    Features,
    Hats,
    Product,
    TableColumn,
    check_scale,
    even,
    features_anew,
    log_scale,
    positions,
    values_at,
)

LINE = (0.0, 10.0), (0.0, 1.0)
BENT = (0.0, 1.0, 10.0), (0.0, 0.5, 1.0)
rng = np.random.default_rng(0)
VALUES = np.concatenate(
    [rng.uniform(-2, 12, 200), [0.0, 10.0, 5.0, math.nan, math.inf, -math.inf, 1e300, -0.0, 5e-324]]
)


def column(values):
    return np.asarray(values, float)[:, None]


@pytest.mark.parametrize("knots", [2, 3, 7, 1024])
@pytest.mark.parametrize("scale", [LINE, BENT])
def test_hats_share_a_value_between_neighbours(scale, knots):
    places, values = Hats(0, *scale, knots)(column(VALUES))
    missing = np.isnan(VALUES)
    np.testing.assert_allclose(values.sum(1), 1.0, rtol=0, atol=1e-15)
    assert (values >= 0).all() and (places >= 0).all() and (places <= knots).all()
    assert (places[~missing, 1] == places[~missing, 0] + 1).all() and (places[~missing] < knots).all()
    assert (places[missing] == [knots, 0]).all() and (values[missing] == [1, 0]).all()
    inside = positions(VALUES[~missing], *(np.array(part) for part in scale)) * (knots - 1)
    np.testing.assert_allclose((places * values)[~missing].sum(1), inside, atol=1e-9)


def test_hats_at_knots_and_beyond():
    hats = Hats(0, *LINE, 3)
    for value, place in ((0.0, 0), (-5.0, 0), (5.0, 1), (10.0, 2), (math.inf, 2), (-math.inf, 0), (1e300, 2)):
        places, values = hats(column([value]))
        assert {int(p) for p, v in zip(places[0], values[0], strict=True) if v} == {place}
    assert hats.knot_values().tolist() == [0.0, 5.0, 10.0] and hats.width == 4
    assert Hats(0, *BENT, 3).knot_values().tolist() == [0.0, 1.0, 10.0]


def test_values_go_to_places_and_back():
    for points, ranks in (LINE, BENT, log_scale(1e-3, 1e4), ((-3.0, -1.0, 4.0), (0.0, 0.01, 1.0))):
        at, to = np.array(points), np.array(ranks)
        check_scale(points, ranks)
        places = rng.uniform(0, 1, 300)
        np.testing.assert_allclose(positions(values_at(places, at, to), at, to), places, atol=1e-12)
        growing = positions(np.sort([*rng.uniform(*at[[0, -1]], 500), at[0] - 1, at[-1] + 1]), at, to)
        assert (np.diff(growing) >= 0).all() and growing.min() == 0 and growing.max() == 1
        assert positions(at, at, to).tolist() == list(ranks)


def test_a_log_scale_has_equal_ratios_and_exact_ends():
    points, ranks = log_scale(0.1, 1000.0)
    assert (points[0], points[-1]) == (0.1, 1000.0) and (ranks[0], ranks[-1]) == (0.0, 1.0)
    at = [np.array(points), np.array(ranks)]
    np.testing.assert_allclose(positions(np.array([1.0, 10.0, 100.0]), *at), [0.25, 0.5, 0.75], atol=1e-3)


@pytest.mark.parametrize(
    "points, ranks",
    [((0.0, math.inf), (0.0, 1.0)), ((-1.7e308, 1.7e308), (0.0, 1.0)), ((0.0, 5e-324), (0.0, 1.0)), ((0.0,), (0.0,)),
     ((0.0, 1.0), (0.0, 1.0, 1.0)), ((0.0, 1.0), (0.1, 1.0)), ((0.0, 1.0), (0.0, 0.9)), ((0.0, 1.0, 2.0), (0.0, 0.0, 1.0)),
     ((1.0, 0.0), (0.0, 1.0)), ((0.0, math.nan), (0.0, 1.0)), (((0.0, 1.0),), ((0.0, 1.0),))],
)  # fmt: skip
def test_what_is_no_scale_is_refused(points, ranks):
    with pytest.raises(ValueError, match="scale"):
        check_scale(points, ranks)
    with pytest.raises(ValueError, match="scale"):
        Hats(0, points, ranks, 3)
    with pytest.raises(ValueError, match="scale of column 'x'"):
        TableColumn("x", points, ranks)


def test_no_place_is_nothing_even_where_a_scale_is_too_steep_or_too_wide():
    """Scales like these are refused; a value would still have a place, so that nothing could fail on private cells."""
    with np.errstate(all="ignore"):
        for points in ((0.0, 5e-324, 1.0), (-1.7e308, 0.0, 1.7e308)):
            found = positions(VALUES, np.array(points), np.array([0.0, 0.5, 1.0]))
            assert (np.isnan(found) == np.isnan(VALUES)).all()
            assert found[~np.isnan(found)].min() >= 0 and found[~np.isnan(found)].max() <= 1


def test_categories_have_coordinates_and_what_is_none_is_missing():
    codes = Codes(0, (0, 1, 0, 2))
    cells = [0, 1, 2, 3, 4, -1, math.nan, math.inf, -math.inf, 1.9, -0.0, -0.5, 1e300]
    places, values = codes(column(cells))
    assert places[:, 0].tolist() == [0, 1, 0, 2, 3, 3, 3, 3, 3, 1, 0, 3, 3]
    assert (values == 1).all() and codes.width == 4
    for groups in ((), (1,), (0, 2), (-1, 0), (0, 10**12)):
        with pytest.raises(ValueError, match="without a gap"):
            Codes(0, groups)


def test_a_product_has_a_place_for_each_pair():
    first, second = Hats(0, *LINE, 3), Codes(1, (0, 1, 1))
    table = np.column_stack([VALUES, rng.choice([0, 1, 2, math.nan], len(VALUES))])
    places, values = Product(first, second)(table)
    (p, v), (q, w) = first(table), second(table)
    assert Product(first, second).width == 12
    for i in range(len(table)):
        full = np.zeros((4, 3))
        for a, x in zip(p[i], v[i], strict=True):
            for b, y in zip(q[i], w[i], strict=True):
                full[a, b] += x * y
        found = np.zeros(12)
        found[places[i]] = values[i]
        assert np.array_equal(found, full.ravel())
        assert len({*places[i]}) == 2


def several():
    blocks = (Hats(0, *BENT, 5), Codes(1, (0, 1, 0)), Product(Hats(0, *LINE, 3), Codes(1, (0, 1, 2))))
    return Features(blocks, np.exp(rng.normal(size=sum(block.width for block in blocks) + 1)))


def test_features_are_blocks_side_by_side_and_an_intercept():
    features = several()
    table = np.column_stack([VALUES, rng.choice([0, 1, 2, 7, math.nan], len(VALUES))])
    places, values = features(table)
    assert places.shape == values.shape == (len(table), features.entries) == (len(table), 2 + 1 + 2 + 1)
    assert all(len({*row}) == len(row) for row in places.tolist())
    assert (places[:, -1] == features.width - 1).all()
    rows = np.zeros((len(table), features.width))
    rows[np.arange(len(table))[:, None], places] = values
    theta = rng.normal(size=(3, features.width))
    np.testing.assert_allclose(features.scores(theta, table), rows @ theta.T, atol=1e-12)
    np.testing.assert_allclose(features.scores(theta[0], table), rows @ theta[0], atol=1e-12)
    raw = rows / features.gains
    for span in features.spans:
        np.testing.assert_allclose(raw[:, span].sum(1), 1.0, atol=1e-12)
    words = names_of(features, (TableColumn("age", *BENT), TableColumn("job", groups=(0, 1, 0), words=("x", "y", "z"))))
    assert len(words) == features.width and words[-1] == "(intercept)" and "job=x|z" in words and "age missing" in words


def test_even_rows_have_norm_at_most_one():
    for blocks in ((), several().blocks, several().blocks * 5):
        table = np.column_stack([VALUES, np.zeros(len(VALUES))])
        _, values = even(blocks)(table)
        assert (values * values).sum(1).max() <= 1


def same(one, other):
    return one.blocks == other.blocks and one.gains.tobytes() == other.gains.tobytes()


def test_features_go_to_plain_data_and_back_and_are_made_anew():
    features = several()
    again = Features.from_dict(json.loads(json.dumps(features.to_dict())))
    for other in (again, features_anew(features), pickle.loads(pickle.dumps(features)), deepcopy(features)):
        assert same(other, features) and other is not features
        assert other.gains is not features.gains
    table = np.column_stack([VALUES, np.ones(len(VALUES))])
    for one, other in zip(again(table), features(table), strict=True):
        assert one.tobytes() == other.tobytes()
    numbers = Features((Hats(np.int64(0), (np.float32(0), 1), (0, True), np.int8(3)),), np.ones(5, np.float32))
    made = features_anew(numbers)
    assert all(type(end) is float for end in made.blocks[0].points) and type(made.blocks[0].knots) is int


# -- what a schema makes of columns ---------------------------------------------------------------------------------


def test_declared_scales_knots_and_rare_categories():
    schema = Schema(
        (
            Column("age", "number", 0, 100),
            Column("pay", "number", 1, 1e6, scale="log"),
            Column("size", "number", 0, 10, knots=(0, 1, 2, 10)),
            Column("job", "category", categories=("a", "b", "c", "d"), rare=("b", "d")),
            Column("sex", "category", categories=("f", "m"), rare=("f", "m")),
            Column("y", "category", categories=(0, 1)),
        ),
        "y",
    )
    age, pay, size, job, sex = columns_of(schema)
    assert (age.points, age.ranks, age.knots) == ((0, 100), (0, 1), None)
    assert pay.points == log_scale(1, 1e6)[0]
    assert size.points == (0, 1, 2, 10) and size.knots == 4
    assert job.groups == (0, 2, 1, 2) and sex.groups == (0, 0) and not job.number
    blocks = main_blocks((age, pay, size, job, sex), scales_of((age, pay, size, job, sex)), None, 1000.0)
    sizes = [block.knots for block in blocks if isinstance(block, Hats) and block.column == 2]
    assert sizes == [4] and blocks[-1] == Codes(4, (0, 0))
    hats = next(block for block in blocks if block.columns == (2,))
    assert hats.knot_values().tolist() == [0, 1, 2, 10]
    assert [c.name for c in number_columns(np.zeros(2), np.ones(2), None)] == ["x0", "x1"]


def test_more_records_and_budget_make_more_hats():
    assert [knots_for(clarity, 10) for clarity in (0, 100, 1000, 1e9)] == [3, 3, 15, 64]


def frequencies(blocks):
    width = sum(block.width for block in blocks)
    return Known(blocks, rng.uniform(0, 1, width), rng.uniform(0, 0.2, width))


@pytest.mark.parametrize("trial", range(5))
def test_balanced_features_can_be_prepared_and_centred(trial):
    blocks = several().blocks
    parts = (frequencies(blocks[:2]), frequencies(blocks[2:]))
    if trial == 0:
        parts = tuple(Known(part.blocks, 0 * part.shares, part.noise) for part in parts)
    features, placed = balanced(parts, (0.7, 0.3))
    assert features.blocks == blocks and features.gains.max() <= 1
    assert np.linalg.norm(placed.centre) <= 1 and placed.centre[-1] == 0
    assert 1e-6 < placed.scale < 1e6 and len(placed.centre) == features.width


def test_pairs_are_of_the_columns_with_the_largest_effects():
    columns = (*(TableColumn(f"x{i}", *LINE) for i in range(3)), TableColumn("c", groups=tuple(range(12))))
    features = even(main_blocks(columns, scales_of(columns), 4, 100.0))
    effects = np.zeros((1, features.width - 1))
    for i, size in ((0, 1.0), (2, 2.0), (3, 3.0)):
        span = next(span for block, span in zip(features.blocks, features.spans, strict=True) if block.columns == (i,))
        effects[:, span] = size * np.arange(span.stop - span.start)
    shares = np.full(features.width - 1, 0.2)
    pairs = pair_blocks(columns, features, effects, shares, 1e4, 3)
    assert [pair.columns for pair in pairs] == [(0, 2), (0, 3), (2, 3)]
    grouped = pairs[1].second
    assert isinstance(grouped, Codes) and grouped.width <= 9 and list(grouped.groups) == sorted(grouped.groups)
    assert pair_blocks(columns, features, effects, shares, 1e4, 1) == ()
