"""Projected SGD: the stated constant against simulation, the best T against a search, the lemma against exact cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.evidence.theory import best_private_steps, last_iterate_bound, private_bound, second_moment, subsampled
from noisewise.evidence.theory.erm import lecture_noise, risk_rows
from noisewise.trusted.accountants.classic import advanced_epsilon
from noisewise.trusted.accountants.common import approximate
from noisewise.trusted.events import ApproximateDP, Gaussian, Poisson, Repeated


@pytest.mark.parametrize(("noise", "steps"), [(0.0, 2), (0.0, 100), (1.0, 30), (3.0, 1000)])
def test_last_iterate_of_projected_sgd_lies_below_the_bound(noise, steps):
    """F = ||theta - z||_1 / sqrt(d) on the unit ball, z inside; 500 draws, 4 standard errors."""
    rng = np.random.default_rng(steps)
    d, draws, diameter = 5, 500, 2.0
    z = np.full(d, 0.1)
    G2 = 1 + noise**2
    theta = np.tile(-np.eye(d)[0], (draws, 1))
    for t in range(1, steps):  # theta_1 is given; T iterates in all
        g = np.sign(theta - z) / math.sqrt(d) + noise / math.sqrt(d) * rng.standard_normal(theta.shape)
        theta = theta - diameter / math.sqrt(G2 * t) * g
        theta /= np.maximum(1, np.linalg.norm(theta, axis=1, keepdims=True))
    risk = np.abs(theta - z).sum(axis=1) / math.sqrt(d)
    bound = last_iterate_bound(steps, diameter=diameter, second_moment=G2)
    assert risk.mean() + 4 * risk.std() / math.sqrt(draws) < bound
    assert risk.mean() > bound / 200, "and not vacuously so"


def test_the_best_step_constant_is_diameter_over_gradient():
    best = last_iterate_bound(50, diameter=3.0, second_moment=4.0)
    assert best == pytest.approx(2 * 3 * 2 * (2 + math.log(50)) / math.sqrt(50))
    assert all(best < last_iterate_bound(50, diameter=3.0, second_moment=4.0, c=1.5 * f) for f in (0.5, 0.9, 1.1, 2.0))


@pytest.mark.sample(4)
@pytest.mark.parametrize("records", [1, 10, 30, 60, 100, 300])
@pytest.mark.parametrize("dimension", [1, 20])
def test_best_private_steps_is_least_over_all_integers(records, dimension):
    shape = {"records": records, "dimension": dimension, "R": 0.056}
    best = best_private_steps(**shape)
    value = {T: private_bound(T, diameter=1.0, lipschitz=1.0, **shape) for T in range(1, max(3 * best, 2000))}
    assert math.isclose(value[best], min(value.values()), rel_tol=1e-12)


def test_second_moment_of_a_noisy_poisson_batch():
    """All records pull the same way, where the variance of the batch is largest; 4 standard errors."""
    rng = np.random.default_rng(0)
    n, q, d, sigma, draws = 50, 0.2, 3, 2.0, 40_000
    sizes = rng.binomial(n, q, draws)
    g = (sizes[:, None] * np.eye(d)[0] + sigma * rng.standard_normal((draws, d))) / (q * n)
    squares = (g**2).sum(axis=1)
    expected = second_moment(lipschitz=1.0, records=n, dimension=d, noise_multiplier=sigma, rate=q)
    assert abs(squares.mean() - expected) < 4 * squares.std() / math.sqrt(draws)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("delta", [0.0, 0.03])
@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
def test_the_lemma_is_exact_for_leaky_randomised_response(epsilon, delta, rate):
    """One of n = 1/r records is asked; with probability delta it tells the truth, else it answers with epsilon."""
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    zero = np.array([delta, 0.0, (1 - delta) * keep, (1 - delta) * (1 - keep)])  # told 0, told 1, said 0, said 1
    one = zero[[1, 0, 3, 2]]
    all_zero, one_differs = zero, (1 - rate) * zero + rate * one
    amplified, share = subsampled(epsilon, delta, rate)

    def hockey_stick(p, q, e):
        return np.maximum(p - math.exp(e) * q, 0).sum()

    exact = hockey_stick(one_differs, all_zero, amplified)
    assert exact <= share + 1e-15 and hockey_stick(all_zero, one_differs, amplified) <= share + 1e-15
    assert exact == pytest.approx(rate * delta, abs=1e-15)
    assert hockey_stick(one_differs, all_zero, amplified * 0.99) > share, "no smaller epsilon will do"


def test_the_lemma_is_the_price_the_accountants_use():
    told = approximate(Poisson(0.05, ApproximateDP(0.7, 1e-6)), "add_remove")
    assert told == pytest.approx(subsampled(0.7, 1e-6, 0.05))
    assert subsampled(800.0, 0.0, 0.5)[0] == pytest.approx(800 + math.log(0.5))


def test_lecture_noise_just_meets_the_budget():
    sigma = lecture_noise(10**6, 1e-3, epsilon=1.0, delta=1e-6)
    price = advanced_epsilon(Repeated(Poisson(1e-3, Gaussian(sigma)), 10**6), 1e-6, "add_remove")
    assert 0.999 < price <= 1.0


def test_risk_rows():
    rows = risk_rows([10, 1000], epsilon=1.0, delta=1e-6, diameter=1.0, lipschitz=1.0, records=1000, dimension=5)
    assert all(row["plain"] < row["private"] < row["lecture"] for row in rows)
