"""AdaSSP: least squares from noised sufficient statistics, with a ridge chosen from a noised smallest eigenvalue.

    l = max(lambda_min(X^T X) + noise - z std, 0)                a lower bound, z = sqrt(2 log(2/rho))
    lambda = max(sqrt(d log(2 d^2 / rho)) tau - l, 0)            tau: noise on each entry of the second moment
    theta = (X^T X + noise + lambda I)^-1 (X^T y + noise)

The paper writes its noise levels for (epsilon, delta) each; here each of the three statistics gets a third of the
budget in Gaussian DP, and the formulas take the standard deviations that this gives. Rows have norm at most 1, the
constant column included, and labels are clamped to [-1, 1]; eigenvalues that the noise leaves below tau are raised to
tau, so that the solution is bounded. No step size, no iterations.

*Guarantee*: a plan of three Gaussian answers on the full batch; solving is post-processing.

Wang 2018, Revisiting differentially private linear regression: optimal and adaptive prediction & estimation in
unbounded domain (Algorithm 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..accounts import Terms
from ..asking import CrossMoment, Curator, Facts, MinEigenvalue, PublicCurator, SecondMoment
from ..trusted import validate
from ..trusted.accountants.calibrate import calibrate
from ..trusted.events import Gaussian, Repeated
from .base import Array, Method, size_noise


class State(NamedTuple):
    step: int
    theta: Array
    noise_multiplier: float


@dataclass(frozen=True)
class SufficientStatistics(Method):
    """``failure``: the probability rho with which the eigenvalue bounds may fail; utility only, never privacy."""

    failure: float = 0.05

    name: ClassVar[str] = "sufficient_statistics"
    summary: ClassVar[str] = "least squares from noised moments with an adaptive ridge (AdaSSP)"
    paper: ClassVar[str] = "Wang 2018"
    losses: ClassVar[tuple[str, ...]] = ("squared",)

    def __post_init__(self) -> None:
        validate.open_unit(failure=self.failure)

    def noise_multiplier(self, facts: Facts) -> float:
        """sigma of each of the three statistics, from the budget alone."""
        return float(calibrate(facts.budget, steps=3, also=size_noise(facts)))

    def terms(self, facts: Facts) -> Terms:
        if not facts.linear or facts.outputs != 1:
            raise ValueError("sufficient_statistics needs a linear model with one output; pass a linear model")
        third = Gaussian(self.noise_multiplier(facts))
        return Terms.plan((*size_noise(facts), Repeated(third, 3)))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        return State(0, theta, self.noise_multiplier(facts))

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        sigma, d, rho = state.noise_multiplier, private.facts.features, self.failure
        smallest = private.statistic(MinEigenvalue(), noise_multiplier=sigma)
        moment = private.statistic(SecondMoment(), noise_multiplier=sigma)
        cross = private.statistic(CrossMoment(1.0), noise_multiplier=sigma)
        bound = max(float(smallest.value) - math.sqrt(2 * math.log(2 / rho)) * smallest.noise_std, 0.0)
        ridge = max(math.sqrt(d * math.log(2 * d**2 / rho)) * moment.noise_std - bound, 0.0)
        return State(1, solved(moment.value, cross.value, ridge, least=moment.noise_std).astype(np.float32), sigma)


def solved(moment: Array, cross: Array, ridge: float, *, least: float) -> Array:
    """(moment + ridge I)^-1 cross, eigenvalues of the matrix raised to at least ``least``."""
    values, vectors = np.linalg.eigh(moment)
    return vectors @ ((vectors.T @ cross) / np.maximum(values + ridge, least))
