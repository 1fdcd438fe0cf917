"""``noisewise bench expected``: the grid, single simulations, and quantiles that find what was put in."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise_lab import expected
from noisewise_lab.expected import KINDS, ExpectedCell, cells, generated, sizes
from noisewise_lab.expected_table import chosen_power, covered, left_out, quantile_rows, spread, variable

ONE = ExpectedCell("linear", "two classes", 4, 600, 1000.0, 0, "code")


def made_up(power, count=900, seed=0):
    """Simulations whose kept share is a function of n mu / columns ** power, with noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        clarity, columns = float(10 ** rng.uniform(1.5, 4.5)), int(rng.choice([4, 12, 40]))
        kept = 1 / (1 + 30 / (clarity / columns**power)) + 0.03 * rng.normal()
        task = str(rng.choice(KINDS[:2]))
        rows.append({"clarity": clarity, "columns": columns, "kept": kept, "task": task, "target": "two classes"})
    return rows


def test_the_grid_has_every_kind_and_keeps_mu_within_its_ends():
    grid = cells([], seeds=1, quick=False)
    assert {cell.task for cell in grid} == {*KINDS} and len({*grid}) == len(grid) > 300
    assert all(0.99 * expected.MIN_MU <= cell.mu <= expected.MAX_MU for cell in grid)
    assert all(cell.size in sizes(cell.clarity) for cell in grid)
    assert len(cells([], seeds=2, quick=True)) < 60


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_keep_within_their_bounds_and_are_drawn_anew_for_each_seed(kind):
    cell = replace(ONE, task=kind, columns=7, target="number")
    rows, again = generated(cell), generated(cell)
    other = generated(replace(cell, seed=1))
    assert rows.train.equals(again.train) and not rows.train.equals(other.train)
    assert len(rows.train) == 600 and rows.train.shape[1] == 7 and np.abs(rows.train_y).max() <= 4
    lows, highs = (np.array([getattr(c, end) for c in rows.schema.features]) for end in ("low", "high"))
    assert np.mean((rows.train.to_numpy() >= lows) & (rows.train.to_numpy() <= highs)) > 0.999
    four = generated(replace(cell, target="four classes"))
    assert set(four.train_y) == {0, 1, 2, 3} and len(four.classes) == 4


def test_the_table_follows_the_variable_that_was_put_in_and_holds_eight_of_ten():
    for power in (0.0, 1.0):
        rows = made_up(power)
        assert chosen_power(rows) == power and spread(rows, power) < 0.06
    rows = made_up(0.5)
    table = quantile_rows(rows, 0.5)
    assert all(all(x <= y for x, y in zip(a, b, strict=True)) for a, b in pairwise(table))
    for point, low, mid, high in table:
        assert low <= mid <= high and mid == pytest.approx(1 / (1 + 30 / point), abs=0.08)
    fresh = [row for row in made_up(0.5, seed=1) if 20 <= row["clarity"] / row["columns"] ** 0.5 <= 5000]
    assert 0.7 < covered(fresh, 0.5, table) < 0.97
    assert [row["task"] for row in left_out(rows, 0.5)] == sorted(KINDS[:2])
    assert variable(rows[:1], 0.0)[0] == rows[0]["clarity"]


def test_a_task_that_lies_apart_is_seen():
    rows = made_up(0.5)
    for row in rows:
        row["kept"] -= 0.4 * (row["task"] == KINDS[1])
    apart = {row["task"]: row for row in left_out(rows, 0.5)}
    assert apart[KINDS[1]]["above the middle"] < -0.3 and apart[KINDS[1]]["within"] < 0.2


def test_the_command_simulates_writes_and_goes_on(tmp_path, monkeypatch):
    chosen = [
        replace(ONE, clarity=clarity, target=target)
        for clarity in (60.0, 2000.0)
        for target in ("two classes", "number")
    ]
    monkeypatch.setattr(expected, "cells", lambda *_, **__: list(chosen))
    told = CliRunner().invoke(app, ["bench", "expected", "--jobs", "1", "--out", str(tmp_path), "--json"])
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    kept = {(row["target"], row["clarity"]): row["kept"] for row in document["rows"]}
    assert len(kept) == 4 and kept["two classes", 2000.0] > 0.85
    assert all(kept[target, 2000.0] > kept[target, 60.0] for target in ("two classes", "number"))
    assert (tmp_path / "expected.png").exists() and len((tmp_path / "expected.jsonl").read_text().splitlines()) == 4
    monkeypatch.setattr(expected, "generated", None)  # nothing is simulated again
    again = CliRunner().invoke(app, ["bench", "expected", "--jobs", "1", "--out", str(tmp_path)])
    assert again.exit_code == 0 and "Mean distance of kept" in again.stdout
