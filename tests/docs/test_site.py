"""The site's menu names every page once, and its reference every public name; mkdocs need not be installed."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from pages import ROOT

import noisewise
from noisewise.trusted.losses import LOSSES

CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
MADE = {"index.md", "changelog.md", "laboratory.md"}  # of README, CHANGELOG and lab/README while the site is built


def in_nav(config: str) -> list[str]:
    return re.findall(r"^ +- .*?([\w/-]+\.md)$", config.partition("\nnav:\n")[2], re.MULTILINE)


def in_docs() -> set[str]:
    """Pages of docs, and those that notebooks become."""
    found = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    return {path.relative_to(ROOT / "docs").with_suffix(".md").as_posix() for path in found}


def test_nav_names_every_page_once():
    named = in_nav(CONFIG)
    assert not [page for page, times in Counter(named).items() if times > 1]
    assert {*named} == in_docs() | MADE, "name a new page in nav of mkdocs.yml"


def test_a_page_that_is_forgotten_or_named_twice_would_be_seen():
    config = "theme: a.md\n\nnav:\n  - Start: index.md\n  - More:\n      - 'One: two': more/one-two.md\n      - more/one-two.md\n"
    assert in_nav(config) == ["index.md", "more/one-two.md", "more/one-two.md"]


def test_no_page_of_docs_stands_where_one_is_made():
    assert not in_docs() & MADE


def test_a_strict_build_looks_at_links_and_anchors():
    for what in ("omitted_files", "not_found", "anchors", "absolute_links", "unrecognized_links"):
        assert re.search(rf"^    {what}: warn$", CONFIG, re.MULTILINE), what
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text(encoding="utf-8")


REFERENCE = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "reference").glob("*.md")))
DESCRIBED = {*re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE)}


@pytest.mark.parametrize("name", noisewise.__all__)
def test_the_reference_has_every_public_name(name):
    assert f"noisewise.{name}" in DESCRIBED, "add ::: noisewise.NAME to a page of docs/reference"


def test_the_reference_has_every_loss():
    assert {f"noisewise.trusted.losses.{type(loss).__name__}" for loss in LOSSES.values()} <= DESCRIBED


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "results").glob("*.md")), ids=lambda page: page.stem)
def test_a_page_of_results_names_the_commit_that_it_was_recorded_with(page):
    assert re.search(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7}\b", page.read_text())
