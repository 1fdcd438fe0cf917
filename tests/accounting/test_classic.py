import math

import pytest

from noisewise.trusted.accountants import Unpriceable, classic, pld, rdp
from noisewise.trusted.events import ApproximateDP, BoundedRange, FixedBatch, Gaussian, Poisson, Repeated


def test_advanced_composition_by_hand():
    steps, sigma, rate, delta = 100, 30.0, 0.1, 1e-5
    share = delta / 2 / steps / rate
    single = math.sqrt(2 * math.log(1.25 / share)) / sigma
    e = math.log(1 + rate * (math.exp(single) - 1))
    by_hand = e * math.sqrt(2 * steps * math.log(2 / delta)) + steps * e * (math.exp(e) - 1)
    plan = Repeated(Poisson(rate, Gaussian(sigma)), steps)
    assert classic.advanced_epsilon(plan, delta, "add_remove") == pytest.approx(by_hand, rel=1e-9)
    doubled = Repeated(FixedBatch(rate, Gaussian(2 * sigma)), steps)
    assert classic.advanced_epsilon(doubled, delta, "replace_one") == pytest.approx(by_hand, rel=1e-9)


def test_unequal_events_are_charged_as_the_largest():
    mixed = [Gaussian(100.0), Gaussian(200.0)]
    assert classic.advanced_epsilon(mixed, 1e-5, "add_remove") == pytest.approx(
        classic.advanced_epsilon([Gaussian(100.0)] * 2, 1e-5, "add_remove")
    )


def test_the_classical_mechanism_is_refused_beyond_its_proof():
    for sigma in (1.0, 4.0, 4.98):  # the last is (1.001, 5e-6)-DP by it
        with pytest.raises(Unpriceable, match="at most 1"):
            classic.advanced_epsilon(Gaussian(sigma), 1e-5, "add_remove")
    assert classic.advanced_epsilon(Gaussian(4.99), 1e-5, "add_remove") > 1


def test_one_shots_take_from_half_of_delta():
    assert classic.advanced_epsilon(ApproximateDP(0.1, 4e-6), 1e-5, "add_remove") > 0.1
    with pytest.raises(Unpriceable, match="delta"):
        classic.advanced_epsilon([ApproximateDP(0.1, 6e-6), Gaussian(100.0)], 1e-5, "add_remove")


def test_moments_accountant_by_its_definition():
    plan, delta = Repeated(Poisson(0.01, Gaussian(4.0)), 1000), 1e-5
    by_hand = min(
        (1000 * moment * rdp.cost(Poisson(0.01, Gaussian(4.0)), "add_remove", moment + 1) + math.log(1 / delta))
        / moment
        for moment in range(1, 33)
    )
    found = classic.moments_epsilon(plan, delta, "add_remove")
    assert found == pytest.approx(by_hand)
    assert found > rdp.plan_epsilon(plan, delta, "add_remove") > pld.epsilon_of(plan, delta, "add_remove")


def test_moments_accountant_refuses_what_it_was_not_stated_for():
    with pytest.raises(Unpriceable, match="add_remove"):
        classic.moments_epsilon(Gaussian(4.0), 1e-5, "replace_one")
    with pytest.raises(Unpriceable, match="BoundedRange"):
        classic.moments_epsilon(BoundedRange(0.1), 1e-5, "add_remove")


def test_basic_composition_adds():
    plan = [Repeated(ApproximateDP(0.1, 1e-6), 3), BoundedRange(0.2)]
    assert classic.basic_epsilon(plan, 1e-5, "add_remove") == pytest.approx(0.5)
    with pytest.raises(Unpriceable, match="delta"):
        classic.basic_epsilon(plan, 2e-6, "add_remove")
    with pytest.raises(Unpriceable, match="Gaussian"):
        classic.basic_epsilon(Gaussian(1.0), 1e-5, "add_remove")
