"""Plain full-batch training without privacy: the reference point that private methods are measured against.

L-BFGS on the mean loss plus l2/2 ||theta||^2, on exact gradients.

*Guarantee*: none. The records are handed over as if they were public, and the statement says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np

from ..asking import Curator, Facts, PublicCurator
from .base import Array, Method

WARM_START_L2 = 0.01
CURVATURE_STEPS = 100  # from which curvature is told


class State(NamedTuple):
    step: int
    theta: Array


@dataclass(frozen=True)
class NonPrivate(Method):
    """L-BFGS on exact gradients; ``steps`` bounds its iterations."""

    steps: int = 200
    l2: float = 1e-6

    name: ClassVar[str] = "nonprivate"
    summary: ClassVar[str] = "plain training, no guarantee: the reference point"
    paper: ClassVar[str] = ""
    private: ClassVar[bool] = False

    def terms(self, facts: Facts) -> NoReturn:
        raise TypeError("nonprivate makes no promise and has no terms")

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        return State(0, theta)

    def step(self, state: State, private: Curator | None, public: PublicCurator | None) -> State:
        if public is None:
            raise TypeError("nonprivate runs on records handed over as public")
        return State(1, minimise(public, state.theta, l2=self.l2, steps=self.steps))

    def total_steps(self) -> int:
        return 1


def minimise(public: PublicCurator, theta: Array, *, l2: float, steps: int, anchor: Array | None = None) -> Array:
    """argmin over theta of mean public loss + l2/2 ||theta - anchor||^2, by L-BFGS from ``theta``."""
    from scipy.optimize import minimize  # needed only here

    centre = np.zeros_like(theta) if anchor is None else anchor

    def objective(point: Array) -> tuple[float, Array]:
        at, away = point.astype(theta.dtype), point - centre
        return public.loss(at) + l2 / 2 * float(away @ away), public.gradient(at).value + l2 * away

    options = {"maxiter": steps, "maxcor": CURVATURE_STEPS, "gtol": 1e-7, "ftol": 1e-14}
    found = minimize(objective, theta.astype(np.float64), jac=True, method="L-BFGS-B", options=options)
    minimiser: Array = found.x.astype(theta.dtype)
    return minimiser if bool(np.isfinite(minimiser).all()) else theta


def warm_start(theta: Array, public: PublicCurator | None, l2: float = WARM_START_L2) -> Array:
    """The minimum of the public loss if there are public rows, else theta; l2 keeps few rows from running away, to zero or,
    where the weights of a torch module mean something, to what they were."""
    if public is None:
        return theta
    return minimise(public, theta, l2=l2, steps=50, anchor=theta if public.model.tensors else None)
