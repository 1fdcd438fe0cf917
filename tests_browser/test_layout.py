"""The report of five different runs as a reader sees it: no word on another or on a line, readable colours, few pages."""

from __future__ import annotations

import re

import layout
import pytest
from five_runs import NAMES
from screens import keep, paper, show

WIDTHS = (1280, 768, 390)
PAPER = 688  # pixels of A4 between its margins


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("folded", [True, False])
def test_no_word_meets_another_or_a_line(browser, five, name, width, folded):
    show(browser, five[name], width=width)
    if not folded:
        layout.opened(browser)
    keep(browser, f"{name}-{width}{'' if folded else '-open'}")
    assert layout.measured(browser, layout.WORDS_ON_WORDS) == []
    assert layout.measured(browser, layout.WORDS_ON_DRAWINGS) == []
    assert layout.measured(browser, layout.WORDS_ON_BORDERS) == []
    assert layout.measured(browser, layout.BEYOND) == []
    assert layout.measured(browser, layout.SIDEWAYS) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dark", [False, True])
def test_every_word_stands_out(browser, five, name, dark):
    show(browser, five[name], width=768, dark=dark)
    layout.opened(browser)
    keep(browser, f"{name}-768-{'dark' if dark else 'light'}")
    assert len(layout.said(browser)) > 2_000
    assert layout.measured(browser, layout.FAINT) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_prints_on_six_pages_without_raw_json(browser, five, name):
    show(browser, five[name], width=PAPER, dark=True, media="print")
    printed = layout.said(browser)
    assert "How it was done" in printed and "Settings that were used" in printed and "clip norm" in printed
    assert '"format"' not in printed and '": ' not in printed, "JSON is not for paper"
    assert layout.measured(browser, layout.WORDS_ON_WORDS) == []
    assert layout.measured(browser, layout.WORDS_ON_DRAWINGS) == []
    assert layout.measured(browser, layout.WORDS_ON_BORDERS) == []
    assert layout.measured(browser, layout.FAINT) == []
    pages = re.findall(rb"/Type\s*/Page\b(?!s)", paper(browser, five[name], kept=name))
    assert 2 <= len(pages) <= 6


@pytest.mark.parametrize("name", NAMES)
def test_contents_lead_to_every_part_and_open_it(browser, five, name):
    show(browser, five[name], width=768)
    titles = browser.execute_script("return Array.from(document.querySelectorAll('h2')).map(h => h.textContent)")
    assert titles == ["How good the model is", "What it found", "What is promised", "How it was done"]
    links = browser.execute_script(
        "return Array.from(document.querySelectorAll('nav a')).map(a => a.getAttribute('href'))"
    )
    assert len(links) == len({*links}) >= 9 and all(link.startswith("#") for link in links)
    for link in links:
        browser.execute_script("document.querySelector(`nav a[href='${arguments[0]}']`).click()", link)
        seen = browser.execute_script("return document.querySelector(arguments[0]).checkVisibility()", link)
        assert seen, f"{link} leads to something that is there, and opens it"
    folded = browser.execute_script("return Array.from(document.querySelectorAll('#how ~ details')).map(d => d.open)")
    assert folded and all(folded), "every fold of how it was done is in the contents"


def test_how_it_was_done_is_folded_at_first(browser, five):
    show(browser, five["classes"], width=1280)
    said = layout.said(browser)
    assert "Settings that were used" in said and "clip norm" not in said


def test_the_title_says_data_target_date_quality_and_budget(browser, five):
    show(browser, five["classes"], width=1280)
    head = browser.execute_script("return document.querySelector('header').innerText")
    for part in ("income", "people.csv", "20", "accuracy", "epsilon", "one answer for all"):
        assert part in head
    assert re.fullmatch(r"income from people\.csv, \d+ \w+ \d{4}, accuracy [\d.]+.%, \(1, 10⁻⁶\)-DP", browser.title)
    show(browser, five["perceptron"], width=1280)
    assert "quality not measured" in browser.title and "noisewise evaluate" in layout.said(browser)


@pytest.mark.parametrize("name", NAMES)
def test_charts_use_the_width(browser, five, name):
    show(browser, five[name], width=1280)
    found = browser.execute_script(
        "return Array.from(document.querySelectorAll('.charts')).filter(e => e.checkVisibility()).map(e => {"
        " const r = e.getBoundingClientRect(), last = Array.from(e.children).map(c => c.getBoundingClientRect());"
        " const bottom = Math.max(...last.map(b => b.top)), row = last.filter(b => b.top > bottom - 2);"
        " return Math.max(...row.map(b => b.right)) - r.right; })"
    )
    assert found and all(abs(gap) < 2 for gap in found), "the last row of cards reaches the right margin"
    parts = browser.execute_script(
        "return Array.from(document.querySelectorAll('.plot')).filter(e => e.checkVisibility())"
        ".map(e => e.getBoundingClientRect().width / e.closest('.chart').getBoundingClientRect().width)"
    )
    assert all(share > 0.75 for share in parts)
