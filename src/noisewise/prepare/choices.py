"""Which features a table gets, from declared or released facts: knots, balance, columns to pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from .columns import TableColumn
from .features import Block, Codes, Features, Hats, Product
from .scale import Floats

KNOTS = 0.15  # hats of a column for each n mu and column
MOST_HATS, COARSE = 64, 8
PAIRED = 7  # columns
CELLS = 0.1  # hats of a side, squared, for each n mu and pair
FEWEST_SIDE, MOST_SIDE = 3, 8
RARE = 0.005  # a coordinate that fewer records have is balanced as if so many had it
LENGTH = 0.5  # of typical rows before they are centred, so that hardly any is longer than 1
INTERCEPT = 0.4  # relative to the spread of the rest
LEAST_SPREAD = 0.05

Scale = tuple[tuple[float, ...], tuple[float, ...]]


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


def scales_of(columns: Sequence[TableColumn]) -> list[Scale]:
    """The declared scale of each column; none for a category."""
    return [(column.points, column.ranks) for column in columns]


def knots_for(clarity: float, columns: int) -> int:
    """How many hats a column gets: more for more records, budget (``clarity`` is n mu), and fewer columns."""
    return int(min(max(round(KNOTS * clarity / columns), 3), MOST_HATS))


def main_blocks(
    columns: Sequence[TableColumn], scales: Sequence[Scale], knots: int | None, clarity: float
) -> tuple[Block, ...]:
    """Fine and coarse hats of each number, coordinates of each category."""
    blocks: list[Block] = []
    for i, (column, scale) in enumerate(zip(columns, scales, strict=True)):
        if not column.number:
            blocks.append(Codes(i, column.groups))
            continue
        fine = knots or column.knots or knots_for(clarity, len(columns))
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
    spread = max(length - float(middle @ middle), LEAST_SPREAD * LENGTH**2)
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
    top = sorted(np.argsort(-strength, kind="stable")[: PAIRED if most is None else most].tolist())
    pairs = list(combinations(top, 2))
    side = int(min(max(round(math.sqrt(CELLS * clarity / max(len(pairs), 1))), FEWEST_SIDE), MOST_SIDE))
    sides = {i: _side(features, effects, i, side) for i in top}
    return tuple(Product(sides[i], sides[j]) for i, j in pairs)


def _side(features: Features, effects: Floats, column: int, side: int) -> Hats | Codes:
    """A column in few coordinates: hats, or categories with effects alike put together."""
    spans = zip(features.blocks, features.spans, strict=True)
    block, span = next((block, span) for block, span in spans if block.columns == (column,))
    if isinstance(block, Hats):
        return Hats(column, block.points, block.ranks, side)
    assert isinstance(block, Codes)
    of_group = effects[:, span].mean(0) if len(effects) == 1 else effects[0, span]
    present = block.width - 1
    if present <= side:
        return block
    rank = np.empty(present, int)
    rank[np.argsort(of_group[:present], kind="stable")] = np.arange(present) * side // present
    return Codes(column, tuple(int(rank[group]) for group in block.groups))
