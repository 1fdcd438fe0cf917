"""Rows on an integer grid: what makes sums of clipped gradients exact.

A row x = r u of unit direction u is kept as x_q = round(2^14 u), 16-bit integers, and the number ``reach`` = r / 2^14, so
that x = reach x_q up to the rounding of u. N^2 = |x_q|^2 is an exact integer, and ``most`` the largest integer W with
W^2 N^2 <= M^2, M = 2^28 - 1: a record's gradient w x_q with |w| <= W has norm at most M in integers.

Each row is laid out by itself, from sums in one fixed order: its numbers depend on that row alone, whatever its company.
"""

from __future__ import annotations

import importlib
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fast import kernels
from ..models.batches import RowSource
from .totals import Floats, Integers

DIRECTION = 1 << 14  # length of a row's direction on the grid
BOUND = (1 << 28) - 1  # M: the largest norm of a record's part of a gradient sum; eight of them fit into 32 bits
CACHE_LINE_BYTES = 64
COLUMN_MULTIPLE = 32  # columns are padded with zeros to a multiple, so that no loop has a tail
ROWS_PER_CHUNK = 1 << 16
MAX_ROW_NORM = 2.0**40  # a longer row is treated as not finite
MAX_ROWS = 1 << 27  # for which every sum here fits into 64 bits
MAX_COLUMNS = 1 << 20
NO_LABEL, NO_CLASS = -math.inf, -(1 << 31)  # the label of a record that has none: of numbers, of classes

Allocator = Callable[[int, int, Any], NDArray[Any]]  # (rows, columns, dtype): an empty matrix to keep rows in


def in_memory(rows: int, columns: int, dtype: Any = np.float32) -> NDArray[Any]:
    """An empty matrix in memory, aligned to a line of the cache."""
    size = rows * columns * np.dtype(dtype).itemsize
    room = np.empty(size + CACHE_LINE_BYTES, np.uint8)
    first = -room.ctypes.data % CACHE_LINE_BYTES
    matrix: NDArray[Any] = room[first : first + size].view(dtype).reshape(rows, columns)
    return matrix


@dataclass(frozen=True)
class Mapped:
    """Keeps laid out rows in a file of ``folder``, mapped into memory, for rows that do not fit into it.

    The file never has a name: no other process can open it, and it disappears with this process, however that ends.
    """

    folder: Path

    def __call__(self, rows: int, columns: int, dtype: Any = np.float32) -> NDArray[Any]:
        if rows == 0 or columns == 0:
            return np.empty((rows, columns), dtype)
        with tempfile.TemporaryFile(dir=self.folder, prefix="noisewise-") as file:
            file.truncate(np.dtype(dtype).itemsize * rows * columns)
            return np.memmap(file, dtype, "r+", shape=(rows, columns))


@dataclass(frozen=True, slots=True, repr=False)
class GridRows:
    """Laid out rows. A row that is not finite, too long or badly labelled is zero, with ``alive`` false."""

    X: NDArray[np.int16]  # (n, columns padded to COLUMN_MULTIPLE)
    reach: NDArray[np.float32]
    squares: NDArray[np.int32]  # N^2
    most: NDArray[np.int16]
    y: NDArray[Any]  # float32, or int32 class numbers
    alive: NDArray[np.bool_]
    columns: int

    def __len__(self) -> int:
        return len(self.y)

    def directions(self, rows: Integers | slice) -> NDArray[np.int16]:
        """The integer directions of some rows, without the padding."""
        return self.X[rows, : self.columns]


def numbers(values: Any) -> NDArray[Any]:
    """Rows or labels as a plain array; refused by its type, which is public, before a cell could be quoted in an error."""
    plain = np.asarray(values)
    if plain.dtype.kind not in "fiub":
        raise TypeError("rows and labels must be real numbers; pass arrays of a type of floats or integers")
    return plain


def labels_of(y: NDArray[Any], classes: int | None) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels as they are kept, and which are usable; ``classes``: they are class numbers below it."""
    plain = numbers(y)
    if classes is None:
        with np.errstate(all="ignore"):  # no label may raise or warn
            real = plain.astype(np.float32)
        usable = np.isfinite(real)
        return np.where(usable, real, np.float32(0)), usable
    usable = (plain >= 0) & (plain < classes)
    return np.where(usable, plain, 0).astype(np.int32), usable


def labelled(y: NDArray[Any], classes: int | None) -> NDArray[np.bool_] | None:
    """Which records have a label; None where all have one. A record without a label keeps its place and is in no answer."""
    there: NDArray[np.bool_] = numbers(y) != (NO_LABEL if classes is None else NO_CLASS)
    return None if there.all() else there


def lay_out(
    X: NDArray[Any] | RowSource, y: NDArray[Any], *, columns: int, classes: int | None, store: Allocator = in_memory
) -> GridRows:
    """Rows as they came, a matrix or a source, on the grid. They are copied: changing X later changes nothing."""
    whole = None if callable(X) else numbers(X)
    if np.ndim(y) != 1 or (whole is not None and len(whole) != len(y)):
        raise ValueError("there is not one label for each row; pass as many labels as rows")

    def part(start: int, length: int) -> tuple[Floats, Floats]:
        rows = X(start, length) if whole is None else whole[start : start + length]  # type: ignore[operator]
        with np.errstate(all="ignore"):  # no row may raise or warn
            plain = numbers(rows).astype(np.float32).astype(np.float64)
        return plain, np.ones(len(plain))

    labels, usable = labels_of(y, classes)
    return _laid_out(part, labels, usable, columns, store)


def in_new_basis(rows: GridRows, matrix: Floats, store: Allocator = in_memory) -> GridRows:
    """Every row x replaced by x @ matrix and laid out anew; products are of integers, so exact.

    The matrix is put on a grid of its own on which its columns have norm below 2^37: a product of a row with a column is
    an integer below 2^53, which double precision holds exactly, in whatever order it is summed.
    """
    grid = power_of_two_above(longest(matrix.T) / 2.0**36)
    integers = np.rint(matrix / grid)

    def part(start: int, length: int) -> tuple[Floats, Floats]:
        here = slice(start, start + length)
        return rows.directions(here).astype(np.float64) @ integers, rows.reach[here].astype(np.float64) * grid

    return _laid_out(part, rows.y, rows.alive, matrix.shape[1], store)


def longest(vectors: Floats) -> float:
    """The length of the longest row; squares of numbers about 1, which neither overflow nor vanish."""
    largest = float(np.abs(vectors).max(initial=0.0))
    scaled = vectors / (largest or 1.0)
    return largest * float(np.sqrt((scaled * scaled).sum(1)).max())


def power_of_two_above(value: float) -> float:
    """The least power of two that is at least ``value`` > 0; 1 for zero."""
    if value == 0:
        return 1.0
    m, e = math.frexp(value)
    return math.ldexp(1.0, e - 1 if m == 0.5 else e)


def _laid_out(
    part: Callable[[int, int], tuple[Floats, Floats]],
    labels: NDArray[Any],
    usable: NDArray[np.bool_],
    columns: int,
    store: Allocator,
) -> GridRows:
    n = len(labels)
    if n > MAX_ROWS or columns > MAX_COLUMNS:
        raise ValueError(f"more than {MAX_ROWS} rows or {MAX_COLUMNS} columns do not fit; pass fewer")
    X = store(n, -(-columns // COLUMN_MULTIPLE) * COLUMN_MULTIPLE, np.int16)
    reach, squares, most = np.zeros(n, np.float32), np.zeros(n, np.int32), np.zeros(n, np.int16)
    alive = np.zeros(n, np.bool_)
    lay = arithmetic().lay_out_rows
    height = min(ROWS_PER_CHUNK, max((1 << 25) // max(columns, 1), 256))
    for start in range(0, n, height):
        here = slice(start, min(start + height, n))
        numbers, scale = part(start, here.stop - start)
        if numbers.shape != (here.stop - start, columns):  # the kernel reads and writes as many
            raise ValueError(
                "there is not one label for each row, or rows have other columns; pass as many labels as rows"
            )
        lay(numbers, scale, usable[here], X[here], reach[here], squares[here], most[here], alive[here])
    return GridRows(X, reach, squares, most, np.where(alive, labels, labels.dtype.type(0)), alive, columns)


def arithmetic() -> Any:
    """The module whose kernels are in use: compiled, or the reference; both give the same bits."""
    return _module("..fast.rows_compiled" if kernels.compiled() else ".reference")


@cache
def _module(name: str) -> Any:
    return importlib.import_module(name, __package__)
