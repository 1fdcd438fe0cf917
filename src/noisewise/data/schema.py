"""What the data holder declares about a table: kinds, bounds, categories and the target. Never read from private rows."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .persons import Persons, persons_of
from .values import key

FORMAT = "noisewise-schema/1"
KINDS = ("number", "category", "ignore")
UNKNOWN = ("refuse", "missing")
TOP = {"format", "target", "unit", "rows_per_unit", "columns"}
FIELDS = {"kind", "low", "high", "categories", "missing", "unknown"}
Scalar = str | bool | int | float


@dataclass(frozen=True)
class Column:
    """One column: ``kind`` is "number", "category", "ignore" or, while nobody has said, empty.

    ``note`` is a comment for whoever fills the schema in; it is written, never read back.
    """

    name: str
    kind: str = ""
    low: float | None = None
    high: float | None = None
    categories: tuple[Scalar, ...] = ()
    missing: Scalar | None = None
    unknown: str = "refuse"
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", tuple(_plain(self.name, value) for value in self.categories))
        for end in ("low", "high"):
            if getattr(self, end) is not None:
                object.__setattr__(self, end, _number(self.name, end, getattr(self, end)))
        _check(self)

    @property
    def middle(self) -> float:
        """What a missing number becomes when nothing else is declared."""
        assert self.low is not None and self.high is not None
        return self.low + (self.high - self.low) / 2


@dataclass(frozen=True)
class Schema:
    """The columns in the order of the file, and which of them is to be predicted (None while nobody has said).

    ``unit``: the column that says whose row it is, if a person may have several; at most ``rows_per_unit`` of a person's
    rows count. It is ignored as a feature, and need not be among the columns.
    """

    columns: tuple[Column, ...]
    target: str | None = None
    unit: str | None = None
    rows_per_unit: int | None = None

    def __post_init__(self) -> None:
        names = Counter(column.name for column in self.columns)
        if repeated := [name for name, times in names.items() if times > 1]:
            raise ValueError(f"column {repeated[0]!r} is there twice; name every column once")
        self._check_unit()
        if self.target is None:
            return
        if self.target not in names:
            raise ValueError(f"target is {self.target!r}, which is not among the columns; name one of them")
        label = self[self.target]
        if label.kind == "ignore":
            raise ValueError(f"target {label.name!r} is ignored; give it the kind category (classes) or number")
        if label.missing is not None or label.unknown != "refuse":
            raise ValueError(f"target {label.name!r} has missing or unknown set; a label is never made up, remove it")
        if label.kind == "category" and len(label.categories) == 1:
            raise ValueError(f"target {label.name!r} has one category; a classifier needs at least two")

    def _check_unit(self) -> None:
        if self.persons is None:
            return
        assert self.unit is not None
        if self.unit == self.target:
            raise ValueError(f"unit and target are both {self.unit!r}; unit is the column that says whose row it is")
        ids = Column(self.unit, "ignore")
        if self.unit not in self:
            object.__setattr__(self, "columns", (*self.columns, ids))
        elif self[self.unit].kind in ("number", "category"):
            raise ValueError(f'unit {self.unit!r} says whose row it is and is no feature; set its kind = "ignore"')
        else:
            object.__setattr__(self, "columns", self.with_columns(ids))

    @property
    def persons(self) -> Persons | None:
        """Whose rows these are, where what is protected is a person."""
        return persons_of(self.unit, self.rows_per_unit)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(column.name == name for column in self.columns)

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that a model reads: neither ignored nor the target."""
        return tuple(column for column in self.columns if column.name != self.target and column.kind != "ignore")

    def with_column(self, column: Column) -> Schema:
        """The same schema with one column declared anew."""
        return replace(self, columns=self.with_columns(column))

    def with_columns(self, column: Column) -> tuple[Column, ...]:
        """The columns with one of them declared anew."""
        return tuple(column if old.name == column.name else old for old in self.columns)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON; what is not declared is left out."""
        return {
            "format": FORMAT,
            "target": self.target,
            **({} if self.unit is None else {"unit": self.unit, "rows_per_unit": self.rows_per_unit}),
            "columns": [{"name": column.name, **_declared(column)} for column in self.columns],
        }

    @classmethod
    def from_dict(cls, data: Any) -> Schema:
        """The schema that ``to_dict`` wrote; anything else is refused."""
        _keys("the schema", data, TOP)
        columns = data.get("columns")
        if not isinstance(columns, Sequence) or isinstance(columns, str):
            raise ValueError("columns of the schema must be a list of columns")
        for column in columns:
            _keys("a column", column, FIELDS | {"name"})
        return _made(
            data, [(column.get("name"), {k: v for k, v in column.items() if k != "name"}) for column in columns]
        )

    def to_toml(self, *, top: Sequence[str] = ()) -> str:
        """As the text of a schema file, with comments where something is still to be filled in; ``top``: more of them."""
        lines = [f"# {_one_line(text)}" for text in top]
        lines.append(f"format = {_text(FORMAT)}")
        todo = "" if self.target is not None else "  # the column to predict"
        lines.append(f"target = {_text(self.target or '')}{todo}")
        if self.unit is not None:
            lines += [f"unit = {_text(self.unit)}", f"rows_per_unit = {self.rows_per_unit}"]
        for column in self.columns:
            lines += ["", f"[columns.{_bare_or_quoted(column.name)}]", *_lines(column, column.name == self.target)]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Gap:
    """Something that a schema does not say yet: ``what`` is kind, bounds, categories, target, columns or features."""

    what: str
    column: str | None = None

    def __str__(self) -> str:
        return _GAPS[self.what].format(column=repr(self.column))


_GAPS = {
    "kind": 'column {column} has no kind; set kind = "number", "category" or "ignore"',
    "bounds": "column {column} lacks bounds; set low and high to what such values can be, not to what they are",
    "categories": "column {column} lacks categories; list every value that can occur",
    "target": "target is empty; name the column to predict",
    "columns": "there are no columns; add one table [columns.NAME] for each column of the file",
    "features": "every column but the target is ignored; give at least one the kind number or category",
}


def gaps(schema: Schema) -> list[Gap]:
    """What is still missing before a model can be trained; empty when the schema is complete."""
    missing = [Gap("target")] if schema.target is None else []
    if not schema.columns:
        return [*missing, Gap("columns")]
    if not schema.features:
        missing.append(Gap("features"))
    for column in schema.columns:
        if column.kind == "":
            missing.append(Gap("kind", column.name))
        elif column.kind == "number" and (column.low is None or column.high is None):
            missing.append(Gap("bounds", column.name))
        elif column.kind == "category" and not column.categories:
            missing.append(Gap("categories", column.name))
    return missing


def read_schema(path: str | Path) -> Schema:
    """Read a schema file (TOML)."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; `noisewise schema init` writes one") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or 'cannot be read'}; pass a schema file") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    except RecursionError:
        raise ValueError(f"{path}: is not TOML: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: is not TOML: {_one_line(str(error))}") from None
    try:
        _keys("the schema", data, TOP)
        columns = data.get("columns", {})
        if not isinstance(columns, dict):
            raise ValueError("columns must be tables, [columns.NAME]")
        return _made({**data, **{name: data.get(name) or None for name in ("target", "unit")}}, list(columns.items()))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _made(data: Mapping[str, Any], columns: list[tuple[Any, Any]]) -> Schema:
    if data.get("format") != FORMAT:
        raise ValueError(f'format must be "{FORMAT}"')
    target = data.get("target")
    if target is not None and not isinstance(target, str):
        raise ValueError("target must be the name of a column, as a text")
    unit = data.get("unit"), data.get("rows_per_unit")
    return Schema(tuple(_column(name, fields) for name, fields in columns), target, *unit)


def _column(name: Any, fields: Any) -> Column:
    if not isinstance(name, str):
        raise ValueError("the name of a column must be a text")
    who = f"column {name!r}"
    _keys(who, fields, FIELDS)
    kind, unknown, categories = fields.get("kind", ""), fields.get("unknown", "refuse"), fields.get("categories", [])
    if not isinstance(kind, str):
        raise ValueError(f"{who}: kind must be a text, one of {', '.join(KINDS)}")
    if not isinstance(categories, list | tuple):
        raise ValueError(f'{who}: categories must be a list, e.g. ["no", "yes"]')
    return Column(name, kind, fields.get("low"), fields.get("high"), tuple(categories), fields.get("missing"), unknown)


def _keys(who: str, data: Any, allowed: set[str]) -> None:
    if not isinstance(data, Mapping):
        raise ValueError(f"{who} must be a table")
    if strange := [name for name in data if name not in allowed]:
        raise ValueError(f"{who} has the unknown key {strange[0]!r}; allowed are {', '.join(sorted(allowed))}")


def _number(name: str, end: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"column {name!r}: {end} must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"column {name!r}: {end} must be finite")
    return number + 0.0  # no negative zero


def _plain(name: str, value: Any) -> Scalar:
    """A category as it is kept: whole numbers as int."""
    if not isinstance(value, str | bool | int | float):
        raise ValueError(f"column {name!r}: categories must be texts, numbers or booleans")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"column {name!r}: a category must be finite")
        return int(value) if value == int(value) and abs(value) < 2**53 else float(value)
    if isinstance(value, str):
        _encodable(value, f"a category of column {name!r}")
        return str(value)
    return value


def _encodable(text: str, who: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{who} holds half a character (a lone surrogate); write it as UTF-8") from None


def _check(column: Column) -> None:
    who = f"column {column.name!r}"
    _encodable(column.name, "the name of a column")
    if column.kind not in ("", *KINDS):
        raise ValueError(f"{who}: kind is {column.kind!r}; pass one of {', '.join(KINDS)}")
    if column.unknown not in UNKNOWN:
        raise ValueError(f'{who}: unknown is {column.unknown!r}; pass "refuse" or "missing"')
    if column.kind == "number" and (column.categories or column.unknown != "refuse"):
        raise ValueError(f"{who} is a number; categories and unknown are for categories, remove them")
    if column.kind == "category" and (column.low is not None or column.high is not None):
        raise ValueError(f"{who} is a category; low and high are for numbers, remove them")
    if column.low is not None and column.high is not None and not 0 < column.high - column.low < math.inf:
        raise ValueError(f"{who}: low is {column.low:g} and high is {column.high:g}; low must be below high")
    keys = [key(value) for value in column.categories]
    if repeated := [value for i, value in enumerate(column.categories) if keys[i] in keys[:i]]:
        raise ValueError(f"{who}: category {repeated[0]!r} is there twice (1, 1.0 and '1' are the same); list it once")
    if column.missing is not None:
        _check_missing(column, who, keys)


def _check_missing(column: Column, who: str, keys: list[str]) -> None:
    if column.kind == "number":
        value = _number(column.name, "missing", column.missing)
        if (column.low is not None and value < column.low) or (column.high is not None and value > column.high):
            raise ValueError(f"{who}: missing is outside of the bounds; set it from low to high")
        object.__setattr__(column, "missing", int(value) if value == int(value) else value)
        return
    object.__setattr__(column, "missing", _plain(column.name, column.missing))
    if column.kind == "category" and column.categories and key(column.missing) not in keys:
        raise ValueError(f"{who}: missing is not among the categories; name one of them, or leave it out")


def _declared(column: Column) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": column.kind}
    fields |= {end: getattr(column, end) for end in ("low", "high") if getattr(column, end) is not None}
    fields |= {"categories": list(column.categories)} if column.categories else {}
    fields |= {"missing": column.missing} if column.missing is not None else {}
    return fields | ({"unknown": column.unknown} if column.unknown != "refuse" else {})


def _lines(column: Column, target: bool) -> Iterator[str]:
    if column.note:
        yield f"# {_one_line(column.note)}"
    for name, value in _declared(column).items():
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
        return _text(value)
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def _text(text: str) -> str:
    """A basic string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", escaped) + '"'


def _bare_or_quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
