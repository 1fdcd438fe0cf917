"""From files to bounded rows: declared bounds, scaling, and rows kept in single precision, in memory or in a mapped file.

Scaling by declared bounds keeps any record from reaching further than its neighbours know. No bound is read from private rows:
values outside the declared ones are clamped, an infinite value becomes the nearest bound, and NaN the middle of the bounds.
"""

from __future__ import annotations

import errno
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..trusted import elementwise as plain
from ..trusted.features import TableColumn, cell_type, log_scale
from ..trusted.validate import did_you_mean
from .addresses import CHANGED
from .encode import Encoder, labelled
from .files import Dialect, Paths, Share, Source, open_source
from .refusal import Refusal, our_words
from .schema import Column, Schema
from .values import key

Floats = NDArray[np.float64]
WAYS_OUT = (
    "pass bounds=(low, high), one pair per column or {'column': (low, high), ...}, declared by you and never read from private "
    "rows; a schema=, which has categories too (noisewise.Schema); or bounds='buy', which pays for them from the budget"
)
Singles = NDArray[Any]  # float32; cells of a table float64 where a declared scale is too fine for that
CELLS_AT_ONCE = 1 << 19  # of the matrix that is scaled at once, 4 MB
MAX_BYTES_IN_MEMORY = 200 << 20  # more rows go to a file
NOT_READ = "{}: cannot be read, or its rows find no place; check the file, memory and the folder for rows"
SHRINK = 1 - 2.0**-20


@dataclass(frozen=True)
class Scaling:
    """Columns to [-1, 1] (to [0, 1] when the lower bound is 0, which keeps zeros zero), an intercept, rows of norm <= 1.

    ``unit_rows=True`` divides each row by its own norm (harmless for the sign of a linear score); ``False`` divides
    every row by the largest norm the bounds allow, which keeps a linear function of the features linear.
    """

    low: Floats
    high: Floats
    unit_rows: bool
    kept: ClassVar[type[np.floating[Any]]] = np.float32  # the type in which rows are kept
    cells: ClassVar[bool] = False  # whether rows are cells of a table, from which a method makes its features

    def __post_init__(self) -> None:
        """Bounds may come from a server: a matrix of them could give each record bounds of its own."""
        ends = self.low, self.high
        plain = all(type(end) is np.ndarray and end.ndim == 1 and np.isfinite(end).all() for end in ends)
        if not plain or len(self.low) != len(self.high) or not (self.low < self.high).all():
            raise ValueError("bounds of columns are one finite pair for each, low below high")

    @property
    def features(self) -> int:
        """Columns after scaling, the intercept included."""
        return len(self.low) + 1

    def __call__(self, X: Floats) -> Floats:
        if X.ndim != 2 or X.shape[1] != len(self.low):
            raise ValueError("rows have other columns than there are bounds for")
        anchored = self.low == 0
        centre = np.where(anchored, 0.0, (self.low + self.high) / 2)
        reach = np.where(anchored, self.high, (self.high - self.low) / 2)
        middle = (self.low + self.high) / 2
        bounded = np.clip(np.where(np.isnan(X), middle, X), self.low, self.high)
        rows = np.empty((len(X), self.features))
        rows[:, :-1] = np.clip((bounded - centre) / reach, -1, 1)  # rounding of extreme bounds must not reach further
        rows[:, -1] = 1.0
        rows /= plain.lengths(rows)[:, None] if self.unit_rows else math.sqrt(self.features)
        return rows


@dataclass(frozen=True)
class Cells(Scaling):
    """The cells of a table, unscaled, for a method that makes features of its ``columns``: their scales clamp and place them.

    ``low`` and ``high`` are those of :class:`Scaling`, which a run folder keeps for every model.
    """

    columns: tuple[TableColumn, ...] = ()
    cells: ClassVar[bool] = True

    @property
    def features(self) -> int:
        return len(self.columns)

    @property
    def kept(self) -> type[np.floating[Any]]:  # type: ignore[override]
        return cell_type(self.columns)

    def __call__(self, X: Floats) -> Floats:
        return np.array(X, dtype=np.float64)


def declared_bounds(
    columns: int, names: Sequence[str] | None, *, bounds: Any, schema: Mapping[str, Any] | None
) -> tuple[Floats, Floats]:
    """Lower and upper bound of each column from ``bounds`` (one pair, one per column, or by name) or ``schema`` (by name)."""
    if schema is not None and bounds is not None:
        raise ValueError("bounds and schema are both given; pass one of them")
    named = schema if schema is not None else bounds if isinstance(bounds, Mapping) else None
    if named is not None:
        bounds = _by_name("bounds" if schema is None else "schema", named, names)
    if bounds is None:
        raise ValueError(f"bounds are missing; {WAYS_OUT}")
    try:
        pairs = np.asarray(bounds, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"bounds is {bounds!r}; {WAYS_OUT}") from None
    if pairs.shape == (2,):
        pairs = np.tile(pairs, (columns, 1))
    if pairs.shape != (columns, 2):
        raise ValueError(f"bounds has shape {pairs.shape}; pass (low, high), or one pair for each of {columns} columns")
    low, high = pairs[:, 0].copy(), pairs[:, 1].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        bad = np.flatnonzero(~(np.isfinite(high - low) & (low < high)))
    if len(bad):
        column = f"column {names[bad[0]]!r}" if names is not None else f"column {bad[0]}"
        raise ValueError(f"bounds of {column} are {tuple(pairs[bad[0]].tolist())}; pass finite numbers with low < high")
    return low, high


def _by_name(who: str, bounds: Mapping[str, Any], names: Sequence[str] | None) -> list[Any]:
    """The pairs of bounds in the order of the columns."""
    if names is None:
        raise ValueError(f"{who} names columns but X has no column names; pass a DataFrame, or one pair per column")
    if missing := [name for name in names if name not in bounds]:
        meant = did_you_mean(missing[0], [name for name in bounds if name not in set(names)])
        raise ValueError(f"{who} has no bounds for column {missing[0]!r}; add {missing[0]!r}: (low, high){meant}")
    for name in names:
        if isinstance(bounds[name], str) or np.shape(bounds[name]) != (2,) or isinstance(bounds[name][0], str):
            raise ValueError(
                f"{who} has no pair (low, high) for column {name!r}; for categories pass "
                f"schema=noisewise.Schema({{{name!r}: ['one', 'another'], ...}}), with (low, high) for numbers"
            )
    return [bounds[name] for name in names]


def interval(name: str, pair: Any) -> tuple[float, float]:
    """One declared (low, high), checked."""
    try:
        low, high = (float(end) for end in pair)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {pair!r}; pass (low, high)") from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"{name} is {pair!r}; pass finite numbers with low < high")
    return low, high


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of norm <= 1, the intercept last, and their labels (None where they were not asked for).

    ``there``: which records have a label, where a schema drops those that have none and some have none.
    """

    X: Singles
    y: NDArray[Any] | None
    there: NDArray[np.bool_] | None = None

    def with_labels(self) -> Rows:
        """Only the rows with a label. For PUBLIC rows: private rows keep their places."""
        if self.there is None or self.y is None:
            return self
        return Rows(self.X[self.there], self.y[self.there])

    def __repr__(self) -> str:
        return "Rows(...)"


def in_single_precision(rows: NDArray[np.float64]) -> Singles:
    """Rows of norm <= 1 as float32, their exact norm still <= 1.

    Rounding moves a coordinate by at most 2^-24 of itself (or 2^-150, near zero), so a norm grows by a factor of at most
    1 + 2^-24, up to sqrt(columns) 2^-150. The norm of a row from :class:`Scaling` is at most 1 + columns 2^-52, by the
    rounding of double precision. Shrinking by 1 - 2^-20 first, which no model notices, outweighs both for up to 2^31
    columns: (1 - 2^-20)(1 + 2^-24)(1 + 2^-21) < 1.

    >>> rows = in_single_precision(np.full((1, 3), 1 / np.sqrt(3)))
    >>> bool(np.linalg.norm(rows.astype(float)) <= 1)
    True
    """
    return (rows * SHRINK).astype(np.float32)


def single_rows(encoder: Encoder, scaling: Scaling, piece: Any, *, predict: bool = False) -> Singles:
    """Rows of a piece of a table as a model takes them: scaled, or its cells."""
    if scaling.cells:
        with np.errstate(over="ignore"):  # beyond single precision is beyond all bounds
            return encoder.table(piece, predict=predict).astype(scaling.kept)
    return in_single_precision(scaling(encoder(piece, predict=predict)))


def read_rows(
    paths: Paths,
    encoder: Encoder,
    scaling: Scaling,
    *,
    separator: str | Dialect | None = None,
    cache: str | Path | None = None,
    progress: Share | None = None,
    predict: bool = False,
    counted: NDArray[np.bool_] | None = None,
) -> Rows:
    """Read, encode and scale files in one pass, a few chunks at a time.

    ``cache``: a folder for the rows. They go into a file without a name there (mode 0600, gone with the process even
    after a crash) and are mapped into memory. Without it, rows that take more than 200 MB go to the system's temporary
    folder in the same way. ``progress`` hears the share of bytes read. ``predict``: no labels, other columns ignored.
    ``counted``: which rows count, for those of persons; the others are checked like all and left out.
    """
    if cache is not None and not Path(cache).is_dir():
        raise Refusal(f"cache is {str(cache)!r}; pass an existing folder")
    if len(scaling.low) != len(encoder.low):
        raise Refusal(f"scaling is for {len(scaling.low)} columns; the schema makes {len(encoder.low)}")
    labels: list[NDArray[Any]] = []
    read = 0
    source = open_source(paths, separator=separator)
    with our_words(NOT_READ.format(source.files[0].path)), RowStore(scaling.features, cache, scaling.kept) as store:
        for piece in cut_batches(source, encoder, predict, progress):
            here = slice(None) if counted is None else counted[read : read + piece.num_rows]
            read += piece.num_rows
            if counted is not None and read > len(counted):
                raise Refusal(CHANGED.format(source.files[0].path))
            store.append(single_rows(encoder, scaling, piece, predict=predict)[here])
            if not predict:
                labels.append(encoder.labels(piece)[here])
        if counted is not None and read < len(counted):
            raise Refusal(CHANGED.format(source.files[0].path))
        if predict:
            return Rows(store.matrix(), None)
        return rows_of(store, np.concatenate(labels), encoder)


def read_matrix(
    paths: Paths, encoder: Encoder, *, separator: str | Dialect | None = None, predict: bool = False, clamp: bool = True
) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    """The encoded, unscaled matrix and the labels of small public data, of rows with a label. ``clamp``: clamp numeric labels, too."""
    rows, labels = [], []
    source = open_source(paths, separator=separator)
    with our_words(NOT_READ.format(source.files[0].path)):
        for piece in cut_batches(source, encoder, predict):
            rows.append(encoder(piece, predict=predict))
            if not predict:
                labels.append(encoder.labels(piece, clamp=clamp))
        if predict:
            return np.concatenate(rows), None
        y = np.concatenate(labels)
        there = labelled(y) if encoder.schema.target_missing == "drop" else slice(None)
        return np.concatenate(rows)[there], y[there]


def cut_batches(
    source: Source, encoder: Encoder, predict: bool = False, progress: Share | None = None
) -> Iterator[pa.RecordBatch]:
    """Batches cut so that the encoded matrix of each stays small, whatever the number of categories."""
    try:
        encoder.check(source.columns, predict=predict)
    except Refusal as error:
        raise Refusal(f"{source.files[0].path}: {error}") from None
    names = encoder.columns[:-1] if predict and encoder.schema.target is not None else encoder.columns
    rows = max(CELLS_AT_ONCE // max(len(encoder.low), len(names)), 1)
    for batch in source.batches(names, progress=progress):
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)
    pa.default_memory_pool().release_unused()  # give the memory of the texts back to the system


class RowStore:
    """Collects rows in memory while they are few, then in a nameless file that is mapped at the end."""

    def __init__(self, features: int, folder: str | Path | None, kept: type[np.floating[Any]] = np.float32) -> None:
        self._features, self._folder, self._kept = features, folder, np.dtype(kept)
        self._chunks: list[Singles] = []
        self._rows = 0
        self._file: IO[bytes] | None = None

    def append(self, rows: Singles) -> None:
        """Add rows of the kept type."""
        self._rows += len(rows)
        self._chunks.append(rows)
        if self._file is None and (
            self._folder is not None or self._rows * self._features * self._kept.itemsize > MAX_BYTES_IN_MEMORY
        ):
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  closed in __exit__
        if self._file is not None:
            self._spill(self._file)

    def matrix(self) -> Singles:
        """All rows as one matrix: a mapping of the file, or memory."""
        if self._file is None:
            return np.concatenate(self._chunks)
        if self._rows == 0:  # no row counts
            return np.empty((0, self._features), self._kept)
        self._file.flush()
        shape = (self._rows, self._features)
        # writable, because torch warns about read-only arrays; no other process has the file
        return np.asarray(np.memmap(self._file, self._kept, "r+", shape=shape))

    def _spill(self, file: IO[bytes]) -> None:
        try:
            for chunk in self._chunks:
                file.write(np.ascontiguousarray(chunk).data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            where = self._folder or tempfile.gettempdir()
            raise Refusal(f"{where}: no space left for the rows; pass another folder as cache") from None
        self._chunks.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()  # a mapping keeps the bytes


def rows_of(store: RowStore, y: NDArray[Any], encoder: Encoder) -> Rows:
    """The collected rows with their labels, and which of them have one."""
    there = labelled(y) if encoder.schema.target_missing == "drop" else None
    return Rows(store.matrix(), y, None if there is None or there.all() else there)


def columns_of(schema: Schema) -> tuple[TableColumn, ...]:
    """The features of a complete schema as columns of a table."""
    return tuple(_number(column) if column.kind == "number" else _category(column) for column in schema.features)


def number_columns(low: Floats, high: Floats, names: Sequence[str] | None) -> tuple[TableColumn, ...]:
    """Columns of an array with declared bounds."""
    words = [f"x{i}" for i in range(len(low))] if names is None else [str(name) for name in names]
    ends = zip(words, low.tolist(), high.tolist(), strict=True)
    return tuple(TableColumn(name, (first, last), (0.0, 1.0)) for name, first, last in ends)


def _number(column: Column) -> TableColumn:
    assert column.low is not None and column.high is not None
    if column.knots:
        ranks = tuple(np.linspace(0.0, 1.0, len(column.knots)).tolist())
        return TableColumn(column.name, column.knots, ranks, knots=len(column.knots))
    if column.scale == "log":
        return TableColumn(column.name, *log_scale(column.low, column.high))
    return TableColumn(column.name, (column.low, column.high), (0.0, 1.0))


def _category(column: Column) -> TableColumn:
    """A coordinate for each category; those that the schema calls rare share one."""
    keys = [key(value) for value in column.categories]
    rare = {key(value) for value in column.rare}
    groups, common = [], 0
    for name in keys:
        groups.append(-1 if name in rare else common)
        common += name not in rare
    return TableColumn(column.name, groups=tuple(common if group < 0 else group for group in groups), words=tuple(keys))
