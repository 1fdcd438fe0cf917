"""The same questions for debiased momentum, Theorem 3.4 of Hong with its constants put right.

v_{t+1} = beta v_t + (1 - beta) g_t, theta_{t+1} = theta_t - eta v_{t+1} / (1 - beta^t): the step is the mean of past noisy
gradients with weights w_{s,t} = (1 - beta) beta^(s-t) / (1 - beta^s). With gamma = 1 - eta mu > beta and C_t >= G:

    E f(theta_{T+1}) - f* <= gamma^T gap + (eta D / N^2) sum_t q_t (C_t sigma_t)^2 + eta zeta sum_t gamma^(T-t) E||v^_{t+1}||^2
    q_t = sum_{s>=t} gamma^(T-s) w_{s,t}^2
    zeta = M^2 eta^2 (beta gamma / (gamma - beta)^2 + beta^2 / ((1 - beta)(gamma - beta))) + M eta / 2 - 1/2

Proof: -<grad, v> = (||grad - v||^2 - ||grad||^2 - ||v||^2) / 2 in the smoothness inequality, PL for ||grad||^2, and
||grad - v||^2 <= 2 ||lag||^2 + 2 ||noise||^2. The noise has E||.||^2 = (D/N^2) sum_t w_{s,t}^2 (C_t sigma_t)^2. The lag is
at most sum_t w_{s,t} M^2 eta^2 (s-t) sum_{t<=j<s} ||v^_{j+1}||^2; collecting ||v^_{j+1}||^2 over all s > j, and truncated
geometric weights being stochastically smaller than geometric ones, gives the bracket
sum_k (beta/gamma)^k (k + beta/(1-beta)).

Print has -1 for -1/2 in zeta: then a noiseless step of size 1/M along the steepest direction would have to end below f*.
Its largest rate ("especially, when eta_0 <= ...") does not make the printed zeta negative either (beta = 0.9, gamma near 1:
zeta is about +80). With zeta <= 0 the last term may be dropped; that is what the bound here does. The printed noise term,
2 eta D/N^2 with q_t = (beta^(2n) - gamma^n) / (beta^2 - gamma), n = T-t+1, forgets the weights (1-beta)/(1-beta^s) <= 1: true
but loose.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from ...trusted import validate
from .risk import Floats, Problem, check_schedule, descent_influence, optimal_schedule, uniform_schedule


def momentum_influence(steps: int, gamma: float, beta: float) -> Floats:
    """q_t = sum_{s>=t} gamma^(T-s) ((1-beta) beta^(s-t) / (1-beta^s))^2, t = 1..T; gamma^(T-t) when beta = 0.

    >>> momentum_influence(3, 0.5, 0.0).tolist()
    [0.25, 0.5, 1.0]
    """
    validate.whole(steps=steps)
    _check_beta(beta)
    weight = (1 - beta) / (1 - beta ** np.arange(1.0, steps + 1))
    terms = descent_influence(steps, gamma) * weight**2
    q = np.empty(steps)
    tail = 0.0
    for t in range(steps - 1, -1, -1):
        tail = terms[t] + beta * beta * tail
        q[t] = tail
    return q


def printed_influence(steps: int, gamma: float, beta: float) -> Floats:
    """q_t as the slides print it: (beta^(2n) - gamma^n) / (beta^2 - gamma), n = T-t+1, and n gamma^(n-1) when they meet."""
    validate.whole(steps=steps)
    _check_beta(beta)
    n = np.arange(steps, 0, -1.0)
    if math.isclose(beta * beta, gamma, rel_tol=1e-6):
        return np.asarray(n * gamma ** (n - 1))
    return np.asarray((beta ** (2 * n) - gamma**n) / (beta * beta - gamma))


def zeta(M: float, mu: float, beta: float, eta: float) -> float:
    """The factor of the momentum effect; infinite when gamma = 1 - eta mu does not exceed beta."""
    gamma = 1 - eta * mu
    if gamma <= beta:
        return math.inf
    lag = beta * gamma / (gamma - beta) ** 2 + beta**2 / ((1 - beta) * (gamma - beta))
    return (M * eta) ** 2 * lag + M * eta / 2 - 0.5


def largest_rate(M: float, mu: float, beta: float) -> float:
    """The largest step size with zeta <= 0, rounded down; 1/M when beta = 0.

    >>> round(largest_rate(1.0, 0.1, 0.0), 6), round(largest_rate(1.0, 0.1, 0.9), 4)
    (1.0, 0.0507)
    """
    validate.positive(M=M, mu=mu)
    _check_beta(beta)
    top = min(1 / M, (1 - beta) / mu * (1 - 1e-9))
    if zeta(M, mu, beta, top) <= 0:
        return top
    return float(brentq(lambda eta: zeta(M, mu, beta, eta), 0.0, top)) * (1 - 1e-9)


def momentum_bound(
    problem: Problem, sigma: npt.ArrayLike, *, beta: float, eta: float | None = None, printed: bool = False
) -> float:
    """The bound for any schedule within R; ``eta`` is the largest rate with zeta <= 0 unless given.

    ``printed`` takes the slides' looser noise term, 2 eta D G^2 / N^2 sum of their q_t sigma_t^2.
    """
    levels = check_schedule(problem, sigma)
    rate = _checked_rate(problem, beta, eta)
    gamma, steps = 1 - rate * problem.mu, len(levels)
    q = 2 * printed_influence(steps, gamma, beta) if printed else momentum_influence(steps, gamma, beta)
    noise = rate * problem.D * problem.G**2 / problem.N**2 * float(q @ levels**2)
    return float(gamma**steps) * problem.gap + noise


def momentum_schedule(problem: Problem, steps: int, *, beta: float, eta: float | None = None) -> Floats:
    """The schedule of Lemma 3.1 for the momentum influence."""
    gamma = 1 - _checked_rate(problem, beta, eta) * problem.mu
    return optimal_schedule(np.maximum(momentum_influence(steps, gamma, beta), 1e-300), problem.R)


def noise_figure(steps: int, gamma: float, betas: tuple[float, ...]) -> list[dict[str, Any]]:
    """q_t of momentum against descent with the same gamma: what momentum does to the noise of each step.

    ``uniform`` and ``dynamic`` are sum q_t T and (sum sqrt q_t)^2 over the same of descent: the whole noise term.
    """
    descent = descent_influence(steps, gamma)
    rows: list[dict[str, Any]] = []
    for beta in betas:
        exact, printed = momentum_influence(steps, gamma, beta), printed_influence(steps, gamma, beta)
        uniform = float(exact.sum() / descent.sum())
        dynamic = float((np.sqrt(exact).sum() / np.sqrt(descent).sum()) ** 2)
        for t in range(steps):
            row = {
                "beta": beta,
                "step": t + 1,
                "descent": float(descent[t]),
                "momentum": float(exact[t]),
                "printed": float(printed[t]),
                "uniform": uniform,
                "dynamic": dynamic,
            }
            rows.append(row)
    return rows


def momentum_uniform_bound(problem: Problem, steps: int, *, beta: float, eta: float | None = None) -> float:
    """The bound with the same noise at every step."""
    return momentum_bound(problem, uniform_schedule(steps, problem.R), beta=beta, eta=eta)


def _check_beta(beta: float) -> None:
    validate.not_negative(beta=beta)
    if beta >= 1:
        raise ValueError(f"beta is {beta!r}; pass a number in [0, 1)")


def _checked_rate(problem: Problem, beta: float, eta: float | None) -> float:
    largest = largest_rate(problem.M, problem.mu, beta)
    if eta is None:
        return largest
    validate.positive(eta=eta)
    if eta > largest * (1 + 1e-6):
        raise ValueError(
            f"eta is {eta!r}, but the momentum effect is negative up to {largest:.6g} only; pass at most that"
        )
    return eta
