"""How cells of a table are kept: as finely as declared scales need it, whatever the values are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise.tables.rows import columns_of
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.features import TableColumn, cell_type, log_scale
from noisewise.trusted.losses.logistic import Logistic
from noisewise.trusted.models import Additive
from noisewise.trusted.stores import records_of

FAR = TableColumn("far", (1e9, 1e9 + 100), (0.0, 1.0))


@pytest.mark.parametrize(
    ("low", "high", "fine"),
    [(0, 1, False), (17, 90, False), (1900, 2025, False), (-180, 180, False), (0, 1e18, False), (1e9, 1e9 + 100, True),
     (-1e6 - 1, -1e6, True), (1e300, 2e300, True), (1.6e18, 1.7e18, False), (1e-30, 2e-30, False)],
)  # fmt: skip
def test_single_precision_is_kept_where_it_tells_values_apart(low, high, fine):
    assert TableColumn("x", (low, high), (0.0, 1.0)).fine == fine


def test_points_between_the_ends_count_and_categories_do_not():
    assert not TableColumn("x", *log_scale(1.0, 1e6)).fine
    knots = TableColumn("x", (0.0, 1e6, 1e6 + 1, 2e6), (0.0, 0.3, 0.6, 1.0))
    assert knots.fine and not TableColumn("job", groups=(0, 1)).fine
    assert cell_type([TableColumn("x", (0.0, 1.0), (0.0, 1.0))]) is np.float32 and cell_type([knots]) is np.float64


def test_a_row_is_kept_alike_in_any_company():
    model = Additive(1, Logistic(), 1, columns=(FAR,))
    cells = np.array([[1e9 + 0.5], [1e9 + 99.25], [np.nan]])
    whole = records_of(model, cells, np.ones(3)).table.cells
    for i in range(3):
        alone = records_of(model, cells[i : i + 1], np.ones(1)).table.cells
        np.testing.assert_array_equal(alone[0], whole[i])
    assert whole[0, 0] == 1e9 + 0.5


@pytest.mark.parametrize("files", [False, True])
def test_a_column_far_from_zero_does_not_collapse(files, tmp_path):
    """From 1e9 to 1e9 + 100 single precision knows three values; the border is between two of them."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"far": 1e9 + rng.uniform(0, 100, 8000), "other": rng.uniform(0, 1, 8000)})
    table["y"] = np.where(table["far"] > 1e9 + 37, "yes", "no")
    columns = (Column("far", "number", 1e9, 1e9 + 100), Column("other", "number", 0, 1))
    schema = Schema((*columns, Column("y", "category", categories=("no", "yes"))), "y")
    assert columns_of(schema)[0].fine
    clf = nw.PrivateClassifier(2.0, 1e-6, schema=schema, random_state=0)
    if files:
        table.to_csv(tmp_path / "rows.csv", index=False, float_format="%.6f")
        clf.fit_files(tmp_path / "rows.csv")
    else:
        clf.fit(table.drop(columns="y"), table["y"])
    assert clf.score(table.drop(columns="y"), table["y"]) > 0.97
