"""Baselines that differ from DP-SGD in their price only: the price is kept, and it is the dearer one."""

from __future__ import annotations

import numpy as np
import pytest

import noisewise as nw
from noisewise.accounts import open_meter
from noisewise.methods.dpsgd import DpSgd, SgdAdv, SgdMa
from noisewise.train import Records, train
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import Linear

MODEL = Linear(4, LOSSES["logistic"])
BUDGET = nw.Budget(1.0, 1e-5)


def facts(budget=BUDGET, size=2000):
    return facts_of(MODEL, budget, size=size, row_bound=1.0)


def meter_of(method, budget=BUDGET, size=2000):
    return open_meter(budget, method.terms(facts(budget, size)))


@pytest.mark.parametrize("kind, accountant", [(SgdAdv, "advanced"), (SgdMa, "moments")])
def test_the_plan_is_priced_by_the_papers_accountant_and_fills_it(kind, accountant):
    method = kind(steps=50)
    meter = meter_of(method)
    assert meter.accountant == accountant
    assert 0.99 < meter.epsilon <= 1.0
    tight = DpSgd(steps=50, sampling=method.sampling).noise_multiplier(facts())
    assert method.noise_multiplier(facts()) > 1.05 * tight
    events = nw.events.Repeated(
        nw.events.sampled(method.sampling, nw.events.Gaussian(method.noise_multiplier(facts()))), 50
    )
    assert nw.epsilon(events, delta=1e-5) < 1.0


@pytest.mark.parametrize("kind", [SgdAdv, SgdMa])
def test_with_the_noise_of_dpsgd_the_walk_is_that_of_dpsgd(kind, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.sign(X[:, 0])
    first = train(kind(steps=20), Records(X, y, 2000.0, 1.0), model=MODEL, budget=BUDGET, seed=1)
    sigma = kind(steps=20).noise_multiplier(facts())
    assert {line.event.event.noise_multiplier for line in first.trace} == {sigma}
    monkeypatch.setattr(DpSgd, "noise_multiplier", lambda self, facts: sigma)
    same = train(
        DpSgd(steps=20, sampling=kind().sampling), Records(X, y, 2000.0, 1.0), model=MODEL, budget=BUDGET, seed=1
    )
    assert np.array_equal(first.theta, same.theta)


def test_the_moments_accountant_refuses_what_it_cannot_reach():
    with pytest.raises(ValueError, match=r"cannot go below 0\.5756 at delta 1e-08"):
        meter_of(SgdMa(), nw.Budget(0.5, 1e-8))
    with pytest.raises(ValueError, match="add_remove"):
        meter_of(SgdMa(), nw.Budget(1.0, 1e-5, adjacency="replace_one"))
    assert meter_of(SgdMa(steps=10), size=None).epsilon <= 1.0


def test_advanced_composition_refuses_a_bought_size_with_a_way_out():
    with pytest.raises(ValueError, match="pass size_is_public=True"):
        meter_of(SgdAdv(), size=None)
    assert meter_of(SgdAdv(steps=20), nw.Budget(0.5, 1e-8, adjacency="replace_one")).epsilon <= 0.5
