"""PPSGD: growth of the budget, shrinking of the clip, the paper's conditions, model reuse."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

import noisewise as nw
from noisewise.curator import PublicCurator
from noisewise.methods.ppsgd import PpSgd, as_published, paper_ceiling, reuse
from noisewise.train import Records, train
from noisewise.trusted.accountants import tcdp
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import MLP, Linear

BUDGET = nw.Budget(0.5, 1e-8, adjacency="replace_one")


def problem(n=5000, d=10, seed=0, loss="logistic", hidden=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.sign(X @ np.linspace(-3, 3, d) + 0.3 * rng.normal(size=n))
    model = Linear(d, LOSSES[loss]) if hidden is None else MLP((d, hidden, 1), LOSSES[loss])
    return X, y, model


def run(method, budget=BUDGET, public=20, **kwargs):
    X, y, model = problem(**kwargs)
    rows = PublicCurator(X[:public], y[:public], model=model, seed=0) if public else None
    return train(
        method, Records(X[public:], y[public:], float(len(y) - public), 1.0), model=model, budget=budget, public=rows,
        seed=1,
    )  # fmt: skip


def test_budget_grows_by_alpha_only_while_noise_drowns_the_public_gradient():
    always = run(PpSgd(steps=40, phi=1e-6, alpha=0.5, tail=0.0))
    spends = [line.spent for line in always.trace]
    costs = [b - a for a, b in zip([0.0, *spends[:-1]], spends, strict=True)]
    assert costs[0] == pytest.approx(1 / 40, rel=1e-6)
    for before, after in pairwise(costs[:-1]):
        assert after == pytest.approx(1.5 * before, rel=1e-6)
    assert costs[-1] > costs[-2]  # the last step takes the rest
    assert spends[-1] == pytest.approx(1.0, abs=1e-9)

    never = run(PpSgd(steps=40, phi=1e9))
    assert never.steps == 40
    assert len(never.meter.events) <= 2
    assert never.trace[-1].spent == pytest.approx(1.0, abs=1e-9)


def test_clip_shrinks_by_beta_only_below_the_public_gradient():
    falling = [line.clip for line in run(PpSgd(steps=8, varphi=1e-6, beta=0.25, phi=1e9)).trace]
    for before, after in pairwise(falling):
        assert after == pytest.approx(0.75 * before)
    assert {line.clip for line in run(PpSgd(steps=8, varphi=1e9, phi=1e9)).trace} == {1.0}
    # one record's gradient does not vanish with the mean: in the max-norm form the clip stays
    mean, largest = (
        run(PpSgd(steps=8, varphi=3.0, clip_rule=rule, phi=1e9, max_grad_norm=0.5)).trace[-1].clip
        for rule in ("mean", "max")
    )
    assert mean < largest == 0.5


def test_the_noise_on_the_mean_is_that_of_the_paper():
    """Variance 2 C^2 / (s^2 rho^s) on the mean of s gradients, rho^s = rho_t / (13 (s/m)^2)."""
    method = as_published(0.02, 4000, l2=0.01)
    result = run(method, n=5020)
    rho_total, _ = tcdp.totals(0.5, 1e-8)
    batch, rho_s = 100, rho_total / 4000 / (13 * 0.02**2)
    line = result.trace[0]
    assert line.noise_std == pytest.approx(math.sqrt(2 * line.clip**2 / (batch**2 * rho_s)), rel=1e-6)


def test_growth_stops_where_the_amplified_omega_would_fall_below_the_total():
    facts = facts_of(Linear(10, LOSSES["logistic"]), BUDGET, size=5000, row_bound=1.0)
    _, omega_total = tcdp.totals(0.5, 1e-8)
    ceiling = paper_ceiling(facts, 0.01)
    rho_total = tcdp.totals(0.5, 1e-8)[0]
    assert ceiling * rho_total / (13 * 0.01**2) == pytest.approx(0.0153, abs=1e-4)  # the worked example of the analysis
    result = run(as_published(0.01, math.ceil(2 / ceiling), phi=1e-9, alpha=1.0))
    for line in result.trace:
        rho, omega = tcdp.pair(line.event, "replace_one")
        assert omega >= omega_total
        assert rho <= ceiling * rho_total * (1 + 1e-6)
    sigmas = [line.event.event.noise_multiplier for line in result.trace]
    assert sigmas[0] > 1.4 * sigmas[2]
    assert sigmas[2:-1] == pytest.approx([sigmas[2]] * (len(sigmas) - 3))  # grown twice, then at the cap


@pytest.mark.parametrize(
    "method, budget, message",
    [
        (as_published(0.01, 3), BUDGET, "pass steps >= "),
        (as_published(0.2, 1000), BUDGET, "at most 0.1"),
        (PpSgd(accounting="paper"), BUDGET, "fixed-size batches"),
        (as_published(0.01, 1000), nw.Budget(0.5, 1e-8), "replace_one"),
        (PpSgd(), BUDGET, "public is missing; ppsgd needs public rows"),
    ],
)
def test_what_the_paper_does_not_prove_is_refused_with_the_reason(method, budget, message):
    with pytest.raises(ValueError, match=message):
        run(method, budget, public=0)


def test_reuse_solves_line_25_and_can_be_run_again():
    X, y, model = problem(300)
    theta = np.linspace(0, 1, 10)
    for rows in (20, 300):
        public = PublicCurator(X[:rows], y[:rows], model=model)
        found = reuse(theta, public, 0.1)
        stationary = public.gradient(found).value + 2 * 0.1 * (found - theta)
        assert np.linalg.norm(stationary) < 1e-4
    assert np.abs(reuse(theta, public, 1e4) - theta).max() < 1e-3


def test_the_tail_is_weighted_by_what_its_steps_cost(monkeypatch):
    seen = []
    inner = PpSgd.step

    def watched(self, state, private, public):
        after = inner(self, state, private, public)
        seen.append((after.theta, private.meter.spent_fraction))
        return after

    monkeypatch.setattr(PpSgd, "step", watched)
    result = run(PpSgd(steps=20, phi=1e-6, tail=0.6, reuse=1e7))
    ends = [spent for _, spent in seen]
    weights = [b - a if 1 - b < 0.6 else 0.0 for a, b in zip([0.0, *ends[:-1]], ends, strict=True)]
    mean = sum(w * theta for w, (theta, _) in zip(weights, seen, strict=True)) / sum(weights)
    np.testing.assert_allclose(result.theta, mean, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("sampling", [("poisson", 0.05), ("fixed", 0.05)])
def test_sampled_batches_are_metered_at_one_renyi_order(sampling):
    result = run(PpSgd(steps=10, sampling=sampling))
    assert result.meter.describe()["name"] == "rdp"
    assert result.meter.spent_fraction <= 1


def test_learns_with_one_default_on_every_model():
    for loss, hidden in (("hinge", None), ("squared", None), ("logistic", 8)):
        result = run(PpSgd(), nw.Budget(2.0, 1e-6, adjacency="replace_one"), loss=loss, hidden=hidden)
        X, y, model = problem(2000, seed=7, loss=loss, hidden=hidden)
        assert (np.sign(model.scores(result.theta, X).ravel()) == y).mean() > 0.85


@pytest.mark.parametrize(
    "settings", [{"beta": 1.0}, {"tail": -0.1}, {"phi": 0.0}, {"clip_rule": "median"}, {"accounting": "pld"}]
)
def test_bad_settings_are_refused_by_name(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        PpSgd(**settings)
