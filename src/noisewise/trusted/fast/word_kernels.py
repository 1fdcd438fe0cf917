# mypy: ignore-errors
"""How :mod:`noisewise.trusted.stores.common_words` finds words, compiled."""

from __future__ import annotations

import numpy as np

from . import kernels

__all__ = ["merge", "number", "take"]

u4, u8 = np.uint32, np.uint64
FOUR = 4
FIRST, SECOND, THIRD, FOURTH = (
    u8(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
)


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
