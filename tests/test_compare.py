"""Simulated comparison: splits that do not overlap, seeds that repeat, refusals with their reason, honest errors."""

from __future__ import annotations

import json
import math
import pickle
import warnings

import numpy as np
import pytest
from joblib import parallel_config

import noisewise.faces.compare.compare as module
from noisewise.faces.compare.compare import Settings, compare, constant_score, document, sizes, split_rows
from noisewise.faces.compare.outcome import Row, ranked, unit_of
from noisewise.methods import RECOMMENDED, registry

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (600, 3))
LABELS = np.where(X @ [2.0, -1.0, 0.5] + 0.1 * RNG.normal(size=600) > 0.3, "yes", "no")
TARGETS = X @ [1.0, -0.5, 0.2]
BUDGET = {"epsilon": 2.0, "delta": 1e-6, "size": 2000}
CLASSES = {"task": "classification", **BUDGET}
NUMBERS = {"task": "regression", **BUDGET, "target_bounds": (-2.0, 2.0)}


def settings(**changes):
    values = dict.fromkeys(Settings.__slots__) | {"size": 50, "public_share": 0.1, "seed": 3}
    return Settings(**{**values, **changes})


@pytest.fixture(scope="module")
def rows():
    return compare(X, LABELS, **CLASSES, methods=["dpsgd", "nonprivate", "descent", "only_public", "pnsgd"], repeats=3)


def test_without_privacy_first_refused_last_and_the_best_in_between(rows):
    assert rows[0].method == "nonprivate" and rows[-1].method == "pnsgd"
    means = [row.mean for row in rows[1:-1]]
    assert means == sorted(means, reverse=True) and means[0] > 0.85


def test_a_row_sums_up_its_repeats(rows):
    row = next(row for row in rows if row.method == RECOMMENDED)
    reference = np.array(rows[0].scores)
    assert len(row.scores) == 3 and row.private and not row.public and row.refused is None and row.seconds > 0
    assert row.mean == pytest.approx(np.mean(row.scores))
    assert row.standard_error == pytest.approx(np.std(row.scores, ddof=1) / math.sqrt(3))
    assert row.worse == pytest.approx(np.mean(reference - row.scores))
    assert row.worse_error == pytest.approx(np.std(reference - row.scores, ddof=1) / math.sqrt(3))
    assert rows[0].worse is None and not rows[0].private
    assert next(row for row in rows if row.method == "only_public").public


def test_refusals_keep_their_reason(rows):
    refused = rows[-1]
    assert "replace_one" in refused.refused and refused.mean is None and refused.standard_error is None
    assert refused.scores == () and refused.worse is None
    left_out = compare(X, LABELS, **CLASSES, methods=["only_public"], repeats=1, public_share=0.0)[0]
    assert "needs public rows" in left_out.refused


def test_the_same_seed_gives_the_same_scores_whatever_the_processes(rows):
    with parallel_config(backend="threading"):  # processes would spend their time on imports
        again = compare(X, LABELS, **CLASSES, methods=["nonprivate", "dpsgd"], repeats=3, jobs=2)
    before = {row.method: row.scores for row in rows}
    assert {row.method: row.scores for row in again} == {name: before[name] for name in ("nonprivate", "dpsgd")}
    other = compare(X, LABELS, **CLASSES, methods=["dpsgd"], repeats=3, seed=1)
    assert other[0].scores != before["dpsgd"] and other[0].worse is None


def test_what_is_sent_between_processes_can_be_sent():
    sent = settings(task="classification", classes=[0, 1], bounds=np.zeros((3, 2)))
    assert pickle.loads(pickle.dumps(sent)).classes == [0, 1]
    outcome = module.RepeatScore("descent", 0, None, "why", 0.1, ("careful",))
    assert pickle.loads(pickle.dumps((module._in_worker, outcome)))[1] == outcome


def test_regression_is_scored_by_its_error_and_less_is_better():
    rows = compare(X, TARGETS, **NUMBERS, methods=["sgd_adv", "descent", "nonprivate"], repeats=2)
    assert [row.method for row in rows] == ["nonprivate", "descent", "sgd_adv"]
    assert rows[0].mean < 0.01 < constant_score(TARGETS, task="regression") and rows[1].worse > 0


def test_more_budget_helps():
    poor, rich = (
        compare(X, TARGETS, **{**NUMBERS, "epsilon": epsilon}, methods=["dpsgd"], repeats=2)[0].mean
        for epsilon in (0.05, 5.0)
    )
    assert rich < poor / 2


def test_parts_do_not_overlap_and_private_rows_are_drawn_with_replacement():
    parts = split_rows(100, settings(size=400), 0)
    pool = set(parts.private.tolist())
    assert len(parts.private) == 400 and len(pool) <= 72 and len(parts.public) == 8 and len(parts.test) == 20
    assert not pool & set(parts.public.tolist()) and not pool & set(parts.test.tolist())
    assert not set(parts.public.tolist()) & set(parts.test.tolist())
    same, next_one = split_rows(100, settings(size=400), 0), split_rows(100, settings(size=400), 1)
    assert (same.private == parts.private).all() and same.seed == parts.seed != next_one.seed
    assert set(next_one.test.tolist()) != set(parts.test.tolist())


class Witness:
    """An estimator that records what it was given."""

    def __init__(self, name, seen, fault=None):
        self.name, self.seen, self.fault = name, seen, fault

    def fit(self, rows, labels, public=None):
        self.seen.append((self.name, rows, public))
        if self.fault:
            raise self.fault
        warnings.warn("mind the gap", UserWarning, stacklevel=2)
        return self

    def predict(self, rows):
        return np.full(len(rows), "no")


def test_only_methods_that_need_them_get_public_rows_and_warnings_are_kept(monkeypatch):
    seen, heard = [], []
    monkeypatch.setattr(module, "_estimator", lambda name, *_: Witness(name, seen))
    rows = compare(
        X,
        LABELS,
        **CLASSES,
        methods=["descent", "ppsgd"],
        repeats=2,
        report=lambda done, total: heard.append((done, total)),
    )
    assert [(name, public is None) for name, _, public in seen] == [("descent", True), ("ppsgd", False)] * 2
    assert all(len(drawn) == 2000 for _, drawn, _ in seen) and {len(pair[0]) for _, _, pair in seen if pair} == {48}
    assert rows[0].warnings == ("mind the gap",)
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_reason_is_one_line_and_a_bug_is_not_a_refusal(monkeypatch):
    monkeypatch.setattr(module, "_estimator", lambda name, *_: Witness(name, [], ValueError("no\n  way")))
    assert compare(X, LABELS, **CLASSES, methods=["descent"], repeats=1)[0].refused == "no way"
    monkeypatch.setattr(module, "_estimator", lambda name, *_: Witness(name, [], TypeError("a bug")))
    with pytest.raises(TypeError, match="a bug"):
        compare(X, LABELS, **CLASSES, methods=["descent"], repeats=1)


def test_estimators_are_seeded_simulations_with_a_public_size():
    chosen = module._estimator("dpsgd", settings(task="classification", epsilon=1.0, delta=1e-6, loss="auto"), 7)
    assert chosen.size_is_public is True and chosen.random_state == 7 and chosen.method == "dpsgd"
    chosen = module._estimator("dpsgd", settings(task="regression", target_bounds=(0, 1)), 7)
    assert chosen.size_is_public is True and chosen.random_state == 7 and chosen.target_bounds == (0, 1)


def test_all_methods_are_taken_when_none_is_named(monkeypatch):
    monkeypatch.setattr(module, "_estimator", lambda name, *_: Witness(name, []))
    assert {row.method for row in compare(X, LABELS, **CLASSES, repeats=1)} == set(registry())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task": "ranking"}, "task"),
        ({"delta": 0.01}, "above 1/size"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"adjacency": "none"}, "adjacency"),
        ({"size": 0}, "size"),
        ({"repeats": 0}, "repeats"),
        ({"methods": ["magic"]}, "magic"),
        ({"methods": []}, "methods is empty"),
        ({"public_share": 1.0}, "public_share"),
    ],
)
def test_bad_input_is_refused_at_once(monkeypatch, changes, reason):
    monkeypatch.setattr(module, "_outcome", lambda *_: pytest.fail("a run was started"))
    with pytest.raises(ValueError, match=reason):
        compare(X, LABELS, **{**CLASSES, **changes})


def test_shapes_and_too_few_rows():
    with pytest.raises(ValueError, match="one label each"):
        compare(X, LABELS[:-1], **CLASSES)
    with pytest.raises(ValueError, match="too few"):
        compare(X[:15], LABELS[:15], **CLASSES)
    assert sizes(100, 0.0) == (80, 0, 20) and sizes(20, 0.01) == (14, 2, 4)


def test_one_answer_for_all():
    assert constant_score(["a", "b", "a", "a"], task="classification") == 0.75
    assert constant_score([0.0, 2.0], task="regression") == 1.0


def test_the_document_is_plain_json_with_what_a_report_needs(rows):
    told = document(
        rows,
        task="classification",
        epsilon=2.0,
        delta=1e-6,
        adjacency="add_remove",
        size=2000,
        repeats=3,
        recommended="additive",
        files=["a.csv"],
    )
    told = json.loads(json.dumps(told, allow_nan=False))
    assert {"epsilon", "delta", "adjacency", "size", "repeats", "metric", "rows"} <= set(told)
    assert told["metric"] == "accuracy" and told["better"] == "higher" and told["files"] == ["a.csv"]
    assert told["recommended"] == "additive"
    assert {"method", "mean", "standard_error", "refused", "public"} <= set(told["rows"][0])
    assert "bootstrapped" in told["note"] and "simulations" in told["note"] and "public" in told["note"]


def test_units_for_people():
    def row(mean):
        return Row("descent", mean, None, None, False, True, 0.0, ())

    assert unit_of([row(4.5e9), row(None)], "mean squared error") == (1e9, "mean squared error / 1e+09")
    assert unit_of([row(0.02)], "mean squared error") == (1e-3, "mean squared error / 1e-03")
    assert unit_of([row(12.0), row(0.0)], "mean squared error") == (1.0, "mean squared error")


def test_ranking_puts_refused_methods_last():
    def row(method, mean, private=True):
        return Row(method, mean, None, None if mean else "why", False, private, 0.0, ())

    mixed = [row("a", None), row("b", 0.2), row("c", 0.3), row("n", 0.1, private=False)]
    assert [r.method for r in ranked(mixed, "classification")] == ["n", "c", "b", "a"]
    assert [r.method for r in ranked(mixed, "regression")] == ["n", "b", "c", "a"]
