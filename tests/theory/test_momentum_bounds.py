"""Theorem 3.4: influences by brute force, its bound against simulated momentum, and what is wrong in print."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.evidence.theory import (
    Problem,
    descent_bound,
    descent_influence,
    largest_rate,
    measured_influence,
    momentum_bound,
    momentum_influence,
    momentum_schedule,
    noise_figure,
    simulated_risk,
    uniform_schedule,
    zeta,
)
from noisewise.evidence.theory.momentum import printed_influence


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("gamma", [0.5, 0.81, 0.99])
def test_influence_is_the_sum_it_says(beta, gamma):
    T = 12
    for t in range(1, T + 1):
        weights = [(1 - beta) * beta ** (s - t) / (1 - beta**s) for s in range(t, T + 1)]
        exact = sum(gamma ** (T - s) * w * w for s, w in zip(range(t, T + 1), weights, strict=True))
        printed = sum(gamma ** (T - s) * beta ** (2 * (s - t)) for s in range(t, T + 1))
        assert np.isclose(momentum_influence(T, gamma, beta)[t - 1], exact)
        assert np.isclose(
            printed_influence(T, gamma, beta)[t - 1], printed, rtol=1e-5
        )  # the limit at beta^2 = gamma too


def test_weights_make_the_exact_influence_smaller_than_the_printed_one():
    assert np.all(momentum_influence(50, 0.95, 0.9) <= printed_influence(50, 0.95, 0.9) * (1 + 1e-12))


def test_without_momentum_it_is_descent():
    problem = Problem()
    assert np.allclose(momentum_influence(20, 0.9, 0.0), descent_influence(20, 0.9))
    assert largest_rate(problem.M, problem.mu, 0.0) == pytest.approx(1 / problem.M)
    sigma = uniform_schedule(30, problem.R)
    noise = descent_bound(problem, sigma) - problem.gamma**30
    assert momentum_bound(problem, sigma, beta=0.0) == pytest.approx(problem.gamma**30 + 2 * noise, rel=1e-6)


@pytest.mark.parametrize("beta", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("kappa", [1.0, 10.0, 1000.0])
def test_the_largest_rate_just_makes_zeta_negative(beta, kappa):
    rate = largest_rate(2.0, 2.0 / kappa, beta)
    assert 0 < rate <= 0.5 and zeta(2.0, 2.0 / kappa, beta, rate) <= 0
    assert zeta(2.0, 2.0 / kappa, beta, rate * 1.001) > 0 or rate == pytest.approx(0.5)


def test_the_lag_bracket_covers_the_lag_it_bounds():
    """sum_{s>j} gamma^(j-s) sum_{t<=j} w_{s,t} (s-t), the coefficient of ||v_{j+1}||^2, for every j."""
    beta, gamma, T = 0.8, 0.95, 200
    bracket = beta * gamma / (gamma - beta) ** 2 + beta**2 / ((1 - beta) * (gamma - beta))
    s = np.arange(1, T + 1)
    for j in (1, 2, 5, 40, 150):
        later, early = s[s > j][:, None], s[s <= j][None, :]
        w = (1 - beta) * beta ** (later - early) / (1 - beta**later)
        lag = (float(gamma) ** (j - later) * w * (later - early)).sum()
        assert lag <= bracket * (1 + 1e-9)
    assert lag > 0.99 * bracket, "and is tight late in a run"


def test_print_is_wrong_about_zeta():
    """With -1 for -1/2 one noiseless step along the steepest direction would have to end below the optimum."""
    M, mu, beta, theta = 1.0, 0.5, 0.001, 1.0
    gap, eta, gamma = M * theta**2 / 2, 1 / M, 1 - mu / M
    v = (1 - beta) * M * theta
    printed = 4 * M**2 * beta * gamma / ((gamma - beta) ** 2 * (1 - beta) ** 3) * eta**2 + M * eta / 2 - 1
    assert gamma * gap + eta * printed * v**2 < 0, "below f*, which no loss can be"
    beta, gamma = 0.9, 0.999
    rate = beta * (1 - beta) ** 3 / 8 * (math.sqrt(0.25 + 16 / (beta * (1 - beta) ** 3)) - 1)
    assert 4 * beta * gamma / ((gamma - beta) ** 2 * (1 - beta) ** 3) * rate**2 + rate / 2 - 1 > 50


@pytest.mark.parametrize("beta", [0.3, 0.9])
@pytest.mark.parametrize("steps", [1, 40, 150])
@pytest.mark.parametrize("schedule", ["uniform", "dynamic"])
def test_simulated_risk_lies_below_the_bound(beta, steps, schedule):
    """4 standard errors: a bound met with equality would fail with probability below 1 in 30,000 a case."""
    problem = Problem(N=3_000, G=3.0)
    sigma = (
        uniform_schedule(steps, problem.R) if schedule == "uniform" else momentum_schedule(problem, steps, beta=beta)
    )
    rate = largest_rate(problem.M, problem.mu, beta)
    run = simulated_risk(problem, sigma, beta=beta, eta=rate, draws=200, seed=steps)
    assert run.largest_gradient <= problem.G, "nothing was clipped"
    bound = momentum_bound(problem, sigma, beta=beta)
    assert run.mean + 4 * run.standard_error < bound < momentum_bound(problem, sigma, beta=beta, printed=True)


def test_its_own_schedule_beats_uniform_noise():
    problem = Problem(N=10_000, G=3.0)
    sigma = momentum_schedule(problem, 300, beta=0.5)
    assert momentum_bound(problem, sigma, beta=0.5) < 0.7 * momentum_bound(
        problem, uniform_schedule(300, problem.R), beta=0.5
    )
    rate = largest_rate(problem.M, problem.mu, 0.5)
    better = simulated_risk(problem, sigma, beta=0.5, eta=rate, draws=100)
    worse = simulated_risk(problem, uniform_schedule(300, problem.R), beta=0.5, eta=rate, draws=100)
    assert worse.mean - better.mean > 4 * math.hypot(worse.standard_error, better.standard_error)


def test_momentum_damps_the_noise():
    rows = noise_figure(60, 0.95, (0.5, 0.9))
    assert len(rows) == 120
    assert all(row["uniform"] < 0.5 and row["dynamic"] < 0.5 for row in rows)
    assert rows[-1]["momentum"] == pytest.approx(0.01, rel=0.01), "(1 - beta)^2 in the last step"


def test_too_large_a_rate_and_momentum_are_refused():
    with pytest.raises(ValueError, match="pass at most that"):
        momentum_bound(Problem(), [100.0], beta=0.9, eta=0.5)
    with pytest.raises(ValueError, match=r"beta is 1\.0"):
        momentum_influence(3, 0.9, 1.0)
    assert momentum_bound(Problem(), [100.0], beta=0.9, eta=0.01) > 0


@pytest.mark.parametrize("beta", [0.0, 0.8])
def test_measured_influence_lies_below_q_and_on_the_exact_line(beta):
    problem = Problem()
    eta = largest_rate(problem.M, problem.mu, beta) if beta else None
    rows = measured_influence(problem, 30, noisy_steps=[1, 15, 25, 29, 30], beta=beta, eta=eta, draws=2_000)
    for row in rows:
        assert row["measured"] + 4 * row["standard_error"] < row["influence"]
        if not beta:
            assert abs(row["measured"] - row["exact"]) < 4.5 * row["standard_error"]
    if not beta:
        assert rows[-1]["standard_error"] < 0.05 * rows[-1]["measured"]
