"""The shape of each column's effect on a score, with its privacy noise, and how strong pairs are: numpy on released facts.

The effect of a value is what the score would be on average if every record had it, less the mean score: the column's own
hats or categories, and those of its pairs averaged over the other column. Averages are over released frequencies; where
there are none, over knots or categories alike. That is linear in the coefficients, whose noise is independent, so the
deviation of an effect is the root of a sum of squares. What is left of a pair beyond the effects of its columns is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...trusted.features import Codes, Features, Floats, Hats, Product, TableColumn, values_at

MISSING = "missing"
MAX_VALUES = 64
RARE, LONG = 0.015, 0.25  # so few records at an end that takes so much of a scale are not drawn
STRETCHES = 33  # of a course
Z = 1.96  # 95 % of a normal distribution

Side = Hats | Codes


@dataclass(frozen=True, eq=False)
class Course:
    """The effect of a number averaged over the records of short stretches of where nearly all records are.

    Where many records have one value, knots lie so close that noise alone tells them apart; averages are calmer.
    """

    ends: tuple[float, float]
    values: Floats
    effect: Floats
    std: Floats | None


@dataclass(frozen=True, eq=False)
class Effect:
    """A column's effect at ``values``, the last of which is missing; a row for each output.

    ``strength``: the standard deviation of the effect over records. ``missing``: the share of them without a value.
    ``course``: for pictures of a number.
    """

    feature: str
    number: bool
    values: tuple[float | str, ...]
    effect: Floats
    std: Floats | None
    strength: float
    missing: float
    course: Course | None


@dataclass(frozen=True)
class Pair:
    """What two columns do together beyond their effects: its deviation over records, and what noise alone would give."""

    first: str
    second: str
    strength: float
    noise: float | None


@dataclass(frozen=True, eq=False)
class Effects:
    """Effects of all columns in the order of the table, and pairs, the strongest first; ``outputs`` if there are several."""

    columns: tuple[Effect, ...]
    pairs: tuple[Pair, ...]
    outputs: tuple[str, ...] | None

    def rows(self) -> Iterator[dict[str, Any]]:
        """One for each output, column and value: feature, value, effect, noise_low and noise_high, as plain data."""
        for k, output in enumerate(self.outputs or (None,)):
            for column in self.columns:
                for i, value in enumerate(column.values):
                    effect = float(column.effect[k, i])
                    reach = None if column.std is None else Z * float(column.std[k, i])
                    ends = (None, None) if reach is None else (effect - reach, effect + reach)
                    row: dict[str, Any] = {"feature": column.feature, "value": value, "effect": effect}
                    row |= {"noise_low": ends[0], "noise_high": ends[1]}
                    yield row if output is None else row | {"output": output}

    def pair_rows(self) -> list[dict[str, Any]]:
        """One for each pair, as plain data."""
        return [vars(pair) for pair in self.pairs]


def effects_of(
    made: Features,
    columns: Sequence[TableColumn],
    weights: Floats,
    deviations: Floats | None,
    shares: Floats | None,
    outputs: tuple[str, ...] | None = None,
) -> Effects:
    """Effects of columns and pairs from the coefficients of the coordinates, a row for each output, the intercept last."""
    table = _Table(made, columns, weights, None if deviations is None else deviations**2, shares)
    pairs = [table.pair(block, span) for block, span in table.blocks if isinstance(block, Product)]
    known = sorted({block.column for block, _ in table.blocks if not isinstance(block, Product)})
    strongest = sorted(pairs, key=lambda pair: -pair.strength)
    return Effects(tuple(table.effect(column) for column in known), tuple(strongest), outputs)


@dataclass(frozen=True, eq=False)
class _Seen:
    """Coordinates of one column with their coefficients and variances, and how frequent they are."""

    side: Side
    weights: Floats
    variances: Floats | None
    mean: Floats

    def effect(self, cells: Floats) -> Floats:
        places, entries = self.side(cells)
        return (self.weights[:, places] * entries).sum(-1) - (self.weights @ self.mean)[:, None]

    def variance(self, cells: Floats) -> Floats:
        """Of sum_j (x_j - m_j) w_j, where most x_j are 0."""
        assert self.variances is not None
        places, entries = self.side(cells)
        own = self.variances[:, places] * (entries**2 - 2 * entries * self.mean[places])
        return np.maximum(own.sum(-1) + (self.variances @ self.mean**2)[:, None], 0.0)

    def averaged(self, cells: Floats, means: Floats) -> Floats:
        return self.effect(cells) @ means.T

    def averaged_variance(self, cells: Floats, means: Floats) -> Floats:
        """The same of means over cells: a row of ``means`` has the weight of each of them."""
        assert self.variances is not None
        places, entries = self.side(cells)
        coordinates = np.zeros((len(cells), self.side.width))
        np.add.at(coordinates, (np.arange(len(cells))[:, None], places), entries)
        return self.variances @ ((means @ coordinates - self.mean) ** 2).T


class _Table:
    def __init__(
        self,
        made: Features,
        columns: Sequence[TableColumn],
        weights: Floats,
        variances: Floats | None,
        shares: Floats | None,
    ) -> None:
        self.blocks = list(zip(made.blocks, made.spans, strict=True))
        self._columns, self._weights, self._variances, self._shares = columns, weights, variances, shares

    def effect(self, column: int) -> Effect:
        seen = list(self._seen(column))
        known, about = self._values(column, seen), self._columns[column]
        typical, shares = self._people(column)
        over = sum(part.effect(self._cells(column, typical)) for part in seen)
        cells = self._cells(column, [*known, np.nan])
        variance = None if self._variances is None else sum(part.variance(cells) for part in seen)
        words = known if about.number else [_word(about, int(code)) for code in known]
        return Effect(
            about.name,
            about.number,
            (*words, MISSING),
            np.asarray(sum(part.effect(cells) for part in seen)),
            None if variance is None else np.sqrt(variance),
            float(np.sqrt((np.asarray(over) ** 2 @ shares).mean())),
            float(shares[-1]),
            self._course(column, seen) if about.number else None,
        )

    def _course(self, column: int, seen: Sequence[_Seen]) -> Course:
        block, known = self._first(column)
        assert isinstance(block, Hats)
        values, shares = _finer(block, np.ones(block.knots) if known is None else known[:-1] + 1e-9)
        low, high = _usual(values, shares)
        stretch = np.floor((values - low) / (high - low) * (STRETCHES - 1) + 0.5)
        kept = np.flatnonzero((values >= low) & (values <= high))
        groups = [kept[stretch[kept] == one] for one in np.unique(stretch[kept])]
        means = np.zeros((len(groups), len(values)))
        for row, group in zip(means, groups, strict=True):
            row[group] = shares[group] / shares[group].sum()
        cells = self._cells(column, values.tolist())
        effect = sum(part.averaged(cells, means) for part in seen)
        noise = None if self._variances is None else np.sqrt(sum(part.averaged_variance(cells, means) for part in seen))
        return Course((low, high), means @ values, np.asarray(effect), noise)

    def pair(self, block: Product, span: slice) -> Pair:
        shape = (-1, block.first.width, block.second.width)
        first, second = self._mean(block.first), self._mean(block.second)
        weights = self._weights[:, span].reshape(shape)
        left = weights - np.einsum("kij,i->kj", weights, first)[:, None, :]
        left = left - (left @ second)[:, :, None]
        noise = None
        if self._variances is not None:
            ways = [(np.eye(len(mean)) - mean) ** 2 for mean in (first, second)]
            variances = ways[0] @ self._variances[:, span].reshape(shape) @ ways[1].T
            noise = float(np.sqrt(np.einsum("kij,i,j->k", variances, first, second).mean()))
        strength = float(np.sqrt(np.einsum("kij,i,j->k", left**2, first, second).mean()))
        names = [self._columns[side.column].name for side in (block.first, block.second)]
        return Pair(names[0], names[1], strength, noise)

    def _seen(self, column: int) -> Iterator[_Seen]:
        """Blocks of the column, and its sides of pairs, averaged over the other side."""
        for block, span in self.blocks:
            weights = self._weights[:, span]
            variances = None if self._variances is None else self._variances[:, span]
            if not isinstance(block, Product):
                if block.column == column:
                    yield _Seen(block, weights, variances, self._mean(block))
                continue
            for side, other, axis in ((block.first, block.second, 2), (block.second, block.first, 1)):
                if side.column == column:
                    shape = (-1, block.first.width, block.second.width)
                    mean = self._mean(other)
                    averaged = np.tensordot(weights.reshape(shape), mean, (axis, 0))
                    squared = None
                    if variances is not None:
                        squared = np.tensordot(variances.reshape(shape), mean**2, (axis, 0))
                    yield _Seen(side, averaged, squared, self._mean(side))

    def _values(self, column: int, seen: Sequence[_Seen]) -> list[float]:
        """Knots of a number, and values between them where its scale bends, at most so many; categories by position."""
        if not self._columns[column].number:
            return [float(code) for code in range(len(self._columns[column].groups))]
        hats = [part.side for part in seen if isinstance(part.side, Hats)]
        finest = max(hats, key=lambda block: block.knots)
        within = np.asarray(finest.ranks) * (finest.knots - 1)
        bent = bool((np.abs(within - within.round()) > 1e-9).any())
        own = _finer(finest, np.ones(finest.knots))[0] if bent else finest.knot_values()
        for merged in (np.concatenate([own, *(block.knot_values() for block in hats)]), own):
            values = np.unique([float(f"{value:.10g}") for value in merged])
            if len(values) <= MAX_VALUES:
                break
        if len(values) > MAX_VALUES:
            values = values[np.linspace(0, len(values) - 1, MAX_VALUES).round().astype(int)]
        listed: list[float] = values.tolist()
        return listed

    def _people(self, column: int) -> tuple[list[float], Floats]:
        """A value for each coordinate of the column's first block, the last missing, and the share of records near it."""
        block, shares = self._first(column)
        if isinstance(block, Hats):
            values = block.knot_values().tolist()
        else:
            any_of = {group: float(code) for code, group in enumerate(block.groups)}
            values = [any_of[group] for group in range(block.width - 1)]
        even = np.append(np.full(len(values), 1 / len(values)), 0.0)
        if shares is None or not shares.sum() > 0:
            return [*values, np.nan], even
        return [*values, np.nan], shares / shares.sum()

    def _first(self, column: int) -> tuple[Side, Floats | None]:
        """The column's first block, with the shares of its coordinates; a side of a pair if it has no other."""
        for block, span in self.blocks:
            if not isinstance(block, Product) and block.column == column:
                return block, None if self._shares is None else self._shares[span]
        sides = [side for block, _ in self.blocks if isinstance(block, Product) for side in (block.first, block.second)]
        return next(side for side in sides if side.column == column), None

    def _mean(self, side: Side) -> Floats:
        """How frequent each coordinate is."""
        values, shares = self._people(side.column)
        places, entries = side(self._cells(side.column, values))
        mean = np.zeros(side.width)
        np.add.at(mean, places, entries * shares[:, None])
        return mean

    def _cells(self, column: int, values: Sequence[float]) -> Floats:
        cells = np.full((len(values), len(self._columns)), np.nan)
        cells[:, column] = values
        return cells


def _finer(block: Hats, shares: Floats) -> tuple[Floats, Floats]:
    """Knots and places between them, about as many as are shown, and the share of records near each."""
    between = max(1, (MAX_VALUES - 1) // (block.knots - 1))
    ranks = np.linspace(0, 1, (block.knots - 1) * between + 1)
    hats = np.maximum(1 - np.abs(ranks[:, None] * (block.knots - 1) - np.arange(block.knots)), 0)
    near = hats @ (shares / hats.sum(0))
    return values_at(ranks, np.asarray(block.points), np.asarray(block.ranks)), near / near.sum()


def _usual(values: Floats, shares: Floats) -> tuple[float, float]:
    """Between which values nearly all records are; an end of the scale that the rest would take little of stays."""
    below = np.cumsum(shares) / shares.sum()
    first, last = np.searchsorted(below, [RARE, 1 - RARE])
    low, high = (float(values[min(max(int(place), 0), len(values) - 1)]) for place in (first - 1, last))
    room = LONG * float(values[-1] - values[0])
    return (
        low if low - values[0] > room else float(values[0]),
        high if values[-1] - high > room else float(values[-1]),
    )


def _word(column: TableColumn, code: int) -> str:
    return column.words[code] if code < len(column.words) else str(code)
