"""Training on the public rows alone: what a private method has to beat.

L-BFGS on the mean public loss plus l2/2 ||theta||^2. The private records are never asked about.

*Guarantee*: everything, at no cost: the plan is empty. (A private size is still bought by the loop that runs every
method, and is then the whole plan.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..accounts import Terms
from ..asking import Curator, Facts, PublicCurator
from ..trusted import validate
from .base import Array, Method, size_noise
from .nonprivate import minimise


class State(NamedTuple):
    step: int
    theta: Array


@dataclass(frozen=True)
class OnlyPublic(Method):
    """L-BFGS on public rows; ``steps`` bounds its iterations."""

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
    """The public rows, or a refusal that says to pass some."""
    if public is None or not public.size:
        raise ValueError(f"public is missing; {name} needs public rows, pass public=(X, y)")
    return public
