"""Objective perturbation: the minimiser of a convex objective with a random slope, found by Newton steps inside the curator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from .. import validate
from ..accountants.common import pair_mu
from ..accountants.gdp import mu_of
from ..events import ApproximateDP, Mechanism
from ..facts import Facts
from ..models import Model
from ..noise import Stream
from ..stores.totals import FloatRows, Floats
from .iterations import Perturbed, rows_of
from .oneshot import ROUNDING, Whole, loss_constants, noised_end, plain_fields


@dataclass(frozen=True, eq=False)
class PerturbedObjective(Whole):
    """argmin of sum of losses + Lambda/2 ||theta - start||^2 + b.theta with b ~ N(0, s^2), Lambda >= l2 N: one number
    of :class:`ObjectiveTerms` each, solved to a gradient norm <= gamma, and output noise on top.

    *Guarantee*: (epsilon, delta)-DP, epsilon = e_hessian + e_gradient + e_output, delta in halves. Proof: theta fixes
    b = -(sum of gradients + Lambda (theta - start)), so its density is that of b there times det H, H the Hessian.
    (1) One record adds l'' x x^T to an H >= Lambda: det H grows by a factor in [1, 1 + M/Lambda], for either relation
    (a replaced record compares two such factors); e_hessian = log(1 + M/Lambda). (2) The densities of b have
    log-ratio b.D/s^2 + ||D||^2/(2 s^2), D the change of the gradient sum at theta. Added record: D is along x, so this
    is at most m |g| + m^2/2 with g standard normal, m = L/s, and E(1 - e^(e - that))_+ is twice the delta of m-GDP at
    e = e_gradient. Replaced: D lies in the plane of two rows, |g| becomes the length of a normal pair, m = 2L/s, and the
    same integral is sqrt(2 pi) m e^e Phi(-e/m - m/2). Both for e >= m^2/2. (3) What the solver finds is within
    gamma/Lambda of the minimiser, so given the minimiser it moves by 2 gamma/Lambda between neighbours, which the
    output noise hides. A loss with a kinked slope has l'' almost everywhere, which is all that densities need.

    Kifer, Smith & Thakurta 2012; Iyengar et al. 2019 (approximate minima); Redberg, Koskela & Wang 2023 (step 2).
    """

    start: Floats
    epsilon: float
    delta: float
    l2: float = 0.0
    words: ClassVar[str] = "the minimum of a perturbed objective"
    mechanism: ClassVar[type[Mechanism]] = ApproximateDP

    @classmethod
    def of_model(cls, facts: Facts) -> None:
        super().of_model(facts)
        if facts.outputs != 1:
            raise ValueError("softmax has several outputs; objective perturbation is proved for one: pass two classes")
        if not math.isfinite(facts.lipschitz):
            raise ValueError(f"loss {facts.loss!r} has slopes without a bound; objective perturbation needs one")

    def __post_init__(self) -> None:
        plain_fields(self, "epsilon", "delta", "l2")
        validate.open_unit(delta=self.delta)

    def event(self) -> ApproximateDP:
        return ApproximateDP(self.epsilon, self.delta)

    def noise_std(self, facts: Facts, size: float) -> float:
        """Of the small noise on top of the minimiser."""
        return objective_terms(self, facts, size).output_std

    def end(self, model: Model, records: FloatRows, facts: Facts, size: float, stream: Stream) -> Floats:
        chosen = objective_terms(self, facts, size)
        b = stream.noised(np.zeros(facts.dimension), chosen.noise_std)
        objective = Perturbed(model, rows_of(records, facts.row_bound), b, chosen.strong_convexity, self.start)
        exact = objective.minimiser(chosen.gamma, loss_constants(facts)[1])
        return noised_end(exact, chosen.output_std, chosen.output_multiplier, stream)


class ObjectiveTerms(NamedTuple):
    """The numbers of a :class:`PerturbedObjective`, in units of the sum over records."""

    e_hessian: float
    e_gradient: float
    e_output: float
    strong_convexity: float
    noise_std: float
    gamma: float
    output_std: float
    output_multiplier: float


OUTPUT_SHARE = 0.01  # of epsilon, for not having solved exactly
HESSIAN_SHARE = 0.5  # of epsilon at most; Lambda is raised until that is enough
PRECISION = 1e-5  # the output noise as a share of b's noise / Lambda
FLOOR = (
    2.0**-36
)  # of the terms of a gradient sum: far above what rounding, and a slope that is wrong by 1e-12, do to it
MAX_START_SCORE = 30.0  # that a start may give to a row: beyond, every record is saturated and solving is slow


def objective_terms(objective: PerturbedObjective, facts: Facts, size: float) -> ObjectiveTerms:
    """How a perturbed objective spends its (epsilon, delta), from public facts alone."""
    return objective_terms_of(
        objective.event(), facts, size, l2=objective.l2, start=float(np.linalg.norm(objective.start))
    )


def objective_terms_of(
    whole: ApproximateDP, facts: Facts, size: float, *, l2: float = 0.0, start: float = 0.0
) -> ObjectiveTerms:
    """The same for the objective with this price; ``start`` is the norm of its start."""
    L, M = loss_constants(facts)
    PerturbedObjective.of_model(facts)
    if facts.row_bound * start > MAX_START_SCORE:
        raise ValueError(f"start gives scores beyond {MAX_START_SCORE:g}; pass a public start of usual size, e.g. 0")
    epsilon, half = whole.epsilon * (1 - 1e-9), whole.delta / 2
    strong = max(l2 * size, M / math.expm1(min(HESSIAN_SHARE * epsilon, 5.0)))
    e_hessian, e_output = math.log1p(M / strong), OUTPUT_SHARE * epsilon
    e_gradient = epsilon - e_hessian - e_output
    if facts.budget.adjacency == "add_remove":
        noise = L / min(mu_of(e_gradient, half / 2), math.sqrt(2 * e_gradient)) * ROUNDING
    else:
        noise = 2 * L / pair_mu(e_gradient, half) * ROUNDING
    mu = mu_of(e_output, half)
    scale = size * L + noise * math.sqrt(facts.dimension) + strong * (1 + start)
    gamma = max(PRECISION * noise * mu / 2, FLOOR * scale)
    return ObjectiveTerms(
        e_hessian, e_gradient, e_output, strong, noise, gamma, 2 * gamma / strong / mu * ROUNDING, 1 / mu
    )
