"""AGD: private gradient descent that picks its step size and its gradient budget as it goes.

    g = noisy mean gradient, at cost rho
    i = noisy-min over the candidates theta - a_j g / ||g||, a_0 = 0
    i > 0: theta = theta - a_i g / ||g||, and a new gradient
    i = 0: the gradient was too noisy. rho <- (1 + gamma) rho; a second noisy gradient at cost gamma rho joins the first,
           g <- average weighted by precision; choose again

Candidates are evenly spaced from 0 to the reach, which every ``refresh`` accepted steps becomes (1 + gamma) times the
longest of them, as in the paper. Two noisy gradients at one theta with precisions p_1, p_2 average to (p_1 g_1 + p_2
g_2) / (p_1 + p_2), whose precision is p_1 + p_2: nothing that was paid for is thrown away.

*Guarantee*: adaptive, full batches, so a filter: GDP (``accounting="modern"``), or zCDP as in the paper
(``accounting="zcdp"``). Gradients are Gaussian events; each choice is the exponential mechanism on sums of losses
clipped to ``loss_bound``, a BoundedRange event. Every question is charged once, when it is asked.

Lee & Kifer 2018, Concentrated Differentially Private Gradient Descent with Adaptive per-Iteration Privacy Budget;
Wang & Zhou 2020 (the average).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..accounts import Terms, currency
from ..asking import Answer, Curator, Facts, PublicCurator
from ..trusted import validate
from ..trusted.accountants import special
from .base import Array, Method
from .nonprivate import OnlyPublic, minimise, required, warm_start


class State(NamedTuple):
    step: int
    theta: Array
    cost: float  # of a gradient, as a share of the whole budget
    choice_epsilon: float
    gradient: Answer | None  # what is known of the gradient at theta
    reach: float
    taken: tuple[float, ...]  # step lengths accepted since the reach was last changed
    spent: bool


@dataclass(frozen=True)
class Agd(Method):
    """``steps`` sets the first gradient's cost: that many gradients and choices would use up the budget."""

    steps: int = 100
    max_grad_norm: float = 1.0
    loss_bound: float = 2.0
    choice_share: float = 0.3
    candidates: int = 20
    reach: float = 2.0
    refresh: int = 10
    gamma: float = 0.2
    accounting: str = "modern"

    name: ClassVar[str] = "agd"
    summary: ClassVar[str] = "picks step sizes by noisy-min and grows the gradient's budget when none helps"
    paper: ClassVar[str] = "Lee & Kifer 2018"
    adaptive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validate.whole(steps=self.steps, refresh=self.refresh)
        validate.whole(candidates=self.candidates, at_least=2)
        validate.positive(
            max_grad_norm=self.max_grad_norm, loss_bound=self.loss_bound, reach=self.reach, gamma=self.gamma
        )
        validate.open_unit(choice_share=self.choice_share)
        validate.one_of(("modern", "zcdp"), accounting=self.accounting)

    @property
    def _currency(self) -> str:
        return "gdp" if self.accounting == "modern" else "zcdp"

    def terms(self, facts: Facts) -> Terms:
        return Terms.adaptive(self._currency)

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        theta = warm_start(theta, public)
        cap = currency(facts.budget, self._currency).cap
        epsilon = choice_epsilon(self.choice_share / self.steps * cap * (1 - 1e-9), self._currency)
        return State(0, theta, (1 - self.choice_share) / self.steps, epsilon, None, self.reach, (), False)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        left, choice = 1 - private.meter.spent_fraction, self.choice_share / self.steps
        need = choice + (0.0 if state.gradient else state.cost)
        if left < need * (1 - 1e-9):
            return state._replace(spent=True)
        cost = state.cost if left >= 2 * need else left - choice  # the last gradient takes what would be left over
        known = state.gradient or self._ask(state.theta, cost / left, private)
        direction = known.value / max(float(np.linalg.norm(known.value)), 1e-12)
        lengths = [state.reach * j / (self.candidates - 1) for j in range(self.candidates)]
        thetas = [state.theta - length * direction for length in lengths]
        winner = private.choose(thetas, loss_bound=self.loss_bound, epsilon=state.choice_epsilon)
        if winner == 0:
            return self._sharpen(state._replace(step=state.step + 1, gradient=known), private)
        taken, reach = (*state.taken, lengths[winner]), state.reach
        if len(taken) == self.refresh:
            taken, reach = (), (1 + self.gamma) * max(taken)
        return state._replace(step=state.step + 1, theta=thetas[winner], gradient=None, reach=reach, taken=taken)

    def _sharpen(self, state: State, private: Curator) -> State:
        """No candidate was better than staying: grow the gradient's budget and average in a second one."""
        left, extra = 1 - private.meter.spent_fraction, self.gamma * state.cost
        if state.gradient is None or left < extra:
            return state._replace(spent=True)
        known = by_precision(state.gradient, self._ask(state.theta, extra / left, private))
        return state._replace(cost=state.cost + extra, gradient=known)

    def done(self, state: State) -> bool:
        return state.spent

    def _ask(self, theta: Array, share: float, private: Curator) -> Answer:
        """A noisy gradient for a share of the remaining budget."""
        sigma = private.meter.noise_for(share)
        return private.gradient(theta, clip=self.max_grad_norm, noise_multiplier=sigma)


@dataclass(frozen=True)
class AgdAvg(Agd):
    """The mean of AGD's model and of a model of the public rows alone, which ``public_l2`` regularises.

    AGD starts without the public rows, so that the two models err independently. *Guarantee*: that of ``agd``; the public
    model and the mean are post-processing.
    """

    public_l2: float = OnlyPublic.l2

    name: ClassVar[str] = "agd_avg"
    summary: ClassVar[str] = "average of agd's and only_public's models"
    paper: ClassVar[str] = "baseline of Wang & Zhou 2020"
    needs_public: ClassVar[bool] = True

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        required(public, self.name)
        return super().init(theta, facts, None)

    def finish(self, state: State, public: PublicCurator | None) -> Array:
        rows = required(public, self.name)
        alone = minimise(rows, rows.model.start(), l2=self.public_l2, steps=OnlyPublic.steps)
        return (state.theta + alone) / 2


def by_precision(first: Answer, second: Answer) -> Answer:
    """The average of two answers to one question with the least noise: weights 1/std^2.

    >>> by_precision(Answer(np.array([0.0]), 1.0), Answer(np.array([3.0]), 2.0)).value
    array([0.6])
    """
    p, q = first.noise_std**-2, second.noise_std**-2
    return Answer((p * first.value + q * second.value) / (p + q), (p + q) ** -0.5)


def choice_epsilon(cost: float, name: str) -> float:
    """The epsilon of an exponential mechanism that costs mu^2 = cost in GDP, or rho = cost in zCDP.

    GDP: mu = 2 Phi^-1(e^(epsilon/2) / (1 + e^(epsilon/2))); zCDP: rho = epsilon^2/8.
    """
    if name == "zcdp":
        return math.sqrt(8 * cost)
    half = math.sqrt(cost) / 2
    return float(2 * (special.log_ndtr(half) - special.log_ndtr(-half)))
