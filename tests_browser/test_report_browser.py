"""The report in headless Chromium: it renders, narrow and wide, light and dark, on screen and in print, alone.

Run by ``make test-browser``, which installs Chromium. With SCREENSHOTS=FOLDER the pictures are kept there.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import layout
import pytest
from screens import keep, paper, show
from selenium import webdriver

from noisewise.evidence import runs
from noisewise.evidence.report.page import write_report

ROOT = Path(__file__).parent.parent
VIEWS = [(width, dark) for width in (1280, 360) for dark in (False, True)]
CHARTS = {"comparison", "coefficients", "beliefs", "trade-off", "norm"}

LOOK = """
const numbers = ['d', 'x', 'y', 'x1', 'x2', 'y1', 'y2', 'cx', 'cy', 'r', 'points', 'viewBox'];
return Array.from(document.querySelectorAll('[role=img]')).map(chart => {
  const marks = Array.from(chart.querySelectorAll('path, rect, circle, line.solid'));
  const broken = Array.from(chart.querySelectorAll('svg, svg *')).filter(e => Array.from(e.attributes).some(
    a => numbers.includes(a.name) && /NaN|Infinity|undefined/.test(a.value)));
  const boxes = marks.map(e => e.getBBox());
  const card = chart.closest('figure').getBoundingClientRect();
  const texts = Array.from(chart.querySelectorAll('text, span:not([hidden]), div.label')).filter(e => e.textContent.trim());
  const by = chart.getAttribute('aria-labelledby').split(' ');
  return {
    key: by[0].replace('-title', ''),
    told: by.map(id => document.getElementById(id).textContent),
    marks: marks.length,
    broken: broken.length,
    drawn: boxes.filter(b => [b.x, b.y, b.width, b.height].every(Number.isFinite) && b.width + b.height > 0).length,
    width: card.width,
    letters: Math.min(...texts.map(t => parseFloat(getComputedStyle(t).fontSize))),
    outside: texts.filter(t => { const r = t.getBoundingClientRect();
      return r.left < card.left || r.right > card.right || r.top < card.top || r.bottom > card.bottom; })
      .map(t => t.textContent),
  };
});
"""


def fixtures() -> Any:
    spec = importlib.util.spec_from_file_location("report_fixtures", ROOT / "tests" / "report" / "conftest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A usual run, and one whose names try to break the page and whose trace is long."""
    made = fixtures()
    usual = made.make_run(tmp_path_factory.mktemp("usual") / "run", rows=20_000, steps=None, repeats=3)
    hostile = made.make_run(tmp_path_factory.mktemp("hostile") / "run")
    run = json.loads((hostile / "run.json").read_text(encoding="utf-8"))
    names = ["<script>document.title='broken'</script>", "\"' onload=x()", "x" * 500, "العمر بالسنوات 42", "年齢" * 40]
    names += ["pay\u202egpj.exe", "</svg></title></style><img src=http://localhost:9/x onerror=alert(1)>"]
    for row, name in zip(run["coefficients"], names, strict=False):
        row["feature"] = name
    run["target"], run["warnings"], run["data"] = names[-1], names, names
    made.dump(hostile / "run.json", run)
    trace = json.loads((hostile / "trace.json").read_text(encoding="utf-8"))
    first = trace["rows"][-1]
    trace["rows"] = [first | {"norm": 1 + (i % 97) / 97, "spent": i / 10_000} for i in range(1, 10_001)]
    made.dump(hostile / "trace.json", trace)
    runs.reseal(hostile)
    return {"usual": write_report(usual, None), "hostile": write_report(hostile, None)}


def told(browser: webdriver.Chrome) -> tuple[list[str], list[str]]:
    """What the console said, and which addresses were asked for."""
    console = [line["message"] for line in browser.get_log("browser")]
    events = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return console, asked


@pytest.mark.parametrize("which", ["usual", "hostile"])
@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_it_renders(browser, pages, which, width, dark):
    told(browser)  # what was said before is not about this page
    show(browser, pages[which], width=width, dark=dark)
    name = f"{which}-{width}-{'dark' if dark else 'light'}"
    assert len(keep(browser, name)) > 20_000, "an empty page compresses to less"
    console, asked = told(browser)
    assert console == []
    assert asked == [pages[which].as_uri()], "the page fetches nothing"
    assert browser.title.endswith("(1.1, 1.1\u00a0\u00d7\u00a010⁻⁶)-DP")
    across = browser.execute_script("return document.documentElement.scrollWidth")
    assert across <= width, "nothing to scroll sideways"


@pytest.mark.parametrize("which", ["usual", "hostile"])
@pytest.mark.parametrize("width", [1280, 360])
def test_every_chart_has_data_and_words(browser, pages, which, width):
    show(browser, pages[which], width=width)
    layout.opened(browser)
    found = browser.execute_script(LOOK)
    assert {chart["key"] for chart in found} == CHARTS
    for chart in found:
        assert all(len(words) > 3 for words in chart["told"]) and any(c.isdigit() for c in chart["told"][1]), chart
        assert chart["marks"] >= 1 and chart["drawn"] == chart["marks"] and chart["broken"] == 0, chart
        assert chart["letters"] >= 10, "letters of 10 pixels are the least one can read"
        assert chart["outside"] == [], "a label sticks out of its card"
        assert chart["width"] <= width


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_names_of_strangers_meet_nothing_either(browser, pages, width):
    show(browser, pages["hostile"], width=width)
    layout.opened(browser)
    keep(browser, f"hostile-{width}-open")
    for question in (layout.WORDS_ON_WORDS, layout.WORDS_ON_DRAWINGS, layout.WORDS_ON_BORDERS, layout.BEYOND):
        assert layout.measured(browser, question) == []


def test_colours_follow_the_scheme_and_print_is_light(browser, pages):
    def background() -> str:
        return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

    show(browser, pages["usual"], width=1280)
    light = background()
    show(browser, pages["usual"], width=1280, dark=True)
    dark = background()
    show(browser, pages["usual"], width=794, dark=True, media="print")
    keep(browser, "usual-print")
    assert light != dark and background() == "rgb(255, 255, 255)"
    assert paper(browser, pages["usual"], kept="usual").startswith(b"%PDF")


def test_the_banner_of_a_simulation_is_seen_first(browser, pages):
    for width in (1280, 360):
        show(browser, pages["usual"], width=width)
        box = browser.execute_script("return document.querySelector('.banner').getBoundingClientRect().toJSON()")
        assert box["top"] == 0 and box["width"] == width and box["height"] > 60


def test_details_open_without_a_script(browser, pages):
    show(browser, pages["usual"], width=360)
    assert browser.execute_script("return document.scripts.length") == 0
    closed = browser.execute_script("return document.documentElement.scrollHeight")
    for summary in browser.find_elements("tag name", "summary"):
        summary.click()
    assert browser.execute_script("return document.documentElement.scrollHeight") > closed + 500
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    keep(browser, "usual-360-open")
