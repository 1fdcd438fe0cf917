"""What ``method="auto"`` stands for: decided by declared facts alone."""

from __future__ import annotations

import numpy as np
import pytest

import noisewise as nw
from noisewise.accounts import Budget
from noisewise.methods import RECOMMENDED, method_named
from noisewise.tables.fit.auto import choice_for, why
from noisewise.tables.fit.build import AUTO, MAX_TABLE_COLUMNS, TABLES, method_for
from noisewise.trusted.features import TableColumn


@pytest.mark.parametrize(
    "model, columns, expected",
    [
        (AUTO, 1, TABLES),
        (AUTO, MAX_TABLE_COLUMNS, TABLES),
        (AUTO, MAX_TABLE_COLUMNS + 1, RECOMMENDED),
        (AUTO, None, RECOMMENDED),
        ("linear", 5, RECOMMENDED),
        ("mlp", 5, RECOMMENDED),
        ((8,), 5, RECOMMENDED),
    ],
)
def test_the_rule(model, columns, expected):
    chosen = method_for(AUTO, model, columns)
    assert chosen.name == expected
    if columns is not None:
        table = tuple(TableColumn(f"x{i}", (0.0, 1.0), (0.0, 1.0)) for i in range(columns))
        said = why(choice_for(table, Budget(1.0, 1e-6), None, model))
        assert chosen.name in said and "\n" not in said


def test_a_method_that_is_asked_for_is_taken():
    assert method_for("dpsgd", AUTO, 3).name == "dpsgd"
    mine = method_named("descent")
    assert method_for(mine, AUTO, 3) is mine


def test_faces_take_it_from_the_number_of_columns_whatever_is_in_them():
    rng = np.random.default_rng(0)
    for columns, expected in ((3, TABLES), (MAX_TABLE_COLUMNS + 1, RECOMMENDED)):
        for X in (rng.uniform(-1, 1, (60, columns)), np.full((60, columns), np.nan)):
            face = nw.PrivateClassifier(1.0, 1e-5, method="auto", bounds=(-1, 1), random_state=0)
            assert face.fit(X, np.arange(60) % 2).statement_.data["method"]["name"] == expected
