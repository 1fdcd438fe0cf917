"""Charts as inline SVG: no script, no font, no network; colours and sizes come from the page's style sheet.

Every chart is drawn for a narrow screen (``WIDTH`` units, of which a phone shows about one pixel each) and shown up to
a third larger, so its letters are readable everywhere. Each says in words what it shows, with its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import words
from .markup import Markup, join, tag

WIDTH, HEIGHT = 340, 210
LETTER = 7.4  # width of a letter at the charts' font size of 12, with some reserve
LARGEST, LEAST = 1e300, 1e-290  # beyond, differences and logarithms are lost
POINTS = 300
ROW = 34

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A line of a chart; ``style`` is "line", "area" or "dashed", ``colour`` the number of a colour of the page.

    ``band``: the lower and the upper end of a range around each point.
    """

    name: str
    points: Sequence[Point]
    style: str = "line"
    colour: int = 1
    band: Sequence[Point] = ()


@dataclass(frozen=True)
class Interval:
    """A row of an interval chart: a value with its error bar, if it has one."""

    name: str
    value: float
    ends: tuple[float, float] | None = None
    text: str = ""
    faint: bool = False


@dataclass(frozen=True)
class Axis:
    """From data to drawing units, linear or logarithmic."""

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
    return [(float(x), float(y) if abs(y) > LEAST else 0.0) for x, y in points if _drawable(x) and _drawable(y)]


def _drawable(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


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


def line_chart(
    key: str,
    series: Sequence[Series],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    log: bool = False,
    x_limits: Point | None = None,
    y_limits: Point | None = None,
    show: Callable[[float], str] = lambda value: words.number(value, 3),
    show_x: Callable[[float], str] = lambda value: words.number(value, 3),
) -> Markup | None:
    """Lines over a common axis; None when no point can be drawn. ``show`` and ``show_x`` write the axes' numbers.

    A band is drawn up to ``y_limits``.
    """
    drawn = [one if _banded(one) else replace(one, points=thinned(finite(one.points)), band=()) for one in series]
    if log:
        drawn = [replace(one, points=[p for p in one.points if p[1] > 0]) for one in drawn]
    drawn = [one for one in drawn if one.points]
    if not drawn:
        return None
    points = [point for one in drawn for point in one.points]
    x_low, x_high = x_limits or _around([x for x, _ in points], from_zero=False, log=False)
    y_low, y_high = y_limits or _around([y for _, y in points], from_zero=True, log=log)
    legend = drawn if len(drawn) > 1 else []
    top = 28.0 + 18 * len(legend)
    bottom = top + HEIGHT - 68
    y = Axis(y_low, y_high, bottom, top, log)
    labels = [(tick, show(tick)) for tick in y.ticks()]
    left = 10 + LETTER * max((len(label) for _, label in labels), default=1)
    x = Axis(x_low, x_high, left, WIDTH - 12)
    parts = [
        tag("text", y_label, x=2, y=12, class_="label"),
        *(_legend_row(one, 28 + 18 * row) for row, one in enumerate(legend)),
        *(_grid_line(left, WIDTH - 12, y(tick)) for tick, _ in labels),
        *(tag("text", label, x=_n(left - 6), y=_n(y(tick) + 4), class_="tick end") for tick, label in labels),
        *(
            tag("text", show_x(tick), x=_inside(x(tick), show_x(tick)), y=_n(bottom + 17), class_="tick middle")
            for tick in _apart(x.ticks(), x, show_x)
        ),
        tag("line", x1=_n(left), x2=WIDTH - 12, y1=_n(bottom), y2=_n(bottom), class_="axis"),
        tag("line", x1=_n(left), x2=WIDTH - 12, y1=_n(y(0.0)), y2=_n(y(0.0)), class_="zero")
        if y_low < 0 < y_high and not log
        else None,
        tag("text", x_label, x=_n((left + WIDTH - 12) / 2), y=_n(bottom + 34), class_="label middle"),
        *(_line(one, x, y, bottom) for one in drawn),
    ]
    return _svg(key, title, description, bottom + 40, parts)


def interval_chart(
    key: str,
    rows: Sequence[Interval],
    *,
    title: str,
    description: str,
    x_label: str,
    zero: bool = False,
    show: Callable[[float], str] = lambda value: words.number(value, 3),
) -> Markup | None:
    """Values with their error bars, one row each, the name above its bar; None when no value can be drawn."""
    rows = [row for row in rows if _drawable(row.value)]
    if not rows:
        return None
    ends = [end for row in rows for end in (row.value, *(row.ends or ())) if _drawable(end)]
    low, high = _around([*ends, 0.0] if zero else ends, from_zero=False, log=False)
    room = (high - low) * 0.03
    x = Axis(low - room, high + room, 8, WIDTH - 8)
    bottom = 8.0 + ROW * len(rows)
    ticks = x.ticks()
    parts = [
        *(tag("line", x1=_n(x(tick)), x2=_n(x(tick)), y1=6, y2=_n(bottom), class_="grid") for tick in ticks),
        tag("line", x1=_n(x(0.0)), x2=_n(x(0.0)), y1=6, y2=_n(bottom), class_="zero") if zero else None,
        *(_interval_row(row, x, 8.0 + ROW * number) for number, row in enumerate(rows)),
        *(
            tag("text", show(tick), x=_inside(x(tick), show(tick)), y=_n(bottom + 15), class_="tick middle")
            for tick in ticks
        ),
        tag("text", x_label, x=WIDTH // 2, y=_n(bottom + 33), class_="label middle"),
    ]
    return _svg(key, title, description, bottom + 40, parts)


def _interval_row(row: Interval, x: Axis, top: float) -> Markup:
    letters = int((WIDTH - 30 - LETTER * len(row.text)) / LETTER)
    at = _n(top + 23)
    bar = None
    if row.ends is not None and all(map(_drawable, row.ends)):
        bar = tag("line", x1=_n(x(row.ends[0])), x2=_n(x(row.ends[1])), y1=at, y2=at, class_="bar")
    return tag(
        "g",
        tag("title", f"{row.name}: {row.text}"),
        tag("text", words.shorten(row.name, letters), x=8, y=_n(top + 12), class_="name"),
        tag("text", row.text, x=WIDTH - 8, y=_n(top + 12), class_="told end"),
        bar,
        tag("circle", cx=_n(x(row.value)), cy=at, r=4.5, class_="dot"),
        class_="row faint" if row.faint else "row",
    )


def _legend_row(one: Series, y: float) -> Markup:
    line = tag("line", x1=4, x2=24, y1=_n(y), y2=_n(y), class_=f"{one.style} colour{one.colour}")
    return join(line, tag("text", one.name, x=30, y=_n(y + 4), class_="tick"))


def _grid_line(left: float, right: float, y: float) -> Markup:
    return tag("line", x1=_n(left), x2=_n(right), y1=_n(y), y2=_n(y), class_="grid")


def _line(one: Series, x: Axis, y: Axis, bottom: float) -> Markup:
    places = [(x(a), y(b)) for a, b in one.points]
    path = "M" + "L".join(f"{_n(a)} {_n(b)}" for a, b in places)
    area = None
    if one.style == "area" and len(places) > 1:
        closed = f"{path}L{_n(places[-1][0])} {_n(bottom)}L{_n(places[0][0])} {_n(bottom)}Z"
        area = tag("path", d=closed, class_=f"fill colour{one.colour}")
    elif one.band:
        area = tag("path", d=_around_line(one, x, y), class_=f"fill colour{one.colour}")
    few = places if len(places) <= 12 and one.style != "dashed" else []
    dots = [tag("circle", cx=_n(a), cy=_n(b), r=3.5, class_=f"dot colour{one.colour}") for a, b in few]
    line = tag("path", d=path, class_=f"{one.style} colour{one.colour}") if len(places) > 1 else None
    return join(area, line, *dots)


def _banded(one: Series) -> bool:
    """Whether all of a line and its band can be drawn."""
    return bool(one.band) and all(_drawable(value) for point in (*one.points, *one.band) for value in point)


def _around_line(one: Series, x: Axis, y: Axis) -> str:
    ends = [
        [(x(a), y(min(max(b[end], y.low), y.high))) for (a, _), b in zip(one.points, one.band, strict=True)]
        for end in (0, 1)
    ]
    return "M" + "L".join(f"{_n(a)} {_n(b)}" for a, b in (*ends[0], *reversed(ends[1]))) + "Z"


def _around(values: Sequence[float], *, from_zero: bool, log: bool) -> Point:
    """Limits with some room; an axis without negative values starts at 0 when asked to."""
    low, high = min(values), max(values)
    if log:
        return (low / 1.3, high * 1.3)
    if from_zero and low >= 0:
        return (0.0, high * 1.08 if high > 0 else 1.0)
    if not high - low > max(1e-9 * max(abs(low), abs(high)), LEAST):  # also when the difference is lost in rounding
        room = abs(high) / 2 if abs(high) > LEAST else 0.5
        return (low - room, high + room)
    return (low, high)


def _svg(key: str, title: str, description: str, height: float, parts: Iterable[Markup | None]) -> Markup:
    return tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        tag("desc", description, id=f"{key}-desc"),
        *parts,
        viewBox=f"0 0 {WIDTH} {_n(height)}",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        class_="chart",
    )


def _apart(ticks: Sequence[float], x: Axis, show: Callable[[float], str]) -> Sequence[float]:
    """As many of the ticks as have room for their labels."""
    widest = LETTER * (max((len(show(tick)) for tick in ticks), default=0) + 1)
    every = max(1, math.ceil(widest / abs(x(ticks[1]) - x(ticks[0])))) if len(ticks) > 1 else 1
    return ticks[::every]


def _inside(x: float, label: str) -> str:
    """The middle of a label near ``x`` that does not stick out of the chart."""
    half = LETTER * len(label) / 2
    return _n(max(half, min(x, WIDTH - half)))


def _n(value: float) -> str:
    """A coordinate: one decimal is finer than a screen."""
    return f"{value:.1f}".removesuffix(".0")
