"""Effects of columns, and of a few pairs: noisewise's own method for tables.

    1. ranks    noisy dyadic counts put each number column on a scale of its quantiles: bounds may be loose; 20 public rows
                for each hat of a column are counted instead, for nothing
    2. hats     each number through k hats and a few coarse ones, each category as it is
    3. moment   the mean row is bought; it gives the frequency p_j of each coordinate, which is then centred and balanced,
                x_j <- (x_j - p_j) / sqrt(p_j + p_0): rare values learn as fast as frequent ones
    4. effects  full-batch heavy ball with equal noise, a share of the budget
    5. pairs    products of hats for all pairs of the columns whose effects are largest, with coordinates of their own,
                balanced in the same way; heavy ball goes on from where it was, with the rest; the mean of the second
                half of the iterates is released
    6. smooth   of a regression: of four ways to smooth the effects the one with the least loss, by an exponential
                mechanism: where effects are weak, a straight line with little noise is better than a curve with more

Noise is even over coordinates and a row has few entries, so a score feels the noise of few of them, however many there
are. Steps times rate grow with n mu, so that noise moves a score by about 1 at every budget, up to where sampling would.

*Guarantee*: a GDP filter on full batches (Smith & Thakurta 2022), so that everything may depend on what was released.
Features are released or declared data, applied to each row by itself.

Polyak 1964 (heavy ball); Hay et al. 2010 (consistent dyadic counts).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..accounts import Budget, BudgetExhausted, Terms, currency
from ..asking import Curator, Facts, FirstMoment, PublicCurator
from ..protect.signal import worth, worth_of
from ..trusted import validate
from ..trusted.accountants.choose import choose_terms
from ..trusted.features import Block, Features, Floats, TableColumn, even
from ..trusted.questions.columns import ColumnLevels
from ..trusted.units import RECORD, Unit
from .agd import choice_epsilon
from .base import Array, Method
from .nonprivate import warm_start
from .preparation import choices
from .preparation.bounds import Ranks, public_ranks, ranks_from
from .preparation.choices import Frequencies, Placed, balanced, main_blocks, pair_blocks, scales_of
from .preparation.smooth import SMOOTHINGS, choice_share, smoothed

BETA = 0.9
MOMENT_SHARE = 0.05  # of a stage, for the mean row
FIRST_STAGE = 0.3  # of the budget, for effects alone, when pairs follow
LEARNT = 2.0  # rate x steps x 10 / (n mu) for the logistic loss
SAMPLING = 1.0  # mu beyond which more budget does not lengthen the walk
USUAL_STEPS = 100
PAIR_WEIGHT = 0.3  # of the squared length of rows
WARM_START_L2 = 0.01
LOSS_BOUND = 4.0  # of a loss that is compared, relative to the clip of its gradient


class Stage(NamedTuple):
    """Features, where their rows are put, how heavy ball runs on them, and the noise before it."""

    number: int
    parts: tuple[Frequencies, ...]
    features: Features
    placed: Placed
    steps: int
    rate: float
    noise_multiplier: float
    variance: Floats  # on theta, before the stage


class State(NamedTuple):
    """``theta``: a row for each output, of rows as they are placed; ``released``: its current release."""

    facts: Facts
    stage: Stage | None
    step: int
    theta: Floats
    velocity: Floats
    tail_sum: Floats
    variance: Floats
    released: Array
    noise: Array
    smooth: bool = False


@dataclass(frozen=True)
class AdditiveDescent(Method):
    """Effects of columns and pairs; settings left at None follow from public or released facts.

    ``steps``: of both stages together. ``pairs``: how many columns are paired, 0 for none. ``ranks``: whether there are
    quantiles, of enough public rows or bought; None leaves it to their price. ``smooth``: whether a smoothing of the
    effects is chosen; None: for regressions.
    """

    steps: int | None = None
    max_grad_norm: float | None = None
    knots: int | None = None
    pairs: int | None = None
    ranks: bool | None = None
    smooth: bool | None = None

    name: ClassVar[str] = "additive"
    summary: ClassVar[str] = "tables: effects of columns and of a few pairs, by hats on bought ranks"
    paper: ClassVar[str] = "noisewise"
    adaptive: ClassVar[bool] = True
    table: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("steps", "knots"):
            if getattr(self, name) is not None:
                validate.whole(**{name: getattr(self, name)})
        validate.positive_or_none(max_grad_norm=self.max_grad_norm)
        if self.pairs is not None:
            validate.not_negative(pairs=self.pairs)

    def terms(self, facts: Facts) -> Terms:
        return choose_terms(facts.budget, adaptive=True)

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        if not facts.table:
            raise ValueError(
                "additive needs a table with declared columns; pass schema= or bounds=, or method='descent'"
            )
        none, nothing = np.zeros((facts.outputs, 1)), np.zeros(facts.outputs, np.float32)
        return State(facts, None, 0, none, none, none, none, nothing, nothing)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        try:
            return self._stepped(state, private, public)
        except BudgetExhausted:
            private.prepare(even(()) if state.stage is None else state.stage.features)  # of what is released then
            raise

    def _stepped(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        if state.stage is None:
            state = self._effects(private, public)
        elif state.step == state.stage.steps:
            if not self._paired(state.facts, state.stage):
                return self._smoothed(state, state.stage, private)
            state = self._pairs(state, state.stage, private)
        assert state.stage is not None
        return self._onward(state, state.stage, private)

    def done(self, state: State) -> bool:
        if state.stage is None or state.step < state.stage.steps or self._paired(state.facts, state.stage):
            return False
        return state.smooth or not self._choice(state.facts)

    def finish(self, state: State, public: PublicCurator | None) -> Array:
        return state.released

    def spread(self, state: State) -> Array | None:
        return state.noise

    def shares(self, state: State) -> Array | None:
        return None if state.stage is None else state.stage.placed.shares.round(6)

    def total_steps(self) -> int | None:
        return None

    def outline(
        self, columns: Sequence[TableColumn], size: float, budget: Budget, unit: Unit = RECORD
    ) -> choices.Outline:
        """What a table of this size becomes, by the rules of a run."""
        clarity = clarity_of(size, budget, unit)
        return choices.outline(columns, clarity, knots=self.knots, pairs=self.pairs, ranks=self.ranks)

    def _paired(self, facts: Facts, stage: Stage | None = None) -> bool:
        """Whether a stage with pairs is still to come: decided from released facts."""
        if stage is not None and stage.number > 1:
            return False
        return choices.paired_columns(_clarity(facts), len(facts.table), self.pairs) > 0

    def _choice(self, facts: Facts) -> float:
        """The share of the budget for the choice of a smoothing, from released facts.

        Left to itself, regressions only: of classes smoother effects were never better by the loss.
        """
        wanted = facts.task == "regression" if self.smooth is None else self.smooth
        return choice_share(_clarity(facts)) if wanted else 0.0

    def _effects(self, private: Curator, public: PublicCurator | None) -> State:
        """Take ranks from public rows or buy them, lay out hats, buy the mean row, and start."""
        facts = private.facts
        ranks = self._ranks(private, public)
        scales = ranks.of(scales_of(facts.table))
        blocks = main_blocks(facts.table, scales, self.knots, _clarity(facts), ranks.two_valued)
        share = FIRST_STAGE if self._paired(facts) else 1.0
        parts = (self._frequencies(private, blocks, share),)
        stage = self._stage(
            private, 1, parts, (1.0,), share, round((self.steps or USUAL_STEPS) * (1 / 3 if share < 1 else 1))
        )
        theta = np.zeros((facts.outputs, stage.features.width))
        if public is not None:
            seen = public.prepared(stage.features, stage.placed.centre, stage.placed.scale)
            theta = warm_start(_single(theta), seen, WARM_START_L2).reshape(theta.shape).astype(np.float64)
        return _set_out(facts, stage, theta)

    def _ranks(self, private: Curator, public: PublicCurator | None) -> Ranks:
        """Ranks of public rows where there are enough, else bought ones; none where declared scales stay."""
        table, clarity = private.facts.table, _clarity(private.facts)
        scales, asked = scales_of(table), choices.ranked(table)
        share = choices.rank_share(clarity, len(asked), self.ranks)
        if not share:
            return Ranks(())
        if public is not None and choices.public_rows_tell(public.size, clarity, len(table), self.knots):
            return public_ranks(np.asarray(public.cells, np.float64), asked, scales, choices.LEVELS)
        question = ColumnLevels(tuple((float(i), *scales[i]) for i in asked), float(choices.LEVELS))
        answer = private.statistic(question, noise_multiplier=private.meter.noise_for(share))
        ends = np.cumsum([2**level for level in range(1, choices.LEVELS)])
        rows = zip(asked, answer.value.reshape(len(asked), -1), strict=True)
        return ranks_from({i: np.split(row, ends) for i, row in rows}, scales, answer.noise_std)

    def _frequencies(self, private: Curator, blocks: tuple[Block, ...], share: float) -> Frequencies:
        """How many records have each coordinate, from the mean row, for a part of ``share`` of the remaining budget."""
        features = even(blocks)
        private.prepare(features)
        answer = private.statistic(FirstMoment(), noise_multiplier=private.meter.noise_for(share * MOMENT_SHARE))
        per_record = features.gains[:-1] * (private.facts.size or 1.0)
        shares = np.clip(answer.value[:-1] / per_record, 0.0, 1.0)
        return Frequencies(blocks, shares, answer.noise_std / per_record)

    def _stage(
        self,
        private: Curator,
        number: int,
        parts: tuple[Frequencies, ...],
        weights: tuple[float, ...],
        share: float,
        steps: int,
    ) -> Stage:
        """Balanced features; the steps on them take ``share`` of the budget, as far as it is left."""
        features, placed = balanced(parts, weights)
        private.prepare(features)
        private.centre(placed.centre, placed.scale)
        facts = private.facts
        left = share * (1 - MOMENT_SHARE) / (1 - share * MOMENT_SHARE) if number == 1 else 1.0
        if number == 2 or share == 1:
            left *= 1 - self._choice(facts) / max(1 - private.meter.spent_fraction, 1e-9)
        walked = (
            LEARNT * facts.learning * _clarity(facts) / math.hypot(1.0, worth(facts) / (facts.unit.most * SAMPLING))
        )
        own_share = share if number == 1 else 1 - FIRST_STAGE
        rate = walked * own_share / (10 * steps) * (self._usual_clip(facts) / self._clip(facts))
        noise = private.meter.noise_for(left / steps)
        return Stage(number, parts, features, placed, steps, rate, noise, np.zeros((facts.outputs, features.width)))

    def _pairs(self, state: State, stage: Stage, private: Curator) -> State:
        """Add pairs of the columns whose effects are largest, and go on from the effects alone."""
        facts, effects, intercept = state.facts, *_effects_of(stage, _mean(state, stage))
        shares = stage.placed.shares[:-1]
        blocks = pair_blocks(facts.table, stage.features, effects, shares, _clarity(facts), self.pairs)
        parts = (*stage.parts, self._frequencies(private, blocks, 1.0))
        steps = (self.steps or USUAL_STEPS) - stage.steps
        later = self._stage(private, 2, parts, (1 - PAIR_WEIGHT, PAIR_WEIGHT), 1.0, max(steps, 1))
        gains, scale = later.features.gains, later.placed.scale
        theta, variance = np.zeros((2, facts.outputs, later.features.width))
        width = effects.shape[1]
        theta[:, :width] = effects / (gains[:width] * scale)
        constant = intercept + theta[:, :-1] @ later.placed.centre[:-1] * scale
        theta[:, -1] = constant / (gains[-1] * scale)
        before = stage.features.gains * stage.placed.scale
        variance[:, :width] = state.variance[:, :-1] * (before[:-1] / (gains[:width] * scale)) ** 2
        variance[:, -1] = state.variance[:, -1] * (before[-1] / (gains[-1] * scale)) ** 2
        return _set_out(facts, later._replace(variance=variance), theta)

    def _smoothed(self, state: State, stage: Stage, private: Curator) -> State:
        """Choose a smoothing of the effects, with the rest of the budget."""
        theta, unit = _mean(state, stage), stage.features.gains[:-1] * stage.placed.scale
        effects, variance = theta[:, :-1] * unit, state.variance[:, :-1] * unit**2
        ways, thetas = [], []
        for how in SMOOTHINGS:
            ways.append(smoothed(stage.features, effects, variance, stage.placed.shares[:-1], how))
            thetas.append(np.concatenate([ways[-1][0] / unit, theta[:, -1:]], 1))
        left = 1 - private.meter.spent_fraction
        epsilon = choice_epsilon(left * (1 - 1e-9) * currency(state.facts.budget, "gdp").cap, "gdp")
        bound = LOSS_BOUND * state.facts.effect_clip
        chosen = private.choose([_single(each) for each in thetas], loss_bound=bound, epsilon=epsilon)
        variance = np.concatenate([ways[chosen][1] / unit**2, state.variance[:, -1:]], 1)
        return self._showing(state._replace(smooth=True, variance=variance), stage, thetas[chosen])

    def _onward(self, state: State, stage: Stage, private: Curator) -> State:
        theta = _single(state.theta)
        answer = private.gradient(theta, clip=self._clip(state.facts), noise_multiplier=stage.noise_multiplier)
        velocity = BETA * state.velocity + answer.value.reshape(state.theta.shape)
        now, step = state.theta - stage.rate * velocity, state.step + 1
        tail_sum = state.tail_sum + now if step > stage.steps // 2 else state.tail_sum
        variance = stage.variance + _variance(stage, answer.noise_std, step)
        state = state._replace(step=step, theta=now, velocity=velocity, tail_sum=tail_sum, variance=variance)
        return self._showing(state, stage, _mean(state, stage))

    @staticmethod
    def _showing(state: State, stage: Stage, theta: Floats) -> State:
        """The state with this theta as its release."""
        effects, intercept = _effects_of(stage, theta)
        released = np.concatenate(
            [effects / stage.features.gains[:-1], (intercept / stage.features.gains[-1])[:, None]], 1
        )
        noise = np.sqrt(state.variance) * stage.placed.scale
        return state._replace(released=_single(released), noise=_single(noise))

    def _clip(self, facts: Facts) -> float:
        return self.max_grad_norm or self._usual_clip(facts)

    @staticmethod
    def _usual_clip(facts: Facts) -> float:
        """Of a record; for a person, multiplied by the number of rows."""
        return facts.effect_clip * facts.unit.most


def clarity_of(size: float, budget: Budget, unit: Unit = RECORD) -> float:
    """n mu: the signal of a mean over all records; with several rows a person, the noise is as many times larger."""
    return size * worth_of(budget) / unit.most


def _clarity(facts: Facts) -> float:
    return clarity_of(facts.size or 1.0, facts.budget, facts.unit)


def _set_out(facts: Facts, stage: Stage, theta: Floats) -> State:
    none, nothing = np.zeros_like(theta), np.zeros(theta.size, np.float32)
    return State(facts, stage, 0, theta, none, none, stage.variance, nothing, nothing)


def _mean(state: State, stage: Stage) -> Floats:
    """The mean of the iterates in the second half of a stage; before it, the last one."""
    later = state.step - stage.steps // 2
    return state.tail_sum / later if later > 0 else state.theta


def _effects_of(stage: Stage, theta: Floats) -> tuple[Floats, Floats]:
    """Effects of the coordinates themselves, without gains, centre and scale, and the intercept."""
    scale, gains = stage.placed.scale, stage.features.gains
    constant = scale * (gains[-1] * theta[:, -1] - theta[:, :-1] @ stage.placed.centre[:-1])
    return scale * theta[:, :-1] * gains[:-1], constant


def _variance(stage: Stage, noise_std: float, step: int) -> float:
    """The variance of the noise on the mean iterate after ``step`` steps, if the loss were flat: an upper estimate.

    A step's noise moves the k-th later iterate by rate (1 + b + .. + b^k); averaging over the tail is linear.
    """
    later = step - stage.steps // 2
    ages = np.arange(step)  # 0 for the last step's noise
    moved = (1 - BETA ** (ages + 1)) / (1 - BETA)
    if later > 0:
        sums = np.cumsum(moved)
        moved = (sums - np.concatenate([np.zeros(min(later, step)), sums])[:step]) / later
    return float((stage.rate * noise_std) ** 2 * (moved**2).sum())


def _single(numbers: Floats) -> Array:
    return numbers.ravel().astype(np.float32)
