import math
import subprocess
import sys

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import brentq

from noisewise.trusted.accountants import Unpriceable, gdp, zcdp
from noisewise.trusted.accountants.gdp import epsilon_of, mu_of, root_of
from noisewise.trusted.events import (
    ApproximateDP,
    BoundedRange,
    FixedBatch,
    Gaussian,
    InvalidEvent,
    Poisson,
    Repeated,
    sampled,
)


@mp.workdps(50)
def exact_delta(mu, epsilon):
    mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
    return mp.ncdf(-epsilon / mu + mu / 2) - mp.exp(epsilon) * mp.ncdf(-epsilon / mu - mu / 2)


@pytest.mark.parametrize("delta", [1e-12, 1e-10, 1e-8, 1e-5, 1e-3, 0.1])
def test_conversions_agree_with_mpmath_and_round_to_the_safe_side(delta):
    for epsilon in np.geomspace(1e-4, 50, 15):
        mu = gdp.mu_of(epsilon, delta)
        assert delta * (1 - 1e-6) < exact_delta(mu, epsilon) <= delta
        assert gdp.delta_of(mu, epsilon) == pytest.approx(float(exact_delta(mu, epsilon)), rel=1e-9)
        back = gdp.epsilon_of(mu, delta)
        assert exact_delta(mu, back) <= delta
        assert back == pytest.approx(epsilon, rel=1e-7)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.05, 0.011226), (0.1, 0.021769), (0.5, 0.101384), (1.0, 0.196067)])
def test_known_values(epsilon, mu):
    assert gdp.mu_of(epsilon, 1e-8) == pytest.approx(mu, abs=6e-7)


def test_the_zcdp_route_is_worth_less():
    mu = math.sqrt(2 * zcdp.rho_of(0.1, 1e-8))
    assert mu == pytest.approx(0.016453, abs=6e-7)
    assert gdp.mu_of(0.1, 1e-8) / mu == pytest.approx(1.32, abs=0.005)


def test_one_gaussian_under_both_relations():
    assert gdp.plan_epsilon(Gaussian(4.0), 1e-5, "add_remove") == pytest.approx(0.926, abs=5e-4)
    assert gdp.plan_epsilon(Gaussian(4.0), 1e-5, "replace_one") == pytest.approx(1.993, abs=5e-4)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 20.0])
def test_a_bounded_range_answer_is_exactly_that_gdp(epsilon):
    """Its worst hockey-stick curve, found by brute force over t, touches the Gaussian one from below, at one point."""
    mu = math.sqrt(gdp.cost(BoundedRange(epsilon), "add_remove"))
    gaps = []
    for loss in np.linspace(0, epsilon, 21):
        t = np.linspace(0, epsilon, 2001)[1:]
        best = (np.expm1(-t) / math.expm1(-epsilon) * np.clip(-np.expm1(loss + t - epsilon), 0, None)).max()
        gaps.append(float(exact_delta(mu, loss)) - best)
        assert gaps[-1] >= 0
    assert min(gaps) < 1e-6
    assert any(
        exact_delta(mu * 0.99, loss) < (1 - math.exp((loss - epsilon) / 2)) ** 2 / -math.expm1(-epsilon)
        for loss in np.linspace(0, epsilon / 2, 21)
    )


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 20.0])
def test_pure_dp_is_exactly_that_gdp(epsilon):
    mu = math.sqrt(gdp.cost(ApproximateDP(epsilon), "add_remove"))
    p = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    for loss in np.linspace(0, epsilon, 21):
        assert p - mp.exp(loss) * (1 - p) <= exact_delta(mu, loss)
    assert p - (1 - p) > exact_delta(mu * 0.99, 0.0)


def test_sampling_earns_nothing_for_gaussians():
    full = gdp.cost(Gaussian(3.0), "replace_one")
    assert gdp.cost(Poisson(0.01, Gaussian(3.0)), "replace_one") == full
    assert gdp.cost(FixedBatch(0.01, Gaussian(3.0)), "replace_one") == full


def test_sampled_selections_are_charged_as_amplified_pure_dp():
    amplified = math.log1p(0.01 * math.expm1(1.0))
    for relation in ("add_remove", "replace_one"):
        price = gdp.cost(Poisson(0.01, BoundedRange(1.0)), relation)
        assert price == pytest.approx(gdp.cost(ApproximateDP(amplified), relation), rel=1e-9)
    # An (epsilon, delta) promise under replace_one says nothing of batches with and without a record: no amplification.
    assert gdp.cost(Poisson(0.01, ApproximateDP(1.0)), "replace_one") == gdp.cost(ApproximateDP(1.0), "replace_one")
    assert gdp.cost(FixedBatch(0.01, ApproximateDP(1.0)), "replace_one") < gdp.cost(ApproximateDP(1.0), "replace_one")


def test_refusals_name_the_event_and_the_reason():
    with pytest.raises(Unpriceable, match="add_remove"):
        gdp.cost(FixedBatch(0.1, Gaussian(1.0)), "add_remove")
    with pytest.raises(Unpriceable, match="delta > 0"):
        gdp.cost(ApproximateDP(1.0, 1e-6), "add_remove")
    with pytest.raises(InvalidEvent, match="Poisson"):
        gdp.cost(Poisson(0.1, Poisson(0.1, Gaussian(1.0))), "add_remove")
    with pytest.raises(ValueError, match="adjacency"):
        gdp.cost(Gaussian(1.0), "neighbour")


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_noise_for_is_the_inverse_of_cost(relation):
    for cost in np.geomspace(1e-12, 1e6, 200):
        sigma = gdp.noise_for(float(cost), ("poisson", 0.5), relation)
        spent = gdp.cost(sampled(("poisson", 0.5), Gaussian(sigma)), relation)
        assert cost * (1 - 1e-12) < spent <= cost


def test_one_shots_take_their_delta_from_the_plan():
    plan = [Repeated(Gaussian(50.0), 10), ApproximateDP(0.1, 4e-6)]
    pure = [Repeated(Gaussian(50.0), 10), ApproximateDP(0.1)]
    assert gdp.plan_epsilon(plan, 1e-5, "add_remove") == pytest.approx(
        gdp.plan_epsilon(pure, 6e-6, "add_remove"), rel=1e-6
    )
    with pytest.raises(Unpriceable, match="delta"):
        gdp.plan_epsilon(plan, 4e-6, "add_remove")


def test_deltas_of_all_kinds_of_one_shots_add_up():
    plan = [Gaussian(50.0), Repeated(ApproximateDP(0.1, 2e-6), 2), ApproximateDP(0.2, 1e-6)]
    pure = [Gaussian(50.0), Repeated(ApproximateDP(0.1), 2), ApproximateDP(0.2)]
    assert gdp.plan_epsilon(plan, 1e-5, "add_remove") == pytest.approx(
        gdp.plan_epsilon(pure, 5e-6, "add_remove"), rel=1e-6
    )
    with pytest.raises(Unpriceable, match="delta"):
        gdp.plan_epsilon(plan, 5e-6, "add_remove")


def test_roots_are_found_with_the_bits_of_scipy(monkeypatch):
    found = []

    def both(f, low, high):
        found.append((root_of(f, low, high), brentq(f, low, high, xtol=1e-300)))
        return found[-1][0]

    monkeypatch.setattr("noisewise.trusted.accountants.gdp.root_of", both)
    for epsilon, delta in np.geomspace((1e-3, 1e-12), (60.0, 0.4), 200).tolist():
        mu = mu_of(epsilon, delta)
        epsilon_of(mu, delta), epsilon_of(mu / 3, delta), mu_of(epsilon, 1e-6)
    assert len(found) > 600 and all(ours == theirs for ours, theirs in found)
    assert root_of(lambda x: x, 0.0, 1.0) == 0.0 and root_of(lambda x: x - 1, 0.0, 1.0) == 1.0


def test_a_price_waits_for_nothing_of_scipy_but_its_special_functions():
    priced = "from noisewise.trusted.accountants.gdp import mu_of; mu_of(1, 1e-6); import sys"
    told = f"{priced}; print([name in sys.modules for name in ('scipy.special', 'scipy.optimize')])"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == "[True, False]\n"
