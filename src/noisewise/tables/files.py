"""CSV and Parquet files as a stream of record batches, in bounded memory.

A CSV is read as text throughout, so that what a cell means never depends on the cells around it. Messages name the
file and the column and never show a value, a count or the number of a row.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from ..trusted.validate import did_you_mean
from .addresses import CHANGED, Place, readable, refused, size_of, steady
from .addresses import Paths as Paths
from .addresses import find_files as find_files
from .refusal import Refusal, our_words
from .values import MISSING_WORDS, is_moment, number_of

Share = Callable[[float], None]
BYTES_PER_BLOCK = 1 << 21  # of CSV, in memory at once, and so the longest row
ROWS_PER_BATCH = 1 << 15  # of Parquet, in memory at once
LINE_PATTERN = re.compile(rb'(?:[^"\r\n]++|"[^"]*+"?+)*+')  # up to a line end outside of quotes
SEPARATORS = {"tab": "\t", "\\t": "\t"}
NOTHING = ("Empty CSV file", "CSV parse error: Empty CSV file")  # errors of Arrow about column names without a line end
COMMA = {b"decimal": b","}  # metadata of a CSV batch with decimal commas
NAMED = {";": "';'", "\t": "a tab", "|": "'|'"}


@dataclass(frozen=True)
class TableFile:
    """One file: its column names, without surrounding space, and its column types if it has any (Parquet)."""

    path: Place
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...] | None
    separator: str
    decimal: str = "."
    groups: tuple[int, ...] | None = None  # row groups of a Parquet file that are read; None: all

    def batches(self, columns: Sequence[str], progress: Share) -> Iterator[pa.RecordBatch]:
        """The named columns, batch by batch."""
        order = [self.columns.index(name) for name in columns]
        read = _csv_batches if self.types is None else _parquet_batches
        with steady(self.path):
            for batch in read(self, order, progress):
                made = pa.RecordBatch.from_arrays(batch.columns, names=list(columns))
                yield made.replace_schema_metadata(COMMA) if self.types is None and self.decimal == "," else made


@dataclass(frozen=True)
class Source:
    """Files with the same columns, read one after the other."""

    files: tuple[TableFile, ...]
    part: bool = False  # of the files that belong together, and so it may have no rows

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in the order of the first file."""
        return self.files[0].columns

    @property
    def paths(self) -> tuple[Place, ...]:
        """Where the files are."""
        return tuple(file.path for file in self.files)

    @property
    def where(self) -> str:
        """The file that messages name."""
        return str(self.files[0].path)

    def types(self, name: str) -> list[pa.DataType | None]:
        """The type of a column in each file; None where a file has no types (CSV)."""
        return [None if file.types is None else file.types[file.columns.index(name)] for file in self.files]

    def batches(
        self, columns: Sequence[str] | None = None, *, progress: Share | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the named columns (all by default); ``progress`` hears the share of bytes that was read.

        No rows at all is an error; a file without rows beside others is not.
        """
        stream = self._batches(columns, progress)
        while True:
            with our_words(f"{self.where}: cannot be read; write it anew"):  # Arrow quotes the row it stumbles on
                batch = next(stream, None)
            if batch is None:
                return
            yield batch

    def _batches(self, columns: Sequence[str] | None, progress: Share | None) -> Iterator[pa.RecordBatch]:
        names = self.columns if columns is None else tuple(columns)
        for name in names:
            for file, kind in zip(self.files, self.types(name), strict=True):
                if kind is not None and (trouble := unusable(kind, dated=True)):  # a unit may make numbers of dates
                    raise Refusal(f"{file.path}: column {name!r} {trouble}")
        sizes = [size_of(file.path) for file in self.files]
        before, empty = 0, True
        for file, size in zip(self.files, sizes, strict=True):

            def passed(share: float, start: int = before, size: int = size) -> None:
                if progress is not None:
                    progress((start + min(share, 1.0) * size) / max(sum(sizes), 1))

            for batch in file.batches(names, passed):
                empty = empty and batch.num_rows == 0
                yield batch
            before += size
        if empty and not self.part:
            raise Refusal(f"{self.files[0].path}: has column names but no rows; pass a file with records")


@our_words("the files cannot be opened; check that they can be read")
def open_source(paths: Paths, *, separator: str | Dialect | None = None) -> Source:
    """Find the files and read their column names (and types, for Parquet): a file, several, a folder or a glob."""
    dialect = separator if isinstance(separator, Dialect) else Dialect(separator)
    files = tuple(_open(path, dialect) for path in find_files(paths))
    first = files[0]
    for file in files[1:]:
        for one, other in ((first, file), (file, first)):
            if lacking := [name for name in one.columns if name not in set(other.columns)]:
                raise Refusal(
                    f"{other.path}: lacks the column {lacking[0]!r} that {one.path} has; "
                    f"all files need the same columns, in any order{did_you_mean(lacking[0], other.columns)}"
                )
    return Source(files)


def unusable(kind: pa.DataType, *, dated: bool = False) -> str | None:
    """What to say after "column 'born'" about a type that is neither number, text nor boolean; None if it is.

    ``dated``: a unit makes numbers of dates and times.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_moment(kind):
        day = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        what, unit = ("date", "years") if day else ("time", "hours")
        said = (
            f'is a {what}; turn it into a number in the schema, with kind = "number" and unit = "{unit}" (or days, ..)'
        )
        return None if dated else f'{said}, or set kind = "ignore"'
    if pa.types.is_nested(kind):
        return 'holds lists or records; spread them over plain columns, or set kind = "ignore"'
    if is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return None
    return 'is neither number, text nor boolean; convert it, or set kind = "ignore"'


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


@dataclass(frozen=True)
class Dialect:
    """How a CSV is written: what separates its columns (None: a comma, a tab in a .tsv), and the decimal sign.

    >>> Dialect("tab", ",").separator
    '\\t'
    """

    separator: str | None = None
    decimal: str | None = None

    @classmethod
    def of(cls, separator: str | Dialect | None, decimal: str | None) -> Dialect:
        """A dialect from both arguments; ``separator`` may be a dialect already."""
        return separator if isinstance(separator, Dialect) else cls(separator, decimal)

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise Refusal(f"decimal is {self.decimal!r}; pass '.' or ','")
        if self.separator is None:
            return
        sign = SEPARATORS.get(self.separator, self.separator)
        if len(sign) != 1 or not sign.isascii() or sign in '"\r\n\0':
            raise Refusal(f"separator is {sign!r}; pass one character such as ';', or tab")
        object.__setattr__(self, "separator", sign)


def _open(path: Place, dialect: Dialect) -> TableFile:
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise refused(path, error, f"{path}: cannot be read ({error.strerror})") from None
    if not magic:
        raise Refusal(f"{path}: is empty; pass a file with column names and records")
    if magic == b"PAR1" or path.suffix.lower() in (".parquet", ".pq"):
        return _open_parquet(path)
    if magic.startswith(b"PK"):
        raise Refusal(f"{path}: is a spreadsheet or a zip archive; save the table as CSV (UTF-8)")
    sign = dialect.separator or ("\t" if ".tsv" in path.name.lower() else ",")
    return replace(_open_csv(path, sign), decimal=dialect.decimal or ".")


def _open_parquet(path: Place) -> TableFile:
    from pyarrow.parquet import read_schema

    try:
        with readable(path) as opened:
            schema = read_schema(opened)
    except (pa.ArrowException, OSError) as error:
        raise refused(path, error, f"{path}: is not a Parquet file, or is cut short; write it anew") from None
    return TableFile(path, _names(path, schema.names), tuple(schema.types), ",")


def _open_csv(path: Place, separator: str) -> TableFile:
    head = _head(path)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _not_utf8(path, "UTF-16")
    raw = _header(path, head, separator)
    names = _names(path, raw)
    if len(raw) == 1 and (other := [sign for sign in NAMED if sign in raw[0]]):
        word = "tab" if other[0] == "\t" else f"'{other[0]}'"
        raise Refusal(f"{path}: the columns seem to be separated by {NAMED[other[0]]}; pass --separator {word}")
    if _like_a_record(names):
        raise Refusal(f"{path}: the first line looks like a record; put a line with the names of the columns on top")
    return TableFile(path, names, None, separator)


def _header(path: Place, head: bytes, separator: str) -> list[str]:
    """The column names as they are written, from the first bytes of the file."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    line = LINE_PATTERN.match(head).group()  # type: ignore[union-attr]  # matches always
    if len(line) == len(head) > BYTES_PER_BLOCK // 2:
        raise _too_long(path)
    reader = csv.reader(io.StringIO(line.decode(errors="surrogateescape"), newline=""), delimiter=separator)
    old = csv.field_size_limit(BYTES_PER_BLOCK)
    try:
        raw = next((row for row in reader if row), [])
    except csv.Error:
        raise Refusal(f"{path}: the line with the column names cannot be read; check its quotes") from None
    finally:
        csv.field_size_limit(old)
    if not raw:
        raise Refusal(f"{path}: is empty; pass a file with column names and records")
    text = "".join(raw)
    if "\n" in text or "\r" in text:  # most likely an open quote, and then these are records
        raise Refusal(f"{path}: a column name goes over several lines; check quotes in the first line")
    if "\0" in text or any("\udc80" <= letter <= "\udcff" for letter in text):
        raise _not_utf8(path, "UTF-16" if "\0" in text else "WINDOWS-1252")
    return raw


def _names(path: Place, raw: Sequence[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in raw)
    if not names:
        raise Refusal(f"{path}: has no columns; pass a table")
    if "" in names:
        hint = "; if it is a row number that pandas wrote, write with index=False" if names[0] == "" else ""
        raise Refusal(f"{path}: has a column without a name (column {names.index('') + 1}); name it{hint}")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Refusal(f"{path}: column {name!r} is there twice; rename or drop one of them")
        seen.add(name)
    return names


def _like_a_record(names: Sequence[str]) -> bool:
    """Whether names look like cells: otherwise a record of a file without header would end up in a schema.

    Numbers are taken for names when they ascend (as pixels and sensors do), start at 0 or 1, or are years.
    """
    if any(name.lower() in MISSING_WORDS for name in names):
        return True
    numbers = [number for name in names if (number := number_of(name)) is not None and name[0] in "+-.0123456789"]
    if not numbers:
        return False
    whole = all(number >= 0 and number == int(number) for number in numbers if abs(number) < 1e15)
    ascending = all(a < b for a, b in pairwise(numbers))
    years = all(1800 <= number <= 2200 for number in numbers)
    return not (whole and ascending and (len(numbers) > 2 or numbers[0] in (0, 1) or years))


def _input(path: Place) -> tuple[Any, Any]:
    """The stored bytes of a file, and the decompressed ones."""
    local = isinstance(path, Path)
    raw = pa.OSFile(str(path)) if local else path.open()
    packed = raw.read(2) == b"\x1f\x8b" or path.suffix.lower() == ".gz"
    raw.seek(0)
    if not packed:
        return raw, raw
    return raw, pa.CompressedInputStream(raw if local else pa.BufferedInputStream(raw, BYTES_PER_BLOCK), "gzip")


def _head(path: Place) -> bytes:
    try:
        stored, stream = _input(path)
        with stored, stream:
            return bytes(stream.read(BYTES_PER_BLOCK))
    except (pa.ArrowException, OSError) as error:
        raise refused(path, error, f"{path}: is not a gzip file, or is cut short; compress it anew") from None


def _csv_batches(file: TableFile, order: Sequence[int], progress: Share) -> Iterator[pa.RecordBatch]:
    """Batches of a CSV, every cell as text."""
    path = file.path
    raw = _header(path, _head(path), file.separator)
    if _names(path, raw) != file.columns:
        raise Refusal(CHANGED.format(path))
    options = {
        "read_options": pacsv.ReadOptions(block_size=BYTES_PER_BLOCK),
        "parse_options": pacsv.ParseOptions(
            delimiter=file.separator, newlines_in_values=True, invalid_row_handler=None, ignore_empty_lines=True
        ),
        "convert_options": pacsv.ConvertOptions(
            column_types=dict.fromkeys(raw, pa.string()),
            include_columns=[raw[i] for i in order],
            strings_can_be_null=False,
        ),
    }
    try:
        stored, stream = _input(path)
        with stored, stream, pacsv.open_csv(stream, **options) as reader:
            for batch in reader:
                progress(stored.tell() / max(stored.size(), 1))
                yield batch
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if not str(error).startswith(NOTHING):
            raise refused(path, error, str(_csv_error(path, str(error), len(raw)))) from None


def _csv_error(path: Place, message: str, columns: int) -> Refusal:
    """The refusal for an error of Arrow, without the row that Arrow quotes."""
    if message.startswith("CSV parse error"):
        return Refusal(
            f"{path}: a row has more or fewer fields than the {columns} columns of the header; "
            "check quotes and separators inside of texts"
        )
    if "UTF8" in message or "utf-8" in message:
        return _not_utf8(path)
    if message.startswith("straddling"):
        return _too_long(path)
    return Refusal(f"{path}: cannot be read as CSV, or is cut short; write it anew")


def _parquet_batches(file: TableFile, order: Sequence[int], progress: Share) -> Iterator[pa.RecordBatch]:
    """Batches of a Parquet file; pages are read as they are needed, not whole row groups."""
    from pyarrow.parquet import ParquetFile

    try:
        with (
            readable(file.path) as opened,
            ParquetFile(opened, buffer_size=1 << 20, pre_buffer=False) as stored,
        ):
            raw, total, done = stored.schema_arrow.names, _rows(stored, file.groups), 0
            names = [raw[i] for i in order]
            for batch in stored.iter_batches(batch_size=ROWS_PER_BATCH, columns=names, row_groups=file.groups):
                done += batch.num_rows
                progress(done / max(total, 1))
                _check_text(batch, file.path)
                yield batch.select(names)
        if done != total:
            raise Refusal(f"{file.path}: is damaged: it has other rows than it declares; write it anew")
    except (pa.ArrowException, OSError) as error:
        raise refused(file.path, error, f"{file.path}: is damaged or cut short; write it anew") from None


def _rows(stored: Any, groups: Sequence[int] | None) -> int:
    if groups is None:
        return int(stored.metadata.num_rows)
    return sum(int(stored.metadata.row_group(group).num_rows) for group in groups)


def _check_text(batch: pa.RecordBatch, path: Place) -> None:
    for name, cells in zip(batch.schema.names, batch.columns, strict=True):
        try:
            cells.validate(full=True)
        except pa.ArrowInvalid:
            raise Refusal(f"{path}: column {name!r} holds text that is not UTF-8; write it anew") from None


def _not_utf8(path: Place, encoding: str = "WINDOWS-1252") -> Refusal:
    return Refusal(
        f"{path}: is not UTF-8 text; convert it, e.g. iconv -f {encoding} -t UTF-8 {path.name} > utf8-{path.name}"
    )


def _too_long(path: Place) -> Refusal:
    return Refusal(
        f"{path}: a row is longer than {BYTES_PER_BLOCK >> 20} MB; check line ends, and for a quote that is never closed"
    )
