"""The statistics: right by independent computations, and their error rates by summing over all outcomes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from noisewise.evidence.audit.error_bounds import epsilon_bound, exact_epsilon, gdp_mu, pooled_mu, strength, upper_bound
from noisewise.trusted.accountants.gdp import delta_of, epsilon_of


@pytest.mark.parametrize("errors, trials", [(0, 10), (3, 10), (9, 10), (10, 10), (17, 400)])
@pytest.mark.parametrize("level", [0.05, 0.001])
def test_the_upper_bound_is_clopper_and_pearsons(errors, trials, level):
    bound = float(upper_bound(errors, trials, level))
    told = binomtest(errors, trials, alternative="less").proportion_ci(1 - level, method="exact")
    assert bound == pytest.approx(told.high, abs=1e-9)
    if errors < trials:
        assert binom.cdf(errors, trials, bound) == pytest.approx(level, rel=1e-6)


def missed(bound_of, fpr, fnr, trials):
    """The probability, over both counts, that a bound exceeds the truth."""
    counts = np.arange(trials + 1)
    fp, fn = np.meshgrid(counts, counts, indexing="ij")
    chance = np.outer(binom.pmf(counts, trials, fpr), binom.pmf(counts, trials, fnr))
    return float(chance[bound_of(fp, fn)].sum())


@pytest.mark.parametrize("trials", [20, 100])
@pytest.mark.parametrize("confidence", [0.95, 0.6])
@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("at", [0.05, 0.3, 0.5, 0.8])
def test_bounds_on_mu_exceed_the_truth_no_more_often_than_stated(mu, at, trials, confidence):
    """``at``: the false-positive rate of a best test for N(0, 1) against N(mu, 1)."""
    fpr, fnr = at, float(norm.cdf(norm.isf(at) - mu))
    for bound in (gdp_mu, pooled_mu):
        rate = missed(lambda fp, fn, bound=bound: bound(fp, fn, trials, confidence) > mu, fpr, fnr, trials)
        assert rate <= 1 - confidence + 1e-12


def test_the_pooled_bound_is_not_idle_and_beats_the_other_at_the_middle():
    mu, trials = 1.0, 200
    rate = float(norm.cdf(-mu / 2))
    over = missed(lambda fp, fn: pooled_mu(fp, fn, trials, 0.95) > mu, rate, rate, trials)
    assert 0.02 < over <= 0.05
    near = [missed(lambda fp, fn, f=f: f(fp, fn, trials, 0.95) > 0.7, rate, rate, trials) for f in (gdp_mu, pooled_mu)]
    assert near[1] > near[0] + 0.2


@pytest.mark.parametrize("epsilon, delta", [(1.0, 0.0), (0.5, 0.1), (2.0, 0.25)])
@pytest.mark.parametrize("trials", [30, 100])
def test_the_exact_bound_accuses_the_worst_mechanism_no_more_often_than_stated(epsilon, delta, trials):
    """The corner of the region of (epsilon, delta), both ways round, and points along its edge."""
    corner = (1 - delta) / (1 + math.exp(epsilon))
    for fpr in (0.0, corner / 3, corner):
        fnr = 1 - delta - math.exp(epsilon) * fpr
        for a, b in ((fpr, fnr), (fnr, fpr)):
            over = missed(lambda fp, fn: exact_epsilon(fp, fn, trials, delta, 0.95) > epsilon, a, b, trials)
            assert over <= 0.05 + 1e-12


def test_plain_rates_instead_of_bounds_would_accuse_the_innocent():
    """The check above can fail: it does for rates that were merely counted."""
    epsilon, trials = 0.5, 100
    corner = 1 / (1 + math.exp(epsilon))

    def careless(fp, fn):
        return np.log(np.maximum(trials - fn, 1e-9) / np.maximum(fp, 1e-9)) > epsilon

    assert missed(careless, corner, corner, trials) > 0.3


def test_an_epsilon_from_mu_is_that_of_gaussian_dp_and_not_rounded_up():
    mu = float(pooled_mu(300, 310, 1000, 0.95))
    bound = epsilon_bound("pooled", 300, 310, 1000, 1e-5, 0.95)
    assert bound == pytest.approx(epsilon_of(mu, 1e-5), rel=1e-6)
    assert delta_of(mu, bound) >= 1e-5


def test_guessing_and_worse_prove_nothing():
    for kind in ("exact", "gdp", "pooled"):
        assert epsilon_bound(kind, 50, 50, 100, 1e-5, 0.95) == 0
        assert epsilon_bound(kind, 100, 100, 100, 1e-5, 0.95) == 0
    with pytest.raises(ValueError, match="kind"):
        strength("normal", 1, 1, 10, 1e-5, 0.95)
