"""What a page would fetch from elsewhere. The site has to work without a network, so there may be nothing of the kind.

Links that a reader may follow, to a paper or a project, are no assets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

ELSEWHERE = re.compile(r"\s*(?:[a-z]+:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"(?:@import\s+|url\(\s*)(?:url\(\s*)?[\"']?((?:https?:)?//[^\"')\s;]+)", re.IGNORECASE)
FETCHED = {"src", "srcset", "poster", "data", "xlink:href"}


class Tags(HTMLParser):
    """Addresses that the tags of a page fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            fetched = name in FETCHED or (tag == "link" and name == "href")
            if value and fetched and ELSEWHERE.match(value):
                self.found.append(value)


def fetched_by(text: str, kind: str) -> list[str]:
    """What a page (``.html``), a drawing (``.svg``) or a style sheet (``.css``) takes from elsewhere.

    >>> fetched_by('<a href="https://a.org">a</a> <img src="//b.org/b.png"> <style>@import "https://c.org/c.css"</style>', ".html")
    ['//b.org/b.png', 'https://c.org/c.css']
    """
    tags = Tags()
    if kind != ".css":
        tags.feed(text)
    return [*tags.found, *IN_STYLES.findall(text)]


def foreign_assets(site: Path) -> Iterator[str]:
    """Every address that a file of the site fetches from elsewhere, with the name of the file."""
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".svg", ".css"):
            for address in fetched_by(path.read_text(encoding="utf-8"), path.suffix):
                yield f"{path.relative_to(site)}: {address}"
