"""Charts: every number drawn is finite and inside, long traces are thinned without losing peaks, words say it all."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from noisewise.evidence.report.charts import (
    ACROSS,
    MIN_PLOT_PIXELS,
    PLOT_PIXELS,
    ROW_PIXELS,
    Axis,
    Interval,
    Series,
    finite,
    interval_chart,
    labels_along,
    line_chart,
    linear_ticks,
    log_ticks,
    thinned,
)

NUMBERS = ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r")


def drawn(markup) -> ElementTree.Element:
    """The chart as a tree, with every coordinate finite and inside the picture; percentages are of its width."""
    assert markup is not None
    tree = ElementTree.fromstring(re.sub(r" hidden(?=>)", "", str(markup)))
    for picture in tree.iter("svg"):
        curves = picture.get("viewBox") is not None
        width, height = ACROSS if curves else 100.0, float(picture.get("height"))
        for element in [picture] if curves else list(picture):
            _inside(element, width, height)
        if curves:
            for element in picture:
                _inside(element, width, height)
    return tree


def _inside(element, width, height):
    for name in NUMBERS:
        text = element.get(name)
        if text is not None and element.tag != "svg":
            value = float(text.removesuffix("%"))
            far = name in ("x", "y") and element.tag == "text"  # labels stand beside the plot
            assert math.isfinite(value) and (far or -0.2 <= value <= (height if "y" in name else width) + 0.2), (
                name,
                text,
            )
    for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", element.get("d") or ""):
        assert -0.2 <= float(x) <= width + 0.2 and -0.2 <= float(y) <= height + 0.2


def marks(tree: ElementTree.Element) -> int:
    return sum(element.tag in ("path", "circle", "rect") for element in tree.iter())


def a_line(points, **options) -> ElementTree.Element:
    told = {"title": "Noise", "description": "12 values", "x_label": "step", "y_label": "noise"} | options
    return drawn(line_chart("noise", [Series("noise", points)], **told))


@pytest.mark.parametrize(
    "values",
    [
        [1.0], [0.0], [0.0, 0.0], [5.0] * 30, [-1.0, 1.0], [1e-300, 1e300], [1e-320, 2e-320], [1e15, 1e15 + 1],
        [1, None, math.nan, math.inf, -math.inf, True, "3", 10**400, 2], list(range(1000)), [-5.0, -5.0], [1e-12, 3e-12],
    ],
    ids=lambda values: repr(values)[:20],
)  # fmt: skip
@pytest.mark.parametrize("log", [False, True])
def test_any_values_are_drawn_inside_the_picture(values, log):
    points = list(enumerate(values, 1))
    if log and not any(y > 0 for _, y in finite(points)):
        assert (
            line_chart("a", [Series("s", points)], title="t", description="d", x_label="x", y_label="y", log=True)
            is None
        )
        return
    assert marks(a_line(points, log=log)) >= 1


def test_nothing_to_draw_is_no_chart():
    for points in ([], [(1, math.nan)], [(None, 1)]):
        assert line_chart("a", [Series("s", points)], title="t", description="d", x_label="x", y_label="y") is None
    assert interval_chart("a", [Interval("a", math.nan)], title="t", description="d", x_label="x") is None
    assert interval_chart("a", [], title="t", description="d", x_label="x") is None


def test_a_chart_has_words_for_those_who_do_not_see_it():
    tree = a_line([(1, 1.0), (2, 3.0)])
    assert tree.get("role") == "img"
    ids = tree.get("aria-labelledby").split()
    told = {element.get("id"): element.text for element in tree.iter() if element.get("id")}
    assert [told[one] for one in ids] == ["Noise", "12 values"]
    assert {element.get("id") for element in tree if element.get("id")} == {*ids}, "they stand inside it, unseen"


def test_a_long_trace_is_thinned_and_keeps_its_peaks_and_ends():
    points = [(float(i), math.sin(i)) for i in range(10_000)]
    points[4321] = (4321.0, 50.0)
    points[1234] = (1234.0, -50.0)
    few = thinned(points)
    assert len(few) <= 302 and few == sorted(few)
    assert {points[0], points[-1], points[4321], points[1234]} <= set(few)
    path = next(e for e in a_line(points, y_limits=(-60.0, 60.0)).iter("path")).get("d")
    assert path.count("L") <= 302


def words_of(tree) -> list[str]:
    return [text.strip() for element in tree.iter() for text in (element.text, element.tail) if text and text.strip()]


def test_two_lines_have_a_legend_and_one_has_none():
    both = [Series("mine", [(0, 1), (1, 2)]), Series("pure noise", [(0, 1), (1, 1)], "dashed", 2)]
    tree = drawn(line_chart("a", both, title="t", description="d", x_label="x", y_label="y"))
    assert {"mine", "pure noise"} <= set(words_of(tree)) and any(e.get("class") == "legend" for e in tree.iter())
    assert words_of(a_line([(0, 1), (1, 2)])).count("noise") == 1


def test_intervals_are_drawn_where_they_are():
    rows = [
        Interval("a", 2.0, (1.0, 3.0), "2 ± 1"),
        Interval("b", -1.0, (-3.0, 1.0), "-1 ± 2", faint=True),
        Interval("c", 0.5),
    ]
    tree = drawn(interval_chart("c", rows, title="t", description="d", x_label="value", zero=True))
    lines = [(e.get("class"), *(float(e.get(end).rstrip("%")) for end in ("x1", "x2"))) for e in tree.iter("line")]
    zero = next(x for kind, x, _ in lines if kind == "zero")
    groups = [e for e in tree.iter("div") if (e.get("class") or "").startswith("row")]
    assert [group.get("class") for group in groups] == ["row", "row faint", "row", "row scale", "row scale"]
    ends = [line[1:] for line in lines if line[0] == "bar"]
    assert len(ends) == 2, "no bar without an error"
    assert ends[0][0] > zero and ends[1][0] < zero < ends[1][1], "a bar spans zero where the numbers do"
    dots = [float(dot.get("cx").rstrip("%")) for group in groups for dot in group.iter("circle")]
    assert dots[0] == pytest.approx(sum(ends[0]) / 2, abs=0.1)
    assert all(float(svg.get("height")) == ROW_PIXELS for group in groups[:3] for svg in group.iter("svg"))


def test_what_leaves_the_limits_is_cut():
    rows = [Interval("a", 1.0, (0.5, 1.5)), Interval("far", 3.0, (-50.0, 60.0), faint=True)]
    tree = drawn(interval_chart("c", rows, title="t", description="d", x_label="v", zero=True, limits=(-0.5, 2.0)))
    bars = [e for e in tree.iter("line") if e.get("class") == "bar"]
    assert (bars[1].get("x1"), bars[1].get("x2")) == ("0%", "100%")
    assert marks(tree) == 1, "a value outside has no dot"


def test_solid_bars_start_at_zero():
    rows = [Interval("a", 2.0, text="2", solid=True), Interval("b", 0.5, text="0.5", solid=True)]
    tree = drawn(interval_chart("c", rows, title="t", description="d", x_label="v", zero=True))
    bars = [(e.get("x1"), float(e.get("x2").rstrip("%"))) for e in tree.iter("line") if e.get("class") == "solid"]
    assert [start for start, _ in bars] == ["0%", "0%"] and bars[0][1] == pytest.approx(4 * bars[1][1], abs=0.1)


def test_words_stand_outside_the_plot():
    """Labels of the axes are left of it or below it, and those of rows are no part of the drawing."""
    tree = a_line([(1, 1.0), (2, 3.0)])
    places = [(e.get("x"), float(e.get("y"))) for e in tree.iter("text")]
    assert places and all(x == "-8" or y > PLOT_PIXELS + 10 for x, y in places)
    rows = drawn(interval_chart("c", [Interval("a", 1.0, text="1")], title="t", description="d", x_label="v"))
    for svg in rows.iter("svg"):
        assert not (list(svg.iter("text")) and list(svg.iter("line"))), "words and lines are not in one picture"


@pytest.mark.parametrize("value", [0.0, 1e-300, 7.0, -1e300, 1e15])
def test_a_single_interval_has_room(value):
    rows = [Interval("a", value, (value, value), "x"), Interval("odd", value, (math.nan, math.inf), "y")]
    tree = drawn(interval_chart("c", rows, title="t", description="d", x_label="value", zero=True))
    assert marks(tree) == 2


def test_hostile_names_stay_text_and_fit():
    names = [
        "<script>alert(1)</script>",
        "\"' onload=x",
        "x" * 500,
        "العمر",
        "年齢" * 40,
        "</svg>",
        "a\x00b\u202ec",
        "\ud800",
    ]
    rows = [Interval(name, float(i), (i - 1.0, i + 1.0), "1 ± 1") for i, name in enumerate(names)]
    markup = interval_chart("c", rows, title=names[0], description=names[5], x_label=names[1])
    tree = drawn(markup)
    assert "<script" not in str(markup) and str(markup).count("</svg>") == len(names) + 1  # rows and the axis
    shown = [element[0].text for element in tree.iter("span") if element.get("class") == "name"]
    assert len(shown) == len(names) and all(len(name) <= 61 for name in shown)
    assert str(markup).encode()


def test_ticks_are_round_and_inside():
    for low, high in ((0, 1), (0, 0.00123), (-7, 13), (3, 3.0001), (0, 1e300), (1e-9, 2e-9), (-1e5, -9e4)):
        ticks = linear_ticks(low, high)
        assert 2 <= len(ticks) <= 9 and all(
            low - 1e-9 * abs(low) <= tick <= high * (1 + 1e-9) + 1e-300 for tick in ticks[:-1]
        )
    for low, high in ((1, 10), (0.5, 700), (1e-12, 1e3), (2, 3), (1e-280, 1e280)):
        assert all(low * 0.999 <= tick <= high * 1.001 for tick in log_ticks(low, high))
        assert len(log_ticks(low, high)) <= 10


@pytest.mark.parametrize("ends", [(0, 1), (0, 99_999), (-3, 1e6), (1e-9, 3e-9), (0, 1e15), (2, 3.0001)])
@pytest.mark.parametrize("show", [lambda x: f"{x:,.12g}", lambda x: f"{100 * x:.0f} %"])
def test_labels_of_an_axis_keep_their_distance_on_the_narrowest_plot(ends, show):
    labels = labels_along(Axis(*map(float, ends), 0, 1), show)
    assert labels
    free = -math.inf
    for at, text, anchor in labels:
        left = at * MIN_PLOT_PIXELS - {"start": 0, "middle": 0.5, "end": 1}[anchor] * 7 * len(text)
        assert left > free + 5 and 0 <= at <= 1
        free = left + 7 * len(text)
