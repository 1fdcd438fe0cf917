"""Methods that add noise once: to the last iterate of a walk, to the objective, or in one pass over the records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..accounts import Terms
from ..asking import Curator, Descent, Facts, OnePass, PerturbedObjective, PublicCurator
from ..protect.signal import signal_to_noise
from ..trusted import validate
from ..trusted.accountants.calibrate import calibrate, epsilon
from ..trusted.accountants.gdp import epsilon_of
from ..trusted.events import ApproximateDP, Gaussian
from ..trusted.walks.objective import objective_terms_of
from ..trusted.walks.oneshot import Whole, loss_constants
from .base import Array, Method, size_noise
from .nonprivate import required, warm_start

STEP_SHARE = 0.5  # of the longest step allowed: the shorter, the less the weight of the records is damped
MAX_EPSILON = 50.0  # of a perturbed objective: more buys nothing


class State(NamedTuple):
    theta: Array
    noise_multiplier: float
    facts: Facts
    step: int


class ObjectiveState(NamedTuple):
    theta: Array
    event: ApproximateDP
    facts: Facts
    step: int


@dataclass(frozen=True)
class OutputPerturbation(Method):
    """Plain descent on the records, Gaussian noise on where it ends.

        theta_{t+1} = project(theta_t - eta gradient of (mean loss + l2/2 ||theta - theta_0||^2)),  t = 0 .. T-1
        released: theta_T + N(0, (sigma L (1 - (1 - eta l2)^T) / (l2 N))^2),  sigma L eta T / N without l2

    Two walks on neighbouring records stay close, because a short step on a smooth convex loss brings them together. The
    walk is ended early: the noise grows with its ``length`` eta T, as the error of ending early falls. None chooses it
    from public facts.

    *Guarantee*: a plan of one Gaussian event (and the bought size, when the size is private), exact by Gaussian DP; the
    sensitivity is proved in :class:`noisewise.asking.Descent`. Convex smooth losses of linear models; for the hinge pass
    the Huberised one, whose width says how smooth it is.

    Zhang, Zheng, Mou & Wang 2017, Efficient Private ERM for Smooth Objectives; Wu et al. 2017, Bolt-on Differential
    Privacy.
    """

    length: float | None = None
    l2: float = 0.0
    radius: float | None = None

    name: ClassVar[str] = "output_perturbation"
    summary: ClassVar[str] = "plain descent, Gaussian noise on the last iterate"
    paper: ClassVar[str] = "Zhang et al. 2017"
    whole: ClassVar[type[Whole] | None] = Descent
    losses: ClassVar[tuple[str, ...]] = ("logistic", "huber_hinge", "squared", "softmax")

    def __post_init__(self) -> None:
        validate.not_negative(l2=self.l2)
        validate.positive_or_none(length=self.length, radius=self.radius)

    def noise_multiplier(self, facts: Facts) -> float:
        """sigma, from the budget alone."""
        return float(calibrate(facts.budget, steps=1, also=size_noise(facts)))

    def terms(self, facts: Facts) -> Terms:
        loss_constants(facts, ball(self.radius, facts))  # refuses what the proof does not cover
        return Terms.plan((*size_noise(facts), Gaussian(self.noise_multiplier(facts))))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        return State(warm_start(theta, public), self.noise_multiplier(facts), facts, 0)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        radius = ball(self.radius, state.facts)
        _, M = loss_constants(state.facts, radius)
        length = self.length or default_length(state.facts)
        steps = math.ceil(length * (M + self.l2) / STEP_SHARE)
        walk = Descent(state.theta, steps, length / steps, state.noise_multiplier, self.l2, radius)
        return state._replace(theta=private.last_iterate(walk).value, step=1)


def default_length(facts: Facts) -> float:
    """The time eta T: 2.4 ratio / L, or 4 sqrt(ratio) / M in a ball; at most 500 / M, which is a thousand steps.

    The noise has norm length * L / ratio, and L grows with the ball. A compromise of sweeps by factors of 2 on held-out
    rows of census-like tables and three real ones (9 to 124 parameters, ratios from 10 to 2,000); tables of many rare
    columns, such as Adult, gain from a walk several times longer.
    """
    ratio, smoothness = signal_to_noise(facts), facts.smoothness
    bounded = math.isfinite(facts.lipschitz)
    length = 2.4 * ratio / facts.lipschitz if bounded else 4 * math.sqrt(ratio) / smoothness
    return min(max(length, 2 / smoothness), 500 / smoothness) / facts.row_bound**2


def ball(radius: float | None, facts: Facts) -> float:
    """The radius theta is kept in: as set, else sqrt(ratio / 60) / row_bound where slopes need it, else none."""
    if radius is not None:
        return radius
    return math.inf if math.isfinite(facts.lipschitz) else math.sqrt(signal_to_noise(facts) / 60) / facts.row_bound


@dataclass(frozen=True)
class Pnsgd(Method):
    """One noisy step per private record, then steps on public records that hide the last of them.

        theta <- project(theta - eta (gradient of one record + l2 (theta - theta_0) + N(0, s^2)))

    Only the last iterate is released. Each contracting noisy step after a record's own makes it harder to see, so the
    price is that of the last private record, with all the public steps behind it: s = sigma L / sqrt(public steps + 1).
    ``learning_rate`` None chooses eta from public facts; ``passes`` over the public rows end the walk, for free.

    *Guarantee*: a plan of one Gaussian event under replace_one, proved in :class:`noisewise.asking.OnePass` by Gaussian
    DP (the paper's Renyi bound asks for about a third more noise at small epsilon). Public rows are needed: without them
    nothing hides the last record.

    Feldman, Mironov, Talwar & Thakurta 2018, Privacy Amplification by Iteration.
    """

    learning_rate: float | None = None
    passes: int = 4
    l2: float = 0.0
    radius: float | None = None

    name: ClassVar[str] = "pnsgd"
    summary: ClassVar[str] = "one noisy pass, private records first, public ones last, the end released"
    paper: ClassVar[str] = "Feldman et al. 2018"
    whole: ClassVar[type[Whole] | None] = OnePass
    losses: ClassVar[tuple[str, ...]] = ("logistic", "huber_hinge", "squared", "softmax")
    needs_public: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validate.whole(passes=self.passes)
        validate.not_negative(l2=self.l2)
        validate.positive_or_none(learning_rate=self.learning_rate, radius=self.radius)

    def noise_multiplier(self, facts: Facts) -> float:
        """sigma, from the budget alone."""
        return float(calibrate(facts.budget, steps=1))

    def terms(self, facts: Facts) -> Terms:
        if facts.budget.adjacency != "replace_one":
            raise ValueError(
                "adjacency is 'add_remove'; pass 'replace_one': one pass over the records in order has a "
                "price only when their number is fixed"
            )
        loss_constants(facts, ball(self.radius, facts))  # refuses what the proof does not cover
        return Terms.plan(Gaussian(self.noise_multiplier(facts)))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        required(public, self.name)
        return State(warm_start(theta, public), self.noise_multiplier(facts), facts, 0)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        assert public is not None
        rows, labels = public.batch.X * public.batch.lengths[:, None], public.batch.y
        radius = ball(self.radius, state.facts)
        rate = self.learning_rate or balanced_rate(state.facts, public.size * self.passes, self.l2, radius)
        walk = OnePass(state.theta, rows, labels, rate, state.noise_multiplier, self.l2, radius, self.passes)
        return state._replace(theta=private.last_iterate(walk).value, step=1)


def balanced_rate(facts: Facts, public_steps: int, l2: float, radius: float) -> float:
    """eta = 2.5 r / (M s sqrt(n d)) for rows of norm r, at most 1/(M + l2).

    n steps learn about eta n and leave noise of variance about eta s^2 d: eta = 1 / (s sqrt(n d)) balances the two, and
    s = L sigma / sqrt(public steps). The factor comes from a coarse sweep on a census-like and a real table.
    """
    L, M = loss_constants(facts, radius)
    size, r = facts.size or 1.0, facts.row_bound
    return min(2.5 * r / L * signal_to_noise(facts) * math.sqrt((public_steps + 1) / size) / size / M, 1 / (M + l2))


@dataclass(frozen=True)
class ObjectivePerturbation(Method):
    """The minimiser of the training objective with a random linear term.

        theta = argmin  sum of losses + Lambda/2 ||theta - theta_0||^2 + b.theta,   b ~ N(0, s^2)
        found to a gradient norm gamma fixed beforehand, and noise for the difference of 2 gamma/Lambda on top

    No step size, no number of steps, no clipping: the noise enters once, where the objective's own curvature shrinks it.
    ``l2`` is Lambda divided by the size; None chooses it from public facts.

    *Guarantee*: a plan of one ApproximateDP(epsilon, delta) event (and the bought size, when the size is private, which
    takes its part of epsilon and half of delta), proved in :class:`noisewise.asking.PerturbedObjective` for both
    relations. Losses of one linear score with bounded slope and curvature; softmax and the squared loss are refused.

    Kifer, Smith & Thakurta 2012; Iyengar et al. 2019, Towards Practical Differentially Private Convex Optimization.
    """

    l2: float | None = None

    name: ClassVar[str] = "objective_perturbation"
    summary: ClassVar[str] = "the minimiser of a randomly perturbed objective"
    paper: ClassVar[str] = "Kifer et al. 2012, Iyengar et al. 2019"
    whole: ClassVar[type[Whole] | None] = PerturbedObjective
    losses: ClassVar[tuple[str, ...]] = ("logistic", "huber_hinge")

    def __post_init__(self) -> None:
        if self.l2 is not None:
            validate.not_negative(l2=self.l2)

    def event(self, facts: Facts) -> ApproximateDP:
        """All of the budget, or what the bought size leaves of it."""
        budget, size = facts.budget, size_noise(facts)
        if not size:
            return ApproximateDP(min(budget.epsilon, MAX_EPSILON), budget.delta)
        spent = epsilon_of(1 / size[0].noise_multiplier, budget.delta / 2)
        event = ApproximateDP(min(budget.epsilon - spent, MAX_EPSILON), budget.delta / 2)
        while epsilon((*size, event), delta=budget.delta, adjacency=budget.adjacency) > budget.epsilon:
            event = ApproximateDP(event.epsilon * 0.999, event.delta)  # what rounding took
        return event

    def terms(self, facts: Facts) -> Terms:
        event = self.event(facts)
        objective_terms_of(event, facts, 1.0)  # refuses the unproved
        return Terms.plan((*size_noise(facts), event))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> ObjectiveState:
        return ObjectiveState(warm_start(theta, public), self.event(facts), facts, 0)

    def step(self, state: ObjectiveState, private: Curator, public: PublicCurator | None) -> ObjectiveState:
        l2 = default_l2(state.facts) if self.l2 is None else self.l2
        objective = PerturbedObjective(state.theta, state.event.epsilon, state.event.delta, l2)
        return state._replace(theta=private.minimise(objective).value, step=1)


def default_l2(facts: Facts) -> float:
    """Lambda / N = 0.6 L r / ratio^1.5 for rows of norm r: the less clearly the records show through b, the more.

    From sweeps by factors of about 3 on held-out rows of census-like tables and two real ones (17 to 124 parameters,
    ratios from 10 to 2,000): in that sweep (2 to 4 seeds)
    within 0.3 points of accuracy of the best in 17 of 18 settings, 1 point off in the other.
    """
    return 0.6 * facts.lipschitz * facts.row_bound**2 / signal_to_noise(facts) ** 1.5
