"""PPSGD: private gradients whose noise and clip are steered by a few public rows, then fine-tuned on those rows.

    g_t = mean of gradients clipped to C_t + N(0, (sigma_t C_t / batch size)^2)
    w_{t+1} = w_t - projector(g_t + l2 w_t)
    rho_{t+1} = (1 + alpha) rho_t   if  phi ||g_public(w_{t+1})|| < sqrt(d) (noise std of g_t)     (line 13)
    C_{t+1} = (1 - beta) C_t        if  varphi ||g_public(w_{t+1})|| < C_t                         (line 18)
    w* = argmin of mean public loss + lambda ||w - w_T||^2                                         (line 25)

rho_0 is 1/steps of the budget. The run ends when it is spent: a step after which less than one step would be left
takes all that is left. With ``tail > 0`` the w_T above is the mean of the iterates made from the last ``tail`` of the
budget, weighted by what they cost; with ``tail=0`` it is the last iterate, as in the paper.

*Guarantee*: adaptive, so a filter. ``accounting="modern"``: GDP on full batches, which is exact, or RDP at one order
fixed beforehand when batches are sampled. ``accounting="paper"``: tCDP, replace_one, fixed-size batches of at most a
tenth of the data. There every condition of the paper's Theorem 4 is enforced, and the one it leaves out: the amplified
omega must reach omega_total, which caps rho on the batch; growth stops at that cap, and a first step above it is
refused. Public rows are disjoint from the private ones; lines 11 to 25 use released iterates and public rows only.

Wang & Zhou 2020, Differentially Private Learning with Small Public Data, Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..accounts import Terms
from ..asking import Answer, Curator, Facts, PublicCurator
from ..protect.optimizers import OPTIMIZERS, Optimizer
from ..protect.signal import signal_to_noise
from ..trusted import validate
from ..trusted.accountants import tcdp
from ..trusted.accountants.choose import choose_terms
from ..trusted.events import FULL, Sampling
from .base import Array, Method
from .gradient_walk import default_learning_rate
from .nonprivate import minimise, required

REUSE_STEPS = 200
MIN_CLIP = 1e-3  # rounding of scores does not shrink with the clip


class State(NamedTuple):
    step: int
    theta: Array
    cost: float  # of the next step, as a share of the whole budget: rho_t / rho_total
    ceiling: float  # the cost that no step may exceed
    noise_multiplier: float | None  # of the last step, while the cost stays the same
    clip: float
    projector: Optimizer[Any]
    memory: Any
    tail_sum: Array
    tail_weight: float
    spent: bool


@dataclass(frozen=True)
class PpSgd(Method):
    """Algorithm 1 with momentum and averaging on top; :func:`as_published` takes both away."""

    steps: int = 100
    sampling: Sampling = FULL
    max_grad_norm: float | None = None
    phi: float = 10.0
    alpha: float = 0.3
    varphi: float | None = None
    beta: float = 0.3
    clip_rule: str = "mean"
    reuse: float = 1.0
    optimizer: str = "momentum"
    learning_rate: float | None = None
    l2: float = 0.0
    tail: float = 0.5
    accounting: str = "modern"

    name: ClassVar[str] = "ppsgd"
    summary: ClassVar[str] = "public rows steer noise and clip, then fine-tune the model"
    paper: ClassVar[str] = "Wang & Zhou 2020"
    needs_public: ClassVar[bool] = True
    adaptive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validate.whole(steps=self.steps)
        validate.positive(phi=self.phi)
        validate.not_negative(alpha=self.alpha, l2=self.l2, reuse=self.reuse)
        validate.one_of(("mean", "max"), clip_rule=self.clip_rule)
        validate.one_of(("modern", "paper"), accounting=self.accounting)
        validate.one_of(tuple(OPTIMIZERS), optimizer=self.optimizer)
        validate.positive_or_none(
            max_grad_norm=self.max_grad_norm, varphi=self.varphi, learning_rate=self.learning_rate
        )
        if not 0 <= self.beta < 1:
            raise ValueError(f"beta is {self.beta!r}; pass a number in [0, 1)")
        if not 0 <= self.tail <= 1:
            raise ValueError(f"tail is {self.tail!r}; pass a number in [0, 1], 0 for the last iterate")

    def terms(self, facts: Facts) -> Terms:
        if self.accounting == "modern":
            return choose_terms(facts.budget, adaptive=True, sampling=self.sampling, steps=self.steps)
        if facts.budget.adjacency != "replace_one" or self.sampling[0] != "fixed":
            raise ValueError(
                f"accounting='paper' is proved for replace_one and fixed-size batches, here {facts.budget.adjacency} "
                f"and sampling {self.sampling}; pass adjacency='replace_one' and sampling=('fixed', rate <= 0.1), or "
                "accounting='modern'"
            )
        ceiling = paper_ceiling(facts, self.sampling[1])
        if 1 / self.steps > ceiling:
            raise ValueError(
                f"steps is {self.steps}, so the first step takes 1/{self.steps} of the budget, but batches of rate "
                f"{self.sampling[1]} may take at most {ceiling:.4g} of it: above, the amplified omega falls below "
                f"omega_total and the paper's Theorem 5 does not follow; pass steps >= {math.ceil(1 / ceiling)}, a "
                "larger rate, or accounting='modern'"
            )
        return Terms.adaptive("tcdp")

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        required(public, self.name)
        projector: Optimizer[Any] = OPTIMIZERS[self.optimizer](
            self.learning_rate or default_rate(self.optimizer, facts)
        )
        clip = self.max_grad_norm or default_clip(facts)
        ceiling = paper_ceiling(facts, self.sampling[1]) if self.accounting == "paper" else 1.0  # type: ignore[misc]
        memory, nothing = projector.init(len(theta)), np.zeros_like(theta)
        return State(0, theta, 1 / self.steps, ceiling, None, clip, projector, memory, nothing, 0.0, False)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        left = 1 - private.meter.spent_fraction
        last = left < 2 * state.cost * (1 - 1e-9)
        cost = min(left if last else state.cost, state.ceiling)
        sigma = None if last else state.noise_multiplier
        sigma = sigma or private.meter.noise_for(1.0 if cost == left else cost / left, self.sampling)
        answer = private.gradient(state.theta, clip=state.clip, noise_multiplier=sigma, sampling=self.sampling)
        regularised = Answer(answer.value + self.l2 * state.theta, answer.noise_std)
        theta, memory = state.projector(regularised, state.theta, state.memory)

        rows = required(public, self.name)
        public_norm = float(np.linalg.norm(rows.gradient(theta).value))
        noise_norm = math.sqrt(len(theta)) * answer.noise_std
        grows = self.phi * public_norm < noise_norm
        grown = min((1 + self.alpha) * state.cost, state.ceiling) if grows else state.cost
        reference = public_norm if self.clip_rule == "mean" else float(rows.norms(theta).max())
        shrinks = self.shrink_below(private.facts) * reference < state.clip

        weight = cost if left - cost < self.tail else 0.0
        return state._replace(
            step=state.step + 1,
            theta=theta,
            memory=memory,
            cost=grown,
            noise_multiplier=sigma if grown == state.cost else None,
            clip=max((1 - self.beta) * state.clip, MIN_CLIP) if shrinks else state.clip,
            tail_sum=state.tail_sum + weight * theta,
            tail_weight=state.tail_weight + weight,
            spent=last and cost == left,
        )

    def done(self, state: State) -> bool:
        return state.spent

    def finish(self, state: State, public: PublicCurator | None) -> Array:
        theta = state.tail_sum / state.tail_weight if state.tail_weight else state.theta
        return reuse(theta, required(public, self.name), self.reuse)

    def shrink_below(self, facts: Facts) -> float:
        """varphi: 100 where gradients do not shrink as the loss does (hinge and the like), 10 for the squared loss."""
        return self.varphi or (10.0 if math.isinf(facts.lipschitz) else 100.0)


def default_clip(facts: Facts) -> float:
    """C_0: 1, the largest gradient of a Lipschitz loss on rows of norm 1.

    Gradients of the squared loss reach further, and a clear signal pays for keeping them: sqrt(r/60) from 1 to 2, with
    r = n mu / sqrt(d) the signal-to-noise ratio of one release of the whole budget.
    """
    return min(max(math.sqrt(signal_to_noise(facts) / 60), 1.0), 2.0) if math.isinf(facts.lipschitz) else 1.0


def default_rate(optimizer: str, facts: Facts) -> float:
    """eta: that of DP-SGD; with momentum at most 1/M for the squared loss, and for others at least r/60, up to 2."""
    rate = default_learning_rate(optimizer, facts)
    if optimizer != "momentum":
        return rate
    return min(rate, 0.5) if math.isinf(facts.lipschitz) else max(rate, min(signal_to_noise(facts) / 60, 2.0))


def as_published(rate: float, steps: int, **settings: Any) -> PpSgd:
    """Algorithm 1 as printed: tCDP, fixed-size batches, plain SGD, last iterate."""
    defaults: dict[str, Any] = {"optimizer": "sgd", "tail": 0.0, "accounting": "paper"}
    return PpSgd(sampling=("fixed", rate), steps=steps, **{**defaults, **settings})


def reuse(theta: Array, public: PublicCurator, lam: float) -> Array:
    """Line 25: argmin of mean public loss + lam ||w - theta||^2. Uses no private record: run it again on more rows."""
    return minimise(public, theta, l2=2 * lam, steps=REUSE_STEPS, anchor=theta)


def paper_ceiling(facts: Facts, rate: float) -> float:
    """The largest rho_t / rho_total for which a step keeps every condition of tCDP sampling, rounded down.

    On the batch: rho <= 0.1, log(1/s) >= 3 rho (2 + log2(1/rho)), log(1/s) / (4 rho) >= omega_total.
    """
    rho_total, omega_total = tcdp.totals(facts.budget.epsilon, facts.budget.delta)
    if rate > 0.1:
        raise ValueError(f"sampling has rate {rate}; tCDP sampling is proved for at most 0.1, pass a smaller rate")
    log_rate = -math.log(rate)
    rho = min(0.1, log_rate / (4 * omega_total))
    while log_rate < 3 * rho * (2 + math.log2(1 / rho)):
        rho *= 0.999
    return min(1.0, 13 * rate**2 * rho / rho_total * (1 - 1e-9))
