"""Ways of tuning beside no tuning: small generated tables, few candidates, and figures that were made up."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise.tables.schema import Column, Schema
from noisewise_lab import tuning_bench
from noisewise_lab.tables_prepare import write_table
from noisewise_lab.tables_split import listed
from noisewise_lab.tuning_bench import BAD, CANDIDATES, RESCUED, Asked, dealt, noise_seed, sign_tests, summary

ROWS = 1200
TWO = ({"method": "descent", "steps": 20}, {"method": "additive", "steps": 5})


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (ROWS, 2))
    columns = [Column("a", "number", -1, 1), Column("b", "number", -1, 1)]
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    signal = X[:, 0] + 0.2 * rng.normal(size=ROWS)
    people = frame.assign(kind=np.where(signal > 0, "yes", "no"))
    houses = frame.assign(price=np.clip(signal, -2, 2))
    to = tmp_path / "tables"
    to.mkdir()
    kind = Column("kind", "category", categories=("no", "yes"))
    write_table(people, Schema((*columns, kind), "kind"), to / "people", "generated")
    write_table(houses, Schema((*columns, Column("price", "number", -2, 2)), "price"), to / "houses", "generated")
    return to


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(tuning_bench, "CANDIDATES", TWO)
    monkeypatch.setattr(tuning_bench, "RESCUED", (BAD, TWO[1]))
    monkeypatch.setattr(tuning_bench, "PUBLIC_ROWS", 300)


def test_eight_candidates_over_two_methods_with_both_defaults():
    for some in (CANDIDATES, RESCUED):
        assert len(some) == 8 and len({repr(one) for one in some}) == 8
        assert {one["method"] for one in some} == {"descent", "additive"}
        assert {"method": "descent"} in some and {"method": "additive"} in some
    assert RESCUED[0] == BAD and CANDIDATES[0] == {"method": "descent"}


def test_rows_are_shared_by_all_ways_and_public_ones_by_nobody(folder, small):
    (table,) = listed(folder, ["people"])
    whole, capped = dealt(table, 0, None), dealt(table, 0, 400)
    assert len(whole.private[1]) == 900 - 300 and len(capped.private[1]) == 400 and len(whole.public[1]) == 300
    parts = [set(part.index) for part in (whole.private[0], whole.public[0], whole.whole.test)]
    assert len(set.union(*parts)) == sum(map(len, parts)) == ROWS
    assert set(dealt(table, 1, None).public[0].index) != parts[1], "each seed has a split of its own"


@pytest.mark.slow
def test_every_way_has_a_row_and_nothing_is_run_twice(folder, small, monkeypatch):
    arguments = ["bench", "tuning", "--data", str(folder), "--out", f"{folder}-out", "--tables", "people,houses"]
    arguments += ["--epsilons", "2,8", "--seeds", "2", "--json"]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    told = json.loads(first.stdout)
    ways = {"auto", "public", "selection", "exponential", "online", "none"}
    assert {(row["way"], row["epsilon"]) for row in told["rows"]} == {
        *((way, epsilon) for way in ways for epsilon in (2, 8)),
        ("bad-start", 8),
        ("rescue", 8),
    }
    for row in told["rows"]:
        assert row["seeds"] == 2 and -0.5 < row["score"] <= 1 and row["cpu_s"] >= 0 and row["se"] >= 0
        assert row["way"] != "auto" or (row["over_auto"] == 0 and row["chosen"] == {})
        assert row["way"] not in ("none", "online") or row["chosen"] == {"0": 2}
        assert row["measure"] == ("r2" if row["table"] == "houses" else "roc_auc")
    assert {(test["way"], test["against"]) for test in told["signs"]} >= {("online", "selection")}
    assert all(test["above"] + test["below"] <= 8 for test in told["signs"])

    monkeypatch.setattr(tuning_bench, "tuned", None)  # whatever ran would fail
    again = CliRunner().invoke(app, arguments)
    assert json.loads(again.stdout) == told
    shown = CliRunner().invoke(app, arguments[:-1])
    assert "Sign tests" in shown.stdout and "houses: R^2" in shown.stdout


def test_some_ways_alone_are_run_with_their_budgets(folder):
    (table,) = listed(folder, ["people"])
    asked = Asked([table], [1.0, 3.0], only=["rescue", "auto"])
    assert [(cell.way, cell.epsilon) for cell in tuning_bench.cells(asked, table, 0)] == [
        ("auto", 1.0),
        ("auto", 3.0),
        ("rescue", 3.0),
    ]


def test_seeds_of_noise_are_those_of_a_table_and_a_budget_not_of_a_way(folder):
    tables = listed(folder)
    seeds = {(cell.table, cell.epsilon, cell.seed): set() for table in tables for cell in cells_of(table)}
    for table in tables:
        for cell in cells_of(table):
            seeds[cell.table, cell.epsilon, cell.seed].add(noise_seed(cell))
    assert all(len(found) == 1 for found in seeds.values())
    assert len(set.union(*seeds.values())) == len(seeds) == 8


def cells_of(table):
    asked = Asked([table], [1.0, 3.0], 2)
    return [cell for seed in range(2) for cell in tuning_bench.cells(asked, table, seed)]


def test_differences_are_paired_and_refusals_are_no_figures(folder):
    (table,) = listed(folder, ["people"])
    scores = {"auto": [0.9, 0.7], "online": [0.8, 0.65], "selection": [0.7, None], "none": [0.8, 0.5]}
    results = [
        {"table": "people", "epsilon": 1.0, "way": way, "seed": seed, "best": None, "cpu_s": 1.0}
        | ({"refused": "no"} if score is None else {"score": score})
        for way, both in scores.items()
        for seed, score in enumerate(both)
    ]
    by = {row["way"]: row for row in summary(results, Asked([table], [1.0], 2))}
    assert by["online"]["over_auto"] == pytest.approx(-0.075)
    assert by["online"]["over_auto_se"] == pytest.approx(0.025)
    assert by["selection"]["seeds"] == 1 and by["selection"]["over_auto"] == pytest.approx(-0.2)
    assert by["selection"]["se"] is None and by["public"]["score"] is None
    signs = {(test["way"], test["against"]): test for test in sign_tests(results)}
    assert (signs["online", "selection"]["above"], signs["online", "selection"]["below"]) == (1, 0)
    assert (signs["online", "none"]["above"], signs["online", "none"]["below"]) == (1, 0), "a tie counts for nobody"
    assert signs["online", "selection"]["p"] == 1.0 and signs["public", "none"]["p"] is None


def test_mistakes_are_one_line(folder):
    for arguments, words in (
        (["--tables", "people", "--epsilons", "0"], "--epsilons has 0; pass positive numbers"),
        (["--tables", "nobody"], "--tables has 'nobody'; there are houses, people"),
        (["--tables", "people", "--epsilons", ""], "--epsilons is empty"),
        (["--tables", "people", "--ways", "auto,luck"], "--ways has 'luck'; pass some of auto, public"),
        (["--tables", "people"], "people has 900 rows to train on; pass tables with 2000 or more"),
    ):
        told = CliRunner().invoke(app, ["bench", "tuning", "--data", str(folder), "--out", f"{folder}-o", *arguments])
        assert told.exit_code != 0 and words in str(told.output) + str(told.exception)
