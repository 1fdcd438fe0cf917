"""What a budget buys: noise that keeps within it, and ratios that agree with the curator's own noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.accounts import Budget, PlanMeter
from noisewise.curator import Curator
from noisewise.trusted.accountants import gdp, pld
from noisewise.trusted.accountants.calibrate import epsilon
from noisewise.trusted.accountants.plan import PlanRow, _noises, in_words, plan_rows, records_needed, sampling_name
from noisewise.trusted.events import FULL, Gaussian, Repeated, sampled
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear

ONE = Budget(1.0, 1e-6)
REPLACED = Budget(1.0, 1e-6, adjacency="replace_one")


@pytest.mark.parametrize(
    ("budget", "sampling", "steps"),
    [(ONE, ("poisson", 0.1), 100), (REPLACED, ("fixed", 0.1), 100), (REPLACED, ("poisson", 0.05), 500)],
)
def test_the_noise_keeps_within_the_budget_and_is_hardly_more_than_needed(budget, sampling, steps):
    row = next(row for row in plan_rows(budget, steps=[steps], rates=[sampling[1]]) if row.sampling == sampling)
    assert row.accountant == "pld"

    def price(noise):
        return epsilon(Repeated(sampled(sampling, Gaussian(noise)), steps), delta=1e-6, adjacency=budget.adjacency)

    assert price(row.noise_multiplier) <= 1.0 < price(row.noise_multiplier / 1.02)


def test_full_batches_are_priced_by_gdp_and_their_average_does_not_depend_on_the_steps():
    rows = plan_rows(ONE, size=5000, features=8, steps=[1, 30, 2000], rates=[])
    expected = math.sqrt(9) / (gdp.mu_of(1.0, 1e-6) * 5000)
    assert {row.accountant for row in rows} == {"gdp"}
    assert np.allclose([row.run_ratio for row in rows], expected, rtol=1e-5)
    assert [row.passes for row in rows] == [1, 30, 2000]
    assert all(dict(row.alternatives)["rdp"] > row.noise_multiplier for row in rows)


@pytest.mark.parametrize("sampling", [FULL, ("poisson", 0.1)])
def test_the_standard_deviation_is_the_one_that_a_curator_states(sampling):
    row = next(
        r for r in plan_rows(ONE, size=400, features=2, steps=[5], clip=0.5, rates=[0.1]) if r.sampling == sampling
    )
    plan = Repeated(sampled(sampling, Gaussian(row.noise_multiplier)), 5)
    X = np.random.default_rng(0).normal(size=(400, 3))
    X, y = X / np.linalg.norm(X, axis=1, keepdims=True), np.ones(400)
    private = Curator(X, y, model=Linear(3, Logistic()), meter=PlanMeter(ONE, plan), size=400.0, seed=0)
    answer = private.gradient(np.zeros(3), clip=0.5, noise_multiplier=row.noise_multiplier, sampling=sampling)
    assert answer.noise_std == pytest.approx(row.noise_std, rel=1e-3)
    assert row.step_ratio == pytest.approx(math.sqrt(3) * row.noise_std / 0.5)
    assert row.run_ratio == pytest.approx(row.step_ratio / math.sqrt(5))


def test_size_parameters_and_clip_move_the_noise_as_they_should():
    base = plan_rows(ONE, size=1000, features=3, steps=[20], rates=[])[0]
    larger = plan_rows(ONE, size=4000, features=15, steps=[20], clip=3.0, rates=[])[0]
    assert larger.noise_std == pytest.approx(base.noise_std * 3 / 4)
    assert larger.step_ratio == pytest.approx(base.step_ratio * 2 / 4)


def test_batches_of_fixed_size_appear_under_replace_one_only():
    kinds = [row.sampling for row in plan_rows(ONE, steps=[5], rates=[0.3])]
    assert kinds == [FULL, ("poisson", 0.3)]
    kinds = [row.sampling for row in plan_rows(REPLACED, steps=[5, 5], rates=[0.3, 0.3])]
    assert kinds == [FULL, ("poisson", 0.3), ("fixed", 0.3)]


def test_records_needed_are_enough_and_not_one_too_many():
    rows = plan_rows(ONE, size=777, features=20, steps=[10, 100], rates=[0.2])
    for need in records_needed(rows, size=777, ratios=[1.0, 0.03]):
        at = {"features": 20, "steps": [need.steps], "rates": [0.2]}
        found = {size: plan_rows(ONE, size=size, **at) for size in (need.records, need.records - 1)}
        ratios = {size: next(r.run_ratio for r in rows if r.sampling == need.sampling) for size, rows in found.items()}
        assert ratios[need.records] <= need.ratio < ratios[need.records - 1]


def test_words_name_the_least_noise_and_what_it_means():
    told = in_words(plan_rows(ONE, steps=[10, 100], rates=[0.2]))
    assert told.startswith("Full batch has the least noise")
    assert "Poisson 20 %: " in told and "a step reads 20 % of the records" in told and "aim well below 1" in told
    assert "have more records" in in_words(plan_rows(ONE, size=5, steps=[10], rates=[]))


def test_words_follow_the_numbers():
    full = PlanRow(FULL, 10, 4.0, "gdp", (), 100, 10, 0.04, 0.4, 0.13)
    better = PlanRow(("poisson", 0.5), 10, 1.0, "pld", (), 50, 5, 0.02, 0.2, 0.063)
    assert in_words([full, better]).startswith("Poisson 50 % has the least noise")


def test_prices_are_few_and_remembered(monkeypatch):
    calls, real = [], pld.epsilon_of
    monkeypatch.setattr(pld, "epsilon_of", lambda *args, **options: calls.append(1) or real(*args, **options))
    _noises.cache_clear()
    first = plan_rows(ONE, steps=[20, 60], rates=[0.15])
    assert 2 <= len(calls) <= 10
    calls.clear()
    assert plan_rows(ONE, steps=[20, 60], rates=[0.15]) == first and not calls


def test_a_budget_too_small_for_pld_still_has_noise():
    row = plan_rows(Budget(0.5, 1e-13), steps=[10], rates=[0.1])[1]
    assert dict(row.alternatives)["pld"] is None and row.accountant == "rdp"
    assert (
        epsilon(Repeated(sampled(row.sampling, Gaussian(row.noise_multiplier)), 10), delta=1e-13, accountant="rdp")
        <= 0.5
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"steps": []}, "steps is empty"),
        ({"steps": [0]}, "steps"),
        ({"rates": [1.0]}, "rate"),
        ({"size": 0}, "size"),
        ({"clip": -1.0}, "clip"),
        ({"features": 0}, "features"),
    ],
)
def test_bad_input_is_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        plan_rows(ONE, **options)


def test_names():
    assert [sampling_name(s) for s in (FULL, ("poisson", 0.125), ("fixed", 0.1))] == [
        "full batch",
        "Poisson 12.5 %",
        "fixed 10 %",
    ]
