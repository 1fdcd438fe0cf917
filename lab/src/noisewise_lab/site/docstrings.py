"""Docstrings as Markdown: they are written for readers of code, with examples as doctests and names as Sphinx marks them."""

from __future__ import annotations

import re
from typing import Any

EXAMPLE = re.compile(r"(?:^|(?<=\n))>>> .*?(?=\n\s*\n|\Z)", re.DOTALL)
STAR = re.compile(
    r"`+[^`]*`+|^(?: {4}|>>>).*$|(?<![*\w])([A-Za-z])\*(?!\*)", re.MULTILINE
)  # f* in a sentence: a minimum
NAMED = re.compile(r"^(?=``\w+``: )", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):(?=`)")


def as_markdown(text: str) -> str:
    """A docstring whose examples are blocks of code.

    >>> as_markdown(":func:`one` gives::\\n\\n    1\\n\\n>" ">> one()\\n1").splitlines()
    ['`one` gives:', '', '    1', '', '```pycon', '>>> one()', '1', '```']
    >>> as_markdown("*Gap*: f - f* (``f*``).\\n``size``: 1").splitlines()
    ['*Gap*: f - f\\\\* (``f*``).', '', '- ``size``: 1']
    """
    text = NAMED.sub("\n- ", STAR.sub(lambda found: f"{found[1]}\\*" if found[1] else found[0], text))
    text = re.sub(r"::[ \t]*$", ":", ROLE.sub("", text), flags=re.MULTILINE)
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```", text)


def _extension() -> type:
    try:
        from griffe import Extension
    except ImportError:  # tests read this file without the packages of the site
        return object
    return Extension


class ForReaders(_extension()):  # type: ignore[misc]
    """What griffe calls with everything that it has read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
