"""AGD: precision-weighted gradients, budget growth when staying wins, prices, and its baseline AgdAvg."""

from __future__ import annotations

import math

import numpy as np
import pytest

import noisewise as nw
from noisewise.accounts import currency, open_meter
from noisewise.curator import Answer, Curator, PublicCurator
from noisewise.methods.agd import Agd, AgdAvg, by_precision, choice_epsilon
from noisewise.methods.nonprivate import OnlyPublic
from noisewise.train import Records, train
from noisewise.trusted.events import BoundedRange
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import Linear

BUDGET = nw.Budget(1.0, 1e-6)


def problem(n=4000, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.sign(X[:, 0] + 0.2 * rng.normal(size=n)), Linear(d, LOSSES["logistic"])


def run(method, public=False, budget=BUDGET, seed=1):
    X, y, model = problem()
    rows = PublicCurator(X[:30], y[:30], model=model) if public else None
    return train(method, Records(X, y, float(len(y)), 1.0), model=model, budget=budget, public=rows, seed=seed)


def test_average_by_precision_has_the_least_variance():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=200_000), 3 * rng.normal(size=200_000)
    both = by_precision(Answer(first, 1.0), Answer(second, 3.0))
    assert both.noise_std == pytest.approx(math.sqrt(0.9))
    assert both.value.std() == pytest.approx(both.noise_std, rel=0.01)


@pytest.mark.parametrize("name", ["gdp", "zcdp"])
@pytest.mark.parametrize("share", [0.5, 0.01, 1e-5])
def test_a_choice_costs_its_share_and_no_more(name, share):
    purse = currency(BUDGET, name)
    event = BoundedRange(choice_epsilon(share * purse.cap, name))
    assert purse.cost(event) == pytest.approx(share * purse.cap, rel=1e-6)


def test_staying_grows_the_budget_and_sharpens_the_gradient(monkeypatch):
    """When 0 always wins, theta stays, the known gradient's precision adds up, and no charge is made twice."""
    monkeypatch.setattr(
        Curator, "choose", lambda self, _, **kw: self._Curator__desk.meter.spend(BoundedRange(kw["epsilon"])) or 0
    )
    method, (X, y, model) = Agd(steps=30, gamma=0.5), problem()
    curator = Curator(
        X,
        y,
        model=model,
        meter=open_meter(BUDGET, method.terms(facts_of(model, BUDGET, size=4000, row_bound=1.0))),
        size=len(y),
        seed=0,
    )
    state = method.init(np.zeros(5), curator.facts, None)
    spent, precision = 0.0, 0.0
    for k in range(3):
        state = method.step(state, curator, None)
        lines = [line for line in curator.trace if line.question == "gradient"]
        precision = sum(line.noise_std**-2 for line in lines)
        assert state.gradient.noise_std == pytest.approx(precision**-0.5)
        assert state.cost == pytest.approx(0.7 / 30 * 1.5 ** (k + 1))
        spent = state.cost + (k + 1) * 0.3 / 30
        assert curator.meter.spent_fraction == pytest.approx(spent, rel=1e-6)
        assert len(lines) == k + 2
    assert np.array_equal(state.theta, np.zeros(5))
    while not method.done(state):
        state = method.step(state, curator, None)
    assert curator.meter.spent_fraction <= 1


def test_the_winner_is_the_candidate_with_the_least_loss():
    """With a generous budget the chosen step is the best candidate, not its neighbour (and not the worst)."""
    X, y, model = problem()
    method, rich = (
        Agd(steps=1, candidates=11, reach=5.0),
        facts_of(model, nw.Budget(50.0, 1e-3), size=4000, row_bound=1.0),
    )
    curator = Curator(X, y, model=model, meter=open_meter(rich.budget, Agd().terms(rich)), size=len(y), seed=0)
    state = method.step(method.init(np.zeros(5), rich, None), curator, None)
    direction = -state.theta / np.linalg.norm(state.theta)
    losses = [PublicCurator(X, y, model=model).loss(-0.5 * j * direction) for j in range(11)]
    best = min(range(11), key=losses.__getitem__)
    assert np.linalg.norm(state.theta) == pytest.approx(0.5 * best, abs=0.51)
    assert np.linalg.norm(state.theta) > 0


def test_zcdp_is_the_dearer_meter_and_both_learn():
    X, y, _ = problem(seed=5)
    for accounting, meter in (("modern", "gdp"), ("zcdp", "zcdp")):
        result = run(Agd(accounting=accounting))
        assert result.meter.name == meter
        assert 0.9 < result.meter.spent_fraction <= 1
        assert (np.sign(X @ result.theta) == y).mean() > 0.85
    assert run(Agd(accounting="zcdp")).trace[0].noise_std > run(Agd()).trace[0].noise_std


def test_agd_avg_is_the_mean_of_the_two_models():
    both = run(AgdAvg(), public=True).theta
    np.testing.assert_allclose(both, (run(Agd()).theta + run(OnlyPublic(), public=True).theta) / 2, rtol=1e-5)


def test_only_public_asks_nothing_and_costs_nothing():
    result = run(OnlyPublic(), public=True)
    assert result.trace == ()
    assert result.meter.epsilon == 0.0
    X, y, model = problem()
    other = train(
        OnlyPublic(), Records(-X[:9], y[:9], 9.0, 1.0), model=model, budget=BUDGET,
        public=PublicCurator(X[:30], y[:30], model=model), seed=3,
    )  # fmt: skip
    assert np.array_equal(result.theta, other.theta)
    bought = train(
        OnlyPublic(), Records(X, y, None, 1.0), model=model, budget=BUDGET, public=PublicCurator(X, y, model=model)
    )
    assert [line.question for line in bought.trace] == ["Count"]
    for method in (OnlyPublic(), AgdAvg()):
        with pytest.raises(ValueError, match="needs public rows"):
            run(method)


@pytest.mark.parametrize("settings", [{"candidates": 1}, {"choice_share": 1.0}, {"gamma": 0.0}, {"accounting": "pld"}])
def test_bad_settings_are_refused_by_name(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Agd(**settings)
