"""The report in headless Chromium: it renders, narrow and wide, light and dark, on screen and in print, alone.

Run by ``make test-browser``, which installs Chromium. With SCREENSHOTS=FOLDER the pictures are kept there.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from noisewise import runs
from noisewise.report.page import write_report

ROOT = Path(__file__).parent.parent
VIEWS = [(width, scheme) for width in (1280, 360) for scheme in ("light", "dark")]
CHARTS = {"trade-off", "budget", "noise", "clip", "norm", "coefficients", "comparison"}

LOOK = """
const finite = text => text.split(/[^0-9eE.+-]+/).filter(x => x && isNaN(parseFloat(x)) === false).length;
return Array.from(document.querySelectorAll('svg')).map(svg => {
  const marks = Array.from(svg.querySelectorAll('path, rect, circle'));
  const broken = Array.from(svg.querySelectorAll('*')).filter(e => Array.from(e.attributes).some(
    a => ['d','x','y','x1','x2','y1','y2','cx','cy','r','points','viewBox'].includes(a.name) && /NaN|Infinity|undefined/.test(a.value)));
  const boxes = marks.map(e => e.getBBox());
  const box = svg.getBoundingClientRect();
  const texts = Array.from(svg.querySelectorAll('text'));
  const by = svg.getAttribute('aria-labelledby').split(' ');
  return {
    key: by[0].replace('-title', ''),
    role: svg.getAttribute('role'),
    told: by.map(id => document.getElementById(id).textContent),
    marks: marks.length,
    broken: broken.length,
    drawn: boxes.filter(b => [b.x, b.y, b.width, b.height].every(Number.isFinite) && b.width + b.height > 0).length,
    width: box.width,
    letters: Math.min(...texts.map(t => parseFloat(getComputedStyle(t).fontSize))) * box.width / svg.viewBox.baseVal.width,
    outside: texts.filter(t => { const r = t.getBoundingClientRect();
      return r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1; })
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
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


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
    run["target"], run["warnings"] = names[-1], names
    made.dump(hostile / "run.json", run)
    trace = json.loads((hostile / "trace.json").read_text(encoding="utf-8"))
    first = trace["rows"][-1]
    trace["rows"] = [first | {"norm": 1 + (i % 97) / 97, "spent": i / 10_000} for i in range(1, 10_001)]
    made.dump(hostile / "trace.json", trace)
    runs.reseal(hostile)
    return {"usual": write_report(usual, None), "hostile": write_report(hostile, None)}


def shown(browser: webdriver.Chrome, page: Path, width: int, scheme: str, media: str = "screen") -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())


def keep(browser: webdriver.Chrome, name: str) -> bytes:
    """A picture of the whole page, also written down when asked for."""
    size = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    picture = base64.b64decode(shot["data"])
    if folder := os.environ.get("SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.png").write_bytes(picture)
    return picture


def told(browser: webdriver.Chrome) -> tuple[list[str], list[str]]:
    """What the console said, and which addresses were asked for."""
    console = [line["message"] for line in browser.get_log("browser")]
    events = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return console, asked


@pytest.mark.parametrize("which", ["usual", "hostile"])
@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_it_renders(browser, pages, which, width, scheme):
    shown(browser, pages[which], width, scheme)
    assert len(keep(browser, f"{which}-{width}-{scheme}")) > 20_000, "an empty page compresses to less"
    console, asked = told(browser)
    assert console == []
    assert asked == [pages[which].as_uri()], "the page fetches nothing"
    assert browser.title.startswith("Privacy report: ")
    across = browser.execute_script("return document.documentElement.scrollWidth")
    assert across <= width, "nothing to scroll sideways"


@pytest.mark.parametrize("which", ["usual", "hostile"])
@pytest.mark.parametrize("width", [1280, 360])
def test_every_chart_has_data_and_words(browser, pages, which, width):
    shown(browser, pages[which], width, "light")
    found = browser.execute_script(LOOK)
    assert {chart["key"] for chart in found} == CHARTS
    for chart in found:
        assert chart["role"] == "img"
        assert all(len(words) > 3 for words in chart["told"]) and any(c.isdigit() for c in chart["told"][1]), chart
        assert chart["marks"] >= 1 and chart["drawn"] == chart["marks"] and chart["broken"] == 0, chart
        assert chart["letters"] >= 10, "letters of 10 pixels are the least one can read"
        assert chart["outside"] == [], "a label sticks out of its chart"
        assert chart["width"] <= width


def test_colours_follow_the_scheme_and_print_is_light(browser, pages):
    def background() -> str:
        return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

    shown(browser, pages["usual"], 1280, "light")
    light = background()
    shown(browser, pages["usual"], 1280, "dark")
    dark = background()
    shown(browser, pages["usual"], 794, "dark", media="print")
    keep(browser, "usual-print")
    assert light != dark and background() == "rgb(255, 255, 255)"
    paper = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])
    assert paper.startswith(b"%PDF")
    if folder := os.environ.get("SCREENSHOTS"):
        (Path(folder) / "usual.pdf").write_bytes(paper)


def test_the_banner_of_a_simulation_is_seen_first(browser, pages):
    for width in (1280, 360):
        shown(browser, pages["usual"], width, "light")
        box = browser.execute_script("return document.querySelector('.banner').getBoundingClientRect().toJSON()")
        assert box["top"] == 0 and box["width"] == width and box["height"] > 60


def test_details_open_without_a_script(browser, pages):
    shown(browser, pages["usual"], 360, "light")
    assert browser.execute_script("return document.scripts.length") == 0
    closed = browser.execute_script("return document.documentElement.scrollHeight")
    for summary in browser.find_elements("tag name", "summary"):
        summary.click()
    assert browser.execute_script("return document.documentElement.scrollHeight") > closed + 500
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    keep(browser, "usual-360-open")
