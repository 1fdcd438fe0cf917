"""What PUBLIC rows show of a column, in bounded memory: kind, bounds, categories, and whether it tells anything."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .column_checks import Scalar
from .values import is_missing_word, key, looks_like_a_date, looks_like_a_time, number_of

MOST_CATEGORIES = 200
ENOUGH = 20  # rows with a value before a column is called an id or constant
MOST_APART = 100_000  # different values that are remembered to see whether one comes twice
SAMPLED = 1000  # values of a batch that the median is taken of
FAR = 20.0  # times the median: where the largest value of a heavy tail lies
RARE = 0.002  # of the rows: a category that fewer have is rare
AN_ID = 'looks like an id in the public rows, where no value comes twice; set kind = "ignore"'
A_CONSTANT = 'is constant in the public rows; set kind = "ignore"'
HEAVY = f'has a heavy tail: scale = log? It reaches beyond {FAR:g} times its median in the public rows; scale = "log" may suit it'
A_CODE = 'has few whole numbers: a code?; if they stand for kinds of things, set kind = "category" and categories = {}'
FEW = 3, 12  # different whole numbers that may be a code; two are as good as numbers


@dataclass
class Seen:
    """What was seen in one public column."""

    rows: int = 0
    missing: int = 0
    low: float = math.inf
    high: float = -math.inf
    numeric: bool = True
    whole: bool = True
    boolean: bool = True
    dates: bool = True
    times: bool = True
    keys: Counter[str] = field(default_factory=Counter)  # with one key more than the most categories at most
    many: bool = False
    apart: set[str] | None = field(default_factory=set)  # None: a value came twice, or is a fraction
    sample: list[float] = field(default_factory=list)

    def look(self, cells: pa.Array) -> None:
        """Take in one batch."""
        cells = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
        values, counts = (pc.value_counts(cells).field(name) for name in ("values", "counts"))
        several = values.to_numpy(zero_copy_only=False) if pa.types.is_floating(values.type) else values.to_pylist()
        numbers, times = [], []
        for value, count in zip(several, counts.to_pylist(), strict=True):
            self.rows += count
            if value is None or value != value or (isinstance(value, str) and is_missing_word(value)):
                self.missing += count
            else:
                numbers.append(self._take(value, count))
                times.append(count)
        if self.numeric and numbers:
            every = np.sort(np.repeat(numbers, times))
            self.sample += every[np.linspace(0, len(every) - 1, min(len(every), SAMPLED)).astype(int)].tolist()

    def _take(self, value: Any, count: int) -> float:
        text = key(value)
        boolean = text in ("true", "false")
        number = None if boolean else (number_of(value) if isinstance(value, str) else float(value))
        self.boolean &= boolean
        self.numeric &= number is not None
        self.dates &= isinstance(value, str) and looks_like_a_date(value)
        self.times &= isinstance(value, str) and looks_like_a_time(value)
        if number is not None and math.isfinite(number):
            self.low, self.high = min(self.low, number), max(self.high, number)
        whole = number is not None and math.isfinite(number) and number == int(number)
        self.whole &= whole
        if not self.many or text in self.keys:
            self.keys[text] += count
            self.many = len(self.keys) > MOST_CATEGORIES
        if count > 1 or (number is not None and not whole) or (self.apart is not None and text in self.apart):
            self.apart = None
        elif self.apart is not None and len(self.apart) < MOST_APART:
            self.apart.add(text)
        return math.nan if number is None else number

    @property
    def categories(self) -> tuple[Scalar, ...]:
        """The different values, sorted: as booleans or numbers if all are, otherwise as texts."""
        if self.boolean:
            return tuple(text == "true" for text in sorted(self.keys))
        numbers = [number for text in self.keys if (number := number_of(text)) is not None and key(number) == text]
        if len(numbers) == len(self.keys) and all(map(math.isfinite, numbers)):
            return tuple(sorted(numbers))
        return tuple(sorted(self.keys))  # "01" is a code, not the number 1

    @property
    def rare(self) -> tuple[Scalar, ...]:
        """Categories that few rows have, if there are two or more to share a coordinate."""
        few = tuple(value for value in self.categories if self.keys[key(value)] < RARE * (self.rows - self.missing))
        return few if len(few) > 1 else ()

    @property
    def doubt(self) -> str:
        """Why the column would tell a model nothing, in words; nothing if it may."""
        there = self.rows - self.missing
        if there < ENOUGH:
            return ""
        if len(self.keys) == 1 and not self.missing:
            return A_CONSTANT
        numbered = self.numeric and self.high - self.low < 2 * there
        moments = self.dates or self.times
        return AN_ID if self.apart is not None and not moments and (numbered or not self.numeric) else ""

    @property
    def code(self) -> str:
        """Whether the numbers may be codes of categories, in words; nothing if they are not few, or not whole."""
        few = self.numeric and self.whole and not self.many and FEW[0] <= len(self.keys) <= FEW[1]
        if not few or self.rows - self.missing < ENOUGH:
            return ""
        return A_CODE.format(f"[{', '.join(key(value) for value in self.categories)}]")

    @property
    def heavy(self) -> bool:
        """Whether the largest number is far beyond the median, and all are above 0."""
        finite = [number for number in self.sample if math.isfinite(number)]
        return self.numeric and len(finite) >= ENOUGH and self.low > 0 and self.high > FAR * float(np.median(finite))
