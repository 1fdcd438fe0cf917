"""HTML and SVG that is escaped by default: only what ``tag`` made is markup, everything else is text.

Names of columns and categories come from strangers' files: they are text, whatever they look like.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

VOID = {"meta", "br"}


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
        places = ((cell, heads[i] if kind == "td" else None, i in numeric) for i, cell in enumerate(row))
        return tag(
            "tr",
            *(
                tag(kind, tag("div", cell), data_label=head, class_="number" if right else None)
                for cell, head, right in places
            ),
        )

    body = tag("tbody", *(cells("td", row) for row in rows))
    inside = tag("table", tag("thead", cells("th", heads)), body, class_="wide" if wide else None)
    return tag("div", inside, class_="scroll")


def figure(title: str, chart: Markup | None, caption: Any) -> Markup | None:
    return None if chart is None else tag("figure", tag("h3", title), chart, tag("figcaption", caption))


def section(title: str, *parts: Any) -> Markup:
    return tag("section", tag("h2", title), *parts)


def aside(*parts: Any) -> Markup:
    """Words beside a chart; text is a paragraph of its own."""
    return tag("div", *(part if isinstance(part, Markup) or part is None else tag("p", part) for part in parts))


def charts(*figures: Markup | None) -> Markup | None:
    shown = [one for one in figures if one is not None]
    return tag("div", *shown, class_="charts") if shown else None
