"""HTML and SVG that is escaped by default: only what ``tag`` made is markup, everything else is text.

Names of columns and categories come from strangers' files: they are text, whatever they look like.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

VOID = {"meta", "br"}
MAX_PAPER_PICTURES = 9  # the style sheet leaves out the others
MAX_OPEN_ROWS = 6  # of a table that grows with time


class Markup(str):
    """A string that is already escaped; made by :func:`tag` and :func:`join` only, or from the package's own files."""

    __slots__ = ()


TURNS = {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"}  # would reorder what stands beside them


def clean(value: Any) -> str:
    """Text for people: control characters, half characters and marks that turn the direction become visible.

    >>> clean("pay\\u202egpj.exe\\x00")
    'pay\ufffdgpj.exe\ufffd'
    """
    return "".join(
        "\ufffd"
        if letter in TURNS or (unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t")
        else letter
        for letter in str(value)
    )


def escape(value: Any) -> Markup:
    """Markup as it is, all else as escaped text.

    >>> escape("<b>")
    '&lt;b&gt;'
    """
    return value if isinstance(value, Markup) else Markup(html.escape(clean(value), quote=True))


def join(*children: Any) -> Markup:
    """Children one after another; None is left out."""
    return Markup("".join(escape(child) for child in children if child is not None))


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element. ``class_`` is the attribute class, other underscores are hyphens; None leaves an attribute out.

    >>> tag("p", "1 < 2", class_="note")
    '<p class="note">1 &lt; 2</p>'
    """
    pairs = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    opening = name + "".join(f" {key}" if value is True else f' {key}="{escape(value)}"' for key, value in pairs)
    return Markup(f"<{opening}>" if name in VOID else f"<{opening}>{join(*children)}</{name}>")


def name_of(value: Any) -> Markup:
    """A name in a running text: its own direction stays inside it."""
    return tag("bdi", value)


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], numeric: Sequence[int] = (), wide: bool = False
) -> Markup:
    """A table; ``numeric`` columns go to the right, and one that is ``wide`` becomes a list of cards on a phone."""

    def cells(kind: str, row: Sequence[Any]) -> Markup:
        made = []
        for i, cell in enumerate(row):
            label, right = heads[i] if kind == "td" else None, "number" if i in numeric else None
            made.append(tag(kind, tag("div", cell), data_label=label, class_=right))
        return tag("tr", *made)

    body = tag("tbody", *(cells("td", row) for row in rows))
    inside = tag("table", tag("thead", cells("th", heads)), body, class_="wide" if wide else None)
    return tag("div", inside, class_="scroll")


def latest_first(heads: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[int], what: str) -> Markup:
    """A table of what came one after another, the latest first; all but the last few are folded."""
    recent, earlier = rows[: -MAX_OPEN_ROWS - 1 : -1], rows[: max(len(rows) - MAX_OPEN_ROWS, 0)][::-1]
    summary = tag("summary", f"{len(earlier):,} earlier {what}")
    older = tag("details", summary, table(heads, earlier, numeric, wide=True), class_="unprinted")
    return join(table(heads, recent, numeric, wide=True), older if earlier else None)


def figure(title: Any, chart: Markup | None, caption: Any = None, key: str | None = None) -> Markup | None:
    """A card: a heading, a chart or a table, and words below it; links go to one that has a key."""
    if chart is None:
        return None
    below = None if caption is None else tag("figcaption", caption)
    return tag("figure", tag("h4", title), chart, below, id=key)


def charts(*figures: Markup | None, kind: str | None = None) -> Markup | None:
    """Cards side by side, two or more in a row; one that would stay alone is wider.

    ``kind``: "pictures" are alike and stand three in a row, "figures" keep their own height.
    """
    shown = [one for one in figures if one is not None]
    cards = tag("div", *shown, class_=f"charts {kind}" if kind else "charts") if shown else None
    if kind != "pictures" or len(shown) <= MAX_PAPER_PICTURES:
        return cards
    words = f"The first {MAX_PAPER_PICTURES} of {len(shown)}; the others are on the screen."
    return join(cards, tag("p", words, class_="soft paper"))


def listed(title: str, items: Iterable[Any]) -> Markup:
    return tag("div", tag("h4", title), tag("ul", *(tag("li", item) for item in items)))


@dataclass(frozen=True)
class SectionPart:
    """A part of a section under a heading of its own; a folded one opens on a click, and not all are for paper."""

    key: str
    title: str
    body: Markup
    folded: bool = False
    printed: bool = True

    def drawn(self) -> Markup:
        if not self.folded:
            return join(tag("h3", self.title, id=self.key), self.body)
        inside = tag("div", self.body, id=self.key)  # a link to it opens what it lies in
        return tag("details", tag("summary", self.title), inside, class_="fold" if self.printed else "fold unprinted")


@dataclass(frozen=True)
class Section:
    """An answer to one reader's question: words, and parts."""

    key: str
    title: str
    lead: Markup
    parts: tuple[SectionPart, ...]
    cards: tuple[tuple[str, str], ...] = ()  # keys and titles of what the lead shows

    def drawn(self) -> Markup:
        return tag("section", tag("h2", self.title, id=self.key), self.lead, *(part.drawn() for part in self.parts))


def section(
    key: str, title: str, lead: Markup, *parts: SectionPart | None, cards: Mapping[str, str] | None = None
) -> Section:
    """A section of the parts that there are, with links to those ``cards`` of its lead that there are."""
    there = tuple((name, words) for name, words in (cards or {}).items() if f' id="{name}"' in lead)
    return Section(key, title, lead, tuple(part for part in parts if part is not None), there)


def contents(sections: Sequence[Section]) -> Markup:
    """Links to all sections and their parts."""

    def link(key: str, title: str) -> Markup:
        return tag("a", title, href=f"#{key}")

    def entry(one: Section) -> Markup:
        inside = [*one.cards, *((part.key, part.title) for part in one.parts)]
        return tag("li", link(one.key, one.title), tag("ul", *(tag("li", link(*place)) for place in inside)))

    return tag("nav", tag("ol", *map(entry, sections)), aria_label="Contents", class_="contents")


# The frame of every page: one HTML document that fetches nothing and runs nothing.


# Even if something slipped through the escaping, a browser would neither run nor fetch it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def document(title: str, *body: Markup | None) -> str:
    """A whole page with our style sheet in it."""
    style = Markup(files(__package__).joinpath("page.css").read_text(encoding="utf-8"))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', *body), lang='en')}\n"
