"""Schemas as the text of a TOML file, with comments where something is still to be filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any


def lines_of(column: Any, declared: Mapping[str, Any], target: bool) -> Iterator[str]:
    """The lines of one column below its name; ``declared``: what it says."""
    if column.note:
        yield f"# {one_line(column.note)}"
    for name, value in declared.items():
        hint = "  # number, category or ignore" if name == "kind" and value == "" else ""
        hint = "  # category (classes) or number" if hint and target else hint
        yield f"{name} = {_value(value)}{hint}"
    if column.kind == "number":
        yield from [
            f"# {end} =   # the {word} value there can be; do not look it up in private rows"
            for end, word in (("low", "smallest"), ("high", "largest"))
            if getattr(column, end) is None
        ]
    if column.kind == "category" and not column.categories:
        yield '# categories = ["...", "..."]   # every value there can be'


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def text_of(text: str) -> str:
    """A basic string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", escaped) + '"'


def bare_or_quoted(name: str) -> str:
    """The name of a column as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else text_of(name)


def one_line(text: str) -> str:
    """The text without line ends and other letters that do not show."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
