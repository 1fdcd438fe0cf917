"""Gaussian noise rounded onto a public grid, drawn exactly: k = round((total + std N)/h), N standard normal.

Rounding is post-processing of the ideal Gaussian mechanism, so if k is drawn exactly every price of that mechanism
holds as it is, and the low bits of an answer reveal nothing. The normals are those of Box and Muller's transform of two
uniforms whose bits are looked at lazily, in three steps:

1. 32 bits each in float32, with a bound on the error (:mod:`noisewise.trusted.noise.normal_reference`). About one draw in 2^12.7 is so
   close to the middle between two integers, or so far in the tails, that the bound leaves k open;
2. 64 more bits of the same uniforms in double precision, with a margin of 2^-44 of the radius. About one draw in 2^49
   stays open; those whose first word is at either end are not tried here;
3. more and more bits in interval arithmetic (:mod:`noisewise.trusted.noise.intervals`) until k is decided.

No step changes what an earlier one decided: k is a function of the infinite expansions of the uniforms. The tails are
those of the normal distribution, without an end.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..fast.kernels import compiled
from .intervals import normal_rounded, until_decided
from .secret_words import MAX_WORDS, SecretWords

MIN_STD, MAX_STD = 2.0**-21, 2.0**63
NOTHING = np.empty(0, dtype=np.int64)


class Grid(NamedTuple):
    """The grid h = 2^shift, the standard deviation in units of h (32 <= std < 64), and the largest total."""

    shift: int
    std: float
    bound: int

    @property
    def step(self) -> float:
        return 2.0**self.shift


def grid(std: float) -> Grid:
    """The public grid for noise of this standard deviation: std/64 < h <= std/32.

    Totals are held within +-2^62 h (and +-2^62), so that k is an int64. That is a contraction: it adds no sensitivity.
    """
    if not MIN_STD <= std <= MAX_STD:
        raise ValueError(f"std must lie between 2^-21 and 2^63 in units of the total, not {std!r}: choose other units")
    mantissa, exponent = math.frexp(std)
    shift = exponent - 6
    return Grid(shift, 64 * mantissa, 1 << min(62, 62 + shift))


class Sampler:
    """Draws rounded noise from secret words, with compiled kernels or the reference: both give the same numbers."""

    __slots__ = ("_refined", "_room", "_rounded", "_scaled", "_undecided")

    def __init__(self) -> None:
        self._room = self._undecided = NOTHING  # for draws that are scaled, and for the places of undecided ones
        if compiled():
            from ..fast import normal_compiled as kernels
        else:
            from . import normal_reference as kernels  # type: ignore[no-redef]
        self._rounded, self._refined, self._scaled = kernels.rounded, kernels.refined, kernels.scaled

    def on_grid(self, words: SecretWords, total: NDArray[np.int64] | int, grid: Grid) -> NDArray[np.int64]:
        """k = round(total/h + std/h N) for every entry of the total; a number stands for that many zeros."""
        exact, count = (NOTHING, total) if isinstance(total, int) else (_plain(total), len(total))
        k = np.empty(count, dtype=np.int64)
        for start in range(0, count, 2 * MAX_WORDS):
            part = slice(start, start + 2 * MAX_WORDS)
            self._draw(words, exact[part], grid, k[part])
        return k

    def scaled(
        self, words: SecretWords, total: NDArray[np.int64], grid: Grid, factor: float, dtype: Any
    ) -> NDArray[Any]:
        """k times a number, in the precision given: k alone never leaves the room that it is drawn in."""
        exact, count = _plain(total), len(total)
        answer = np.empty(count, dtype)
        if len(self._room) < min(count, 2 * MAX_WORDS):
            self._room = np.empty(min(max(count, 1024), 2 * MAX_WORDS), dtype=np.int64)
        unit = answer.dtype.type(factor)
        for start in range(0, count, 2 * MAX_WORDS):
            whole = count <= 2 * MAX_WORDS
            part = answer if whole else answer[start : start + 2 * MAX_WORDS]
            k = self._room[: len(part)]
            self._draw(words, exact if whole else exact[start : start + len(part)], grid, k)
            self._scaled(k, unit, part)
        return answer

    def _draw(self, words: SecretWords, total: NDArray[np.int64], grid: Grid, k: NDArray[np.int64]) -> None:
        pairs = (len(k) + 1) // 2
        drawn, number = words.take(pairs)
        halves, std = drawn.view(np.int32), np.float32(grid.std)
        if len(self._undecided) < len(k):
            self._undecided = np.empty(len(k), dtype=np.int64)
        at = self._undecided[: self._rounded(halves, total, std, grid.shift, grid.bound, k, self._undecided)]
        if len(at):
            more = words.more(number + at % pairs)
            at = at[: self._refined(at, halves, more, total, grid.std, grid.shift, grid.bound, k)]
            for j in at.tolist():
                k[j] = _decided(words, number, halves, int(total[j]) if len(total) else 0, grid, j)


def _plain(total: NDArray[np.int64]) -> NDArray[np.int64]:
    """The total as the kernels were compiled for: contiguous and writable (it is not written to)."""
    return total if total.flags.c_contiguous and total.flags.writeable else total.copy()


def _decided(words: SecretWords, number: int, halves: NDArray[np.int32], total: int, grid: Grid, j: int) -> int:
    """The draw j by intervals, with as many bits as it takes."""
    pairs = len(halves) // 2
    pair, second = j % pairs, j >= pairs
    more = words.continuing(number + pair)
    whole = Fraction(min(max(total, -grid.bound), grid.bound)) / Fraction(grid.step)
    w, v = int(halves[pair]) % 2**32, int(halves[pairs + pair])
    return until_decided(
        lambda depth: normal_rounded(w, v, second, more, offset=whole, std=Fraction(grid.std), depth=depth)
    )
