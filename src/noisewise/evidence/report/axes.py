"""Axes of charts: from data to places, round numbers along them, and as many labels as have room."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

LETTER_PIXELS = 7.4  # width at the charts' font size of 12, with some reserve
MAX_DRAWN, MIN_DRAWN = 1e300, 1e-290  # beyond, differences and logarithms are lost
POINTS = 300
MIN_PLOT_PIXELS = 176.0  # on the smallest phone; labels that have room there have room everywhere
LABEL_GAP_PIXELS = 10.0
OVERHANG_PIXELS = 7.0  # that a label may stand out of the plot on either side

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """From data to places from ``start`` to ``end``, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, about: int = 4) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high, about)


def linear_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers within the limits.

    >>> linear_ticks(0, 0.9), linear_ticks(-3, 12)
    ([0.0, 0.2, 0.4, 0.6, 0.8], [0.0, 5.0, 10.0])
    """
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((power * nice for nice in (1, 2, 5, 10)), key=lambda step: abs(math.log(step / rough)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within the limits, or 1, 2, 5 times them when there are few.

    >>> log_ticks(0.5, 20), log_ticks(1e-9, 10)
    ([0.5, 1.0, 2.0, 5.0, 10.0, 20.0], [1e-09, 1e-06, 0.001, 1.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, -(-(last - first) // 4))
    nice = (1, 2, 5) if last - first <= 3 else (1,)
    ticks = [float(f"{digit}e{power}") for power in range(first, last + 1, every) for digit in nice]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def finite(points: Iterable[tuple[Any, Any]]) -> list[Point]:
    """The points that can be drawn."""
    return [(float(x), float(y) if abs(y) > MIN_DRAWN else 0.0) for x, y in points if drawable(x) and drawable(y)]


def drawable(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_DRAWN


def thinned(points: Sequence[Point], most: int = POINTS) -> list[Point]:
    """At most about ``most`` points with the same outline: the least and the largest of each stretch, and both ends.

    >>> len(thinned([(i, i % 7) for i in range(10_000)])) <= 302
    True
    """
    if len(points) <= most:
        return list(points)
    count = most // 2
    kept = {0, len(points) - 1}
    for stretch in range(count):
        inside = range(stretch * len(points) // count, (stretch + 1) * len(points) // count)
        kept |= {min(inside, key=lambda i: points[i][1]), max(inside, key=lambda i: points[i][1])}
    return [points[i] for i in sorted(kept)]


def around(values: Sequence[float], *, from_zero: bool = False, log: bool = False) -> Point:
    """Limits with some room; an axis without negative values starts at 0 when asked to."""
    low, high = min(values), max(values)
    if log:
        return (low / 1.3, high * 1.3)
    if from_zero and low >= 0:
        return (0.0, high * 1.08 if high > 0 else 1.0)
    if not high - low > max(1e-9 * max(abs(low), abs(high)), MIN_DRAWN):  # also when the difference is lost in rounding
        room = abs(high) / 2 if abs(high) > MIN_DRAWN else 0.5
        return (low - room, high + room)
    return (low, high)


Label = tuple[float, str, str]


def labels_along(share: Axis, show: Callable[[float], str]) -> list[Label]:
    """Labels of a horizontal axis: place as a share of the width, text, and which part of the text stands there.

    Each keeps its distance from the one before on the narrowest plot, so all of them do on a wider one. As many round
    numbers are taken as have room; if not even two have, those of them that do.

    >>> labels_along(Axis(0, 100, 0, 1), str)
    [(0.0, '0.0', 'start'), (0.5, '50.0', 'middle'), (1.0, '100.0', 'end')]
    """
    for about in (5, 4, 3, 2):
        ticks = share.ticks(about)
        placed = _placed(ticks, share, show)
        if len(placed) == len(ticks) > 1:
            break
    return placed


def _placed(ticks: Sequence[float], share: Axis, show: Callable[[float], str]) -> list[Label]:
    placed: list[Label] = []
    free = -math.inf
    for tick in ticks:
        at, text = share(tick), show(tick)
        width, x = LETTER_PIXELS * len(text), at * MIN_PLOT_PIXELS
        anchor = "middle"
        if x - width / 2 < -OVERHANG_PIXELS:
            anchor = "start"
        elif x + width / 2 > MIN_PLOT_PIXELS + OVERHANG_PIXELS:
            anchor = "end"
        left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * width
        if left >= free:
            placed.append((at, text, anchor))
            free = left + width + LABEL_GAP_PIXELS
    return placed
