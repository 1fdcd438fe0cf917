"""Scores of a model: exact on public rows, bought on private ones, with intervals that keep their word."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise import PrivateClassifier, PrivateRegressor
from noisewise.accounts import Budget
from noisewise.accounts.choosing import choose_meter
from noisewise.curator import Curator
from noisewise.evidence.bought_quality import private_quality
from noisewise.evidence.metrics import public_quality
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.events import from_dict

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (4000, 2))
LABELS = np.where(X[:, 0] + 0.4 * RNG.normal(size=4000) > 0, "yes", "no")
NUMBERS = 50 + 30 * X[:, 0] + 5 * RNG.normal(size=4000)


@pytest.fixture(scope="module")
def classifier():
    return PrivateClassifier(3.0, 1e-6, bounds=(-1, 1), method="dpsgd", random_state=0).fit(X, LABELS)


@pytest.fixture(scope="module")
def regressor():
    made = PrivateRegressor(3.0, 1e-6, bounds=(-1, 1), target_bounds=(0, 100), method="dpsgd", random_state=0)
    return made.fit(X, NUMBERS)


def rows(estimator, X=X):
    return estimator.fitted_.scaling(X)


def test_public_scores_are_exact(classifier, regressor):
    found = public_quality(classifier.fitted_, rows(classifier), LABELS)
    assert found.metric == "accuracy" and found.value == np.mean(classifier.predict(X) == LABELS)
    found = public_quality(regressor.fitted_, rows(regressor), NUMBERS)
    error = np.mean((regressor.predict(X) - NUMBERS) ** 2)
    assert found.metric == "mean squared error" and found.value == pytest.approx(error) and found.budget is None


def test_an_interval_never_claims_certainty_from_a_few_rows(classifier):
    sure = np.array([[0.9, 0.0]] * 8)
    found = public_quality(classifier.fitted_, rows(classifier, sure), np.array(["yes"] * 8))
    assert found.value == 1 and found.interval[0] < 0.8 and found.interval[1] == 1


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_private_scores_are_near_the_true_ones_at_a_generous_budget(classifier, regressor, adjacency):
    budget = Budget(20.0, 1e-6, adjacency=adjacency)
    accuracy = np.mean(classifier.predict(X) == LABELS)
    assert private_quality(classifier.fitted_, rows(classifier), LABELS, budget, seed=1).value == pytest.approx(
        accuracy, abs=0.01
    )
    error = np.mean((regressor.predict(X) - NUMBERS) ** 2)
    found = private_quality(regressor.fitted_, rows(regressor), NUMBERS, budget, seed=1)
    assert found.value == pytest.approx(error, rel=0.2) and found.interval[0] < error < found.interval[1]


def test_three_classes_are_counted_too():
    labels = np.digitize(X[:, 0], [-0.3, 0.3])
    made = PrivateClassifier(10.0, 1e-6, bounds=(-1, 1), random_state=0).fit(X, labels)
    found = private_quality(made.fitted_, rows(made), labels, Budget(20.0, 1e-6), seed=1)
    assert found.value == pytest.approx(np.mean(made.predict(X) == labels), abs=0.01)


@pytest.mark.parametrize("size_is_public", [False, True])
def test_events_fit_the_budget_and_spend_it(classifier, size_is_public):
    budget = Budget(0.7, 1e-7)
    found = private_quality(classifier.fitted_, rows(classifier), LABELS, budget, size_is_public=size_is_public)
    meter = choose_meter(budget, adaptive=True)
    for event in found.events:
        meter.spend(from_dict(event))
    assert len(found.events) == 2 - size_is_public and 0.999 < meter.spent_fraction <= 1 and found.budget == budget


@pytest.mark.parametrize(("epsilon", "size_is_public"), [(0.5, False), (0.5, True), (5.0, False)])
def test_intervals_cover_what_they_say(classifier, epsilon, size_is_public):
    """Fresh rows and fresh noise each time. 95 % of 300 intervals: at least 270 with probability 1 - 1e-4 or more."""
    truth = np.mean(classifier.predict(X) == LABELS)
    rng, covered, widths = np.random.default_rng(2), 0, []
    for seed in range(300):
        chosen = rng.integers(0, len(X), 400)
        found = private_quality(
            classifier.fitted_, rows(classifier, X[chosen]), LABELS[chosen], Budget(epsilon, 1e-6), seed=seed,
            size_is_public=size_is_public,
        )  # fmt: skip
        covered += found.interval[0] <= truth <= found.interval[1]
        widths.append(found.interval[1] - found.interval[0])
    assert covered >= 270 and np.median(widths) < 0.5
    assert epsilon > 1 or covered < 300  # it is not wide enough for everything


def test_nothing_is_asked_that_is_not_paid_for(classifier, monkeypatch):
    """The curator alone holds the rows, and its meter pays before it looks; the score is made of two answers."""
    seen = []
    original = Curator.ask

    def listening(self, what, **how):
        before = self.meter.spent_fraction
        answer = original(self, what, **how)
        seen.append((type(what).__name__, self.meter.spent_fraction > before))
        return answer

    monkeypatch.setattr(Curator, "ask", listening)
    private_quality(classifier.fitted_, rows(classifier), LABELS, Budget(1.0, 1e-6))
    assert seen == [("Count", True), ("ScoreHistogram", True)]


def test_tiny_data_and_tiny_budgets_give_a_share(classifier):
    for epsilon in (0.001, 1.0):
        for seed in range(20):
            found = private_quality(
                classifier.fitted_, rows(classifier, X[:2]), LABELS[:2], Budget(epsilon, 1e-6), seed=seed
            )
            assert 0 <= found.interval[0] <= found.value <= found.interval[1] <= 1


def test_a_schema_with_a_target_and_files_is_no_other_case(tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"a": X[:, 0], "y": LABELS})
    frame.to_csv(tmp_path / "d.csv", index=False)
    schema = Schema((Column("a", "number", -1, 1), Column("y", "category", categories=("yes", "no"))), "y")
    made = PrivateClassifier(3.0, 1e-6, schema=schema, method="dpsgd", random_state=0).fit_files(tmp_path / "d.csv")
    found = private_quality(made.fitted_, rows(made, made.fitted_.encoder(frame)), LABELS, Budget(20.0, 1e-6), seed=0)
    assert found.value == pytest.approx(np.mean(made.predict(frame) == LABELS), abs=0.01)
