"""Charts of inline SVG and words: no script, no font, no network; colours and sizes come from the page's style sheet.

Places across are percentages, so a chart takes the width it is given while its letters keep their size. Words never
stand on the drawing: those of axes are outside the plot, names and values of rows beside or above it. Each chart says in
words what it shows, with its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import sentences as words
from .markup import Markup, join, tag

# Axes of charts: from data to places, round numbers along them, and as many labels as have room.


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


PLOT_PIXELS = 150  # height, unless another is given
ACROSS = 1000  # units of a curve's own picture, which is stretched to the plot's width
ROW_PIXELS = 22
LABEL_APART_PIXELS = 19.0  # of a vertical axis
MAX_MARKED_POINTS = 12
MAX_NAME_LETTERS = 60
UNIT = (0.0, 1.0)  # limits of an axis of shares
SHARES_ALONG: dict[str, Any] = {"x_limits": UNIT, "y_limits": UNIT, "show": words.percent, "show_x": words.percent}


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
    """A row of a chart of rows: a value with its error bar, if it has one. A ``solid`` one is a bar from zero."""

    name: str
    value: float
    ends: tuple[float, float] | None = None
    text: str = ""
    faint: bool = False
    solid: bool = False


def _shown(value: float) -> str:
    return words.number(value, 3)


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
    show: Callable[[float], str] = _shown,
    show_x: Callable[[float], str] = _shown,
    height: int = PLOT_PIXELS,
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
    x_ends = x_limits or around([x for x, _ in points])
    y_ends = y_limits or around([y for _, y in points], from_zero=True, log=log)
    y, share = Axis(*y_ends, height, 0, log), Axis(*x_ends, 0, 1)
    labels = _up(y, show)
    zero = y_ends[0] < 0 < y_ends[1] and not log
    parts = [
        *(_across(y(tick), "grid") for tick, _ in labels),
        _across(float(height), "axis"),
        _across(y(0.0), "zero") if zero else None,
        *(tag("text", label, x=-8, y=_n(y(tick) + 4), class_="tick end") for tick, label in labels),
        *_along(labels_along(share, show_x), height + 20),
        tag(
            "svg",
            *(_line(one, Axis(*x_ends, 0, ACROSS), y) for one in drawn),
            viewBox=f"0 0 {ACROSS} {height}",
            preserveAspectRatio="none",
            width="100%",
            height=height,
            class_="curves",
        ),
        *(_dot(share(a), y(b), one.colour) for one in drawn for a, b in _few(one)),
    ]
    widest = max((len(label) for _, label in labels), default=1)
    return _chart(
        key,
        title,
        description,
        tag("div", y_label, class_="label"),
        tag("div", *map(_key, drawn), class_="legend") if len(drawn) > 1 else None,
        tag("svg", *parts, height=height + 24, class_=f"plot left{min(max(widest, 2), 9)}"),
        tag("div", x_label, class_="label below") if x_label else None,
    )


def interval_chart(
    key: str,
    rows: Sequence[Interval],
    *,
    title: str,
    x_label: str,
    description: str | None = None,
    zero: bool = False,
    limits: Point | None = None,
    show: Callable[[float], str] = _shown,
) -> Markup | None:
    """Values with their error bars, one row each, the name before its bar; None when no value can be drawn.

    What leaves the ``limits`` is cut there. The ``description`` is what stands in the rows, unless another is given.
    """
    if description is None:
        description = "; ".join(f"{row.name}: {row.text}" for row in rows)
    rows = [row for row in rows if drawable(row.value)]
    if not rows:
        return None
    ends = [end for row in rows for end in (row.value, *(row.ends or ())) if drawable(end)]
    low, high = around([*ends, 0.0] if zero else ends, from_zero=all(row.solid for row in rows))
    room = 0.0 if all(row.solid for row in rows) else (high - low) * 0.03
    share = Axis(*(limits or (low - room, high + room)), 0, 1)
    labels = labels_along(share, show)
    lines = [*(_down(at, "grid") for at, _, _ in labels), _down(share(0.0), "zero") if zero else None]
    return _chart(
        key,
        title,
        description,
        *(_interval_row(row, share, lines) for row in rows),
        tag("div", tag("svg", *_along(labels, 13), height=18, class_="track"), class_="row scale"),
        tag("div", tag("span", x_label, class_="across"), class_="row scale") if x_label else None,
    )


def _interval_row(row: Interval, share: Axis, lines: Sequence[Markup | None]) -> Markup:
    middle = _n(ROW_PIXELS / 2)
    bar = None
    if row.solid:
        bar = tag("line", x1=_p(share(0.0)), x2=_p(share(row.value)), y1=middle, y2=middle, class_="solid")
    elif row.ends is not None and all(map(drawable, row.ends)):
        ends = [_p(share(min(max(end, share.low), share.high))) for end in row.ends]
        bar = tag("line", x1=ends[0], x2=ends[1], y1=middle, y2=middle, class_="bar")
    dot = None
    if not row.solid and share.low <= row.value <= share.high:
        dot = tag("circle", cx=_p(share(row.value)), cy=middle, r=5, class_="dot")
    return tag(
        "div",
        tag("span", tag("bdi", words.shorten(row.name, MAX_NAME_LETTERS)), class_="name"),
        tag("span", row.text, class_="told"),
        tag("svg", *lines, bar, dot, height=ROW_PIXELS, class_="track"),
        class_="row faint" if row.faint else "row",
    )


def _chart(key: str, title: str, description: str, *parts: Markup | None) -> Markup:
    return tag(
        "div",
        tag("span", title, id=f"{key}-title", hidden=True),
        tag("span", description, id=f"{key}-desc", hidden=True),
        *parts,
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        class_="chart",
    )


def _key(one: Series) -> Markup:
    """What a line is: a piece of it, and its name."""
    piece = tag("line", x1=0, x2=22, y1=4, y2=4, class_=f"{one.style} colour{one.colour}")
    return tag("span", tag("svg", piece, width=22, height=8, class_="key"), one.name)


def _across(y: float, kind: str) -> Markup:
    return tag("line", x1=0, x2="100%", y1=_n(y), y2=_n(y), class_=kind)


def _down(at: float, kind: str) -> Markup:
    return tag("line", x1=_p(at), x2=_p(at), y1=0, y2=ROW_PIXELS, class_=kind)


def _up(y: Axis, show: Callable[[float], str]) -> list[tuple[float, str]]:
    """Labels of the vertical axis, as many as have room."""
    kept: list[tuple[float, str]] = []
    for tick in y.ticks():
        if not kept or abs(y(tick) - y(kept[-1][0])) >= LABEL_APART_PIXELS:
            kept.append((tick, show(tick)))
    return kept


def _along(labels: Iterable[tuple[float, str, str]], y: int) -> Iterable[Markup]:
    return (tag("text", text, x=_p(at), y=y, class_=f"tick {anchor}") for at, text, anchor in labels)


def _line(one: Series, x: Axis, y: Axis) -> Markup:
    places = [(x(a), y(b)) for a, b in one.points]
    path = "M" + "L".join(f"{_n(a)} {_n(b)}" for a, b in places)
    area = None
    if one.style == "area" and len(places) > 1:
        closed = f"{path}L{_n(places[-1][0])} {_n(y.start)}L{_n(places[0][0])} {_n(y.start)}Z"
        area = tag("path", d=closed, class_=f"fill colour{one.colour}")
    elif one.band:
        area = tag("path", d=_around_line(one, x, y), class_=f"fill colour{one.colour}")
    line = tag("path", d=path, class_=f"{one.style} colour{one.colour}") if len(places) > 1 else None
    return join(area, line)


def _few(one: Series) -> Sequence[Point]:
    """The points of a line that are drawn as dots: those of a short one."""
    return one.points if len(one.points) <= MAX_MARKED_POINTS and one.style != "dashed" else ()


def _dot(at: float, y: float, colour: int) -> Markup:
    return tag("circle", cx=_p(at), cy=_n(y), r=3.5, class_=f"dot colour{colour}")


def _banded(one: Series) -> bool:
    """Whether all of a line and its band can be drawn."""
    return bool(one.band) and all(drawable(value) for point in (*one.points, *one.band) for value in point)


def _around_line(one: Series, x: Axis, y: Axis) -> str:
    ends = [
        [(x(a), y(min(max(b[end], y.low), y.high))) for (a, _), b in zip(one.points, one.band, strict=True)]
        for end in (0, 1)
    ]
    return "M" + "L".join(f"{_n(a)} {_n(b)}" for a, b in (*ends[0], *reversed(ends[1]))) + "Z"


def _n(value: float) -> str:
    """A coordinate: one decimal is finer than a screen."""
    return f"{value:.1f}".removesuffix(".0")


def _p(share: float) -> str:
    """A place across the plot."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"
