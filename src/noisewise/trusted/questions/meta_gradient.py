"""How a protector's weights should change: gradients of training runs inside shards of the records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..facts import Facts
from ..question import CLIP_RANGE, AnswerLine, HowAsked, Question, between, flat, question
from ..stores.totals import Drawn, Floats, IntegerTotal

MAX_WEIGHT_NORM = 1e4
MAX_SHARDS, MAX_HORIZON = 1 << 16, 1000
CELLS = ((6, 1), (9, 3), (6, 2))  # inputs and outputs of a protector's scheduler, projector and clip


def length_of(units: int) -> int:
    """How many weights a protector has whose cells have two layers of ``units`` units."""
    return 1 + sum(4 * units * (inputs + 3 * units + 4) + outputs * (units + 1) for inputs, outputs in CELLS)


def units_of(length: int) -> int:
    """How many units the cells of a protector with ``length`` weights have."""
    for units in range(1, 65):
        if length_of(units) == length:
            return units
    raise ValueError(f"weights has {length} entries; pass those of a protector with cells of two layers, flat")


@question
@dataclass(frozen=True, eq=False)
class MetaGradient(Question):
    """The sum over shards of each one's gradient of a loss in a protector's weights, clipped to norm ``clip``.

    Records are dealt into ``shards`` by coins, one for each place. Each shard runs ``horizon`` steps of training by the
    protector with these ``weights``, on one half of its rows, with simulated noise like that of a run in which n mu is
    ``worth``; its vector is the gradient of the loss on both halves, in ``few`` numbers or in all weights.
    *Sensitivity*: coins and seeds are drawn independently of what records hold, so fix them. A record is in one shard,
    whose rows alone its vector follows from; the vectors of all others stay. The one that changes had norm at most clip,
    in integers, and has it still, so the sum moves by at most 2 clip, whatever happens inside the shard: 2 clip for a
    record added or removed, and 2 clip for one replaced, whose place and so whose shard stays. (Coins of places are alike, so when
    a record is taken out the others may be thought of as keeping theirs. A mixture over the same coins is no easier to tell
    apart than with the coins known.) All records are asked: a batch is refused. A person's rows lie in several shards, and
    another's at other places, so persons are refused.
    The vector of a shard is a float iteration: that it follows from its own shard alone, to the last bit, is assumed.
    """

    weights: Floats
    clip: float
    shards: float
    horizon: float
    worth: float
    few: bool = True
    words: ClassVar[str] = "private meta-gradients of a protector"
    shape: ClassVar[tuple[int, ...]] = (-1,)
    sharded: ClassVar[bool] = True
    samplings: ClassVar[tuple[str, ...]] = ("full",)
    persons: ClassVar[int] = 0
    in_one_place: ClassVar[bool] = True
    assumed: ClassVar[str] = "training inside a shard gives a vector that depends on no other shard, in floats too"

    def __post_init__(self) -> None:
        flat("weights", self.weights)
        between("clip", self.clip, *CLIP_RANGE)
        between("shards", self.shards, 1, MAX_SHARDS)
        between("horizon", self.horizon, 2, MAX_HORIZON)
        between("worth", self.worth, 1e-6, 1e15)
        if self.shards != 2 ** round(math.log2(self.shards)) or self.horizon != int(self.horizon):
            raise ValueError("shards is no power of two, or horizon no whole number; pass such numbers")
        if type(self.few) is not bool:
            raise ValueError("few is neither True nor False; pass one of them")
        if not np.linalg.norm(self.weights) <= MAX_WEIGHT_NORM:
            raise ValueError(f"weights have a norm above {MAX_WEIGHT_NORM:g}; pass those of a protector")
        units_of(len(self.weights))

    @classmethod
    def of_model(cls, facts: Facts) -> None:
        if not facts.linear or facts.table:
            raise ValueError("private meta-gradients need a linear model of rows; take a protector of the package")

    @classmethod
    def like(cls, line: AnswerLine) -> list[MetaGradient]:
        return [] if line.clip is None else [cls(np.zeros(length_of(1)), line.clip, 1.0, 2.0, 1.0)]

    def check(self, facts: Facts) -> None:
        self.of_model(facts)
        if facts.size is None:
            raise ValueError("the size of the data is private, and shards are cut by it; buy it first")

    def moves(self, how: HowAsked) -> tuple[float, float]:
        return 2 * self.clip, 2 * self.clip

    def total(self, records: Any, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        total: IntegerTotal = records.meta_gradients(self, how.size)
        return total

    @classmethod
    def cases(cls, dimension: int) -> list[MetaGradient]:
        zero = np.zeros(length_of(1))
        return [
            cls(zero, 1e-3, 2.0, 3.0, 20.0),
            cls(zero + 0.01, 1e-3, 4.0, 2.0, 5.0),
            cls(zero, 1e-3, 1.0, 2.0, 5.0, False),
        ]
