"""Inputs made of valid ones: bytes flipped, cut and repeated; fields of documents dropped, swapped and replaced."""

from __future__ import annotations

import copy
import json
import math
from random import Random
from typing import Any

INTERESTING = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xff", b'"', b"'", b"\\", b"\r", b"\n", b"\r\n", b",", b";", b"\t",
    b"[", b"]", b"{", b"}", b"[[", b'"""', b"nan", b"inf", b"-0", b"1e999", b"9" * 40, b"..", b"/", b"\x1b[2J", b"%s", b"=", b"#",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 2**31, 2**63, -(2**63) - 1, 10**40, 10**400, 0.0, -0.0, 5e-324, 1e-300, 1e308, 1.7e308, math.inf, -math.inf, math.nan,
    0.1, 0.5, 1e-6, 1e-15, 1e6, 1e6 + 1, 499.9, 3.0,
)  # fmt: skip
TEXTS = (
    "", " ", "\0", "a\nb", "a\x1b[31m", "..", "../../etc/passwd", "/etc/passwd", "\u202e", "\ud800", "nan", "1e5", "x" * 3000,
    "number", "category", "ignore", "1920-01-01", "years", "gdp", "add_remove", "<script>", "{", "é", "01", "True",
)  # fmt: skip
SHALLOW = 30


def scalar(rng: Random) -> Any:
    """A number, a text or a constant that parsers stumble over."""
    kind = rng.random()
    if kind < 0.45:
        return rng.choice(NUMBERS)
    if kind < 0.8:
        return rng.choice(TEXTS)
    if kind < 0.9:
        return rng.uniform(-10, 10) if rng.random() < 0.5 else rng.randrange(-100, 100)
    return rng.choice((None, True, False))


def odd(rng: Random, depth: int = 0) -> Any:
    """A scalar, or a small list or object of such."""
    kind = rng.random()
    if kind < 0.7 or depth > 2:
        return scalar(rng)
    if kind < 0.85:
        return [odd(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(TEXTS): odd(rng, depth + 1) for _ in range(rng.randrange(3))}


def deep(rng: Random) -> Any:
    """Lists and objects in each other, deeper than a parser of Python goes."""
    nested: Any = 0
    for _ in range(rng.choice((5, 60, 300, 900))):
        nested = [nested] if rng.random() < 0.1 else {"kind": "Repeated", "count": 1, "event": nested}
    return nested


def flipped(content: bytes, rng: Random) -> bytes:
    """A few edits of bytes."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at, kind = rng.randrange(len(made) + 1), rng.randrange(7)
        if kind == 0 and at < len(made):
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(made):
            made[at] = rng.randrange(256)
        elif kind == 2:
            made[at:at] = rng.choice(INTERESTING)
        elif kind == 3:
            del made[at : at + rng.choice((1, 1, 2, 7, 40))]
        elif kind == 4:
            made[at:at] = made[at : at + rng.randrange(1, 40)]
        elif kind == 5:
            del made[at:]
        else:
            other = rng.randrange(len(made) + 1)
            made[at : at + 8] = made[other : other + rng.randrange(16)]
    return bytes(made)


def places(document: Any, depth: int = 0) -> list[tuple[Any, Any]]:
    """Every container of a document with each of its keys."""
    found: list[tuple[Any, Any]] = []
    if depth > SHALLOW or not isinstance(document, dict | list):
        return found
    for key in document if isinstance(document, dict) else range(len(document)):
        found.append((document, key))
        found += places(document[key], depth + 1)
    return found


def reshaped(document: Any, rng: Random) -> Any:
    """A copy of a document in which fields were replaced, dropped, added, swapped or moved."""
    made = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        all_of_them = places(made)
        if not all_of_them or rng.random() < 0.01:
            return odd(rng)
        inside, key = rng.choice(all_of_them)
        kind = rng.random()
        if kind < 0.55:
            inside[key] = _near(inside[key], rng)
        elif kind < 0.7:
            del inside[key]
        elif kind < 0.8:
            other, its_key = rng.choice(all_of_them)
            inside[key] = copy.deepcopy(other[its_key])
        elif isinstance(inside, dict):
            inside[rng.choice(TEXTS) if rng.random() < 0.5 else str(rng.choice(all_of_them)[1])] = odd(rng)
        else:
            inside.insert(key, odd(rng) if rng.random() < 0.5 else copy.deepcopy(inside[key]))
    return made


def _near(value: Any, rng: Random) -> Any:
    """Something else, often of the same kind and close by."""
    if rng.random() < 0.5:
        return odd(rng)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-1, 1, 1000, -1000))
    if isinstance(value, float):
        return rng.choice(
            (math.nextafter(value, math.inf), math.nextafter(value, -math.inf), value * 2, -value, value + 1e-9)
        )
    if isinstance(value, str):
        return flipped(value.encode("utf-8", "surrogatepass"), rng).decode("utf-8", "replace")
    return odd(rng)


def as_json(document: Any, rng: Random) -> bytes:
    """The document as JSON, now and then with flipped bytes, or nested deeply; lone surrogates as JSON escapes them."""
    if rng.random() < 0.003 and isinstance(document, dict | list) and (found := places(document)):
        inside, key = rng.choice(found)
        inside[key] = deep(rng)
    content = json.dumps(document, ensure_ascii=rng.random() < 0.7).encode("utf-8", "replace")
    return flipped(content, rng) if rng.random() < 0.2 else content


def as_toml(document: Any, rng: Random) -> bytes:
    """The document as TOML, of which it need not be all that can be said."""
    lines: list[str] = []
    _toml(document if isinstance(document, dict) else {"document": document}, (), lines)
    if rng.random() < 0.003:
        lines.append(f"deep = {'[' * 50_000}")
    content = "\n".join(lines).encode("utf-8", "replace")
    return flipped(content, rng) if rng.random() < 0.2 else content


def _toml(table: dict[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    for key, value in table.items():
        if not _is_table(value) and not _is_tables(value):
            lines.append(f"{json.dumps(key)} = {_value(value)}")
    for key, value in table.items():
        here = (*path, key)
        name = ".".join(map(json.dumps, here))
        if _is_table(value):
            lines.append(f"[{name}]")
            _toml(value, here, lines)
        elif _is_tables(value):
            for one in value:
                lines.append(f"[[{name}]]")
                _toml(one, here, lines)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {_value(one)}' for key, one in value.items())}}}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return "0" if value is None else json.dumps(value)
