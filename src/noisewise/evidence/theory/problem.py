"""The learning problem the convergence theorems speak about, as public numbers, and a quadratic that is one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...trusted import validate
from ...trusted.accountants.gdp import mu_of
from ...trusted.events import ADJACENCIES

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
