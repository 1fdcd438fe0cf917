"""Descent in a good basis: noisewise's own recommended method.

Rows of tables have a large common part: on unit rows the mean row m often has ||m||^2 of 0.6 to 0.9. It says nothing
about the labels, yet it fills the clip norm and so sets the noise. A small share of the budget buys m, and training
goes on in a basis where the direction of m is scaled down and typical rows have length 1:

    x <- x (I - (1 - tau) u u^T) / c,   u = m/||m||,  tau ||m|| = 0.4 s,  s^2 = E||x||^2 - ||m||^2,  c^2 = s^2 + (tau ||m||)^2

Then full-batch heavy ball with equal noise, theta <- theta - eta v, v <- 0.9 v + g, and the mean of the second half of
the iterates is released in the old basis. Horizon and step size follow from r = n mu / sqrt(d), the signal-to-noise
ratio of one release of the whole budget:  T = 20 sqrt(r) in [50, 300],  eta = kappa r / (10 T C), kappa growing with
sqrt(d) beyond 128 parameters, so that noise moves the score of a row by as much whatever their number.

A step size above 4 (or 2/M for a loss of curvature M) might run away if all rows pointed one way. Where r is so large
that twice that is wanted, 5 % of the budget buys the second moment of the rows, and the budget is no longer what limits:
directions that stand out of its noise are made equally long (small ones would be learned last, or never); steps are as
long as 2/(M l), l the largest eigenvalue; where that is still short the horizon grows, to 1,000 steps at most; and the
clip norm, which biases probabilities, grows to twice the usual one. Rows of more than 128 columns, as pictures have,
spread over many directions of which few are long: there a second moment pays as soon as it is clear, that is when noise
moves its eigenvalues by less than 2 % of the squared length of a row, n mu > 224 sqrt(columns).
Losses whose slopes have no bound stay as they are: the clip would cut the long rows of flat directions.

The clip makes the probabilities of a model with layers over-confident; with n mu of at least 2,000, 2 % of the budget buys
eight more gradients that mend scale and shift of its scores (:mod:`noisewise.protect.calibration`).

*Guarantee*: a GDP filter on full batches (Smith & Thakurta 2022), so noise and horizon may depend on what was bought.
The basis is a released matrix applied to each row by itself; averaging and changing back are post-processing.

Polyak 1964 (heavy ball); Smith & Thakurta 2022, Fully adaptive composition for Gaussian differential privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..accounts import Terms
from ..asking import Curator, Facts, FirstMoment, PublicCurator, SecondMoment, SquaredLength
from ..protect import calibration
from ..protect.calibration import Calibration
from ..protect.signal import signal_to_noise, worth
from ..trusted import validate
from ..trusted.accountants.choose import choose_terms
from ..trusted.losses import LOSSES
from .base import Array, Method
from .nonprivate import warm_start
from .preparation.basis import (
    BASIS_SHARE,
    LENGTH_SHARE,
    MOMENT_SHARE,
    Basis,
    clear_moment,
    deflating,
    flattening,
    worth_buying,
)

BETA = 0.9
WARM_START_L2 = 0.1  # a start from few public rows should not run away
MIN_PUBLIC_ROWS = 20  # whose mean is worth a basis
USUAL_DIMENSION = 128  # the most columns of the tables for which kappa was chosen; rows beyond are wide
MAX_MOMENT_COLUMNS = 2048
MAX_CLIP_FACTOR = 2.0  # times the usual clip norm
MODULE_MAX_STEP_SIZE = 0.2  # of heavy ball for a torch module
USUAL_MAX_STEP_SIZE = 4.0
MAX_STEPS, MAX_CLEAR_STEPS = 300, 1000  # the second where a second moment was bought


class State(NamedTuple):
    step: int
    steps: int
    theta: Array
    velocity: Array
    tail_sum: Array
    learning_rate: float
    clip: float
    noise_multiplier: float
    released: Array
    calibration: Calibration | None = None  # of a model with layers, whose probabilities it mends


class HeavyBall(Method):
    """Full batches, heavy ball in a bought basis, and the mean of its tail; a subclass declares the settings."""

    steps: int | None
    learning_rate: float | None
    max_grad_norm: float | None
    l2: float

    def __post_init__(self) -> None:
        if self.steps is not None:
            validate.whole(steps=self.steps)
        validate.positive_or_none(learning_rate=self.learning_rate, max_grad_norm=self.max_grad_norm)
        validate.not_negative(l2=self.l2)

    def terms(self, facts: Facts) -> Terms:
        return choose_terms(facts.budget, adaptive=True)

    def onward(self, state: Any, private: Curator, gradient: Array) -> Any:
        """One step, and the mean of the tail in the first basis."""
        velocity = BETA * state.velocity + gradient
        theta = state.theta - state.learning_rate * velocity
        step, before_tail = state.step + 1, state.steps // 2
        tail_sum = state.tail_sum + theta if step > before_tail else state.tail_sum
        mean = tail_sum / (step - before_tail) if step > before_tail else theta
        released = private.in_first_basis(mean)
        return state._replace(step=step, theta=theta, velocity=velocity, tail_sum=tail_sum, released=released)

    def finish(self, state: Any, public: PublicCurator | None) -> Array:
        released: Array = state.released
        return released


@dataclass(frozen=True)
class DeflatedDescent(HeavyBall):
    """Heavy ball on full batches in a bought basis; settings left at None follow from public or released facts."""

    steps: int | None = None
    learning_rate: float | None = None
    max_grad_norm: float | None = None
    deflate: bool = True
    l2: float = 0.0

    name: ClassVar[str] = "descent"
    summary: ClassVar[str] = "full-batch heavy ball in a bought basis, tail averaging: recommended but for tables"
    paper: ClassVar[str] = "noisewise"
    adaptive: ClassVar[bool] = True

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        ratio = signal_to_noise(facts)
        steps = self.steps or usual_steps(ratio)
        clip = self.max_grad_norm or facts.typical_clip
        rate = self.learning_rate or default_step_size(facts, ratio, steps, clip)
        zero = np.zeros_like(theta)
        mends = calibration.start(facts.outputs) if needs_calibration(facts) else None
        return State(0, steps, theta, zero, zero, rate, clip, 0.0, theta, mends)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        if state.step == 0:
            state = self._begun(state, private, public)
        if state.step >= state.steps:
            return self._calibrated(state, private)
        answer = private.gradient(state.theta, clip=state.clip, noise_multiplier=state.noise_multiplier)
        gradient = answer.value + self.l2 * state.theta if self.l2 else answer.value
        onward: State = self.onward(state, private, gradient)
        return onward

    def _begun(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        """Buy the basis, move there, and start from public rows if there are any."""
        basis = bought_basis(private) if self.deflate else None
        if basis is not None:
            if self.learning_rate is None and moment_pays(private.facts, state):
                basis = flattened(private, basis)
                state = self._long_steps(state, private.facts, basis.largest)
            private.change_basis(basis.matrix)
            public = public and public.in_basis(basis.matrix)
        start = warm_start(state.theta, public, WARM_START_L2)
        share = 1.0 if state.calibration is None else 1 - calibration.SHARE
        return state._replace(theta=start, noise_multiplier=private.meter.noise_for(share / state.steps))

    def _calibrated(self, state: State, private: Curator) -> State:
        """One step of calibration, at the mean of the tail."""
        now, last = state.calibration, private.facts.groups[-1]
        assert now is not None
        mean = state.tail_sum / (state.steps - state.steps // 2)
        noise = state.noise_multiplier if now.step else private.meter.noise_for(1 / calibration.STEPS)
        clip = calibration.CLIP_FACTOR * private.facts.typical_clip
        asked = calibration.changed(mean, last, now.log_scale, now.shift)
        answer = private.gradient(asked, clip=clip, noise_multiplier=noise)
        now = calibration.moved(now, mean, last, answer.value)
        released = private.in_first_basis(calibration.changed(mean, last, *now.settled()))
        return state._replace(step=state.step + 1, noise_multiplier=noise, calibration=now, released=released)

    def _long_steps(self, state: State, facts: Facts, largest: float) -> State:
        """A larger clip norm and longer steps, more of them where the largest eigenvalue forbids what noise would allow."""
        clip, steps, ratio = state.clip, state.steps, signal_to_noise(facts)
        if self.max_grad_norm is None:
            wider = min(max(excess(facts, state), 1.0), MAX_CLIP_FACTOR)
            clip = min(clip * wider, max(clip, facts.lipschitz))
        stable, wanted = stable_step_size(facts, largest), wanted_step_size(facts, ratio, steps, clip)
        if self.steps is None and wanted > stable:
            steps = min(round(steps * wanted / stable), MAX_CLEAR_STEPS)
        rate = min(wanted_step_size(facts, ratio, steps, clip), stable)
        return state._replace(clip=clip, steps=steps, learning_rate=rate)

    def done(self, state: State) -> bool:
        return state.step >= state.steps + (0 if state.calibration is None else calibration.STEPS)


def needs_calibration(facts: Facts) -> bool:
    """Whether a model has layers, probabilities, and a budget that can mend them."""
    usable = facts.loss in LOSSES and LOSSES[facts.loss].has_probabilities
    return usable and len(facts.groups) > 1 and (facts.size or 1.0) * worth(facts) >= calibration.MIN_CLARITY


def default_step_size(facts: Facts, ratio: float, steps: int, clip: float) -> float:
    """What noise allows (:func:`wanted_step_size`), at most 4, and at most 2/M for the curvature M of a smooth loss on unit rows.

    At most ``MODULE_MAX_STEP_SIZE`` for a torch module, whose records need not be unit rows.
    """
    cap = MODULE_MAX_STEP_SIZE if facts.tensors else USUAL_MAX_STEP_SIZE
    return min(wanted_step_size(facts, ratio, steps, clip), cap, stable_step_size(facts))


def wanted_step_size(facts: Facts, ratio: float, steps: int, clip: float) -> float:
    """eta = kappa r / (10 T C): noise then moves theta by about kappa, a typical ||theta|| at the end.

    Spread over d coordinates, that moves the score of a unit row by kappa / sqrt(d), so beyond 128 parameters kappa is
    larger by sqrt(d / 128).
    """
    kappa = facts.typical_norm * math.sqrt(max(facts.dimension / USUAL_DIMENSION, 1.0))
    return kappa * ratio / (10 * steps * clip)


def stable_step_size(facts: Facts, largest: float = 1.0) -> float:
    """2/M on rows whose second moment has this largest eigenvalue; 1 for unit rows that all point one way."""
    return 2 / (facts.smoothness * largest) if math.isfinite(facts.smoothness) else USUAL_MAX_STEP_SIZE


def excess(facts: Facts, state: State) -> float:
    """The step size that noise allows over twice the usual limit: above 1 a second moment pays. 0 where none would.

    At the usual horizon, however few steps were asked for: a clear moment is a matter of the ratio alone.
    """
    bounded = math.isfinite(facts.smoothness) and math.isfinite(facts.lipschitz)
    if not (facts.linear and bounded and facts.features <= MAX_MOMENT_COLUMNS):
        return 0.0
    wanted = wanted_step_size(facts, signal_to_noise(facts), max(state.steps, MAX_STEPS), state.clip)
    return wanted / (2 * min(USUAL_MAX_STEP_SIZE, stable_step_size(facts)))


def moment_pays(facts: Facts, state: State) -> bool:
    """Whether a second moment is worth its share: where steps are held back, or where wide rows have a clear one."""
    stretched = excess(facts, state)
    if facts.features <= USUAL_DIMENSION:
        return stretched > 1
    return stretched > 0 and clear_moment(facts.size or 1.0, worth(facts), facts.features)


def usual_steps(ratio: float) -> int:
    """How many steps a run takes whose signal stands so far out of the noise."""
    return round(min(MAX_STEPS, max(50.0, 20 * math.sqrt(ratio))))


def flattened(private: Curator, basis: Basis) -> Basis:
    """The basis with directions made equally long, from a paid second moment.

    Asked in the old basis, where rows are not longer than 1.
    """
    size = private.facts.size or 1.0
    moment = private.statistic(SecondMoment(), noise_multiplier=private.meter.noise_for(MOMENT_SHARE))
    change = basis.matrix
    noise = moment.noise_std / size * float(np.linalg.norm(change, 2)) ** 2
    seen = change.T @ (moment.value / size) @ change
    return basis.then(*flattening(seen, noise))


def bought_basis(private: Curator) -> Basis | None:
    """The matrix that scales down the mean row and makes typical rows as long as 1, from paid statistics.

    None, and nothing is spent, where the mean would be mostly noise.
    """
    facts = private.facts
    size = facts.size or 1.0
    if facts.tensors or not worth_buying(size, worth(facts), facts.features):
        return None
    mean = private.statistic(FirstMoment(), noise_multiplier=private.meter.noise_for(BASIS_SHARE))
    length = private.statistic(SquaredLength(), noise_multiplier=private.meter.noise_for(LENGTH_SHARE))
    squared_length = min(max(float(length.value) / size, 0.01), 1.0)
    row = mean.value / size
    noise = facts.features * (mean.noise_std / size) ** 2  # what noise adds to ||row||^2 on average
    return Basis(deflating(row, squared_length, noise))


def public_basis(public: PublicCurator | None, facts: Facts) -> Basis | None:
    """The same matrix from public rows, when their mean is nearer to the truth than a bought one would be."""
    if public is None or facts.tensors or public.size < max(BASIS_SHARE * signal_to_noise(facts) ** 2, MIN_PUBLIC_ROWS):
        return None
    rows = public.model.rows(public.batch)[public.batch.valid]
    squared_length = float((rows**2).sum(1).mean()) if len(rows) else 0.0
    return None if squared_length < 0.01 else Basis(deflating(rows.mean(0), squared_length))
