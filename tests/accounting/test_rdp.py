import math

import mpmath as mp
import numpy as np
import pytest

from noisewise.trusted.accountants import Unpriceable, rdp
from noisewise.trusted.accountants.renyi import poisson_gaussian
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

RATE = 1000 / 26048


def renyi(p, q, order, low, high, panels=30):
    """D_a(P || Q) of two densities on the line, by quadrature in mpmath."""
    value = mp.quad(lambda x: p(x) ** order * q(x) ** (1 - order), mp.linspace(low, high, panels))
    return mp.log(value) / (order - 1)


def mixture(rate, mean, sigma):
    rate, sigma = mp.mpf(rate), mp.mpf(sigma)
    return lambda x: (1 - rate) * mp.npdf(x, 0, sigma) + rate * mp.npdf(x, mean, sigma)


def just_above(price, exact, margin=1e-7):
    return exact <= price <= exact * (1 + margin)


CASES = [(0.01, 1.0, 8), (0.3, 2.0, 16), (0.9, 1.0, 5), (0.001, 30.0, 12)]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("rate", "sigma", "order"), CASES)
def test_poisson_add_remove_against_quadrature(rate, sigma, order):
    with mp.workdps(30):
        mixed, plain = mixture(rate, 1, sigma), mixture(rate, 0, sigma)
        low, high = -14 * sigma - order, order + 14 * sigma
        forward = renyi(mixed, plain, order, low, high)
        backward = renyi(plain, mixed, order, low, high)
    price = rdp.cost(Poisson(rate, Gaussian(sigma)), "add_remove", order)
    assert just_above(price, forward)
    assert backward <= forward
    # A factor of two in the sensitivity, or a rate forgotten, would be seen.
    assert not just_above(rdp.cost(Poisson(rate, Gaussian(sigma / 2)), "add_remove", order), forward)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("rate", "sigma", "order"), CASES)
def test_poisson_replace_one_against_quadrature(rate, sigma, order):
    with mp.workdps(30):
        exact = renyi(mixture(rate, 1, sigma), mixture(rate, -1, sigma), order, -14 * sigma - 1, order + 14 * sigma)
    price = rdp.cost(Poisson(rate, Gaussian(sigma)), "replace_one", order)
    assert just_above(price, exact)
    assert price > rdp.cost(Poisson(rate, Gaussian(sigma)), "add_remove", order)


FAR_OUT = [
    (0.9, 20.0, 2),
    (0.9, 20.0, 256),
    (0.99, 20.0, 200),
    (0.5, 30.0, 128),
    (0.999, 6.0, 24),
    (1 - 1e-6, 50.0, 256),
]


@pytest.mark.parametrize(("rate", "sigma", "order"), FAR_OUT)
def test_poisson_replace_one_where_the_mode_is_near_twice_the_order(rate, sigma, order):
    """At rates near 1 the second density is still N(-1) where the integrand is largest, about x = 2 order - 1.

    The integrand is Gaussian in its tails and analytic, so a plain sum at steps of sigma/5 is exact to 20 digits.
    """
    with mp.workdps(30):
        p, q, step = mixture(rate, 1, sigma), mixture(rate, -1, sigma), mp.mpf(sigma) / 5
        at = [step * k for k in range(-80, math.ceil((2 * order + 16 * sigma) / step))]
        exact = mp.log(step * mp.fsum(p(x) ** order * q(x) ** (1 - order) for x in at)) / (order - 1)
    price = rdp.cost(Poisson(rate, Gaussian(sigma)), "replace_one", order)
    assert just_above(price, exact)
    assert price <= rdp.cost(Gaussian(sigma), "replace_one", order)


def test_a_high_rate_at_every_order_has_a_price_under_replace_one():
    prices = [rdp.cost(Poisson(0.9, Gaussian(20.0)), "replace_one", order) for order in rdp.ORDERS]
    assert (np.diff(prices) > 0).all()
    assert 0 < rdp.plan_epsilon(Repeated(Poisson(0.9, Gaussian(20.0)), 10), 1e-6, "replace_one") < 5


@pytest.mark.parametrize(("rate", "sigma", "order"), [(1e-6, 1.0, 1024), (0.5, 0.3, 200), (1e-4, 100.0, 3)])
def test_the_binomial_sum_keeps_its_digits(rate, sigma, order):
    with mp.workdps(60):
        q, s = mp.mpf(rate), mp.mpf(sigma)
        terms = (
            mp.binomial(order, k) * (1 - q) ** (order - k) * q**k * mp.exp(mp.mpf(k * (k - 1)) / (2 * s * s))
            for k in range(order + 1)
        )
        exact = mp.log(mp.fsum(terms)) / (order - 1)
    assert just_above(rdp.cost(Poisson(rate, Gaussian(sigma)), "add_remove", order), exact, 1e-8)


@pytest.mark.parametrize(("rate", "sigma", "order"), [(0.01, 1.0, 4), (0.1, 2.0, 8), (0.04, 12.0, 57)])
def test_fixed_batches_lie_between_real_attacks_and_the_published_bound(rate, sigma, order):
    """The other records of a batch can be chosen so that the pair is N(0) against a mixture with N(2), both ways."""
    from dp_accounting.rdp import rdp_privacy_accountant

    price = rdp.cost(FixedBatch(rate, Gaussian(sigma)), "replace_one", order)
    attack = float(poisson_gaussian(rate, sigma / 2, order))
    mirrored = rdp.cost(Poisson(rate, Gaussian(sigma)), "replace_one", order)
    published = rdp_privacy_accountant._compute_rdp_sample_wor_gaussian_scalar(rate, sigma / 2, order)
    assert max(attack, mirrored) * (1 - 1e-8) <= price <= published


def test_the_fixed_batch_moment_against_the_hockey_stick_integral():
    """1 + a(a-1) * integral of (t^(a-2) + t^(-a-1)) q delta_mu(log(1 + (t-1)/q)) over t >= 1, in mpmath."""
    rate, sigma, order = 0.1, 2.0, 6

    def stick(t):
        inner = mp.log(1 + (t - 1) / mp.mpf(rate))
        mu = 2 / mp.mpf(sigma)
        return rate * (mp.ncdf(-inner / mu + mu / 2) - mp.exp(inner) * mp.ncdf(-inner / mu - mu / 2))

    with mp.workdps(30):
        # t = e^u
        total = mp.quad(
            lambda u: (mp.exp((order - 1) * u) + mp.exp(-order * u)) * stick(mp.exp(u)), mp.linspace(0, 25, 40)
        )
        exact = mp.log(1 + order * (order - 1) * total) / (order - 1)
    assert just_above(rdp.cost(FixedBatch(rate, Gaussian(sigma)), "replace_one", order), exact)


def test_full_rate_sampling_is_the_full_batch():
    for relation in ("add_remove", "replace_one"):
        full = rdp.cost(Gaussian(2.0), relation, 9)
        assert rdp.cost(Poisson(1.0, Gaussian(2.0)), relation, 9) == pytest.approx(full)
        assert rdp.cost(Poisson(1 - 1e-12, Gaussian(2.0)), relation, 9) == pytest.approx(full, rel=1e-6)
    assert rdp.cost(FixedBatch(1.0, Gaussian(2.0)), "replace_one", 9) == pytest.approx(4 * 9 / (2 * 4.0))


def test_many_sigmas_at_once():
    sigmas = np.geomspace(0.3, 300, 50)
    many = poisson_gaussian(0.02, sigmas, 32)
    assert many == pytest.approx([rdp.cost(Poisson(0.02, Gaussian(s)), "add_remove", 32) for s in sigmas], rel=1e-12)
    assert (np.diff(many) < 0).all()


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("order", [2, 7, 300])
def test_pure_and_bounded_range(epsilon, order):
    with mp.workdps(40):
        p = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
        exact = mp.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
    price = rdp.cost(ApproximateDP(epsilon), "add_remove", order)
    assert just_above(price, exact, 1e-6)
    assert price <= min(order * epsilon**2 / 2, epsilon) * (1 + 1e-9)
    selection = rdp.cost(BoundedRange(epsilon), "add_remove", order)
    assert selection <= min(order * epsilon**2 / 8, epsilon) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
@pytest.mark.parametrize("order", [2, 5, 40])
def test_bounded_range_dominates_every_two_point_pair(epsilon, order):
    t = np.linspace(0, epsilon, 1001)[1:-1]
    p = np.expm1(-t) / math.expm1(-epsilon)
    moments = np.logaddexp(np.log(p) + (order - 1) * (epsilon - t), np.log1p(-p) - (order - 1) * t)
    assert moments.max() / (order - 1) <= rdp.cost(BoundedRange(epsilon), "add_remove", order)


@pytest.mark.parametrize(("order", "sigma"), [(56, 7.13), (44, 7.44), (90, 7.74)])
def test_known_noise_at_three_orders(order, sigma):
    share = rdp.cap(order, 0.5, 1e-8) / 300
    noise = rdp.noise_for(share, ("poisson", RATE), "add_remove", order)
    assert noise == pytest.approx(sigma, abs=0.005)
    assert rdp.cost(Poisson(RATE, Gaussian(noise)), "add_remove", order) <= share


def test_the_reference_order_is_the_best_one():
    order = rdp.reference_order(0.5, 1e-8, 300, ("poisson", RATE), "add_remove")
    noises = {a: rdp.noise_for(rdp.cap(a, 0.5, 1e-8) / 300, ("poisson", RATE), "add_remove", a) for a in range(45, 91)}
    assert order == 56 == min(noises, key=noises.get)


def test_the_conversion_and_its_refusal():
    assert rdp.epsilon_of(rdp.cap(20, 1.0, 1e-6), 20, 1e-6) == pytest.approx(1.0)
    assert rdp.plan_epsilon(Gaussian(4.0), 1e-5, "add_remove") == pytest.approx(1.013, abs=5e-4)
    assert rdp.plan_epsilon(Gaussian(4.0), 1e-5, "replace_one") > 1.993
    with pytest.raises(ValueError, match="order 3 leaves nothing"):
        rdp.cap(3, 0.5, 1e-8)
    with pytest.raises(ValueError, match="order"):
        rdp.cap(1, 0.5, 1e-8)


@pytest.mark.parametrize("sampling", [("full",), ("poisson", 0.01), ("poisson", 0.7), ("fixed", 0.05)])
@pytest.mark.parametrize("order", [2, 33])
def test_noise_for_is_the_inverse_of_cost(sampling, order):
    for cost in (1e-9, 1e-4, 0.1, 10.0):
        sigma = rdp.noise_for(cost, sampling, "replace_one", order)
        spent = rdp.cost(sampled(sampling, Gaussian(sigma)), "replace_one", order)
        assert cost * (1 - 1e-6) < spent <= cost


def test_refusals():
    with pytest.raises(Unpriceable, match="add_remove"):
        rdp.cost(FixedBatch(0.1, Gaussian(1.0)), "add_remove", 8)
    with pytest.raises(Unpriceable, match="share of delta"):
        rdp.cost(ApproximateDP(1.0, 1e-6), "add_remove", 8)
    with pytest.raises(InvalidEvent):
        rdp.cost(Poisson(0.1, Repeated(Gaussian(1.0), 2)), "add_remove", 8)
