# mypy: ignore-errors
"""Entries of features and counts of levels, compiled: the bits of :mod:`noisewise.trusted.features` and ``scale``.

Rows are taken 64 at a time, so that what the blocks of a table have in common, places on scales, hats and categories, is
worked out once and stays in the cache while it is joined. Every row by itself, from its own cells.

Also the words of :mod:`noisewise.trusted.stores.sparse`.
"""

from __future__ import annotations

import numpy as np

from . import kernels

__all__ = ["count_levels", "entries", "merge", "number", "take"]

ROWS = 64
i8 = np.int64
f4, f8 = np.float32, np.float64
u4, u8 = np.uint32, np.uint64
FOUR = 4
FIRST, SECOND, THIRD, FOURTH = (
    u8(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
)


@kernels.jit
def _positions(cells, column, points, ranks, slopes, inside, piece, out):
    """Where the values of a column are on a scale, NaN for what is missing: all of them a step of the search at a time."""
    n, last = len(cells), len(points) - 2
    for i in range(n):
        value = f8(cells[i, column])
        inside[i] = min(max(points[0] if np.isnan(value) else value, points[0]), points[last + 1])
        piece[i] = 0
    step = 1
    while 2 * step <= last:
        step *= 2
    while step > 0 and last > 0:
        for i in range(n):
            probe = min(piece[i] + step, last)
            piece[i] = probe if points[probe] <= inside[i] else piece[i]
        step >>= 1
    for i in range(n):
        low = ranks[piece[i]]
        place = low + (inside[i] - points[piece[i]]) * slopes[piece[i]]
        place = min(place, ranks[piece[i] + 1]) if place > low else low
        out[i] = np.nan if np.isnan(cells[i, column]) else place


@kernels.jit
def count_levels(cells, chosen, whole, column, points, ranks, slopes, counts):
    n, parts = len(cells) if whole else len(chosen), len(counts)
    inside, piece, at, some = np.zeros(ROWS), np.zeros(ROWS, np.uint32), np.zeros(ROWS), np.zeros((ROWS, 1))
    for start in range(0, n, ROWS):
        count = min(ROWS, n - start)
        for i in range(count):
            some[i, 0] = cells[start + i if whole else chosen[start + i], column]
        _positions(some[:count], 0, points, ranks, slopes, inside, piece, at)
        for i in range(count):
            if not np.isnan(at[i]):
                counts[i8(min(at[i] * parts, f8(parts - 1)))] += 1


@kernels.jit
def _hats(at, knots, count, places, values):
    for i in range(count):
        place = at[i] * (knots - 1)
        missing = np.isnan(place)
        known = 0.0 if missing else place
        first = min(np.floor(known), f8(knots - 2))
        rest = known - first
        places[0, i] = knots if missing else i8(first)
        places[1, i] = 0 if missing else i8(first) + 1
        values[0, i] = f4(1.0) if missing else f4(1.0 - rest)
        values[1, i] = f4(0.0) if missing else f4(rest)


@kernels.jit
def _codes(cells, column, coordinates, places, values):
    """The coordinate of each category; the last one is that of what is none."""
    for i in range(len(cells)):
        code = f8(cells[i, column])
        known = code >= 0 and code < len(coordinates) - 1  # false for NaN
        places[0, i] = coordinates[i8(code) if known else len(coordinates) - 1]
        values[0, i] = f4(1.0)


@kernels.jit
def _sides(cells, scales, points, ranks, slopes, sides, coordinates, at, places, values):
    """Places and values of the entries of all sides."""
    inside, piece = np.zeros(ROWS), np.zeros(ROWS, np.uint32)
    for s in range(len(scales)):
        begin, end = scales[s, 1], scales[s, 2]
        scale = points[begin:end], ranks[begin:end], slopes[begin:end]
        _positions(cells, scales[s, 0], scale[0], scale[1], scale[2], inside, piece, at[s])
    for s in range(len(sides)):
        if sides[s, 0] == 2:
            _hats(at[sides[s, 1]], sides[s, 2], len(cells), places[s], values[s])
        else:
            _codes(cells, sides[s, 1], coordinates[sides[s, 2] : sides[s, 3]], places[s], values[s])


@kernels.jit
def entries(cells, scales, points, ranks, slopes, sides, coordinates, blocks, gains, where, numbers):
    """Places and values of all entries: a row of ``scales``, ``sides``, ``blocks`` is one of :class:`.tables.KernelPlan`."""
    at = np.zeros((len(scales), ROWS))
    places, values = np.zeros((len(sides), 2, ROWS), np.uint32), np.zeros((len(sides), 2, ROWS), np.float32)
    last = len(gains) - 1
    for start in range(0, len(cells), ROWS):
        stop = min(start + ROWS, len(cells))
        _sides(cells[start:stop], scales, points, ranks, slopes, sides, coordinates, at, places, values)
        j = 0
        for b in range(len(blocks)):
            first, second = blocks[b, 0], blocks[b, 1]
            wide, gain = np.uint32(blocks[b, 2]), gains[blocks[b, 3] :]
            for a in range(sides[first, 0]):
                p, v = places[first, a], values[first, a]
                for c in range(1 if second < 0 else sides[second, 0]):
                    if second < 0:
                        for i in range(stop - start):
                            where[start + i, j] = blocks[b, 3] + i8(p[i])
                            numbers[start + i, j] = f8(v[i]) * gain[p[i]]
                    else:
                        q, w = places[second, c], values[second, c]
                        for i in range(stop - start):
                            place = p[i] * wide + q[i]
                            where[start + i, j] = blocks[b, 3] + i8(place)
                            numbers[start + i, j] = f8(v[i] * w[i]) * gain[place]
                    j += 1
        for i in range(start, stop):
            where[i, j], numbers[i, j] = last, gains[last]


# --- words ---


@kernels.jit
def number(places, values, filled, bounds, slots, first, known, codes):
    """Number the words of each block, from one of ``bounds`` to the next: ``known`` of them, more if there is no room.

    A word has at most four entries, each 16 bits of value and the place above them, and is compared with all of them;
    numbers of all zeros stand for what is missing. False if entries do not come block by block.
    """
    (blocks, most), mask, ordered = first.shape, u8(slots.shape[1] - 1), True
    keys, own = np.zeros((blocks, most, FOUR), np.uint64), np.zeros(FOUR, np.uint64)
    slots[:] = -1
    for i in range(len(filled)):
        end = u4(0)
        for b in range(blocks):
            own[0] = own[1] = own[2] = own[3] = u8(0)
            length = u4(0)
            while end < filled[i] and places[i, end] < bounds[b + 1]:
                ordered = ordered and places[i, end] >= bounds[b]
                own[length & u4(3)] = ((u8(places[i, end]) + u8(1)) << u8(16)) | u8(np.uint16(values[i, end]))
                length += u4(1)
                end += u4(1)
            if length > FOUR:
                known[b] = most + 1
            if known[b] > most:
                continue
            mixed = (own[0] * FIRST) ^ (own[1] * SECOND) ^ (own[2] * THIRD) ^ (own[3] * FOURTH)
            slot = (mixed ^ (mixed >> u8(32))) * FIRST >> u8(40) & mask
            word = slots[b, slot]
            while word >= 0:
                key = keys[b, word]
                if key[0] == own[0] and key[1] == own[1] and key[2] == own[2] and key[3] == own[3]:
                    break
                slot = (slot + u8(1)) & mask
                word = slots[b, slot]
            if word < 0:
                if known[b] < most:
                    word = known[b]
                    slots[b, slot], first[b, word] = word, i
                    for j in range(FOUR):  # one by one: a whole line at once takes seconds to compile
                        keys[b, word, j] = own[j]
                known[b] += 1
            codes[b, i] = word
        ordered = ordered and end == filled[i]
    return ordered


@kernels.jit
def merge(code, other, times, table, first, out):
    """Number the pairs of words that there are; -1 if ``first`` has no room for them."""
    known = 0
    table[:] = -1
    for i in range(len(code)):
        pair = u4(code[i]) * u4(times) + u4(other[i])
        if table[pair] < 0:
            if known == len(first):
                return -1
            table[pair], first[known] = known, i
            known += 1
        out[i] = table[pair]
    return known


@kernels.jit
def take(places, values, filled, kept, out_places, out_values, out_filled):
    """The entries whose places are kept, in their order, as far as there is room; ``out_filled``: how many there are."""
    for i in range(len(filled)):
        at = 0
        for j in range(filled[i]):
            if kept[places[i, j]]:
                if at < out_places.shape[1]:
                    out_places[i, at], out_values[i, at] = places[i, j], values[i, j]
                at += 1
        out_filled[i] = at
