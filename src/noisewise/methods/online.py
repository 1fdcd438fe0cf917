"""Hyper-parameters that move during the one run, from released facts alone: a start that is far off is mended on the way.

    buy a basis in which the mean row is small, if that can be told                (as ``descent`` does)
    find C: from C_0, counts of gradients shorter than C, until about ``target_quantile`` of them are
    for t = 1 .. T:
        g_t, b_t = clipped mean gradient, share of records with a gradient shorter than C_t   (one event)
        eta <- eta / 2     where g_t points against g_(t-1), clearly beyond their noise: the step was too long
        eta <- 1.5 eta     where g_t agrees with the average of the gradients before, clearly beyond their noise
        eta <- min(eta, kappa r / (10 T C_t))                                      (what noise allows)
        v <- 0.9 v + g_t,  theta <- theta - eta v
        C_(t+1) = C_t exp(-0.2 w (b_t - target_quantile)),  w = 1 / (1 + (4 std of b_t)^2)

and the mean of the second half of the iterates is released. The noise on g_t and b_t is known, so "clearly" is a number
of its standard deviations: a signal that drowns in noise moves nothing. Growing by agreement and shrinking by
contradiction is what sign-based methods do for each weight; here it is one step size and the product of whole vectors.

A count of n gradients is dear only where n mu is small: the search takes (10 / (n mu))^2 of what is left for each of at
most 16 counts, which leaves a deviation of 0.05 on the share, and is left out where n mu < 35; the clip norm then starts
within a factor of 2 of the loss's own.

Where slopes are bounded the clip norm does not fall below what the search found: there the quantile falls because most
records are told apart by now, and following it would make those that are not count as much as all others together: on
three tables log losses of 0.36, 0.48 and 0.26 became 0.41, 0.53 and 0.30 where it could fall to a half. Squared errors
shrink by what was explained, and a target far from 0 makes the first ones many times as large as the last: there it
follows down.

*Guarantee*: a GDP filter on full batches (Smith & Thakurta 2022): clip norm, step size and what is asked may depend on
anything released. Gradient and count of a step are one event of sigma^-2 = sigma_gradient^-2 + sigma_count^-2.

Andrew, Thakkar, McMahan & Ramaswamy 2021, Differentially Private Learning with Adaptive Clipping (the quantile);
Riedmiller & Braun 1993, RPROP (agreement); Smith & Thakurta 2022, Fully adaptive composition for Gaussian differential
privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..asking import Answer, Curator, Facts, NormAtMost, PublicCurator
from ..protect.optimizers import ReleasedGradient, agreement, contradict
from ..protect.signal import signal_to_noise, worth
from ..trusted import validate
from ..trusted.accountants.common import split_noise
from ..trusted.question import CLIP_RANGE
from .base import Array
from .descent import WARM_START_L2, HeavyBall, bought_basis, default_step_size, usual_steps, wanted_step_size
from .nonprivate import warm_start

GROW, SHRINK = 1.5, 0.5
AGREED = 2.0  # standard deviations of noise; steps that are too short cost time, too long ones are seen at once
FOLLOW = 0.2  # how far the logarithm of the clip norm moves for each unit of the share
MEMORY = 0.9  # of the average of past gradients
DOWN, UP = 1 / 50, 16.0  # how far the clip norm goes from the one that the search found; see above for bounded slopes
PROBES, PROBE, MAX_PROBE_SHARE, MIN_COUNTED = 16, 10.0, 0.005, 35.0
LEAP, NEAR, CLOSE = 8.0, 0.4, 1.3  # the search: a factor; when a share is near its target; when a bracket is closed
REACH = CLIP_RANGE[0], 1e6  # of clip norms


class State(NamedTuple):
    step: int
    steps: int
    theta: Array
    velocity: Array
    tail_sum: Array
    learning_rate: float
    clip: float
    clips: tuple[float, float]  # from, to
    noise: tuple[float, float]
    released: Array
    last: ReleasedGradient | None = None
    average: ReleasedGradient | None = None


@dataclass(frozen=True)
class OnlineDescent(HeavyBall):
    """``learning_rate`` and ``max_grad_norm`` are where they start; they are found from there."""

    steps: int | None = None
    learning_rate: float | None = None
    max_grad_norm: float | None = None
    target_quantile: float = 0.5
    count_share: float = 0.01
    deflate: bool = True
    l2: float = 0.0

    name: ClassVar[str] = "online"
    summary: ClassVar[str] = "finds clip norm and step size during the run, from released facts"
    paper: ClassVar[str] = "noisewise"
    adaptive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.open_unit(target_quantile=self.target_quantile, count_share=self.count_share)

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        ratio = signal_to_noise(facts)
        steps = self.steps or usual_steps(ratio)
        clip = within(self.max_grad_norm or facts.typical_clip, REACH)
        rate = self.learning_rate or default_step_size(facts, ratio, steps, facts.typical_clip)
        zero = np.zeros_like(theta)
        return State(0, steps, theta, zero, zero, rate, clip, REACH, (0.0, 0.0), theta)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        if state.step == 0:
            state = self._begun(state, private, public)
        sigma, tau = state.noise
        answer = private.gradient(
            state.theta, clip=state.clip, noise_multiplier=sigma, quantile_at=state.clip, count_noise_multiplier=tau
        )
        gradient = answer.value + self.l2 * state.theta if self.l2 else answer.value
        now = ReleasedGradient(gradient.astype(np.float64), answer.noise_std, state.theta.astype(np.float64))
        rate = min(moved_rate(state, now), allowed_rate(private.facts, state))
        state = self.onward(state._replace(learning_rate=rate), private, gradient)
        clip = self._next_clip(state, answer, private.facts)
        return state._replace(clip=clip, last=now, average=blended(state.average, now))

    def _begun(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        """Buy the basis, move there, start from public rows if there are any, and find the clip norm."""
        basis = bought_basis(private) if self.deflate else None
        if basis is not None:
            private.change_basis(basis.matrix)
            public = public and public.in_basis(basis.matrix)
        start = warm_start(state.theta, public, WARM_START_L2)
        clip = found_clip(private, start, state.clip, self.target_quantile)
        lower = 1.0 if math.isfinite(private.facts.lipschitz) else DOWN
        clips = within(lower * clip, REACH), within(UP * clip, REACH)
        noise = split_noise(private.meter.noise_for(1 / state.steps), self.count_share)
        return state._replace(theta=start, clip=clip, clips=clips, noise=noise)

    def _next_clip(self, state: State, answer: Answer, facts: Facts) -> float:
        share = within(answer.below or 0.0, (0.0, 1.0))  # noise may take it outside
        deviation = state.noise[1] * facts.unit.most / 2 / (facts.size or 1.0)
        move = FOLLOW / (1 + (4 * deviation) ** 2) * (share - self.target_quantile)
        return within(state.clip * math.exp(-move), state.clips)

    def done(self, state: State) -> bool:
        return state.step >= state.steps


def within(value: float, limits: tuple[float, float]) -> float:
    """The value, cut to the limits."""
    return min(max(value, limits[0]), limits[1])


def moved_rate(state: State, now: ReleasedGradient) -> float:
    """The step size after one more gradient: shorter where steps contradict each other, longer where they agree."""
    if state.last is None or state.average is None:
        return state.learning_rate
    if contradict(state.last, now):
        return state.learning_rate * SHRINK
    product, deviation = agreement(state.average, now)
    return state.learning_rate * (GROW if product > AGREED * deviation else 1.0)


def allowed_rate(facts: Facts, state: State) -> float:
    """The step size at which noise of this clip norm moves theta by what is typical of it."""
    return wanted_step_size(facts, signal_to_noise(facts), state.steps, state.clip)


def blended(average: ReleasedGradient | None, now: ReleasedGradient) -> ReleasedGradient:
    """The average of past gradients with one more, and its noise."""
    if average is None:
        return now
    gradient = MEMORY * average.gradient + (1 - MEMORY) * now.gradient
    return ReleasedGradient(gradient, math.hypot(MEMORY * average.noise, (1 - MEMORY) * now.noise), now.theta)


def found_clip(private: Curator, theta: Array, start: float, target: float) -> float:
    """A norm that about the target's share of gradients at theta stays below, from paid counts.

    By leaps until the target lies between two norms, then halving their distance on a logarithmic scale.
    """
    facts = private.facts
    counted = (facts.size or 1.0) * worth(facts) / facts.unit.most
    if counted < MIN_COUNTED:
        return within(start, (facts.typical_clip / 2, facts.typical_clip * 2))
    share, low, high, clip = min((PROBE / counted) ** 2, MAX_PROBE_SHARE), 0.0, math.inf, start
    for _ in range(PROBES):
        below = short_share(private, theta, clip, share)
        if abs(below - target) < NEAR * min(target, 1 - target):
            break
        low, high = (low, clip) if below > target else (clip, high)
        clip = within(between(low, high), REACH)
        if high < CLOSE * low or clip in (low, high):
            break
    return clip


def between(low: float, high: float) -> float:
    """Where to look next: in the middle of two norms, or beyond the one that is known."""
    if low == 0.0:
        return high / LEAP
    return low * LEAP if math.isinf(high) else math.sqrt(low * high)


def short_share(private: Curator, theta: Array, norm: float, share: float) -> float:
    """The released share of records whose gradient at theta is shorter, for this share of what is left.

    Where a person has k rows, the rows of a clip norm C are cut at C / k.
    """
    facts = private.facts
    question = NormAtMost(norm / facts.unit.most, tuple(map(float, theta)))
    count = private.statistic(question, noise_multiplier=private.meter.noise_for(share))
    return 0.5 + float(count.value) / (facts.size or 1.0)
