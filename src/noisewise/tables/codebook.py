"""Columns from documents and names: codebooks, printed types of pandas, pasted lists of codes. No row is read.

A codebook is a CSV with a line for each column (name, kind, low, high, categories, label), or for each code of a column.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..trusted.validate import did_you_mean
from .column_checks import Scalar
from .schema import Column
from .values import UNITS, key, number_of

HEADS = {
    "name": ("name", "column", "variable", "field", "variable name", "column name", "field name"),
    "kind": ("kind", "type", "dtype", "data type"),
    "low": ("low", "min", "minimum", "lowest", "from"),
    "high": ("high", "max", "maximum", "highest", "to"),
    "categories": ("categories", "category", "values", "value", "codes", "code", "levels"),
    "label": ("label", "labels", "description", "meaning", "text"),
    "unit": ("unit",),
    "scale": ("scale",),
    "missing": ("missing",),
}
KINDS = {
    "number": "number numeric integer int float double real continuous decimal count quantity",
    "category": "category categorical nominal ordinal factor text string str object code binary boolean bool char",
    "ignore": "ignore id identifier key drop skip unused",
    "date": "date datetime timestamp time",
    "target": "target outcome response",
}
TYPES = (
    (r"bool(ean)?(\[pyarrow\])?", "boolean"), (r"(u?int|Int|UInt|float|Float|double|decimal)[0-9]*(\[pyarrow\])?", "number"),
    (r"(datetime64|timestamp|date)\S*.*", "date"), (r"(timedelta64|duration)\S*.*", "duration"),
    (r"(category|object|string|str|large_string)(\[\S*\])?", "category"),
)  # fmt: skip
EQUALS = re.compile(r"(?<![<>!=])=")  # but not in <=50K
ENTRY = re.compile(
    rf"\s*(?P<code>\"[^\"]*\"|'[^']*'|(?:[<>!]=|[^=:\t])+?)\s*({EQUALS.pattern}|:|\t|\s-\s)\s*(?P<label>.+?)\s*"
)
NUMBERED = re.compile(r"\s*(?P<code>[+-]?[0-9]+)[.)]?\s+(?P<label>[^0-9,;|].*?)\s*")
RANGE = re.compile(
    r"\s*([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(?:-|to|\.\.|\u2013)\s*([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*"
)


@dataclass(frozen=True)
class Codebook:
    """The columns of a document, with its labels as notes, and the column that it names as target."""

    columns: tuple[Column, ...]
    target: str | None
    what: str


def read_book(path: Path, separator: str | None = None) -> Codebook | None:
    """A codebook or printed types of pandas; None for any other file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    return _types(text) or _codebook(path, text, separator)


def codes_in(text: str) -> tuple[tuple[Scalar, ...], str]:
    """The values of a pasted list and their meanings: one a line, or with commas, semicolons or bars.

    >>> codes_in("1 = clerk\\n2 = farmer, own land")
    ((1, 2), '1 = clerk, 2 = farmer, own land')
    >>> codes_in("yes; no"), codes_in("01, 02"), codes_in("S|M|L")[0]
    ((('yes', 'no'), ''), (('01', '02'), ''), ('S', 'M', 'L'))
    >>> codes_in("<=50K, >50K"), codes_in("<=50K = low\\n>50K = high")
    ((('<=50K', '>50K'), ''), (('<=50K', '>50K'), '<=50K = low, >50K = high'))
    """
    lines = [line for line in text.splitlines() if line.strip()]
    entries = [entry for line in lines for entry in _entries(line, alone=len(lines) > 1)]
    codes: dict[str, str] = {}
    words = []
    for entry in entries:
        match = ENTRY.fullmatch(entry) or NUMBERED.fullmatch(entry)
        code = (match["code"] if match else entry).strip().strip("\"'").strip()
        if code and key(code) not in codes:
            codes[key(code)] = code
            words += [f"{code} = {match['label']}"] if match else []
    return _typed(tuple(codes.values())), ", ".join(words)


def _typed(texts: Sequence[str]) -> tuple[Scalar, ...]:
    """Codes as numbers or booleans if all are written as such; 01 is a text."""
    if texts and all(text.lower() in ("true", "false") for text in texts):
        return tuple(text.lower() == "true" for text in texts)
    numbers = [number for text in texts if (number := number_of(text)) is not None and math.isfinite(number)]
    if [key(number) for number in numbers] != list(texts):
        return tuple(texts)
    return tuple(int(number) if number == int(number) else number for number in numbers)


def pair_in(text: str) -> tuple[str, str] | None:
    """Two ends in a text, as written.

    >>> pair_in("0 to 120"), pair_in("-5, 5"), pair_in("0-120"), pair_in("1920-01-01 2010-12-31"), pair_in("a b c")
    (('0', '120'), ('-5', '5'), ('0', '120'), ('1920-01-01', '2010-12-31'), None)
    """
    if match := RANGE.fullmatch(text):
        return match[1], match[2]
    parts = [part for part in re.split(r"\s+to\s+|\s*;\s*|,\s+|\s+", text.strip()) if part]
    if len(parts) == 1 and text.count(",") == 1:
        parts = [part.strip() for part in text.split(",")]
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


def kind_of(word: str) -> str:
    """The kind that a word stands for: number, category, ignore, date or target; empty if none."""
    word = word.strip().lower()
    return next((kind for kind, words in KINDS.items() if word == kind or word in words.split()), "")


def _column_of_type(name: str, dtype: str) -> Column:
    """The column that a printed type of pandas describes."""
    kind = next((kind for pattern, kind in TYPES if re.fullmatch(pattern, dtype.strip())), "")
    if kind == "boolean":
        return Column(name, "category", categories=(False, True))
    if kind in ("date", "duration"):
        return Column(name, "number", unit="years" if kind == "date" else "hours")
    return Column(name, kind)


def _entries(line: str, *, alone: bool) -> list[str]:
    """The entries of a line; a line that explains a code is a single entry if it is one of several."""
    if alone and (ENTRY.fullmatch(line) or NUMBERED.fullmatch(line)):
        return [line]
    sign = next((sign for sign in ("|", ";", "\t", ",") if sign in line), None)
    if sign is None or (sign == "\t" and ENTRY.fullmatch(line)):
        return [line]
    return next(csv.reader([line], delimiter=sign, skipinitialspace=True), [])


def _types(text: str) -> Codebook | None:
    """The output of ``print(frame.dtypes)``."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if lines and re.fullmatch(r"dtype:\s*\S+", lines[-1]):
        lines.pop()
    found = [re.fullmatch(r"(?P<name>.*\S)\s{2,}(?P<type>\S.*)", line) for line in lines]
    known = [one for one in found if one and any(re.fullmatch(pattern, one["type"]) for pattern, _ in TYPES)]
    if not found or len(known) < len(found):
        return None
    return Codebook(tuple(_column_of_type(one["name"].strip(), one["type"]) for one in known), None, "types of pandas")


def _codebook(path: Path, text: str, separator: str | None) -> Codebook | None:
    first = text.lstrip().split("\n", 1)[0]
    sign = separator or max((",", ";", "\t"), key=first.count)
    rows = list(csv.reader(text.splitlines(), delimiter=sign))
    first_row = [head.strip().lower() for head in rows[0]] if rows else []
    heads = {
        head: next((place for place, name in enumerate(first_row) if name in names), None)
        for head, names in HEADS.items()
    }
    telling = [head for head in ("kind", "low", "high", "categories") if heads[head] is not None]
    if heads["name"] is None or not telling or sum(place is not None for place in heads.values()) < 3:
        return None
    lines: dict[str, list[dict[str, str]]] = {}
    for row in rows[1:]:
        cells = {head: row[place].strip() for head, place in heads.items() if place is not None and place < len(row)}
        if cells.get("name"):
            lines.setdefault(cells["name"], []).append(cells)
    made = [_described(path, name, group) for name, group in lines.items()]
    targets = [name for name, group in lines.items() if kind_of(group[0].get("kind", "")) == "target"]
    return Codebook(tuple(made), targets[0] if targets else None, "codebook") if made else None


def _described(path: Path, name: str, group: list[dict[str, str]]) -> Column:
    """A column of a codebook; several lines of one name are its codes."""
    first, word = group[0], group[0].get("kind", "")
    kind = kind_of(word)
    column = Column(name, "number", unit="years") if kind == "date" else Column(name)
    if not kind and word:
        column = _column_of_type(name, word)
        if not column.kind:
            raise ValueError(f"{path}: column {name!r} has the kind {word!r}; write number, category, date or ignore"
                             f"{did_you_mean(word, KINDS)}")  # fmt: skip
    listed = [first.get("categories", "")]
    if len(group) > 1:
        pairs = [(cells.get("categories", ""), cells.get("label", "")) for cells in group]
        listed = [f'"{code}" = {label}' if code and label else code for code, label in pairs]
    codes, words = codes_in("\n".join(listed))
    note = words or (first.get("label", "") if len(group) == 1 else "")
    if codes and kind in ("", "category", "target"):
        return replace(column, kind="category", categories=codes, note=note)
    ends = {end: first[end] for end in ("low", "high") if first.get(end)}
    if ends and kind in ("", "number", "target"):
        column = replace(column, kind="number")
    unit = first["unit"] if first.get("unit") in UNITS else column.unit
    kind = column.kind or (kind if kind != "target" else "")
    made = replace(column, kind=kind, note=note, scale=first.get("scale") or column.scale, unit=unit)
    bounds: dict[str, Any] = {end: value_of(made, end, text) for end, text in ends.items()}
    return replace(made, **bounds)


def value_of(column: Column, end: str, text: str) -> float | str:
    """A bound as it is typed: a number, or a date if the column has a unit."""
    number = number_of(text.replace(",", ".") if re.fullmatch(r"[+-]?[0-9]+,[0-9]+", text) else text)
    if number is None and not column.unit:
        raise ValueError(f"column {column.name!r}: {end} is {text!r}; write a number")
    return text if number is None else number


# Guesses from the name of a column, never from values.

Fields = dict[str, Any]
IGNORED: Fields = {"kind": "ignore"}
BY_NAME: tuple[tuple[str, Fields], ...] = (
    (r"(.*_)?(id|uuid|guid|key|no|nr|number|row|index)|.*\bid", IGNORED),
    (r"(.*_)?(name|email|e-?mail|phone|address|street|ssn|url|comment|note|notes|remark|remarks)", IGNORED),
    (r"(.*_)?(born|birthday|birthdate|date_of_birth|dob)", {"kind": "number", "unit": "years", "low": 1900.0, "high": 2030.0}),
    (r"(.*_)?(date|day|timestamp|datetime)|.*_at", {"kind": "number", "unit": "years"}),
    (r"age|age_.*|.*_age|alter", {"kind": "number", "low": 0.0, "high": 120.0}),
    (r"(.*_)?(year|yr)", {"kind": "number", "low": 1900.0, "high": 2100.0}),
    (r"(.*_)?month", {"kind": "number", "low": 1.0, "high": 12.0}),
    (r"(.*_)?(weekday|day_of_week|dow)", {"kind": "number", "low": 0.0, "high": 7.0}),
    (r"hour|hour_of_day", {"kind": "number", "low": 0.0, "high": 24.0}),
    (r"hours.*|.*hours(_per_week|_worked)?", {"kind": "number", "low": 0.0, "high": 168.0}),
    (r"(.*_)?(percent|percentage|pct)(_.*)?", {"kind": "number", "low": 0.0, "high": 100.0}),
    (r"(.*_)?(share|ratio|fraction|probability|prob)", {"kind": "number", "low": 0.0, "high": 1.0}),
    (r"(.*_)?(lat|latitude)", {"kind": "number", "low": -90.0, "high": 90.0}),
    (r"(.*_)?(lon|lng|long|longitude)", {"kind": "number", "low": -180.0, "high": 180.0}),
    (r"(.*_)?(height|height_cm)", {"kind": "number", "low": 0.0, "high": 250.0}),
    (r"(.*_)?(weight|weight_kg)", {"kind": "number", "low": 0.0, "high": 300.0}),
    (r"(.*_)?bmi", {"kind": "number", "low": 10.0, "high": 80.0}),
    (r"(is|has|was)_.*", {"kind": "category", "categories": (0, 1)}),
    (r"(.*_)?(sex|gender|race|country|state|region|city|job|occupation|sector|status|type|kind|group|class|category|code|education|relationship|colou?r)",
     {"kind": "category"}),
    (r"(.*_)?(count|num|amount|sum|total|price|cost|salary|wage|income|score|balance|size|length|width|duration|temperature|pressure)",
     {"kind": "number"}),
)  # fmt: skip
TARGETS = ("target", "label", "y", "class", "outcome", "response", "diagnosis", "income", "price", "default")


def by_name(column: Column) -> Column:
    """The column with what its name suggests, unless more is known.

    >>> by_name(Column("age")).high, by_name(Column("patient_id")).kind, by_name(Column("x7")).kind
    (120.0, 'ignore', '')
    """
    name = re.sub(r"[^a-z0-9]+", "_", column.name.lower()).strip("_")
    found = next((fields for pattern, fields in BY_NAME if re.fullmatch(pattern, name)), {})
    if column.kind == "":
        return replace(column, **found)
    same = column.kind == found.get("kind") and column.unit == found.get("unit", "")
    if column.kind == "number" and same and column.low is None and column.high is None:
        return replace(column, low=found.get("low"), high=found.get("high"))
    if column.kind == "category" and same and not column.categories:
        return replace(column, categories=found.get("categories", ()))
    return column


def target_among(columns: tuple[Column, ...]) -> str:
    """The column to predict, by its name; the last column if no name tells."""
    names = {column.name.lower(): column.name for column in columns}
    return next((names[name] for name in TARGETS if name in names), columns[-1].name)
