import math

import numpy as np
import pytest

from noisewise.trusted.accountants import Unpriceable, gdp, pld, rdp
from noisewise.trusted.events import ApproximateDP, BoundedRange, FixedBatch, Gaussian, InvalidEvent, Poisson, Repeated

STEPS = 1000


def price(leaf, steps, delta, relation="add_remove", **options):
    return pld.epsilon_of(Repeated(leaf, steps), delta, relation, **options)


def test_known_prices_under_both_relations():
    leaf = Poisson(0.01, Gaussian(1.0))
    assert price(leaf, STEPS, 1e-5) == pytest.approx(1.83, abs=0.005)
    assert price(leaf, STEPS, 1e-5, "replace_one") == pytest.approx(2.84, abs=0.005)


def test_known_noise():
    assert price(Poisson(1000 / 26048, Gaussian(6.73)), 300, 1e-8) == pytest.approx(0.5, abs=5e-4)


def test_two_questions_about_one_batch_are_not_two_draws():
    apart = price(Poisson(0.01, Gaussian(1.0)), 2 * STEPS, 1e-5)
    together = price(Poisson(0.01, Gaussian(1 / math.sqrt(2))), STEPS, 1e-5)
    assert apart == pytest.approx(2.58, abs=0.005)
    assert together == pytest.approx(4.48, abs=0.005)


def test_fixed_batches_cost_at_least_poisson_with_half_the_noise():
    fixed = price(FixedBatch(0.01, Gaussian(1.0)), STEPS, 1e-5, "replace_one")
    least = price(Poisson(0.01, Gaussian(0.5)), STEPS, 1e-5)
    assert least == pytest.approx(13.4, abs=0.05)
    assert least <= fixed <= rdp.plan_epsilon(Repeated(FixedBatch(0.01, Gaussian(1.0)), STEPS), 1e-5, "replace_one")


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("sigma", "count"), [(0.5, 1), (4.0, 1), (30.0, 50), (300.0, 10)])
def test_full_batches_agree_with_gdp_from_above(sigma, count, relation):
    exact = gdp.plan_epsilon(Repeated(Gaussian(sigma), count), 1e-5, relation)
    assert exact * (1 - 1e-8) <= price(Gaussian(sigma), count, 1e-5, relation) <= exact * (1 + 1e-3)


def test_long_compositions_stay_above_the_exact_price():
    """Composed one by one through Poisson batches of rate just below 1, against the closed form."""
    exact = gdp.plan_epsilon(Repeated(Gaussian(100.0), 2000), 1e-6, "add_remove")
    composed = price(Poisson(1 - 1e-12, Gaussian(100.0)), 2000, 1e-6)
    assert exact * (1 - 1e-7) <= composed <= exact * 1.01


def hockey_stick(log_ratio, epsilon):
    """Monte Carlo of E_P[(1 - e^(epsilon - loss))_+], with its standard error."""
    values = -np.expm1(np.minimum(epsilon - log_ratio, 0.0))
    return values.mean(), values.std() / math.sqrt(len(values))


def losses(rate, sigma, steps, means, draws, rng):
    """Composed privacy losses of (1-q) N(0) + q N(m) for the two means, drawn from the first."""
    x = rng.normal(size=(draws, steps)) * sigma + means[0] * (rng.random((draws, steps)) < rate)

    def log_density(mean):
        return np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x * mean - mean**2) / (2 * sigma**2))

    return (log_density(means[0]) - log_density(means[1])).sum(axis=1)


@pytest.mark.parametrize(("relation", "pairs"), [("add_remove", [(1, 0), (0, 1)]), ("replace_one", [(1, -1)])])
def test_the_promise_holds_in_simulation(relation, pairs):
    """Five standard errors: a right price fails with probability below 1e-6, and the draws are fixed anyway."""
    rng = np.random.default_rng(7)
    rate, sigma, steps, delta = 0.2, 1.0, 20, 0.05
    leaf = Poisson(rate, Gaussian(sigma))
    epsilon = price(leaf, steps, delta, relation)
    estimates = [hockey_stick(losses(rate, sigma, steps, pair, 100_000, rng), epsilon) for pair in pairs]
    worst, error = max(estimates)
    assert abs(worst - delta) < 5 * error  # neither broken nor loose
    # The same simulation rejects a price that forgets the sensitivity of the other relation.
    wrong = price(Poisson(rate, Gaussian(sigma * 2)), steps, delta, relation)
    assert (
        max(hockey_stick(losses(rate, sigma, steps, pair, 100_000, rng), wrong) for pair in pairs)[0]
        > delta + 5 * error
    )


def test_selections_have_their_exact_curve():
    for epsilon in (0.1, 1.0, 5.0):
        delta = 1e-4
        exact = epsilon + 2 * math.log1p(-math.sqrt(delta * -math.expm1(-epsilon)))
        found = pld.epsilon_of(BoundedRange(epsilon), delta, "add_remove")
        assert exact * (1 - 1e-9) <= found <= exact * 1.01
    many = price(BoundedRange(0.1), 100, 1e-5)
    assert many < gdp.plan_epsilon(Repeated(BoundedRange(0.1), 100), 1e-5, "add_remove")


def test_selection_composition_dominates_simulation():
    """Each selection takes the worst t for the loss at hand; composed, no mix of them beats the price."""
    rng = np.random.default_rng(3)
    epsilon, count, delta = 0.5, 8, 0.02
    promised = price(BoundedRange(epsilon), count, delta)
    for t in (0.1, 0.2, 0.25, 0.35):
        p = math.expm1(-t) / math.expm1(-epsilon)
        ups = rng.binomial(count, p, size=200_000)
        value, error = hockey_stick(ups * (epsilon - t) - (count - ups) * t, promised)
        assert value <= delta + 5 * error


def test_one_shots():
    single = pld.epsilon_of(ApproximateDP(0.5, 1e-6), 1e-5, "add_remove")
    assert 0.49 < single <= 0.501
    assert pld.epsilon_of(ApproximateDP(0.5, 1e-4), 1e-5, "add_remove") == math.inf


def test_distributions_are_pessimistic_whatever_the_grid():
    leaf = Poisson(0.05, Gaussian(2.0))
    prices = [price(leaf, 100, 1e-5, bins=bins) for bins in (2**9, 2**11, 2**13, 2**16)]
    assert prices == sorted(prices, reverse=True)
    distribution = pld._distribution(leaf, "add_remove", 1e-3)
    assert distribution._pmf_remove._pessimistic_estimate and distribution._pmf_add._pessimistic_estimate
    for other in (BoundedRange(1.0), FixedBatch(0.1, Gaussian(1.0)), ApproximateDP(1.0)):
        assert pld._distribution(other, "replace_one", 1e-3)._pmf_remove._pessimistic_estimate


def test_many_noise_levels_are_rounded_down_to_a_grid():
    leaves = {Poisson(0.01, Gaussian(2 + i / 100)): 1 for i in range(200)}
    from collections import Counter

    grouped = pld._grouped(Counter(leaves), pld.LEVELS)
    assert len(grouped) <= pld.LEVELS
    assert sum(grouped.values()) == 200
    coarse = sorted(leaf.event.noise_multiplier for leaf in grouped.elements())
    fine = sorted(leaf.event.noise_multiplier for leaf in leaves)
    assert all(low <= high for low, high in zip(coarse, fine, strict=True))
    assert max(high / low for low, high in zip(coarse, fine, strict=True)) < 1.02


def test_what_cannot_be_priced_is_refused():
    with pytest.raises(Unpriceable, match="add_remove"):
        pld.epsilon_of(FixedBatch(0.1, Gaussian(1.0)), 1e-5, "add_remove")
    with pytest.raises(Unpriceable, match="delta=1e-13 is too small"):
        pld.epsilon_of(Poisson(0.1, Gaussian(1.0)), 1e-13, "add_remove")
    with pytest.raises(InvalidEvent):
        pld.epsilon_of(Poisson(0.1, FixedBatch(0.1, Gaussian(1.0))), 1e-5, "replace_one")
    assert pld.epsilon_of([], 1e-5, "add_remove") == 0


def test_dp_accounting_does_not_double_in_rdp_and_does_in_pld():
    """The behaviour this module relies on, and the one it stays away from."""
    import dp_accounting
    from dp_accounting import pld as dp_pld
    from dp_accounting import rdp as dp_rdp

    relation = dp_accounting.NeighboringRelation
    found = {}
    for name, kind in (("rdp", dp_rdp.RdpAccountant), ("pld", dp_pld.PLDAccountant)):
        for which in (relation.ADD_OR_REMOVE_ONE, relation.REPLACE_ONE):
            accountant = kind(neighboring_relation=which)
            accountant.compose(dp_accounting.GaussianDpEvent(4.0))
            found[name, which] = accountant.get_epsilon(1e-5)
    assert found["rdp", relation.REPLACE_ONE] == pytest.approx(1.013, abs=5e-4)
    assert found["rdp", relation.ADD_OR_REMOVE_ONE] == pytest.approx(1.013, abs=5e-4)
    assert found["pld", relation.ADD_OR_REMOVE_ONE] == pytest.approx(0.926, abs=5e-4)
    assert found["pld", relation.REPLACE_ONE] == pytest.approx(1.993, abs=5e-4)
