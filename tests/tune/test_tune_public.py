"""A search on public rows: it simulates what the private run will be, finds what is better, and says when it cannot tell."""

from __future__ import annotations

import importlib.util
import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
import noisewise.tune.public as public
from noisewise.methods.descent import DeflatedDescent
from noisewise.methods.dpsgd import DpSgd
from noisewise.tables.generated import census
from noisewise.tables.rows import Cells, Scaling
from noisewise.train import Records
from noisewise.trusted.accountants.gdp import mu_of
from noisewise.trusted.features import TableColumn
from noisewise.tune.public import Bench, differing, public_scores
from noisewise.tune.searches import by_optuna, drawn, halving, nearest
from noisewise.tune.simulated import as_given, budget_for, moved, parts_of, shape_of, table_of, widths

ROWS = 1200


def candidate(rows=ROWS, *, method, epsilon=1.0, seed=0, **face):
    """A fit and public rows for it."""
    table = census(rows, seed=seed)
    estimator = nw.PrivateClassifier(epsilon, 1e-6, method=method, schema=table.schema, **face)
    ready = estimator.ready(table.X, table.y)
    return ready, ready.private


def several(*methods, **more):
    made = [candidate(method=method, **more) for method in methods]
    return [fit for fit, _ in made], [made[0][1]] * len(made)


GOOD, BAD = DeflatedDescent(steps=20), DeflatedDescent(steps=20, max_grad_norm=100.0, learning_rate=0.001)


def test_it_finds_the_candidate_that_is_better_and_says_so():
    fits, rows = several(BAD, GOOD)
    found = public_scores(fits, rows, size=5000, seed=1)
    assert found.best == 1 and found.decided
    assert found.metric == "mean log loss" and found.scores[1] < found.scores[0] - 0.05
    assert all(error > 0 for error in found.errors) and found.runs == 6
    assert "Candidate 1 was chosen" in found.words and "costs nothing" in found.words
    assert "filled up to 5,000" in found.words and "not known" not in found.words


def test_it_is_the_same_for_the_same_seed_and_another_for_another():
    fits, rows = several(BAD, GOOD)
    first, again, other = (public_scores(fits, rows, size=900, repeats=2, seed=seed) for seed in (3, 3, 4))
    assert first == again and first.scores != other.scores


def test_equal_candidates_leave_the_first_and_ties_go_to_the_earlier():
    fits, rows = several(GOOD, GOOD, GOOD)
    found = public_scores(fits, rows, size=2000)
    assert found.best == 0 and len(set(found.scores)) == 1  # the same splits and the same noise for all


def test_a_lead_within_its_error_leaves_the_first(monkeypatch):
    fits, rows = several(GOOD, BAD)
    losses = {0: [0.50, 0.52, 0.48], 1: [0.49, 0.53, 0.45]}
    monkeypatch.setattr(Bench, "_once", lambda bench, place, repeat: losses[place][repeat])
    found = public_scores(fits, rows, size=2000)
    assert found.best == 0 and not found.decided and "within one standard error" in found.words
    losses[1] = [0.40, 0.42, 0.39]
    assert public_scores(fits, rows, size=2000).best == 1


def test_the_error_counts_that_splits_overlap():
    shape = shape_of(1000, 500, handed=False)
    bench = Bench((), (), shape, "log_loss", 0, False)
    assert bench.error([1.0, 2.0, 3.0]) == pytest.approx(math.sqrt(1 / 3 + 250 / 750))
    assert math.isnan(bench.error([1.0]))


def test_few_validation_rows_leave_the_first():
    fits, rows = several(BAD, GOOD, rows=400)
    found = public_scores(fits, rows, size=5000)
    assert found.best == 0 and not found.decided
    assert "100 rows for validation are too few" in found.words and found.scores[1] < found.scores[0]


def test_an_unknown_size_is_said():
    fits, rows = several(GOOD)
    assert "as if there were 1,200" in public_scores(fits, rows, size=None, repeats=2).words


def test_without_probabilities_accuracy_decides_for_all():
    made = [candidate(method=method, loss=loss) for method, loss in ((BAD, "logistic"), (GOOD, "hinge"))]
    found = public_scores([fit for fit, _ in made], [rows for _, rows in made], size=3000)
    assert found.metric == "accuracy" and 0.5 < found.scores[1] <= 1 and found.best == 1


def test_a_regression_is_scored_by_squared_errors_in_its_own_unit():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (ROWS, 3))
    y = 50 + 20 * X[:, 0]
    made = [
        nw.PrivateRegressor(1.0, 1e-6, method=m, bounds=(-1, 1), target_bounds=(0, 100)).ready(X, y)
        for m in (BAD, GOOD)
    ]
    found = public_scores(made, [one.private for one in made], size=5000, handed=False)
    assert found.metric == "mean squared error" and found.best == 1
    assert 0 < found.scores[1] < found.scores[0] == pytest.approx(400 / 3, rel=0.4)


def test_a_candidate_that_refuses_to_run_counts_as_worst():
    fits, rows = several(GOOD, DpSgd(steps=20))
    refusing = replace(fits[1], method=DpSgd(steps=20, sampling=("fixed", 0.5)))  # add_remove has no fixed batches
    found = public_scores([fits[0], refusing], rows, size=2000, repeats=2)
    assert found.best == 0 and math.isnan(found.scores[1]) and found.refused[1] and found.refused[0] is None
    assert "1 of them refused" in found.words
    with pytest.raises(ValueError, match="no candidate runs"):
        public_scores([refusing], rows[:1], size=2000)


# --- the simulated table ----------------------------------------------------------------------------------------------


def test_parts_do_not_overlap_and_are_all_rows():
    for handed in (True, False):
        shape = shape_of(1001, 5000, handed=handed)
        parts = parts_of(shape, 0, 0)
        assert sorted(np.concatenate(parts)) == list(range(1001))
        assert len(parts.validation) == shape.validation and bool(len(parts.handed)) == handed
    assert not np.array_equal(parts.training, parts_of(shape, 0, 1).training)


def test_the_simulated_table_has_rows_of_the_training_part_only():
    fit, rows = candidate(method=GOOD)
    shape = shape_of(ROWS, 300, handed=True)
    parts = parts_of(shape, 0, 0)
    table = table_of(Records(rows.X, np.arange(ROWS)), fit.scaling, parts, shape, 0, 0)
    assert len(table.y) == 300 == len(set(table.y)) and set(table.y) <= set(parts.training)
    shape = shape_of(ROWS, 2000, handed=True)
    table = table_of(Records(rows.X, np.arange(ROWS)), fit.scaling, parts, shape, 0, 0)
    assert shape.filled_up and len(table.y) == 2000 and set(table.y) == set(parts.training)
    assert set(np.bincount(table.y)[parts.training]) <= {3, 4}  # balanced


def test_numbers_are_moved_a_little_and_codes_never():
    fit, rows = candidate(method=GOOD)
    width = widths(rows.X, fit.scaling)
    names = list(census(10).X.columns)
    assert all(width[names.index(name)] > 0 for name in ("age", "hours"))
    assert all(width[names.index(name)] == 0 for name in ("woman", "married", "children", "occupation_3"))
    after = moved(rows.X, fit.scaling, width, np.random.default_rng(0))
    assert np.linalg.norm(after, axis=1) == pytest.approx(1.0)
    assert after.dtype == rows.X.dtype
    before, later = (X[:, names.index("age")] / X[:, -1] for X in (rows.X, after))
    assert 0 < np.std(later - before) < 0.15 * np.std(before) and abs(later).max() <= 1
    before, later = (X[:, names.index("woman")] / X[:, -1] for X in (rows.X, after))
    assert later == pytest.approx(before, abs=1e-5)


def test_rows_that_are_not_made_short_one_by_one_stay_as_long_as_before():
    rng = np.random.default_rng(0)
    scaling = Scaling(np.zeros(2), np.array([1.0, 5.0]), False)
    X = scaling(rng.uniform(0, 1, (500, 2)) * [1, 5])
    after = moved(X, scaling, widths(X, scaling), rng)
    assert np.all(after[:, -1] == X[0, -1]) and after[:, :-1].min() >= 0 and not np.array_equal(after, X)


def test_cells_keep_their_categories_and_missing_values():
    rng = np.random.default_rng(0)
    columns = (TableColumn("n", (0.0, 100.0), (0.0, 1.0)), TableColumn("c", groups=tuple(range(30))))
    scaling = Cells(np.zeros(1), np.full(1, 100.0), True, columns)
    X = np.column_stack([rng.uniform(0, 100, 400), rng.integers(0, 30, 400).astype(float)])
    X[::7, 0] = np.nan
    width = widths(X, scaling)
    assert width[0] == pytest.approx(0.1 * 50 / 1.349, rel=0.15) and width[1] == 0
    after = moved(X, scaling, width, rng)
    assert np.array_equal(after[:, 1], X[:, 1]) and np.array_equal(np.isnan(after[:, 0]), np.isnan(X[:, 0]))
    assert not np.array_equal(after[1:7, 0], X[1:7, 0])


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_a_smaller_table_gets_a_budget_worth_as_much(relation):
    fit, _ = candidate(method=GOOD, adjacency=relation)
    shape = shape_of(ROWS, 60_000, handed=False)
    assert shape.records == 20_000 and shape.weight == 3
    budget = budget_for(fit, shape)
    assert mu_of(budget.epsilon, budget.delta) == pytest.approx(3 * mu_of(1.0, 1e-6), rel=1e-6)
    assert (budget.delta, budget.adjacency) == (1e-6, relation)
    paid = replace(fit, preparation={"epsilon": 0.4, "delta": 1e-7})
    assert budget_for(paid, shape_of(ROWS, 900, handed=False)) == paid.training_budget()
    assert budget_for(fit, shape_of(ROWS, 1e12, handed=False)).epsilon < 1e6


def test_more_real_rows_than_a_simulation_needs_are_used():
    assert shape_of(100_000, 10**6, handed=False).records == 75_000
    assert shape_of(100_000, 500, handed=False).records == 500


def test_the_private_run_and_its_simulation_have_the_same_noise(monkeypatch):
    """60,000 records under the budget, 20,000 under the one that stands for it: the same noise on a mean gradient."""
    fit, rows = candidate(method=DpSgd(steps=10), size_is_public=True)
    seen = []
    real = public.simulated

    def watched(*arguments):
        seen.append(real(*arguments))
        return seen[-1]

    monkeypatch.setattr(public, "simulated", watched)
    public_scores([fit], [rows], size=60_000, repeats=2)
    sigma = seen[0].trace[-1].event.noise_multiplier
    wanted = 10**0.5 / mu_of(1.0, 1e-6)
    assert sigma / 20_000 == pytest.approx(wanted / 60_000, rel=1e-3)
    assert seen[0].statement.data["simulation"] is True


def test_labels_come_back():
    table = census(50)
    for loss in ("logistic", "softmax"):
        fit, rows = candidate(50, method=GOOD, loss=loss)
        assert np.array_equal(as_given(fit.labels, rows.y), table.y)


# --- ways to search ---------------------------------------------------------------------------------------------------


def recorded(losses):
    tried = []

    def trial(place, repeats):
        tried.append((place, repeats))
        return losses[place]

    return trial, tried


def test_halving_spends_its_runs_on_the_better_half_and_the_first():
    trial, tried = recorded([9.0, 5, 6, 7, 1, 2, 3, 4])
    halving(trial, range(8), 3)
    rounds = {repeats: [place for place, often in tried if often == repeats] for repeats in (1, 2, 3)}
    assert rounds == {1: [*range(8)], 2: [0, 4, 5, 6, 7], 3: [0, 4, 5, 6]}
    trial, tried = recorded([1.0, 2.0])
    halving(trial, range(2), 3)
    assert tried == [(0, 3), (1, 3)]


def test_halving_finds_the_same_with_fewer_runs():
    methods = [DeflatedDescent(steps=20, max_grad_norm=c) for c in (100.0, 30.0, 10.0, 3.0, 0.5)]
    fits, rows = several(*methods)
    every = public_scores(fits, rows, size=1000)
    fewer = public_scores(fits, rows, size=1000, search="halving")
    assert fewer.best == every.best == 4 and fewer.runs < every.runs == 15


def test_random_draws_so_many_and_always_the_first():
    fits, rows = several(*[GOOD] * 6)
    found = public_scores(fits, rows, size=500, search="random", trials=3, repeats=2)
    assert found.runs == 6 and sum(map(math.isfinite, found.scores)) == 3 and math.isfinite(found.scores[0])
    assert "3 of 6 candidates" in found.words
    assert {tuple(drawn(6, 3, seed)) for seed in range(20)} > {tuple(drawn(6, 3, 0))}
    assert drawn(1, 5, 0) == [0] and len(drawn(50, None, 0)) == 20


def test_settings_in_which_candidates_differ_and_the_nearest_of_them():
    fits, _ = several(DeflatedDescent(steps=5), DeflatedDescent(steps=5, l2=0.1), DpSgd(steps=5))
    settings = differing(fits)
    assert [one["method.l2"] for one in settings] == ["0.0", "0.1", "0.0"]
    assert [one["method"] for one in settings] == ["descent", "descent", "dpsgd"]
    assert "model" not in settings[0] and "method.steps" not in settings[0]
    assert nearest(settings[1], settings) == 1 and nearest({"method": "descent"}, settings) == 0


class Study:
    """As much of optuna's ask-and-tell interface as is used, choosing at random."""

    def __init__(self, seed):
        self.rng, self.queue, self.told = np.random.default_rng(seed), [], []

    def enqueue_trial(self, settings):
        self.queue.append(settings)

    def ask(self):
        fixed = self.queue.pop() if self.queue else {}
        draw = lambda name, values: fixed.get(name, values[self.rng.integers(len(values))])  # noqa: E731
        return SimpleNamespace(suggest_categorical=draw)

    def tell(self, trial, value):
        self.told.append(value)


def test_optuna_is_asked_for_settings_and_told_losses(monkeypatch):
    studies = []

    def create_study(*, direction, sampler):
        assert direction == "minimize"
        studies.append(Study(sampler))
        return studies[-1]

    fake = SimpleNamespace(
        create_study=create_study,
        samplers=SimpleNamespace(TPESampler=lambda seed: seed),
        logging=SimpleNamespace(set_verbosity=lambda level: None, WARNING=30),
    )
    monkeypatch.setitem(sys.modules, "optuna", fake)
    settings = [{"a": a, "b": b} for a in "xyz" for b in "uv"]
    trial, tried = recorded([3.0, 2.0, math.inf, 1.0, 5.0, 6.0])
    by_optuna(trial, settings, 2, 30, 0)
    assert tried[0] == (0, 2) and len(tried) == 30 == len(studies[0].told)
    assert {place for place, _ in tried} == set(range(6)) and max(studies[0].told) == 1e300
    fits, rows = several(BAD, GOOD)
    found = public_scores(fits, rows, size=3000, search="optuna", trials=8)
    assert found.best == 1 and found.runs == 6  # what was run is remembered


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="optuna is an optional extra, noisewise[tune]")
def test_optuna_itself_finds_the_better_candidate():
    fits, rows = several(BAD, GOOD, DeflatedDescent(steps=20, max_grad_norm=30.0))
    first, again = (public_scores(fits, rows, size=3000, search="optuna", trials=8, seed=2) for _ in range(2))
    assert first.best == 1 and first == again


def test_without_optuna_one_line_says_how_to_have_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    fits, rows = several(GOOD)
    with pytest.raises(ImportError, match=r"pip install 'noisewise\[tune\]'") as told:
        public_scores(fits, rows, size=100, search="optuna")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"search": "grid"}, "search"),
        ({"repeats": 1}, "repeats"),
        ({"trials": 3}, "search='random'"),
        ({"search": "random", "trials": 0}, "trials"),
        ({"size": -1.0}, "size"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    fits, rows = several(GOOD)
    with pytest.raises(ValueError, match=message):
        public_scores(fits, rows, **{"size": 100, **wrong})


def test_tables_that_do_not_go_together_are_refused():
    fits, rows = several(GOOD, BAD)
    with pytest.raises(ValueError, match="one table for each"):
        public_scores(fits, rows[:1], size=100)
    with pytest.raises(ValueError, match="different numbers of rows"):
        public_scores(fits, [rows[0], Records(rows[0].X[:-1], rows[0].y[:-1])], size=100)
    with pytest.raises(ValueError, match="at least 20"):
        public_scores(fits[:1], [Records(rows[0].X[:10], rows[0].y[:10])], size=100)


def test_a_table_of_cells_goes_through():
    table = census(ROWS)
    frame = pd.DataFrame(table.X)
    ready = nw.PrivateClassifier(1.0, 1e-6, schema=table.schema).ready(frame, table.y)
    assert isinstance(ready.scaling, Cells)
    found = public_scores([ready], [ready.private], size=3000, repeats=2, handed=False)
    assert found.best == 0 and 0 < found.scores[0] < 0.7
