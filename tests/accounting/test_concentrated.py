"""zCDP, tCDP and ctCDP."""

import math

import mpmath as mp
import pytest

from noisewise.trusted.accountants import Unpriceable, tcdp, zcdp
from noisewise.trusted.events import ApproximateDP, BoundedRange, FixedBatch, Gaussian, Poisson, Repeated

RATE = 1000 / 26048


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_zcdp_conversion_rounds_to_the_safe_side(epsilon, delta):
    rho = zcdp.rho_of(epsilon, delta)
    with mp.workdps(50):
        L = -mp.log(mp.mpf(delta))
        exact = epsilon + 2 * L - 2 * mp.sqrt(L * (epsilon + L))
    assert exact * (1 - 1e-13) < rho <= exact
    assert zcdp.epsilon_of(rho, delta) <= epsilon


def test_zcdp_costs():
    assert zcdp.cost(Gaussian(2.0), "add_remove") == pytest.approx(1 / 8)
    assert zcdp.cost(Gaussian(2.0), "replace_one") == pytest.approx(1 / 2)
    assert zcdp.cost(BoundedRange(0.4), "add_remove") == pytest.approx(0.02)
    assert zcdp.cost(ApproximateDP(0.4), "add_remove") == pytest.approx(0.08)
    with pytest.raises(Unpriceable, match="delta"):
        zcdp.cost(ApproximateDP(0.4, 1e-9), "add_remove")


@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-8), (0.5, 1e-8), (3.0, 1e-5)])
def test_ctcdp_is_exactly_ppsgd_equation_3(epsilon, delta):
    rho, omega = tcdp.ctcdp(epsilon, delta)
    L = math.log(1 / delta)
    rho_total = epsilon + 2 * L - 2 * math.sqrt(L * (epsilon + L))
    assert rho == pytest.approx(rho_total, rel=1e-9)
    assert omega == pytest.approx(math.sqrt(L / rho_total) + 1, rel=1e-9)
    assert (rho, omega) == pytest.approx(tcdp.totals(epsilon, delta), rel=1e-12)


def test_the_printed_brackets_would_be_seen():
    a = math.log(1e8) / 0.5
    assert tcdp.ctcdp(0.5, 1e-8)[0] == pytest.approx(0.00335, abs=5e-6)
    assert 0.5 * (math.sqrt(a + 1) + math.sqrt(a)) ** 2 == pytest.approx(74.7, abs=0.05)


def test_the_condition_that_ppsgd_forgets():
    _, omega_total = tcdp.totals(0.5, 1e-8)
    largest = math.log(100) / (4 * omega_total)
    assert largest == pytest.approx(0.0153, abs=5e-5)
    inside = FixedBatch(0.01, Gaussian(math.sqrt(2 / (largest * 0.999))))
    outside = FixedBatch(0.01, Gaussian(math.sqrt(2 / (largest * 1.001))))
    assert tcdp.cost(inside, "replace_one", omega_total) == pytest.approx(13e-4 * largest * 0.999)
    with pytest.raises(Unpriceable, match=r"omega .* after sampling, but the budget needs at least omega_total 75\.1"):
        tcdp.cost(outside, "replace_one", omega_total)


@pytest.mark.parametrize(
    ("rho", "omega", "rate", "condition"),
    [
        (0.05, math.inf, 0.2, r"rate of at most 0\.1"),
        (0.2, math.inf, 0.01, r"rho of at most 0\.1"),
        (0.05, 10.0, 0.01, r"omega >= log\(1/s\)/\(2 rho\)"),
    ],
)
def test_every_condition_is_enforced_with_its_numbers(rho, omega, rate, condition):
    with pytest.raises(Unpriceable, match=condition):
        tcdp.amplify(rho, omega, rate)


def test_the_seeds_noise_is_reproduced():
    rho, omega = tcdp.totals(0.5, 1e-8)
    noise = tcdp.noise_for(rho / 300, ("fixed", RATE), "replace_one", omega)
    assert noise == pytest.approx(58.6, abs=0.05)
    plan = Repeated(FixedBatch(RATE, Gaussian(noise)), 300)
    assert 0.4999 < tcdp.plan_epsilon(plan, 1e-8, "replace_one") <= 0.5 * (1 + 1e-12)


def test_amplification_is_what_the_theorem_says():
    rho, omega = tcdp.amplify(0.01, math.inf, 0.05)
    assert rho == pytest.approx(13 * 0.05**2 * 0.01)
    assert omega == pytest.approx(math.log(20) / 0.04)


def test_poisson_and_add_remove_are_refused():
    with pytest.raises(Unpriceable, match="fixed size"):
        tcdp.pair(Poisson(0.01, Gaussian(10.0)), "replace_one")
    with pytest.raises(Unpriceable, match="add_remove"):
        tcdp.pair(FixedBatch(0.01, Gaussian(10.0)), "add_remove")


def test_noise_for_stops_at_the_cap_of_a_condition():
    rho, omega = tcdp.totals(0.5, 1e-8)
    noise = tcdp.noise_for(rho, ("fixed", 0.01), "replace_one", omega)
    assert 2 / noise**2 == pytest.approx(math.log(100) / (4 * omega))
    assert tcdp.cost(FixedBatch(0.01, Gaussian(noise)), "replace_one", omega) < rho
    with pytest.raises(Unpriceable, match="rate"):
        tcdp.noise_for(rho, ("fixed", 0.5), "replace_one", omega)
