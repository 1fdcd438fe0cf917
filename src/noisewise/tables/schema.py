"""What the data holder declares about a table: kinds, bounds, categories and the target. Never read from private rows."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..trusted.units import Unit
from ..trusted.validate import did_you_mean, one_of
from .column_checks import KINDS, Scalar, check_column, end_from, number_from, plain_value, since_from
from .persons import PersonColumn, persons_of
from .schema_text import bare_or_quoted, lines_of, one_line, text_of

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "noisewise-schema/1"
TOP = {"format", "target", "target_missing", "unit", "rows_per_unit", "columns"}
FIELDS = {"kind", "low", "high", "categories", "missing", "unknown", "scale", "knots", "rare", "unit", "since"}
TARGET_MISSING = ("refuse", "drop")
SAY = "pass (low, high) for a number, a list of all values for a category, or 'ignore'"


@dataclass(frozen=True)
class Column:
    """One column: ``kind`` is "number", "category", "ignore" or, while it is open, empty.

    ``scale`` ("linear" or "log"): how a number is spread between its bounds; ``knots``: where its effect may bend; ``rare``:
    categories that share one coordinate. ``unit`` ("years", "days", "hours", ..) makes numbers of dates and times, counted
    from ``since``; bounds may then be dates. ``note`` is a comment in the schema file, which is never read back.

    >>> born = Column("born", "number", "1920-01-01", "2010-01-01", unit="years")
    >>> born.low, born.high
    (1920.0, 2010.0)
    """

    name: str
    kind: str = ""
    low: float | None = None
    high: float | None = None
    categories: tuple[Scalar, ...] = ()
    missing: Scalar | None = None
    unknown: str = "refuse"
    note: str = field(default="", compare=False)
    scale: str = "linear"
    knots: tuple[float, ...] = ()
    rare: tuple[Scalar, ...] = ()
    unit: str = ""
    since: str = ""

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.name, self.kind, self.note)):
            raise ValueError(f"column {self.name!r}: name, kind and note are texts")
        for several in (self.categories, self.knots, self.rare):
            if isinstance(several, str) or not isinstance(several, Iterable):
                raise ValueError(f"column {self.name!r}: categories, knots and rare are lists")
        object.__setattr__(self, "since", since_from(self.name, self.unit, self.since))
        object.__setattr__(self, "knots", tuple(number_from(self.name, "knots", value) for value in self.knots))
        for name in ("rare", "categories"):
            object.__setattr__(self, name, tuple(plain_value(self.name, value) for value in getattr(self, name)))
        for end in ("low", "high"):
            if getattr(self, end) is not None:
                object.__setattr__(self, end, end_from(self, end))
        check_column(self)

    @property
    def middle(self) -> float:
        """The stand-in for a missing number, unless ``missing`` is declared."""
        assert self.low is not None and self.high is not None
        return self.low + (self.high - self.low) / 2


@dataclass(frozen=True, init=False)
class Schema:
    """The columns in the order of the file, and which of them is to be predicted (None while that is open).

    ``columns``: :class:`Column` objects, or what :func:`declared` takes by name, here or as keywords.
    ``unit``: the column that identifies persons, if a person may have several rows; at most ``rows_per_unit`` rows of a
    person count. It is no feature, and need not be among the columns.
    ``target_missing``: "refuse" a record without a label, or "drop" it: it keeps its place and counts for nothing.

    >>> schema = Schema(age=(17, 90), job=["clerk", "farmer"], name="ignore", target="job")
    >>> schema["age"].high, schema["job"].categories, schema["name"].kind
    (90.0, ('clerk', 'farmer'), 'ignore')
    """

    columns: tuple[Column, ...]
    target: str | None = None
    unit: str | None = None
    rows_per_unit: int | None = None
    target_missing: str = "refuse"

    def __init__(
        self,
        columns: Iterable[Column] | Mapping[str, Any] = (),
        target: str | None = None,
        unit: str | None = None,
        rows_per_unit: int | None = None,
        target_missing: str = "refuse",
        **named: Any,
    ) -> None:
        given = [declared(*item) for item in columns.items()] if isinstance(columns, Mapping) else list(columns)
        if strange := [one for one in given if not isinstance(one, Column)]:
            raise ValueError(f"columns holds {type(strange[0]).__name__}; pass Column objects, or {{name: what it is}}")
        object.__setattr__(self, "columns", (*given, *(declared(*item) for item in named.items())))
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "rows_per_unit", rows_per_unit)
        object.__setattr__(self, "target_missing", target_missing)
        self._check()

    def _check(self) -> None:
        names = Counter(column.name for column in self.columns)
        if repeated := [name for name, times in names.items() if times > 1]:
            raise ValueError(f"column {repeated[0]!r} is listed twice; name every column once")
        one_of(TARGET_MISSING, target_missing=self.target_missing)
        self._check_unit()
        if self.target is None:
            return
        if not isinstance(self.target, str):
            raise ValueError("target must be the name of a column, as a text")
        if self.target not in names:
            meant = did_you_mean(self.target, names)
            raise ValueError(f"target is {self.target!r}, which is not among the columns; name one of them{meant}")
        label = self[self.target]
        if label.kind == "ignore":
            raise ValueError(f"target {label.name!r} is ignored; give it the kind category (classes) or number")
        if label.missing is not None or label.unknown != "refuse":
            raise ValueError(
                f"target {label.name!r} has missing or unknown set; a label is never made up, remove it; "
                'target_missing = "drop" leaves records without one out'
            )
        if label.kind == "category" and len(label.categories) == 1:
            raise ValueError(f"target {label.name!r} has one category; a classifier needs at least two")

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, target: str | None = None) -> Schema:
        """Kinds, bounds and categories from the rows of a PUBLIC table. Never pass private rows.

        Columns of the type ``category`` get all categories of their type. Ids, heavy tails and whole numbers that may be
        codes get a note (:attr:`Column.note`).
        """
        from .fill import fill_from_frame

        return fill_from_frame(frame, target)

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
    def protects(self) -> Unit:
        """A record, or a person of whom ``rows_per_unit`` rows count."""
        return Unit(self.rows_per_unit)

    @property
    def persons(self) -> PersonColumn | None:
        """The column of persons, if persons are protected."""
        declared = self.unit, self.rows_per_unit
        return None if declared == (None, None) else persons_of(*declared)

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
        """As plain data for JSON, without what is not declared."""
        return {
            "format": FORMAT,
            "target": self.target,
            **({} if self.target_missing == "refuse" else {"target_missing": self.target_missing}),
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
        """The text of a schema file, with comments on what is still to be filled in, after those of ``top``."""
        lines = [f"# {one_line(text)}" for text in top]
        lines.append(f"format = {text_of(FORMAT)}")
        todo = "" if self.target is not None else "  # the column to predict"
        lines.append(f"target = {text_of(self.target or '')}{todo}")
        if self.target_missing != "refuse":
            lines.append(f"target_missing = {text_of(self.target_missing)}")
        if self.unit is not None:
            lines += [f"unit = {text_of(self.unit)}", f"rows_per_unit = {self.rows_per_unit}"]
        for column in self.columns:
            lines += ["", f"[columns.{bare_or_quoted(column.name)}]"]
            lines += lines_of(column, _declared(column), column.name == self.target)
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Gap:
    """Something that a schema lacks: ``what`` is kind, bounds, categories, target, columns or features."""

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
    """What a schema lacks before a model can be trained; empty when it is complete."""
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
        raise ValueError(f"{path}: is not TOML: {one_line(str(error))}") from None
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
    rest = data.get("unit"), data.get("rows_per_unit"), data.get("target_missing", "refuse")
    return Schema(tuple(_column(name, fields) for name, fields in columns), data.get("target"), *rest)


def declared(name: Any, what: Any) -> Column:
    """A column from a short declaration.

    >>> declared("age", (17, 90)).kind, declared("job", ["clerk", "farmer"]).kind, declared("id", "ignore").kind
    ('number', 'category', 'ignore')
    >>> declared("born", {"kind": "number", "low": 1920, "high": 2010, "unit": "years"}).unit
    'years'
    """
    if not isinstance(name, str):
        raise ValueError(f"the name of a column is {name!r}; pass a text")
    if isinstance(what, Column):
        return replace(what, name=name)
    if isinstance(what, Mapping):
        return _column(name, what)
    if isinstance(what, str):
        if what not in KINDS:
            raise ValueError(f"column {name!r} is {what!r}; {SAY}{did_you_mean(what, KINDS)}")
        return Column(name, what)
    if isinstance(what, tuple):
        if len(what) != 2:
            raise ValueError(f"column {name!r} has a tuple of {len(what)}; {SAY}")
        return Column(name, "number", *what)
    values = getattr(what, "categories", what)  # of a pandas dtype
    try:
        return Column(name, "category", categories=tuple(sorted(values) if isinstance(values, set) else values))
    except TypeError:
        raise ValueError(f"column {name!r} is {what!r}; {SAY}") from None


def _column(name: Any, fields: Any) -> Column:
    if not isinstance(name, str):
        raise ValueError("the name of a column must be a text")
    who = f"column {name!r}"
    _keys(who, fields, FIELDS)
    if not isinstance(fields.get("kind", ""), str):
        raise ValueError(f"{who}: kind must be a text, one of {', '.join(KINDS)}")
    if not isinstance(fields.get("categories", []), list | tuple):
        raise ValueError(f'{who}: categories must be a list, e.g. ["no", "yes"]')
    if not all(isinstance(fields.get(key, []), list | tuple) for key in ("knots", "rare")):
        raise ValueError(f"{who}: knots and rare must be lists")
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    return Column(name, **given)


def _keys(who: str, data: Any, allowed: set[str]) -> None:
    if not isinstance(data, Mapping):
        raise ValueError(f"{who} must be a table")
    if strange := [name for name in data if name not in allowed]:
        meant = did_you_mean(strange[0], allowed)
        raise ValueError(f"{who} has the unknown key {strange[0]!r}; allowed are {', '.join(sorted(allowed))}{meant}")


def _declared(column: Column) -> dict[str, Any]:
    """What a column declares, without defaults."""
    found: dict[str, Any] = {"kind": column.kind}
    for name in ("low", "high", "categories", "missing", "unknown", "scale", "unit", "since", "knots", "rare"):
        value = getattr(column, name)
        if value != Column.__dataclass_fields__[name].default:
            found[name] = list(value) if isinstance(value, tuple) else value
    return found
