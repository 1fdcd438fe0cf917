"""Growing batches: the plan fits the budget, and few stages price quickly."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import noisewise as nw
from noisewise.accounts import Budget
from noisewise.methods.dpsgd import DpSgd
from noisewise.methods.growing_batch import GrowingBatch
from noisewise.train import Records, train
from noisewise.trusted.events import Poisson, Repeated
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear

D = 10
MODEL = Linear(D, Logistic())


def facts(adjacency="add_remove", size=1000.0):
    return facts_of(MODEL, Budget(1.0, 1e-6, adjacency), size=size, row_bound=1.0)


@pytest.mark.parametrize("noise", ["constant", "proportional"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_the_plan_spends_the_budget_and_no_more(noise, adjacency):
    plan = GrowingBatch(noise=noise).plan(facts(adjacency))
    counts = Counter(plan)
    assert len(plan) == 100
    assert len(counts) == 4
    events = [Repeated(step, count) for step, count in counts.items()]
    assert 0.99 < nw.epsilon(events, delta=1e-6, adjacency=adjacency) <= 1.0
    sigmas = [step.event.noise_multiplier for step in plan]
    rates = [step.rate for step in plan]
    assert rates == sorted(rates)
    assert (rates[0], rates[-1]) == (0.05, 0.5)
    assert len(set(sigmas)) == 1 if noise == "constant" else sigmas[-1] / sigmas[0] == pytest.approx(10.0)


def test_one_stage_is_dpsgd():
    ours = GrowingBatch(stages=1, first_rate=0.2).plan(facts())
    theirs = DpSgd(sampling=("poisson", 0.2)).noise_multiplier(facts())
    assert set(ours) == {Poisson(0.2, ours[0].event)}
    assert ours[0].event.noise_multiplier == pytest.approx(theirs, rel=3e-4)


def test_a_bought_size_joins_the_plan():
    alone, joined = GrowingBatch().plan(facts()), GrowingBatch().plan(facts(size=None))
    assert joined[0].event.noise_multiplier > alone[0].event.noise_multiplier


def test_it_learns_about_as_well_as_the_full_batch_from_a_quarter_of_the_records():
    """Cheaper, not better: at a mean rate of 0.22 its accuracy is that of full batches, and of Poisson ones."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8000, D))
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    y = np.sign(X @ rng.normal(size=D))
    records = Records(X[:6000], y[:6000], 6000.0, row_bound=1.0)

    def accuracy(method):
        theta = train(method, records, model=MODEL, budget=Budget(0.5, 1e-6), seed=0).theta
        return (np.sign(X[6000:] @ theta) == y[6000:]).mean()

    assert sum(GrowingBatch().rates()) < 25
    assert accuracy(GrowingBatch()) > accuracy(DpSgd()) - 0.02


def test_fewer_steps_than_stages():
    assert len(GrowingBatch(steps=2).rates()) == 2
    assert GrowingBatch(steps=1).rates() == (0.05,)


@pytest.mark.parametrize("wrong", [{"first_rate": 0.0}, {"last_rate": 1.5}, {"stages": 0}, {"noise": "none"}])
def test_wrong_settings_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        GrowingBatch(**wrong)
