"""Words: what rows have in common, so that sums take each of them once.

The entries of a few neighbouring blocks of a row are a word. Where columns have few values there are far fewer words than
rows: a word's part of a score is worked out once, and so is what it adds to a sum, times the sum of the weights of the
rows that have it. All of it in integers, so that a sum is the same with words or without, bit for bit. Words are found in
private rows and stay with them: nothing but the time and memory that a sum takes depends on them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .totals import Integers

MIN_ROWS_PER_WORD = 8  # of a block; twice as many for those of several blocks
MAX_WORDS_PER_BLOCK = 4096
MAX_KEYS = 1 << 20  # words that there is room for while they are found
MAX_WORDS = (1 << 16) - 1
MAX_PAIRED_WORDS = 1 << 16  # pairs of words up to which two blocks are put together
SAVED = 0.8  # of the entries: words that leave more are not worth their while


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
    kernel = importlib.import_module("..fast.word_kernels", __package__)
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
