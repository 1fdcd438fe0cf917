"""Private records whose rows have a known number of entries, as hats and categories do: exact totals, few operations.

A row has ``entries`` of ``width`` coordinates, each at a place of its own, kept as x_q = round(2^14 x) in 16 bits, and norm
at most 1: a longer one is cut to it. Each row is laid out by itself. A public centre m and scale s change what counts to
x' = s (x - m), without touching an entry: sums of w (x_q - m_q) are sums of w x_q less (sum of w) m_q, and the length of
x_q - m_q is an exact integer, so clipping is in integers as for other rows (:mod:`noisewise.trusted.stores.sparse_reference`).

What is asked rarely is computed in chunks of rows written out in full, by the same steps as for a linear model's rows.

*Words.* The entries of a few neighbouring blocks of a row are a word. Where columns have few values there are far fewer words than
rows: a word's part of a score is worked out once, and so is what it adds to a sum, times the sum of the weights of the rows that
have it. All of it is in integers, so a sum is the same with words or without, bit for bit. Words are found in private rows and
stay with them: nothing but the time and memory that a sum takes depends on them.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fast import kernels
from . import sparse_reference as reference
from .grid import BOUND, DIRECTION, MAX_COLUMNS, MAX_ROWS, ROWS_PER_CHUNK, Allocator, in_memory, labels_of
from .linear import MAX_ROWS_PER_SUM, NONE, NUMBERS_AT_ONCE, LinearRecords, in_parallel, unit_rows
from .totals import Drawn, FloatRows, Floats, Integers, IntegerTotal

MAX_FULL_COLUMNS = 4096  # up to which rows are written out in full, all of them
SCALE_RANGE = 1e-6, 1e6
ENTRIES_AT_ONCE = 1 << 17  # laid out at once: they stay in the cache
MIN_ROWS_PER_WORD = 8  # of a block; twice as many for those of several blocks
MAX_WORDS_PER_BLOCK = 4096
MAX_KEYS = 1 << 20  # words that there is room for while they are found
MAX_WORDS = (1 << 16) - 1
MAX_PAIRED_WORDS = 1 << 16  # pairs of words up to which two blocks are put together
SAVED = 0.8  # of the entries: words that leave more are not worth their while
RowSlice = Callable[[int, int], tuple[NDArray[Any], Floats]]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RowWords:
    """Rows as words and loose entries. The entries of word d are those from ``ends[d]`` to ``ends[d + 1]``."""

    codes: NDArray[np.uint16]  # (n, groups): the number of each word of a row
    ends: Integers
    word_places: NDArray[np.uint32]
    word_values: NDArray[np.int16]
    places: NDArray[np.uint32]  # (n, at most): loose entries
    values: NDArray[np.int16]
    filled: NDArray[np.int32]


@dataclass(frozen=True, slots=True, repr=False)
class SparseRows:
    """Laid out rows. A row that is not finite, badly placed or badly labelled has no entries, and ``alive`` false."""

    places: NDArray[np.int32]  # (n, entries)
    values: NDArray[np.int16]
    filled: NDArray[np.int32]  # how many entries are not zero: they come first
    reach: Floats  # scale / 2^14, zero for the dead
    squares: NDArray[np.int32]  # N^2 of what counts, x_q - m_q
    most: NDArray[np.int32]
    y: NDArray[Any]  # float32, or int32 class numbers
    alive: NDArray[np.bool_]
    centre: Integers  # m_q
    columns: int
    starts: Integers  # where blocks of coordinates begin, in which a row's entries come one after another
    words: RowWords | None = None  # the same rows for sums over all of them

    def __len__(self) -> int:
        return len(self.y)

    def directions(self, rows: Integers | slice) -> NDArray[np.int32]:
        """x_q - m_q of some rows, written out in full; zero for the dead."""
        places, values = self.places[rows], self.values[rows]
        full = np.tile(-self.centre.astype(np.int32), (len(values), 1))
        full[np.arange(len(values))[:, None], places] += values
        full[~self.alive[rows]] = 0
        return full


def lay_out_sparse(
    part: RowSlice,
    labels: NDArray[Any],
    *,
    entries: int,
    width: int,
    classes: int | None,
    store: Allocator = in_memory,
    starts: Sequence[int] = (0,),
) -> SparseRows:
    """Rows in chunks, ``part(start, length)`` giving the places and the values of ``entries`` each, on the grid.

    ``starts``: where blocks of coordinates begin, if entries come block by block.
    """
    if not 1 <= entries <= width <= MAX_COLUMNS or len(labels) > MAX_ROWS:
        raise ValueError(
            f"{entries} entries of {width} columns: pass 1 <= entries <= width <= {MAX_COLUMNS}, and at most {MAX_ROWS} rows"
        )
    y, usable = labels_of(labels, classes)
    n, alive = len(y), np.zeros(len(y), np.bool_)
    places, values = store(n, entries, np.int32), store(n, entries, np.int16)
    height = max(ENTRIES_AT_ONCE // entries, 64)
    for start in range(0, n, height):
        here = slice(start, min(start + height, n))
        shape = (here.stop - start, entries)
        where, numbers = (np.asarray(array) for array in part(start, shape[0]))
        if where.shape != shape or numbers.shape != shape or where.dtype.kind not in "iu":
            raise ValueError(f"a part of the rows is not made of whole places and values of shape {shape}")
        arrays = np.ascontiguousarray(numbers, np.float64), np.ascontiguousarray(where, np.int64)
        arithmetic().lay_out_entries(*arrays, width, usable[here], places[here], values[here], alive[here])
    y = np.where(alive, y, y.dtype.type(0))
    blocks = np.array(starts, np.int64)
    return _measured(places, values, y, alive, np.zeros(width, np.int64), 1.0, blocks, store)


def _measured(
    places: NDArray[np.int32],
    values: NDArray[np.int16],
    y: NDArray[Any],
    alive: NDArray[np.bool_],
    centre: Integers,
    scale: float,
    starts: Integers,
    store: Allocator,
) -> SparseRows:
    """Laid out entries with what follows from them, the centre and the scale."""
    squares, most, reach = (store(len(y), 1, kind)[:, 0] for kind in (np.int32, np.int32, np.float64))
    filled = store(len(y), 1, np.int32)[:, 0]
    for start in range(0, len(y), ROWS_PER_CHUNK):
        here = slice(start, start + ROWS_PER_CHUNK)
        filled[here] = (values[here] != 0).sum(1)
    arithmetic().measure(places, values, alive, centre, squares, most)
    reach[:] = np.where(alive, scale / DIRECTION, 0.0)
    return SparseRows(places, values, filled, reach, squares, most, y, alive, centre, len(centre), starts)


def arithmetic() -> Any:
    """The module whose kernels are in use: compiled, or the reference; both give the same bits."""
    return importlib.import_module("..fast.sparse_kernels", __package__) if kernels.compiled() else reference


@dataclass(frozen=True, slots=True, repr=False)
class SparseRecords(LinearRecords):
    """Sparse rows, and the loss they are scored by; several outputs are the rows of theta as a matrix."""

    rows: SparseRows  # type: ignore[assignment]

    def centred(self, centre: Floats, scale: float, store: Allocator = in_memory) -> SparseRecords:
        """The same records, each row x as it was laid out replaced by scale (x - centre), both public.

        *Sensitivity*: nothing is released; each row is moved by itself, and what is asked later is clipped anew.
        """
        rows = self.rows
        fits = isinstance(centre, np.ndarray) and centre.shape == (rows.columns,) and bool(np.isfinite(centre).all())
        if not fits or not math.sqrt(float(np.cumsum(centre * centre)[-1])) <= 1 + 1e-9:
            raise ValueError(f"centre must be a vector of {rows.columns} numbers of norm at most 1")
        if not SCALE_RANGE[0] <= scale <= SCALE_RANGE[1]:
            raise ValueError(f"scale is {scale!r}; pass a number from {SCALE_RANGE[0]:g} to {SCALE_RANGE[1]:g}")
        whole = np.rint(centre * DIRECTION).astype(np.int64)
        moved = _measured(rows.places, rows.values, rows.y, rows.alive, whole, float(scale), rows.starts, store)
        if self.outputs == 1 and store is in_memory and kernels.compiled():  # what is centred is summed again and again
            moved = replace(moved, words=words_of(rows.places, rows.values, moved.filled, rows.starts, rows.columns))
        return replace(self, rows=moved)

    def _kernels(self) -> tuple[Any, Any]:
        return arithmetic(), reference

    def _compiled(self, kernel: Any, chosen: Integers | None, theta: Floats, gain: float) -> Integers:
        rows, (number, width, weights) = self.rows, kernel.options(self.loss)
        which, n = (NONE, len(rows)) if chosen is None else (chosen, len(chosen))
        drawn, entries = (which, chosen is None, theta, gain), rows.places.shape[1]
        if self.outputs == 1:
            entered, words = self._entered(chosen is None)
            measured = (rows.reach, rows.most, rows.y, rows.centre)
            options = (number, width, *(weights or (1.0, 1.0)))
            arguments = (*entered, *measured, *words, *drawn, *options)
            return in_parallel(kernel.sum_one, arguments, n, (1, rows.columns), entries)
        entered = (rows.places.view(np.uint32), rows.values, rows.filled)
        laid = (*entered, rows.reach, rows.squares, rows.most, rows.y, rows.centre)
        per_class = np.array(weights or (1.0,) * self.outputs)
        shape = (rows.columns, -(-self.outputs // 8) * 8)
        total = in_parallel(kernel.sum_classes, (*laid, *drawn, per_class), n, shape, entries * self.outputs)
        return total[:, : self.outputs].T

    def _entered(self, whole: bool) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Entries of rows, and their words; without words for a part of the rows, which may have fewer than there are."""
        rows = self.rows
        if rows.words is None or not whole:
            return (rows.places.view(np.uint32), rows.values, rows.filled), no_words(len(rows))
        words = rows.words
        in_words = (words.codes, words.ends, words.word_places, words.word_values)
        return (words.places, words.values, words.filled), in_words

    def row_sum(self, drawn: Drawn) -> IntegerTotal:
        """Sum of x, rows cut to norm 1: w (x_q - m_q) with w = round(reach M) cut to W, of norm at most M in integers."""
        chosen = self._everyone(drawn)
        weights = np.minimum(np.rint(self.rows.reach[chosen] * BOUND), self.rows.most[chosen]).astype(np.int64)
        return IntegerTotal(arithmetic().weighted(self.rows, chosen, weights[:, None])[0], BOUND, 1.0)

    def _scores(self, here: Integers | slice, whole: Floats, grids: Sequence[float]) -> Iterator[Floats]:
        """Scores at each theta: columns of ``whole`` are below 2^37, so that all products are exact, below 2^53."""
        columns, rows = np.ascontiguousarray(whole, np.int64), self.rows
        products = arithmetic().products(rows.places[here], rows.values[here], columns) - rows.centre @ columns
        for i, grid in enumerate(grids):
            part = products[:, i * self.outputs : (i + 1) * self.outputs].astype(np.float64)
            scores = part * (rows.reach[here] * grid)[:, None]
            yield scores[:, 0] if self.outputs == 1 else scores

    def unit_rows(self, drawn: Drawn) -> Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]:
        """Chunks of records written out in full, as those of a linear model."""
        for here in self.parts(drawn, min(MAX_ROWS_PER_SUM, max(NUMBERS_AT_ONCE // self.columns, 16))):
            yield unit_rows(self.rows, here), self.labels(here), self.rows.alive[here]  # type: ignore[arg-type]

    def parts(self, drawn: Drawn, height: int | None = None) -> Iterator[Integers | slice]:
        """Which records to take at a time: as many as have 2^21 entries, unless their number is given."""
        few = max(NUMBERS_AT_ONCE // (self.rows.places.shape[1] * self.outputs), 256)
        return LinearRecords.parts(self, drawn, height or min(MAX_ROWS_PER_SUM, few))

    def float_rows(self) -> FloatRows:
        """Rows in full, in double precision, and labels; a row that is not alive is zero."""
        self._refuse_wide("whole walks and minimisers")
        return LinearRecords.float_rows(self)

    def in_basis(self, matrix: Floats, store: Allocator = in_memory) -> LinearRecords:
        """The same records with every row x' replaced by x' @ matrix, written out in full."""
        self._refuse_wide("another basis")
        full = LinearRecords.in_basis(self, matrix, store)
        return LinearRecords(full.rows, self.loss, self.outputs)

    def _refuse_wide(self, what: str) -> None:
        if self.columns > MAX_FULL_COLUMNS:
            raise ValueError(
                f"{what} would write out rows of {self.columns} columns; they need at most {MAX_FULL_COLUMNS}"
            )


# --- words ---


def no_words(rows: int) -> tuple[Any, ...]:
    """Codes, ends, places and values of words where there are none."""
    return np.zeros((rows, 0), np.uint16), np.zeros(1, np.int64), np.zeros(0, np.uint32), np.zeros(0, np.int16)


@dataclass
class _Group:
    """Neighbouring blocks, from ``begin`` to ``end``: the word of each row, and the first row that has each."""

    begin: int
    end: int
    code: NDArray[np.uint16]
    first: Integers


def words_of(
    places: NDArray[np.int32], values: NDArray[np.int16], filled: NDArray[np.int32], starts: Integers, width: int
) -> RowWords | None:
    """The words of laid out rows whose blocks start at the coordinates ``starts``; None where they save little."""
    kernel = importlib.import_module("..fast.table_kernels", __package__)
    unsigned, n, loose = places.view(np.uint32), len(filled), np.ones(width, np.bool_)
    groups = _groups(kernel, (unsigned, values, filled), starts, width)
    for group in groups:
        loose[group.begin : group.end] = False
    left = np.zeros(n, np.int32)
    nothing = np.empty((n, 0), np.uint32), np.empty((n, 0), np.int16)
    kernel.take(unsigned, values, filled, loose, *nothing, left)
    if not groups or float(left.mean()) + len(groups) > SAVED * float(filled.mean()):
        return None
    entries = [_entries(unsigned, values, filled, group) for group in groups]
    counts, word_places, word_values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    bases = np.cumsum([0, *(len(group.first) for group in groups)])
    codes = np.empty((n, len(groups)), np.uint16)
    for k, group in enumerate(groups):
        np.add(group.code, np.uint16(bases[k]), out=codes[:, k])
    few = np.empty((n, int(left.max())), np.uint32), np.empty((n, int(left.max())), np.int16)
    kernel.take(unsigned, values, filled, loose, *few, left)
    return RowWords(codes, np.concatenate([[0], np.cumsum(counts)]), word_places, word_values, *few, left)


def _groups(kernel: Any, rows: tuple[Any, Any, Any], starts: Integers, width: int) -> list[_Group]:
    """Blocks that have few words, neighbours put together where they have few of them still."""
    n, blocks = len(rows[2]), len(starts)
    groups: list[_Group] = []
    most = min(n // MIN_ROWS_PER_WORD, MAX_WORDS_PER_BLOCK, MAX_KEYS // blocks)
    if most < 2:
        return []
    bounds = np.append(starts, width)
    slots, codes = np.empty((blocks, 2 * MAX_WORDS_PER_BLOCK), np.int32), np.empty((blocks, n), np.uint16)
    first, known = np.empty((blocks, most), np.int64), np.zeros(blocks, np.int64)
    if not kernel.number(*rows, bounds, slots, first, known, codes):
        return []
    for b in range(blocks):
        if known[b] <= min(most, MAX_WORDS - sum(len(group.first) for group in groups)):
            groups.append(_Group(int(bounds[b]), int(bounds[b + 1]), codes[b], first[b, : known[b]]))
            _merge_last(kernel, groups, min(most // 2, MAX_WORDS - sum(len(group.first) for group in groups[:-2])))
    return groups


def _merge_last(kernel: Any, groups: list[_Group], most: int) -> None:
    """Put the last two groups together if they are neighbours, and have few words together."""
    if len(groups) < 2 or groups[-2].end != groups[-1].begin:
        return
    one, other = groups[-2:]
    pairs = len(one.first) * len(other.first)
    if pairs > MAX_PAIRED_WORDS:
        return
    code, first = np.empty_like(one.code), np.empty(most, np.int64)
    known = kernel.merge(one.code, other.code, len(other.first), np.empty(pairs, np.int32), first, code)
    if known >= 0:
        groups[-2:] = [_Group(one.begin, other.end, code, first[:known])]


def _entries(
    places: NDArray[np.uint32], values: NDArray[np.int16], filled: NDArray[np.int32], group: _Group
) -> tuple[Integers, NDArray[np.uint32], NDArray[np.int16]]:
    """How many entries each word of a group has, and these entries."""
    where, numbers = places[group.first], values[group.first]
    own = (where >= group.begin) & (where < group.end)
    own &= np.arange(where.shape[1]) < filled[group.first][:, None]
    return own.sum(1), where[own], numbers[own]
