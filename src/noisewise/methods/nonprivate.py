"""Training without noise, by L-BFGS on the mean loss plus l2/2 ||theta||^2: on public rows, or on all without privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np

from ..accounts import Terms
from ..asking import Curator, Facts, PublicCurator
from ..trusted import validate
from .base import Array, Method, size_noise

WARM_START_L2 = 0.01


class State(NamedTuple):
    step: int
    theta: Array


@dataclass(frozen=True)
class NonPrivate(Method):
    """L-BFGS on exact gradients: the reference point that private methods are measured against.

    *Guarantee*: none. The records are handed over as if they were public, and the statement says so.
    """

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


@dataclass(frozen=True)
class OnlyPublic(Method):
    """L-BFGS on the public rows alone, which a private method has to beat; the private records are never asked about.

    *Guarantee*: everything, at no cost: the plan is empty. (A private size is still bought by the loop that runs every
    method, and is then the whole plan.)
    """

    steps: int = 200
    l2: float = 0.01

    name: ClassVar[str] = "only_public"
    summary: ClassVar[str] = "public rows alone; asks the private records nothing"
    paper: ClassVar[str] = "baseline of Wang & Zhou 2020"
    needs_public: ClassVar[bool] = True
    asks_private: ClassVar[bool] = False

    def __post_init__(self) -> None:
        validate.whole(steps=self.steps)
        validate.not_negative(l2=self.l2)

    def terms(self, facts: Facts) -> Terms:
        return Terms.plan(size_noise(facts))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        return State(0, minimise(required(public, self.name), theta, l2=self.l2, steps=self.steps))

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        return state._replace(step=1)

    def total_steps(self) -> int:
        return 1


def required(public: PublicCurator | None, name: str) -> PublicCurator:
    """The public rows, or an error that asks for some."""
    if public is None or not public.size:
        raise ValueError(f"public is missing; {name} needs public rows, pass public=(X, y)")
    return public


def minimise(public: PublicCurator, theta: Array, *, l2: float, steps: int, anchor: Array | None = None) -> Array:
    """argmin over theta of mean public loss + l2/2 ||theta - anchor||^2, by L-BFGS from ``theta``."""
    from scipy.optimize import minimize  # needed only here

    centre = np.zeros_like(theta) if anchor is None else anchor

    def objective(point: Array) -> tuple[float, Array]:
        at, away = point.astype(theta.dtype), point - centre
        return public.loss(at) + l2 / 2 * float(away @ away), public.gradient(at).value + l2 * away

    options = {"maxiter": steps, "maxcor": 100, "gtol": 1e-7, "ftol": 1e-14}
    found = minimize(objective, theta.astype(np.float64), jac=True, method="L-BFGS-B", options=options)
    minimiser: Array = found.x.astype(theta.dtype)
    return minimiser if bool(np.isfinite(minimiser).all()) else theta


def warm_start(theta: Array, public: PublicCurator | None, l2: float = WARM_START_L2) -> Array:
    """The minimum of the public loss if there are public rows, else theta; l2 keeps few rows from running away, to zero or,
    where the weights of a torch module mean something, to what they were."""
    if public is None:
        return theta
    return minimise(public, theta, l2=l2, steps=50, anchor=theta if public.model.tensors else None)
