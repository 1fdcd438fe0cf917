"""Theorem 3.2 and Lemma 3.1: closed forms against sums, T* against all integers, bounds against simulated descent.

Simulations draw seeded noise; a mean passes when it lies below the bound by 4 standard errors, so a true bound that is
met with equality would fail with probability below 1 in 30,000 a case (and these are far from equality).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from noisewise.evidence.theory import (
    Problem,
    advantage,
    best_steps,
    descent_bound,
    descent_influence,
    optimal_schedule,
    privacy_total,
    schedule_bound,
    simulated_risk,
    uniform_schedule,
)
from noisewise.trusted.accountants.gdp import mu_of

PROBLEMS = [
    Problem(),
    Problem(M=4.0, mu=0.1, G=8.0, D=30, N=3_000, R=0.2, gap=2.0),
    Problem(M=0.5, mu=0.45, G=3.0, D=3, N=500, R=1.0, gap=5.0),
    Problem(M=1.0, mu=0.001, N=100_000),
]


def sigmas(problem, steps, schedule):
    if schedule == "uniform":
        return uniform_schedule(steps, problem.R)
    return optimal_schedule(descent_influence(steps, problem.gamma), problem.R)


@pytest.mark.parametrize("seed", range(5))
def test_the_schedule_of_the_lemma_is_the_minimiser(seed):
    rng = np.random.default_rng(seed)
    q, R = rng.uniform(0.01, 3, 6), rng.uniform(0.1, 5)
    sigma = optimal_schedule(q, R)
    assert np.isclose((sigma**-2).sum(), R)
    assert np.isclose(R * q @ sigma**2, np.sqrt(q).sum() ** 2)

    def noise(logits):  # any split of R into shares
        shares = np.exp(logits) / np.exp(logits).sum()
        return q @ (1 / (R * shares))

    found = minimize(noise, rng.normal(size=6), tol=1e-10)
    assert np.isclose(found.fun, q @ sigma**2, rtol=1e-5)


def test_long_runs_do_not_underflow():
    sigma = optimal_schedule(descent_influence(500, 0.3), 1.0)
    assert np.isfinite(sigma).all() and np.isclose((sigma**-2).sum(), 1.0)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("schedule", ["uniform", "dynamic"])
@pytest.mark.parametrize("steps", [1, 2, 7, 60])
def test_closed_forms_agree_with_the_sum(problem, schedule, steps):
    assert np.isclose(
        schedule_bound(problem, steps, schedule), descent_bound(problem, sigmas(problem, steps, schedule)), rtol=1e-9
    )


@pytest.mark.parametrize(
    "problem", [*PROBLEMS, Problem(mu=1.0), Problem(mu=1 / 1.05), Problem(N=30), Problem(gap=1e-9)]
)
@pytest.mark.parametrize("schedule", ["uniform", "dynamic"])
def test_best_steps_is_least_over_all_integers(problem, schedule):
    best = best_steps(problem, schedule)
    values = [schedule_bound(problem, steps, schedule) for steps in range(1, max(3 * best, 300))]
    assert math.isclose(schedule_bound(problem, best, schedule), min(values), rel_tol=1e-12)


def test_the_least_dynamic_bound_has_its_closed_form():
    problem = Problem()
    a = problem.D * problem.G**2 / (2 * problem.M * problem.N**2 * problem.R) / (1 - math.sqrt(problem.gamma)) ** 2
    least = schedule_bound(problem, best_steps(problem, "dynamic"), "dynamic")
    assert np.isclose(least, a * problem.gap / (a + problem.gap), rtol=1e-4)


def test_dynamic_is_never_worse_and_stays_bounded():
    problem = Problem()
    for steps in (1, 10, 100, 1000):
        assert schedule_bound(problem, steps, "dynamic") <= schedule_bound(problem, steps, "uniform") * (1 + 1e-12)
    assert schedule_bound(problem, 10**6, "dynamic") < 1.01 * schedule_bound(problem, 10**3, "dynamic")
    assert schedule_bound(problem, 10**6, "uniform") > 900 * schedule_bound(problem, 10**3, "uniform")


def test_advantage_falls_with_the_condition_number():
    rows = advantage(Problem(N=10**6), [1, 2, 10, 100, 1000, 10**6])
    ratios = [row["ratio"] for row in rows]
    assert ratios[0] == pytest.approx(1) and ratios[-1] == pytest.approx(1, abs=1e-3)
    assert ratios[1] > ratios[2] > ratios[3] > ratios[4] > ratios[5] >= 1 - 1e-9
    assert all(row["same_steps"] >= row["ratio"] - 1e-9 for row in rows)
    A = 10 * 4 / (2 * 10**12 * 0.056)
    assert ratios[3] == pytest.approx(math.log(1 / (A * 100**2)) / 4, rel=0.3)


SIMULATED = [Problem(), Problem(M=4.0, mu=0.2, G=8.0, D=30, N=6_000, R=0.2, gap=2.0), Problem(mu=0.5, N=100_000, R=0.5)]


@pytest.mark.parametrize("problem", SIMULATED)
@pytest.mark.parametrize("schedule", ["uniform", "dynamic"])
@pytest.mark.parametrize("steps", [1, 8, 30, 50, 100])
def test_simulated_risk_lies_below_the_bound(problem, schedule, steps):
    steps = min(steps, best_steps(problem, schedule))
    sigma = sigmas(problem, steps, schedule)
    run = simulated_risk(problem, sigma, draws=300, seed=steps)
    assert run.largest_gradient <= problem.G, "nothing was clipped"
    assert run.mean + 4 * run.standard_error < descent_bound(problem, sigma)


def test_the_bound_is_nearly_met_where_every_direction_has_the_least_curvature():
    """One step, all curvature at M = mu: the loss left is the noise alone, and the bound is an equality."""
    problem = Problem(mu=1.0, D=50, N=100)
    sigma = uniform_schedule(1, problem.R)
    run = simulated_risk(problem, sigma, draws=4_000)
    assert abs(run.mean - descent_bound(problem, sigma)) < 4 * run.standard_error
    assert run.standard_error < 0.01 * run.mean, "so a factor off would be seen"


def test_far_beyond_its_best_steps_the_dynamic_schedule_breaks_the_assumption():
    """Its first steps are so noisy that gradients exceed G: the bound stays flat, the run does not."""
    problem = Problem(mu=0.5, N=1_000, R=0.5)
    sigma = sigmas(problem, 200, "dynamic")
    run = simulated_risk(problem, sigma, draws=50)
    assert run.largest_gradient > 100 * problem.G
    assert run.mean > 100 * descent_bound(problem, sigma)


@pytest.mark.parametrize("steps", [60, 120])
def test_the_dynamic_schedule_beats_uniform_noise_in_bound_and_in_simulation(steps):
    problem = Problem()
    uniform, dynamic = sigmas(problem, steps, "uniform"), sigmas(problem, steps, "dynamic")
    assert descent_bound(problem, dynamic) < 0.8 * descent_bound(problem, uniform)
    worse, better = simulated_risk(problem, uniform), simulated_risk(problem, dynamic)
    assert worse.mean - better.mean > 4 * math.hypot(worse.standard_error, better.standard_error)


def test_privacy_total_is_what_full_batches_cost():
    assert np.isclose(privacy_total(1.0, 1e-6), mu_of(1.0, 1e-6) ** 2)
    assert np.isclose(privacy_total(1.0, 1e-6, "replace_one") * 4, privacy_total(1.0, 1e-6))


def test_what_breaks_the_assumptions_is_refused_by_name():
    with pytest.raises(ValueError, match="clip goes below G"):
        descent_bound(Problem(), [100.0], clip=1.0)
    with pytest.raises(ValueError, match="more than R"):
        descent_bound(Problem(), [1.0])
    with pytest.raises(ValueError, match=r"mu is 2\.0, above M"):
        Problem(mu=2.0)
    with pytest.raises(ValueError, match="influence is not"):
        optimal_schedule([1.0, 0.0], 1.0)
    assert descent_bound(Problem(), [100.0], clip=4.0) > descent_bound(Problem(), [100.0])
