"""Which features a table gets, from declared or released facts: knots, balance, columns to pair; and what each part cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ...trusted.events import Leaf, from_dict, leaves, to_dict
from ...trusted.features import Block, Codes, Features, Floats, Hats, Product, TableColumn, even
from ...trusted.questions.gradient import Gradient
from ...trusted.questions.moments import Count
from ...trusted.units import Released
from .basis import Basis
from .bounds import Bounds, Ranks, RankScale

KNOTS = 0.15  # hats of a column for each n mu and column
MAX_HATS, COARSE = 64, 8
LEVELS = 16
RANK_SHARE, RANK_NOISE = 0.1, 0.01  # most of the budget for ranks; noise in a rank that is small enough
MAX_PAIRED_COLUMNS = 7
MIN_CLARITY_FOR_PAIRS = 1500.0  # n mu
CELLS = 0.1  # hats of a side, squared, for each n mu and pair
MIN_SIDE, MAX_SIDE = 3, 8
RARE = 0.005  # the least share of records that a coordinate is balanced by
PUBLIC_ROWS = 20  # for each hat of a column, from which they show where its values lie
LENGTH = 0.5  # of typical rows before they are centred, so that hardly any is longer than 1
INTERCEPT = 0.4  # relative to the spread of the rest
MIN_SPREAD = 0.05


@dataclass(frozen=True, eq=False)
class Frequencies:
    """How many records have each coordinate of some blocks, and the noise on that."""

    blocks: tuple[Block, ...]
    shares: Floats
    noise: Floats


@dataclass(frozen=True, eq=False)
class Placed:
    """Where rows of features are put: scale (x - centre)."""

    centre: Floats
    scale: float
    shares: Floats


@dataclass(frozen=True)
class Outline:
    """What a table becomes, as far as that is known before any question."""

    knots: int  # hats of each number column that declares no knots
    pairs: int  # columns that are paired with each other, 0 for none
    ranks: float  # share of the budget that quantiles of number columns cost
    coordinates: int  # of columns alone, the intercept included
    pair_coordinates: int  # of pairs, at most: which columns are paired is decided by released effects


def outline(
    columns: Sequence[TableColumn],
    clarity: float,
    *,
    knots: int | None = None,
    pairs: int | None = None,
    ranks: bool | None = None,
) -> Outline:
    """What the rules make of a table; ``knots``, ``pairs`` and ``ranks`` override them where they are set."""
    width = even(main_blocks(columns, scales_of(columns), knots, clarity)).width
    paired = paired_columns(clarity, len(columns), pairs)
    side = side_for(clarity, paired)
    widths = [(side if column.number else min(side, max(column.groups) + 1)) + 1 for column in columns]
    widest = sorted(widths)[len(widths) - paired :]
    price = rank_share(clarity, len(ranked(columns)), ranks)
    products = (sum(widest) ** 2 - sum(w * w for w in widest)) // 2
    return Outline(knots or knots_for(clarity, len(columns)), paired, price, width, products)


def scales_of(columns: Sequence[TableColumn]) -> list[RankScale]:
    return [(column.points, column.ranks) for column in columns]


def knots_for(clarity: float, columns: int) -> int:
    """How many hats a column gets: more for more records, budget (``clarity`` is n mu), and fewer columns."""
    return int(min(max(round(KNOTS * clarity / columns), 3), MAX_HATS))


def public_rows_tell(rows: int, clarity: float, columns: int, knots: int | None = None) -> bool:
    """Whether public rows show where values lie as well as hats need it, so that ranks are not bought."""
    return rows >= PUBLIC_ROWS * (knots or knots_for(clarity, columns))


def ranked(columns: Sequence[TableColumn]) -> list[int]:
    """The columns whose quantiles may be bought: numbers without declared knots."""
    return [i for i, column in enumerate(columns) if column.number and column.knots is None]


def rank_share(clarity: float, columns: int, asked: bool | None = None) -> float:
    """The share of the budget for quantiles of the columns: what little noise costs, up to ``RANK_SHARE``; 0 for none."""
    if not columns or asked is False:
        return 0.0
    return min(8 * LEVELS * columns / (RANK_NOISE * clarity) ** 2, RANK_SHARE)


def paired_columns(clarity: float, columns: int, asked: int | None = None) -> int:
    """How many columns are paired with each other: none while n mu is small, unless ``asked`` sets the number."""
    most = min(MAX_PAIRED_COLUMNS if asked is None else asked, columns)
    return most if most >= 2 and (asked is not None or clarity >= MIN_CLARITY_FOR_PAIRS) else 0


def side_for(clarity: float, columns: int) -> int:
    """How many hats a side of a product has when ``columns`` are paired."""
    pairs = max(math.comb(columns, 2), 1)
    return int(min(max(round(math.sqrt(CELLS * clarity / pairs)), MIN_SIDE), MAX_SIDE))


def main_blocks(
    columns: Sequence[TableColumn],
    scales: Sequence[RankScale],
    knots: int | None,
    clarity: float,
    two_valued: Collection[int] = (),
) -> tuple[Block, ...]:
    """Fine and coarse hats of each number, two where it has two values, coordinates of each category."""
    blocks: list[Block] = []
    for i, (column, scale) in enumerate(zip(columns, scales, strict=True)):
        if not column.number:
            blocks.append(Codes(i, column.groups))
            continue
        fine = 2 if i in two_valued else knots or column.knots or knots_for(clarity, len(columns))
        blocks.append(Hats(i, *scale, fine))
        if fine > 4:
            blocks.append(Hats(i, *scale, COARSE if fine > 2 * COARSE else 3))
    return tuple(blocks)


def balanced(parts: Sequence[Frequencies], weights: Sequence[float]) -> tuple[Features, Placed]:
    """Features in which rare coordinates weigh more, and where to put them; ``weights``: of the squared length of rows."""
    gains, shares, squares = [], [], []
    for part, weight in zip(parts, weights, strict=True):
        each = math.sqrt(weight / len(part.blocks))
        gains.append(each / np.sqrt(part.shares + np.maximum(part.noise, RARE)))
        shares.append(part.shares)
        squares.append(np.concatenate([np.full(block.width, block.roundness) for block in part.blocks]))
    gain, share, square = (np.concatenate(numbers) for numbers in (gains, shares, squares))
    gain *= LENGTH / math.sqrt(max(float((square * share * gain * gain).sum()), 1e-12))
    gain = np.minimum(gain, 1.0)
    length = float((square * share * gain * gain).sum())
    middle = share * gain
    middle *= min(1.0, 0.999 / max(float(np.linalg.norm(middle)), 1e-12))
    spread = max(length - float(middle @ middle), MIN_SPREAD * LENGTH**2)
    constant = INTERCEPT * math.sqrt(spread)
    features = Features(tuple(block for part in parts for block in part.blocks), np.append(gain, constant))
    return features, Placed(np.append(middle, 0.0), 1 / math.sqrt(spread + constant**2), np.append(share, 1.0))


def strengths(features: Features, effects: Floats, shares: Floats, columns: int) -> Floats:
    """How much each column's effect varies over records: effects are of coordinates, a row for each output."""
    strength = np.zeros(columns)
    for block, span in zip(features.blocks, features.spans, strict=True):
        if not isinstance(block, Product):
            weight = shares[span] / max(float(shares[span].sum()), 1e-12)
            around = effects[:, span] - (effects[:, span] @ weight)[:, None]
            strength[block.column] += float((around**2 @ weight).sum())
    return strength


def pair_blocks(
    columns: Sequence[TableColumn],
    features: Features,
    effects: Floats,
    shares: Floats,
    clarity: float,
    most: int | None,
) -> tuple[Block, ...]:
    """Products of coarse hats for all pairs of the columns whose effects are largest."""
    strength = strengths(features, effects, shares, len(columns))
    top = sorted(np.argsort(-strength, kind="stable")[: paired_columns(clarity, len(columns), most)].tolist())
    side = side_for(clarity, len(top))
    sides = {i: _side(features, effects, i, side) for i in top}
    return tuple(Product(sides[i], sides[j]) for i, j in combinations(top, 2))


def _side(features: Features, effects: Floats, column: int, side: int) -> Hats | Codes:
    """A column in few coordinates: hats, or categories with effects alike put together."""
    spans = zip(features.blocks, features.spans, strict=True)
    block, span = next((block, span) for block, span in spans if block.columns == (column,))
    if isinstance(block, Hats):
        return Hats(column, block.points, block.ranks, min(side, block.knots))
    assert isinstance(block, Codes)
    of_group = effects[:, span].mean(0) if len(effects) == 1 else effects[0, span]
    present = block.width - 1
    if present <= side:
        return block
    rank = np.empty(present, int)
    rank[np.argsort(of_group[:present], kind="stable")] = np.arange(present) * side // present
    return Codes(column, tuple(int(rank[group]) for group in block.groups))


def names_of(features: Features, columns: Sequence[TableColumn]) -> list[str]:
    """A name for each coordinate, no two alike, the intercept's last."""
    names: dict[str, None] = {}
    before: set[int] = set()
    for block in features.blocks:
        again = f" of {block.knots}" if isinstance(block, Hats) and block.column in before else ""
        before |= {block.column} if isinstance(block, Hats) else set()
        for word in block.words(columns):
            name, count = f"{word}{again}", 1
            while name in names:  # knots that differ by little
                name, count = f"{word}{again} ({count + 1})", count + 1
            names[name] = None
    return [*names, "(intercept)"]


# What each preparation (bounds, ranks, a basis, features) cost a run. It is free, because it is declared, public or made
# of released answers, or named questions pay for it on the run's own purse. Which events those were is read from the trace
# of the run, never from what a method states. A moment of the rows is a preparation only where gradients follow.

SIZE, PAIRS = "size", "pairs"
SIZE_WORDS = "the number of rows, which sums are divided by"
PAIRS_WORDS = "which columns are paired, from effects that were released"
TRAINING = Gradient.name  # the question that trains on what was prepared


MEMBERS: tuple[type[Bounds | Ranks | Features | Basis], ...] = (Bounds, Ranks, Features, Basis)


def parts_of(
    trace: Sequence[Released], features: Features | None, *, bounds: Mapping[str, Any] | None = None, plan: bool = False
) -> list[dict[str, Any]]:
    """Everything that a run prepared, with the events that paid for it and their share of the training budget.

    ``bounds``: what was bought before the run. A share is 0 for what was free, and None where it has no meaning: in a
    ``plan``, which is priced as a whole, and for what was bought before training with an epsilon and a delta of its own.
    """
    found: list[dict[str, Any]] = []
    if bounds is not None:
        events = [dict(event) for event in bounds["events"]]
        found.append({"part": Bounds.part, "words": bounds["what"], "events": events, "share": None})
    named: list[tuple[str, str, tuple[str, ...]]] = [(SIZE, SIZE_WORDS, (Count.name,))]
    if any(line.question == TRAINING for line in trace):
        members: tuple[type[Ranks | Features | Basis], ...] = (Basis,) if features is None else (Ranks, Features)
        named += [(member.part, member.words, member.questions) for member in members]
    costs = [line.spent - before for line, before in zip(trace, [0.0, *(line.spent for line in trace)], strict=False)]
    for part, words, questions in named:
        own = [(line, cost) for line, cost in zip(trace, costs, strict=True) if line.question in questions]
        share = None if plan else float(f"{sum(cost for _, cost in own):.6g}")
        if own:
            found.append(
                {"part": part, "words": words, "events": [to_dict(line.event) for line, _ in own], "share": share}
            )
    if features is not None and any(isinstance(block, Product) for block in features.blocks):
        found.append({"part": PAIRS, "words": PAIRS_WORDS, "events": [], "share": 0.0})
    return found


def cost(part: Mapping[str, Any]) -> str:
    """What a part cost, in words.

    >>> cost({"part": "ranks", "share": 0.1, "events": [{}]}), cost({"part": "pairs", "share": 0.0, "events": []})
    ('10 % of the training budget', 'nothing')
    """
    if not part["events"]:
        return "nothing"
    if part["share"] is not None:
        return f"{100 * part['share']:.2g} % of the training budget"
    return "a budget of its own, before training" if part["part"] == Bounds.part else "a part of the plan"


def odd_part(parts: Sequence[Mapping[str, Any]], paid: Counter[Leaf], bounds: str | None) -> str | None:
    """The fault of a statement's parts: an unknown name or wording, or events that were not paid for.

    ``bounds``: what was bought before training, in words. Shares follow from the trace, which a statement does not hold.
    """
    known = {SIZE: SIZE_WORDS, PAIRS: PAIRS_WORDS, Bounds.part: bounds}
    known |= {member.part: member.words for member in (Ranks, Features, Basis)}
    left = Counter(paid)
    for part in parts:
        name, share = part["part"], part["share"]
        if part["words"] != known.get(name, None) or bool(part["events"]) == (name == PAIRS):
            return "it lists a preparation that noisewise does not make"
        if share is not None and not (0 < share <= 1 if part["events"] else share == 0):
            return f"the share of the budget for the {name} is not possible"
        left.subtract(leaves([from_dict(event) for event in part["events"]]))
        if any(count < 0 for count in left.values()):
            return f"the events listed as the price of the {name} are not among those that were paid"
    return None
