"""Privacy-loss tails: each dominates the losses of mechanisms that have the guarantee, drawn or exact."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.evidence.theory import (
    approximate_tail,
    compare_accountants,
    gaussian_tail,
    pure_tail,
    tcdp_tail,
    zcdp_tail,
)
from noisewise.evidence.theory.tails import tail_rows
from noisewise.trusted.accountants.gdp import delta_of, epsilon_of

DRAWS = 200_000


def empirical(losses, t):
    """P(Z > t) less 4 standard errors: a true bound fails at one t with probability below 1 in 30,000."""
    share = (losses[:, None] > t[None, :]).mean(axis=0)
    return share - 4 * np.sqrt(share * (1 - share) / len(losses)), share


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_gaussian_losses(mu):
    y = np.random.default_rng(0).normal(mu, 1, DRAWS)
    losses = mu * y - mu * mu / 2
    t = np.linspace(-mu, mu * mu / 2 + 4 * mu, 40)
    low, share = empirical(losses, t)
    assert np.abs(share - gaussian_tail(t, mu)).max() < 4 * 0.5 / math.sqrt(DRAWS), "exact"
    assert np.all(zcdp_tail(t, mu * mu / 2) >= gaussian_tail(t, mu))
    for omega in (1.5, 4.0, 100.0):
        assert np.all(tcdp_tail(t, mu * mu / 2, omega) >= low)
        assert np.all(tcdp_tail(t, mu * mu / 2, omega) >= zcdp_tail(t, mu * mu / 2) * (1 - 1e-12))
    epsilon = epsilon_of(mu, 1e-3)
    assert np.all(approximate_tail(t, epsilon, 1e-3) >= low)


def test_laplace_losses_are_pure():
    epsilon, rng = 0.7, np.random.default_rng(1)
    y = rng.laplace(0, 1 / epsilon, DRAWS)
    losses = epsilon * (np.abs(y - 1) - np.abs(y))
    t = np.linspace(-1, 1, 40)
    assert np.all(pure_tail(t, epsilon) >= empirical(losses, t)[0])


def test_a_mechanism_that_is_truncated_concentrated_only():
    """N(0, s^2) against N(0, 1) has finite Renyi divergence up to order s^2/(s^2-1): tCDP, never zCDP."""
    s = 1.5
    omega = 0.9 * s * s / (s * s - 1)
    orders = np.linspace(1, omega, 2_000)[1:]
    divergence = -math.log(s) - np.log(orders + (1 - orders) * s * s) / (2 * (orders - 1))
    rho = float((divergence / orders).max())
    y = np.random.default_rng(2).normal(0, s, DRAWS)
    losses = y * y / 2 * (1 - 1 / s**2) - math.log(s)
    t = np.linspace(0, 10, 60)
    low, _ = empirical(losses, t)
    assert np.all(tcdp_tail(t, rho, omega) >= low)
    assert np.any(zcdp_tail(t, rho) < low), "the zCDP tail is not for it"


def test_print_is_wrong_about_approximate_dp():
    """P(Z > epsilon) = delta is not what (epsilon, delta)-DP says: the Gaussian mechanism exceeds it."""
    mu, epsilon = 0.3, 1.0
    delta = delta_of(mu, epsilon)
    assert gaussian_tail(epsilon, mu) > 5 * delta
    t = np.linspace(epsilon + 1e-6, 3, 200)
    assert np.all(approximate_tail(t, epsilon, delta) >= gaussian_tail(t, mu))


def test_rows_and_refusals():
    rows = tail_rows(1.0, 1e-5, points=20)
    assert {"t", "pure", "approximate", "zcdp", "tcdp", "gaussian"} == set(rows[0])
    assert all(row["gaussian"] <= min(row["zcdp"], row["tcdp"], row["approximate"]) for row in rows)
    with pytest.raises(ValueError, match=r"omega is 1\.0"):
        tcdp_tail(1.0, 0.5, 1.0)


def test_accountants_side_by_side():
    rows = compare_accountants([10], noise_multiplier=100.0)
    price = {row["accountant"]: row["epsilon"] for row in rows}
    assert price["gdp"] == pytest.approx(price["pld"], rel=1e-3)
    assert price["gdp"] < price["rdp"] < price["zcdp"] == price["tcdp"] == price["ctcdp"] < price["advanced"]
    assert all(row["seconds"] > 0 and row["refused"] == "" for row in rows)
    sampled = {
        row["accountant"]: row for row in compare_accountants([100], noise_multiplier=1.0, sampling=("poisson", 0.01))
    }
    assert sampled["pld"]["epsilon"] < sampled["rdp"]["epsilon"] < sampled["moments"]["epsilon"]
    assert sampled["tcdp"]["epsilon"] is None and "fixed size" in sampled["tcdp"]["refused"]
