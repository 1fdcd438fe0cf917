"""A protector trained on the private records themselves, for a share of the budget: its questions and its weights.

    S shards, M meta-steps, from public or released facts alone
    M times: v = (sum over shards of clipped meta-gradients + noise) / (S C);   weights <- weights - eta shrunk(v)

Clip norms are so small that nearly every shard's gradient is clipped: shards vote with unit vectors, and v is their mean, with
noise of deviation s = 2 / (mu_t S) on each coordinate. ``shrunk`` multiplies it by the share of its square that noise does not
explain, 1 - d s^2 / ||v||^2 or 0 (James & Stein 1961, a little more careful): what noise alone explains moves nothing.

*Guarantee*: what is computed here is made of released answers. :class:`~noisewise.trusted.questions.meta_gradient.MetaGradient`
has the price. Whatever the weights, the protector cannot overspend.

Hong, Wang, Wang & Zhou 2021 (private meta-optimization is left open there).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...asking import Answer, Facts
from ...trusted.questions.meta_gradient import MAX_WEIGHT_NORM, MetaGradient
from ...trusted.stores.totals import Floats
from ..signal import worth
from .weights import KNOBS, Design, Weights, flattened, unflattened, with_knobs, zero_weights
from .zoo import Learned, in_memory, named, pick_for

if TYPE_CHECKING:
    from ...trusted.models import Model
    from ...trusted.stores.shards import ShardRows


CLIP = 1e-3  # of a shard's meta-gradient; typical ones are a hundred times that
SHARD_ROWS = 32, 512  # of a shard, from, to
CLEAR = 0.15  # the target deviation of the noise on a vote, met by smaller shards or fewer steps
MAX_STEPS = 6
MAX_COORDINATES = 1 << 20  # in all shards
ETA = 0.5  # a unanimous vote for longer steps makes them e^(2 eta) times as long
WEIGHTS = ("few", "whole")


class MetaPlan(NamedTuple):
    """How many shards, and how many meta-steps."""

    shards: int
    steps: int


def planned(size: float, mu: float, dimension: int) -> MetaPlan:
    """From public or released facts; ``mu`` is what all meta-steps together may cost in Gaussian DP.

    >>> planned(30_000, 0.07, 53), planned(1_000_000, 0.5, 53), planned(100, 0.1, 5)
    (MetaPlan(shards=128, steps=1), MetaPlan(shards=1024, steps=6), MetaPlan(shards=2, steps=1))
    """
    rows = min(max(CLEAR / 2 * mu * size, SHARD_ROWS[0]), SHARD_ROWS[1])
    most = min(size / rows, MAX_COORDINATES / dimension)
    shards = 2 ** max(math.floor(math.log2(max(most, 1.0))), 1)
    return MetaPlan(shards, min(max(int((CLEAR * mu * shards / 2) ** 2), 1), MAX_STEPS))


class MetaRun(NamedTuple):
    """The state of meta-training: weights at the start, what was added to them (few numbers, or all), and steps done."""

    start: Floats
    units: int
    added: Floats
    plan: MetaPlan
    step: int = 0

    @property
    def done(self) -> bool:
        return self.step >= self.plan.steps

    @property
    def few(self) -> bool:
        return len(self.added) == len(KNOBS)

    def weights(self) -> Weights:
        start, added = self.start.astype(np.float32), self.added.astype(np.float32)
        if self.few:
            return with_knobs(unflattened(start, self.units), added)
        return unflattened((self.start + self.added).astype(np.float32), self.units)

    def question(self, horizon: int, left: float) -> MetaGradient:
        """The next one, for a training run in which n mu is ``left``."""
        flat = flattened(self.weights())
        flat *= min(1.0, 0.99 * MAX_WEIGHT_NORM / max(float(np.linalg.norm(flat)), 1e-9))
        return MetaGradient(flat, CLIP, float(self.plan.shards), float(horizon), left, self.few)

    def moved(self, answer: Answer) -> MetaRun:
        """One step on."""
        votes = CLIP * self.plan.shards
        vote, std = np.asarray(answer.value, np.float64) / votes, answer.noise_std / votes
        return self._replace(added=self.added - ETA * shrunk(vote, std), step=self.step + 1)


def shrunk(vote: Floats, std: float) -> Floats:
    """The vote less what noise alone explains of it, and no longer than a unanimous one."""
    squared = max(float(np.square(vote).sum()), 1e-30)
    kept = max(0.0, 1 - len(vote) * std**2 / squared)
    return vote * min(kept, 1 / math.sqrt(squared))


def start_of(start: str, facts: Facts) -> Learned:
    """The protector that meta-training starts from: all weights zero, the rule's, one of the package, or a file."""
    own = named(pick_for(facts) if start in ("zero", "auto") else start)
    if start == "zero":
        design = Design(units=1)
        return in_memory(zero_weights(design), design, {**own.header, "name": "zero"})
    return own


def begun(learned: Learned, facts: Facts, share: float, weights: str) -> MetaRun:
    """Before the first meta-step."""
    refuse_design(learned)
    flat = flattened(learned.weights)
    plan = planned(facts.size or 1.0, math.sqrt(share) * worth(facts), facts.dimension)
    added = np.zeros(len(KNOBS) if weights == "few" else len(flat))
    return MetaRun(flat, learned.design.units, added, plan)


def refuse_design(learned: Learned) -> None:
    """Refuse a protector that cannot be unrolled inside a shard."""
    usual = Design(units=learned.design.units)
    if learned.design != usual or len(learned.weights.clip.bias) != 2 or len(learned.weights.clip.layers) != 2:
        raise ValueError(
            f"start is {learned.name!r}, whose design is not the usual one; pass 'zero' or one of the package"
        )


def finished(run: MetaRun, learned: Learned, facts: Facts, share: float) -> Learned:
    """The protector with its header, which states that private records trained it."""
    size, epsilon = facts.size or 1.0, facts.budget.epsilon
    known = {"size": size, "dimension": float(facts.dimension), "epsilon": epsilon, "horizon": float(learned.horizon)}
    recipe: dict[str, Any] = {"start": learned.name, "share": share, "few": run.few, **run.plan._asdict()}
    header = {
        "name": "private",
        "horizon": learned.horizon,
        "ranges": {name: [value, value] for name, value in known.items()},
        "trained_on": [{"data": "the private records of a run, at the price in its statement", "licence": "the run's"}],
        "recipe": recipe,
        "added": [float(f"{value:.5g}") for value in run.added] if run.few else [],
        "command": "",
    }
    return in_memory(run.weights(), learned.design, header)


def unrolled(model: Model, asked: Any, shards: ShardRows) -> NDArray[np.float64]:
    """The vector (S, 4 or all weights) of every shard, which the curator asks for; torch is imported only then."""
    from .inside import unrolled as inside

    return inside(model, asked, shards)
