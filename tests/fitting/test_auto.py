"""What "auto" says it does is what it does, and why stands in the report; nothing of it comes from a private value."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import noisewise as nw
from noisewise.accounts import Budget
from noisewise.evidence.report.page import report_page, write_report
from noisewise.methods.additive import AdditiveDescent
from noisewise.tables.fit.auto import choice_for, choice_of_run, outline_for, why
from noisewise.tables.fit.build import MAX_TABLE_COLUMNS, method_for
from noisewise.tables.generated import census
from noisewise.tables.rows import columns_of
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.features import Product, TableColumn

PEOPLE = census(6000)
SCHEMA = Schema(
    (
        *(Column(name, "number", low, high) for name, (low, high) in list(PEOPLE.schema.items())[:4]),
        Column("married", "category", categories=(0, 1)),
        Column("y", "category", categories=(0, 1)),
    ),
    "y",
)


def fitted(epsilon: float, adjacency: str = "add_remove", schema: Schema = SCHEMA) -> nw.PrivateClassifier:
    X = PEOPLE.X[[column.name for column in schema.features]]
    model = nw.PrivateClassifier(epsilon, 1e-6, schema=schema, adjacency=adjacency, size_is_public=True, random_state=0)
    return model.fit(X, PEOPLE.y)


@pytest.mark.parametrize(
    ("epsilon", "adjacency", "pairs"), [(0.3, "add_remove", 0), (2.0, "add_remove", 5), (2.0, "replace_one", 0)]
)
def test_the_outline_is_what_a_run_makes(epsilon, adjacency, pairs):
    made = outline_for(columns_of(SCHEMA), Budget(epsilon, 1e-6, adjacency=adjacency), 6000)
    model = fitted(epsilon, adjacency)
    features = model.fitted_.made
    products = [block for block in features.blocks if isinstance(block, Product)]
    alone = [block for block in features.blocks if not isinstance(block, Product)]
    assert made.pairs == pairs == len({column for block in products for column in block.columns})
    assert max(block.knots for block in alone if hasattr(block, "knots")) == made.knots
    assert sum(block.width for block in alone) + 1 == made.coordinates
    assert sum(block.width for block in products) == made.pair_coordinates  # all columns are paired here
    trace = model.trace_
    assert trace[0].question == "column levels" and trace[0].spent == pytest.approx(made.ranks, rel=1e-3)


def test_settings_stand_in_for_the_rules():
    columns, budget = columns_of(SCHEMA), Budget(2.0, 1e-6)
    asked = AdditiveDescent(knots=5, pairs=0, ranks=False).outline(columns, 6000, budget)
    assert (asked.knots, asked.pairs, asked.ranks, asked.pair_coordinates) == (5, 0, 0.0, 0)
    assert AdditiveDescent(pairs=3).outline(columns, 10, budget).pairs == 3
    assert AdditiveDescent(pairs=9).outline(columns[:1], 1e6, budget).pairs == 0


def test_knots_move_with_records_and_budget_and_keep_within_their_ends():
    columns = tuple(TableColumn(f"x{i}", (0.0, 1.0), (0.0, 1.0)) for i in range(10))
    knots = [
        outline_for(columns, Budget(e, 1e-6), n).knots
        for e, n in [(0.1, 100), (0.5, 5000), (1, 5000), (1, 9000), (9, 1e6)]
    ]
    assert knots == sorted(set(knots)) and knots[0] == 3 and knots[-1] == 64
    assert outline_for(columns * 13, Budget(1, 1e-6), 5000) is None


def test_the_method_follows_from_columns_and_the_model_asked_for():
    assert method_for("auto", "auto", MAX_TABLE_COLUMNS).name == "additive"
    assert method_for("auto", "auto", MAX_TABLE_COLUMNS + 1).name == method_for("auto", "mlp", 3).name == "descent"
    wide = tuple(TableColumn(f"x{i}", (0.0, 1.0), (0.0, 1.0)) for i in range(MAX_TABLE_COLUMNS + 1))
    assert "more than 128" in why(choice_for(wide, Budget(1, 1e-6), 1000))
    assert "asked for as 'mlp'" in why(choice_for(wide[:3], Budget(1, 1e-6), 1000, "mlp"))
    assert "asked for as [64, 32]" in why(choice_for(wide[:3], Budget(1, 1e-6), None, (64, 32)))


def test_why_names_the_facts():
    schema = SCHEMA.with_column(Column("age", "number", 17, 90, scale="log"))
    schema = schema.with_column(Column("hours", "number", 0, 99, knots=(0, 20, 40, 99)))
    told = why(choice_for(columns_of(schema), Budget(1, 1e-6), 20_000))
    for fact in ("5 columns (4 numbers and 1 category)", "20,000 records (given)", "(1, 1e-06) is worth mu = 0.237"):
        assert fact in told
    for fact in (
        "64 hats",
        "1 number has a log scale, 1 number has declared knots",
        "5 columns with the largest",
        "for ranks",
    ):
        assert fact in told
    assert "\n" not in told and "not known yet" in why(choice_for(columns_of(schema), Budget(1, 1e-6), None))
    assert "halved by replace_one" in why(choice_for(columns_of(schema), Budget(1, 1e-6, adjacency="replace_one"), 9.0))


def test_why_stands_in_the_report_of_a_run_that_verifies(tmp_path):
    model = fitted(2.0)
    nw.save(model, tmp_path / "run")
    run, statement, trace = (
        json.loads((tmp_path / "run" / f"{name}.json").read_text()) for name in ("run", "statement", "trace")
    )
    choice = choice_of_run(run, statement, trace["rows"])
    planned = choice_for(columns_of(SCHEMA), Budget(2.0, 1e-6), 6000, known="public")
    assert choice.ranks == pytest.approx(planned.ranks, rel=1e-3)
    assert replace(choice, ranks=planned.ranks) == planned and why(choice) == why(planned)
    page = report_page(tmp_path / "run")
    assert "How the model was chosen" in page and "auto takes additive" in page
    assert nw.verify(tmp_path / "run").seal == "intact" and "contradict" not in nw.verify(tmp_path / "run").reason
    back = nw.load(tmp_path / "run")
    assert back.method == "auto" and np.array_equal(back.predict(PEOPLE.X[:50]), model.predict(PEOPLE.X[:50]))
    nw.save(back, tmp_path / "again")
    assert json.loads((tmp_path / "again" / "run.json").read_text())["settings"] == run["settings"]


def test_a_method_that_was_asked_for_has_no_why(tmp_path):
    model = nw.PrivateClassifier(1.0, 1e-6, bounds=(0, 1), method="descent", classes=[0, 1])
    rng = np.random.default_rng(0)
    nw.save(model.fit(rng.random((300, 3)), rng.integers(0, 2, 300)), tmp_path / "run")
    assert "How the model was chosen" not in write_report(tmp_path / "run").read_text()
    assert nw.verify(tmp_path / "run").holds  # an open model is a linear one here
