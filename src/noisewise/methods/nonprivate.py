"""Plain full-batch training without privacy: the reference point that private methods are measured against.

L-BFGS with a strong Wolfe line search on the mean loss plus l2/2 ||theta||^2, on exact gradients.

*Guarantee*: none. The records are handed over as if they were public, and the statement says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn

from ..curator import Curator, Facts, PublicCurator
from ..trusted.late import Tensor, torch
from .base import Method

WARM_START_L2 = 0.01


class State(NamedTuple):
    step: int
    theta: Tensor


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

    def init(self, theta: Tensor, facts: Facts, public: PublicCurator | None) -> State:
        return State(0, theta)

    def step(self, state: State, private: Curator | None, public: PublicCurator | None) -> State:
        if public is None:
            raise TypeError("nonprivate runs on records handed over as public")
        return State(1, minimise(public, state.theta, l2=self.l2, steps=self.steps))

    def total_steps(self) -> int:
        return 1


def minimise(public: PublicCurator, theta: Tensor, *, l2: float, steps: int, anchor: Tensor | None = None) -> Tensor:
    """argmin over theta of mean public loss + l2/2 ||theta - anchor||^2, by L-BFGS from ``theta``."""
    centre = torch.zeros_like(theta) if anchor is None else anchor
    point = theta.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([point], max_iter=steps, line_search_fn="strong_wolfe", tolerance_grad=1e-7)

    def closure() -> Any:
        at = point.detach()
        point.grad = public.gradient(at).value + l2 * (at - centre)
        return torch.tensor(public.loss(at) + l2 / 2 * float((at - centre).square().sum()))

    optimizer.step(closure)
    minimiser = point.detach()
    return minimiser if bool(torch.isfinite(minimiser).all()) else theta


def warm_start(theta: Tensor, public: PublicCurator | None, l2: float = WARM_START_L2) -> Tensor:
    """The minimum of the public loss if there are public rows, else theta; l2 keeps few rows from running away, to zero or,
    where the weights of a torch module mean something, to what they were."""
    if public is None:
        return theta
    return minimise(public, theta, l2=l2, steps=50, anchor=theta if public.model.tensors else None)
