"""How far private gradient descent can be from the optimum, and the noise schedule that the bound asks for.

theta_{t+1} = theta_t - (grad f(theta_t) + (C_t sigma_t / N) nu_t) / M, nu_t standard normal, t = 1..T. With
gamma = 1 - mu/M and clip norms C_t >= G (print says <=, where clipping would take place), Theorem 3.2 of Hong is

    E f(theta_{T+1}) - f* <= gamma^T gap + (D / (2 M N^2)) sum_t gamma^(T-t) (C_t sigma_t)^2 .

Proof: smoothness at step 1/M gives E f_{t+1} <= f_t - ||grad||^2 / (2M) + (M D / 2) (C_t sigma_t / (M N))^2; PL turns the
gradient into -mu/M of the gap; unroll. The weights q_t = gamma^(T-t) say how much of the noise of step t survives.

Hong, Dynamic Policies on Differentially Private Learning, Theorem 3.2 and Lemma 3.1; Hong, Wang & Zhou 2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import wrightomega

from ...trusted import validate
from ...trusted.accountants.gdp import mu_of
from ...trusted.events import ADJACENCIES

# The learning problem the convergence theorems speak about, as public numbers, and a quadratic that is one.


Floats = npt.NDArray[np.float64]


def privacy_total(epsilon: float, delta: float, adjacency: str = "add_remove") -> float:
    """R, the sum of sigma_t^-2 that (epsilon, delta) allows on full batches.

    R = mu^2 under add_remove and mu^2 / 4 under replace_one, mu the Gaussian-DP parameter of (epsilon, delta). (The
    slides charge 1/sigma_t^2 as zCDP, which is neither relation's price: that is 1/(2 sigma^2) or 2/sigma^2.)

    >>> round(privacy_total(1.0, 1e-6), 4), round(privacy_total(1.0, 1e-6, "replace_one"), 4)
    (0.056, 0.014)
    """
    validate.one_of(ADJACENCIES, adjacency=adjacency)
    return mu_of(epsilon, delta) ** 2 / (4 if adjacency == "replace_one" else 1)


@dataclass(frozen=True)
class Problem:
    """An M-smooth, G-Lipschitz loss with the mu-Polyak-Lojasiewicz property, N records, D parameters, a budget R.

    ||grad f||^2 >= 2 mu (f - f*) where the iterates go; ``gap`` is f(theta_1) - f*; R is the sum of sigma_t^-2 that
    the budget allows (:func:`privacy_total`). The clip norm is G, the least that never clips.
    """

    M: float = 1.0
    mu: float = 0.1
    G: float = 2.0
    D: int = 10
    N: int = 10_000
    R: float = 0.056
    gap: float = 1.0

    def __post_init__(self) -> None:
        validate.positive(M=self.M, mu=self.mu, G=self.G, R=self.R, gap=self.gap)
        validate.whole(D=self.D, N=self.N)
        if self.mu > self.M:
            raise ValueError(f"mu is {self.mu!r}, above M = {self.M!r}; pass mu in (0, M]")

    @property
    def kappa(self) -> float:
        """The condition number M / mu."""
        return self.M / self.mu

    @property
    def gamma(self) -> float:
        """What a step of size 1/M leaves of the gap: 1 - 1/kappa."""
        return 1 - self.mu / self.M

    def with_kappa(self, kappa: float) -> Problem:
        """The same problem with another condition number: mu changes, M stays."""
        validate.positive(kappa=kappa)
        return replace(self, mu=self.M / kappa)


@dataclass(frozen=True)
class Quadratic:
    """f(theta) = theta^T H theta / 2 with H diagonal: smooth with max H, PL with min H, f* = 0."""

    curvatures: Floats
    start: Floats

    def loss(self, theta: Floats) -> Floats:
        """f of every row of ``theta``."""
        return np.asarray(0.5 * (theta * theta) @ self.curvatures)


def quadratic(problem: Problem) -> Quadratic:
    """A quadratic with D curvatures spread from mu to M (geometrically) and f(theta_1) = gap, the same in each."""
    curvatures = np.geomspace(problem.mu, problem.M, problem.D) if problem.D > 1 else np.array([problem.M])
    return Quadratic(curvatures, np.sqrt(2 * problem.gap / (problem.D * curvatures)))


def check_schedule(problem: Problem, sigma: npt.ArrayLike) -> Floats:
    """The noise multipliers as an array; refused when they spend more than R."""
    levels = np.atleast_1d(np.asarray(sigma, dtype=float))
    if levels.ndim != 1 or not levels.size or not np.all(np.isfinite(levels) & (levels > 0)):
        raise ValueError("sigma is not a list of finite numbers > 0; pass one noise multiplier per step")
    spent = math.fsum(levels**-2.0)
    if spent > problem.R * (1 + 1e-9):
        raise ValueError(f"sigma spends {spent:.6g}, more than R = {problem.R:.6g}; pass more noise or fewer steps")
    return levels


SCHEDULES = ("uniform", "dynamic")


def descent_influence(steps: int, gamma: float) -> Floats:
    """q_t = gamma^(T-t) for t = 1..T: the share of a step's noise that is left at the end.

    >>> descent_influence(3, 0.5).tolist()
    [0.25, 0.5, 1.0]
    """
    validate.whole(steps=steps)
    return np.asarray(float(gamma) ** np.arange(steps - 1, -1, -1))


def optimal_schedule(influence: npt.ArrayLike, R: float) -> Floats:
    """The sigma_t that minimise sum q_t sigma_t^2 subject to sum sigma_t^-2 = R (Hong, Lemma 3.1).

    sigma_t^2 = (1/R) sum_i sqrt(q_i / q_t); the minimum is (sum_t sqrt(q_t))^2 / R (Cauchy-Schwarz).

    >>> optimal_schedule([1.0, 4.0], 3.0).round(4).tolist()
    [1.0, 0.7071]
    """
    validate.positive(R=R)
    q = np.asarray(influence, dtype=float)
    if q.ndim != 1 or not q.size or not np.all(np.isfinite(q) & (q > 0)):
        raise ValueError("influence is not a list of finite numbers > 0; pass one q_t per step")
    log_root = np.log(q) / 2
    log_sum = log_root.max() + math.log(np.exp(log_root - log_root.max()).sum())
    return np.asarray(np.exp((log_sum - log_root - math.log(R)) / 2))


def uniform_schedule(steps: int, R: float) -> Floats:
    """The same sigma = sqrt(T/R) at every step."""
    validate.whole(steps=steps)
    validate.positive(R=R)
    return np.full(steps, math.sqrt(steps / R))


def noise_unit(problem: Problem) -> float:
    """D G^2 / (2 M N^2): what noise of sigma = 1 in the last step adds to the bound."""
    return problem.D * problem.G**2 / (2 * problem.M * problem.N**2)


def descent_bound(problem: Problem, sigma: npt.ArrayLike, clip: npt.ArrayLike | None = None) -> float:
    """The bound of Theorem 3.2 for any schedule ``sigma`` within R, and any ``clip`` norms of at least G."""
    levels = check_schedule(problem, sigma)
    norms = np.broadcast_to(np.asarray(problem.G if clip is None else clip, dtype=float), levels.shape)
    if not np.all(norms >= problem.G):
        raise ValueError(f"clip goes below G = {problem.G!r}, where clipping takes place; pass norms >= G")
    q = descent_influence(len(levels), problem.gamma)
    noise = noise_unit(problem) * float(q @ (levels * norms / problem.G) ** 2)
    return float(problem.gamma ** len(levels)) * problem.gap + noise


def schedule_bound(problem: Problem, steps: int, schedule: str) -> float:
    """The bound with uniform noise, or with the best noise there is; closed forms.

    uniform: gamma^T gap + A kappa T (1 - gamma^T), dynamic: gamma^T gap + A ((1 - gamma^(T/2)) / (1 - gamma^(1/2)))^2,
    where A = D G^2 / (2 M N^2 R). For T to infinity the first grows without limit, the second does not.
    """
    validate.whole(steps=steps)
    validate.one_of(SCHEDULES, schedule=schedule)
    gamma, A = problem.gamma, noise_unit(problem) / problem.R
    left = gamma**steps
    if schedule == "uniform":
        return left * problem.gap + A * problem.kappa * steps * (1 - left)
    return left * problem.gap + A * ((1 - math.sqrt(left)) / (1 - math.sqrt(gamma))) ** 2


def best_steps(problem: Problem, schedule: str) -> int:
    """T*, the whole number of steps >= 1 with the least bound.

    Both bounds fall, then rise. dynamic is a parabola in x = gamma^(T/2) with its least value a gap / (a + gap) at
    x = a / (a + gap), a = A / (1 - sqrt(gamma))^2. uniform is least where e^y + y = c, y = T log(1/gamma),
    c = 1 + log(1/gamma) gap / (A kappa), so y = c - W(e^c), W Lambert's function.

    >>> best_steps(Problem(), "uniform"), best_steps(Problem(), "dynamic")
    (76, 125)
    """
    validate.one_of(SCHEDULES, schedule=schedule)
    gamma, A = problem.gamma, noise_unit(problem) / problem.R
    if gamma == 0:
        return 1
    rate = -math.log(gamma)
    if schedule == "uniform":
        c = 1 + rate * problem.gap / (A * problem.kappa)
        best = (c - float(wrightomega(c).real)) / rate
    else:
        a = A / (1 - math.sqrt(gamma)) ** 2
        best = 2 * math.log1p(problem.gap / a) / rate
    near = {max(1, math.floor(best) + shift) for shift in (-1, 0, 1, 2)}
    return min(sorted(near), key=lambda steps: schedule_bound(problem, steps, schedule))


def advantage(problem: Problem, kappas: Iterable[float]) -> list[dict[str, Any]]:
    """Uniform over dynamic bound, each at its own best T, as the condition number grows (mu falls, M stays).

    The ratio is 1 at kappa = 1 (one step is enough), jumps as soon as many steps are needed, then falls like
    log(gap / (A kappa^2)) / 4 until the noise drowns the signal and both bounds near the gap. ``same_steps`` compares at
    the dynamic schedule's T*.
    """
    rows: list[dict[str, Any]] = []
    for kappa in kappas:
        at = problem.with_kappa(float(kappa))
        steps = {name: best_steps(at, name) for name in SCHEDULES}
        bound = {name: schedule_bound(at, steps[name], name) for name in SCHEDULES}
        row = {
            "records": at.N,
            "kappa": float(kappa),
            "uniform_steps": steps["uniform"],
            "dynamic_steps": steps["dynamic"],
            "uniform_bound": bound["uniform"],
            "dynamic_bound": bound["dynamic"],
            "ratio": bound["uniform"] / bound["dynamic"],
            "same_steps": schedule_bound(at, steps["dynamic"], "uniform") / bound["dynamic"],
        }
        rows.append(row)
    return rows
