"""Schemas to start from: a skeleton from names and types, or one filled from PUBLIC rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..trusted.validate import did_you_mean
from .column_checks import Scalar
from .encode import cells_of, numbers_of
from .files import Dialect, Paths, Share, is_number, is_text, open_source, unusable
from .refusal import Refusal, our_words
from .schema import Column, Schema, gaps
from .values import is_missing_word, key, looks_like_a_date, looks_like_a_time, number_of

if TYPE_CHECKING:
    import pandas as pd

MAX_LISTED_CATEGORIES = 200
MIN_VALUES = 20  # before a column is called an id or constant
MAX_REMEMBERED_VALUES = 100_000  # different ones, to find repeated values
SAMPLED_VALUES = 1000  # of a batch, for the median
HEAVY_TAIL_FACTOR = 20.0  # times the median: the largest value of a heavy tail is beyond
MIN_CATEGORY_SHARE = 0.002  # of the rows: a smaller category is rare
AN_ID = 'looks like an id in the public rows, where no value comes twice; set kind = "ignore"'
ONE_VALUE = "is constant in the public rows"
A_CONSTANT = f'{ONE_VALUE}; set kind = "ignore"'
HEAVY = f'has a heavy tail: scale = log? It reaches beyond {HEAVY_TAIL_FACTOR:g} times its median in the public rows; scale = "log" may suit it'
A_CODE = 'has few whole numbers: a code?; if they stand for kinds of things, set kind = "category" and categories = {}'
CODE_COUNT_RANGE = 3, 12  # different whole numbers that may be codes; two are as good as numbers
MAX_NUMBERED_CLASSES = 20  # whole numbers in a target that are taken for classes
A_DATE = 'looks like dates; set kind = "number", unit = "years" (or days, ..) and bounds as dates, or kind = "ignore"'
A_TIME = 'looks like times; set kind = "number", unit = "hours" (or minutes, ..), bounds as times, or kind = "ignore"'


@dataclass
class SeenColumn:
    """Statistics of one PUBLIC column, in bounded memory: kind, bounds, categories, and whether it is of any use."""

    rows: int = 0
    missing: int = 0
    low: float = math.inf
    high: float = -math.inf
    numeric: bool = True
    whole: bool = True
    boolean: bool = True
    dates: bool = True
    times: bool = True
    keys: Counter[str] = field(default_factory=Counter)  # at most one more than MAX_LISTED_CATEGORIES
    many: bool = False
    apart: set[str] | None = field(default_factory=set)  # None: a value occurred twice, or is a fraction
    sample: list[float] = field(default_factory=list)

    def look(self, cells: pa.Array) -> None:
        """Take in one batch."""
        cells = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
        values, counts = (pc.value_counts(cells).field(name) for name in ("values", "counts"))
        several = values.to_numpy(zero_copy_only=False) if pa.types.is_floating(values.type) else values.to_pylist()
        numbers, times = [], []
        for value, count in zip(several, counts.to_pylist(), strict=True):
            self.rows += count
            if value is None or value != value or (isinstance(value, str) and is_missing_word(value)):
                self.missing += count
            else:
                numbers.append(self._take(value, count))
                times.append(count)
        if self.numeric and numbers:
            every = np.sort(np.repeat(numbers, times))
            self.sample += every[np.linspace(0, len(every) - 1, min(len(every), SAMPLED_VALUES)).astype(int)].tolist()

    def _take(self, value: Any, count: int) -> float:
        text = key(value)
        boolean = text in ("true", "false")
        number = None if boolean else (number_of(value) if isinstance(value, str) else float(value))
        self.boolean &= boolean
        self.numeric &= number is not None
        self.dates &= isinstance(value, str) and looks_like_a_date(value)
        self.times &= isinstance(value, str) and looks_like_a_time(value)
        if number is not None and math.isfinite(number):
            self.low, self.high = min(self.low, number), max(self.high, number)
        whole = number is not None and math.isfinite(number) and number == int(number)
        self.whole &= whole
        if not self.many or text in self.keys:
            self.keys[text] += count
            self.many = len(self.keys) > MAX_LISTED_CATEGORIES
        if count > 1 or (number is not None and not whole) or (self.apart is not None and text in self.apart):
            self.apart = None
        elif self.apart is not None and len(self.apart) < MAX_REMEMBERED_VALUES:
            self.apart.add(text)
        return math.nan if number is None else number

    @property
    def categories(self) -> tuple[Scalar, ...]:
        """The different values, sorted: as booleans or numbers if all are, otherwise as texts."""
        if self.boolean:
            return tuple(text == "true" for text in sorted(self.keys))
        numbers = [number for text in self.keys if (number := number_of(text)) is not None and key(number) == text]
        if len(numbers) == len(self.keys) and all(map(math.isfinite, numbers)):
            return tuple(sorted(numbers))
        return tuple(sorted(self.keys))  # "01" is a code, not the number 1

    @property
    def rare(self) -> tuple[Scalar, ...]:
        """Categories that few rows have, if there are at least two to share a coordinate."""
        limit = MIN_CATEGORY_SHARE * (self.rows - self.missing)
        few = tuple(value for value in self.categories if self.keys[key(value)] < limit)
        return few if len(few) > 1 else ()

    @property
    def doubt(self) -> str:
        """Why the column is of no use to a model, in words; empty if it may be."""
        there = self.rows - self.missing
        if there < MIN_VALUES:
            return ""
        if len(self.keys) == 1 and not self.missing:
            return A_CONSTANT
        numbered = self.numeric and self.high - self.low < 2 * there
        moments = self.dates or self.times
        return AN_ID if self.apart is not None and not moments and (numbered or not self.numeric) else ""

    @property
    def code(self) -> str:
        """That the numbers may be codes of categories, in words; empty if they are not few, or not whole."""
        fewest, most = CODE_COUNT_RANGE
        few = self.numeric and self.whole and not self.many and fewest <= len(self.keys) <= most
        if not few or self.rows - self.missing < MIN_VALUES:
            return ""
        return A_CODE.format(f"[{', '.join(key(value) for value in self.categories)}]")

    @property
    def heavy(self) -> bool:
        """Whether the largest number is far beyond the median, and all are above 0."""
        finite = [number for number in self.sample if math.isfinite(number)]
        if not self.numeric or len(finite) < MIN_VALUES or self.low <= 0:
            return False
        return self.high > HEAVY_TAIL_FACTOR * float(np.median(finite))


class Tabular(Protocol):
    """A table that is read in batches: files, or a frame."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def where(self) -> str: ...
    def types(self, name: str) -> list[pa.DataType | None]: ...
    def batches(
        self, columns: Sequence[str] | None = None, *, progress: Share | None = None
    ) -> Iterator[pa.RecordBatch]: ...


def skeleton(source: Tabular, target: str | None = None) -> Schema:
    """Names and, if the files have any, types: no row is read."""
    _known(source, target)
    return Schema(tuple(_from_type(name, source, name == target) for name in source.columns), target)


def fill_from_public(
    schema: Schema | None,
    paths: Paths,
    target: str | None = None,
    *,
    separator: str | Dialect | None = None,
    progress: Share | None = None,
) -> Schema:
    """Kinds, bounds and categories from PUBLIC rows; what the schema declares stays.

    Bounds are the smallest and largest value; a constant c gets c - |c|/2 to c + |c|/2 (-1 to 1 for 0), which scales it
    to 0. Texts with at most 200 different values are categories, sorted; any other value will count as missing. A numeric
    target with at most 20 different whole values is a category. Columns of unclear kind (dates, many texts, no value at
    all) are left open with a note. Categories of fewer than 0.2 % of the rows are rare; an id, a constant and a heavy tail
    get a note.
    """
    return filled_from(open_source(paths, separator=separator), schema, target, progress=progress)


def filled_from(
    source: Tabular, schema: Schema | None, target: str | None = None, *, progress: Share | None = None
) -> Schema:
    """The same from PUBLIC rows of any source."""
    start = skeleton(source, target) if schema is None else _with_target(schema, target)
    _known(source, start.target)
    needed = [column.name for column in start.columns if column.name != start.unit]  # public rows may lack persons
    if missing := [name for name in needed if name not in source.columns]:
        meant = did_you_mean(missing[0], source.columns)
        raise Refusal(f"{source.where}: lacks the column {missing[0]!r} that the schema names{meant}")
    incomplete = {gap.column for gap in gaps(start)}
    seen = _look(source, [column for column in start.columns if column.name in incomplete], progress)
    columns = [
        _filled(column, seen[column.name], column.name == start.target) if column.name in seen else column
        for column in start.columns
    ]
    return replace(start, columns=tuple(columns))


def with_dates(schema: Schema, paths: Paths, separator: str | Dialect | None = None) -> Schema:
    """The schema, with columns that look like dates or times as numbers of years or hours, with bounds from PUBLIC rows."""
    dated = {}
    for column in schema.columns:
        time = column.note == A_TIME or "is a time" in column.note
        if column.kind == "" and (time or column.note == A_DATE or "is a date" in column.note):
            dated[column.name] = Column(column.name, "number", unit="hours" if time else "years")
    if not dated:
        return schema
    columns = tuple(dated.get(column.name, column) for column in schema.columns)
    return fill_from_public(replace(schema, columns=columns), paths, separator=separator)


def public_doubts(schema: Schema, paths: Paths, *, separator: str | Dialect | None = None) -> dict[str, str]:
    """Features that are of no use according to PUBLIC rows, e.g. ids and constants, and why."""
    source = open_source(paths, separator=separator)
    seen = _look(source, [column for column in schema.features if column.name in source.columns])
    return {name: found.doubt for name, found in seen.items() if found.doubt}


def _look(source: Tabular, columns: Sequence[Column], progress: Share | None = None) -> dict[str, SeenColumn]:
    wanted = [column for column in columns if not _unusable(source, column.name, dated=bool(column.unit))]
    seen = {column.name: SeenColumn() for column in wanted}
    for batch in source.batches([column.name for column in wanted], progress=progress) if wanted else ():
        for place, column in enumerate(wanted):
            # a label may be private
            with our_words(f"column {column.name!r} cannot be read; write numbers or texts in it"):
                cells = cells_of(batch, place, column)
                seen[column.name].look(pa.array(numbers_of(cells, column)) if column.unit else cells)
    return seen


def _filled(column: Column, seen: SeenColumn, target: bool) -> Column:
    if not seen.keys:
        return replace(column, note="has no value in the public rows")
    kind, doubt = column.kind or _kind(seen, target), "" if target else seen.doubt
    if kind == "":
        return replace(column, note=A_DATE if seen.dates else A_TIME if seen.times else _many("texts", doubt))
    if kind == "number":
        return _with_bounds(replace(column, kind=kind), seen, target)
    if seen.many:
        return replace(column, kind=kind, note=_many("values", doubt))
    if target and len(seen.keys) < 2:
        return replace(column, kind=kind, note="has one value in the public rows; a classifier needs at least two")
    complete = target or set(seen.categories) == {False, True}
    unknown = column.unknown if complete else "missing"  # public rows need not show every value there is
    rare = column.rare if target or column.rare else seen.rare
    return replace(column, kind=kind, categories=seen.categories, unknown=unknown, rare=rare, note=doubt)


def _many(what: str, doubt: str) -> str:
    note = f"has more than {MAX_LISTED_CATEGORIES} different {what} in the public rows"
    return f"{note}; it {doubt}" if doubt else note


def _kind(seen: SeenColumn, target: bool) -> str:
    if seen.numeric:
        return "category" if target and seen.whole and len(seen.keys) <= MAX_NUMBERED_CLASSES else "number"
    return "" if seen.dates or seen.times or seen.many else "category"


def _with_bounds(column: Column, seen: SeenColumn, target: bool) -> Column:
    low, high = (seen.low if column.low is None else column.low), (seen.high if column.high is None else column.high)
    if not seen.numeric:
        return replace(column, note="holds text in the public rows, so bounds cannot be taken from them")
    heavy = seen.heavy and low > 0 and column.scale == "linear"
    note = "" if target else seen.doubt or ("" if column.unit else seen.code) or (HEAVY if heavy else "")
    if low == high and column.low is None and column.high is None:
        reach = abs(low) / 2 or 1.0
        low, high, note = low - reach, high + reach, f"{note or ONE_VALUE}; these bounds are a guess"
    if not 0 < high - low < math.inf:
        return replace(column, note="has no bounds with low < high in the public rows")
    return replace(column, low=low, high=high, note=note)


def _from_type(name: str, source: Tabular, target: bool) -> Column:
    """A column as its type declares it, in files that have types."""
    if trouble := _unusable(source, name):
        return Column(name, note=trouble)
    types = source.types(name)
    if all(kind is not None and pa.types.is_boolean(kind) for kind in types):
        return Column(name, "category", categories=(False, True))
    if all(kind is not None and is_number(kind) for kind in types):
        return Column(name) if target and any(pa.types.is_integer(kind) for kind in types) else Column(name, "number")
    values = [kind.value_type if kind is not None and pa.types.is_dictionary(kind) else kind for kind in types]
    return Column(name, "category" if all(kind is not None and is_text(kind) for kind in values) else "")


def _unusable(source: Tabular, name: str, *, dated: bool = False) -> str | None:
    known = [kind for kind in source.types(name) if kind is not None]
    return next((trouble for kind in known if (trouble := unusable(kind, dated=dated))), None)


def _with_target(schema: Schema, target: str | None) -> Schema:
    if target is None or target == schema.target:
        return schema
    if schema.target is not None:
        raise Refusal(f"target is {target!r} but the schema says {schema.target!r}; name one of them")
    return replace(schema, target=target)


def _known(source: Tabular, target: str | None) -> None:
    if target is not None and target not in source.columns:
        meant = did_you_mean(target, source.columns)
        raise Refusal(f"{source.where}: has no column {target!r}; name one of its columns as target{meant}")


def same_names(schema: Schema, source: Tabular) -> list[str]:
    """How names and types of the columns of files differ from those of a schema."""
    extra = [name for name in source.columns if name not in schema]
    needed = [column for column in schema.columns if column.kind != "ignore" or column.name == schema.unit]
    lacking = [column.name for column in needed if column.name not in source.columns]
    wrong = [f"the files lack the column {name!r}{did_you_mean(name, extra)}" for name in lacking]
    for name in extra:
        wrong.append(f'the files have the column {name!r} that the schema does not name; add it with kind = "ignore"')
    for column in needed:
        there = column.name in source.columns
        if there and (trouble := _unusable(source, column.name, dated=bool(column.unit))):
            wrong.append(f"column {column.name!r} {trouble}")
    return wrong


@dataclass(frozen=True, eq=False)
class Frame:
    """A PUBLIC DataFrame as a source of rows: columns as Arrow has them, cells of a column without a type as texts."""

    names: tuple[str, ...]
    arrays: tuple[pa.Array, ...]
    untyped: frozenset[str]

    where = "the frame"

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    def types(self, name: str) -> list[pa.DataType | None]:
        """The type of a column, None where cells are of any type."""
        return [None if name in self.untyped else self.arrays[self.names.index(name)].type]

    def batches(
        self, columns: Sequence[str] | None = None, *, progress: Share | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All rows at once."""
        names = list(self.names if columns is None else columns)
        yield pa.RecordBatch.from_arrays([self.arrays[self.names.index(name)] for name in names], names=names)


def fill_from_frame(frame: pd.DataFrame, target: str | None) -> Schema:
    """Kinds, bounds and categories as PUBLIC rows have them; a column of the type category has those of its type."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise Refusal(f"frame is {type(frame).__name__}; pass a DataFrame of public rows")
    if not len(frame):
        raise Refusal("the frame has no rows; pass public rows")
    source = framed(frame)
    made = filled_from(source, None, target)
    for name, dtype in zip(source.names, frame.dtypes, strict=True):
        if isinstance(dtype, pd.CategoricalDtype):
            made = made.with_column(_of_type(made[name], dtype, name == target))
    return made


def _of_type(column: Column, dtype: Any, target: bool) -> Column:
    """All categories of a type of pandas: it says itself what can occur."""
    values = dtype.categories.tolist()
    if not all(isinstance(value, str | bool | int | float) for value in values):
        return column
    known = {key(value) for value in values}
    rare = tuple(value for value in column.rare if key(value) in known)
    return replace(
        column, kind="category", low=None, high=None, categories=tuple(values), unknown="refuse", rare=rare, note="",
        scale="linear",
    )  # fmt: skip


def framed(frame: pd.DataFrame) -> Frame:
    """A frame as a source."""
    names = tuple(str(name) for name in frame.columns)
    if len(set(names)) < len(names):
        raise Refusal("the frame has a column twice; rename or drop one of them")
    untyped = frozenset(name for name, dtype in zip(names, frame.dtypes, strict=True) if dtype == "object")
    arrays = []
    for place, name in enumerate(names):
        with our_words(f"column {name!r} cannot be read; write numbers or texts in it"):
            arrays.append(_array(frame.iloc[:, place]))
    return Frame(names, tuple(arrays), untyped)


def _array(cells: pd.Series) -> pa.Array:
    if cells.dtype == object:
        texts = [None if gone else key(cell) for cell, gone in zip(cells, cells.isna(), strict=True)]
        return pa.array(texts, pa.string())
    found = pa.array(cells, from_pandas=True)
    whole = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return whole.dictionary_decode() if pa.types.is_dictionary(whole.type) else whole
