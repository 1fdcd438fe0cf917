"""Randomness: one cryptographic stream (AES-128 in counter mode), keyed by the operating system.

A seed replaces the operating system's key and makes the run a simulation: its noise can be reproduced, so nothing is
private about it. The stream is never copied, pickled or shared with a forked process: noise that is used twice cancels.

All draws are exact: rounded Gaussian noise (:mod:`noisewise.trusted.noise.normal`) and secret choices
(:mod:`noisewise.trusted.noise.discrete`) look at as many bits of their uniforms as decide them.

:meth:`Stream.noised` adds noise in double precision, from 52-bit uniforms: tails reach 8.4 standard deviations, and low bits
would tell something (Mironov 2012). It serves public rows, and the inside of walks and minimisers, whose end is put on a grid.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..events import PoissonRepetitions, Repetitions
from ..process import this_process
from . import discrete
from .normal import Sampler, grid
from .secret_words import SecretWords

DRAWS_PER_POOL = 32768  # 256 KB, so that every pass stays in the cache
MANTISSA = 0x000FFFFFFFFFFFFF
ONE_TO_TWO = 0x3FF0000000000000  # sign and exponent of a double in [1, 2)
MINUS_TWO_TO_MINUS_ONE = ONE_TO_TWO - 2**63  # the same with the sign bit set


class Stream:
    """A source of secret randomness that exists once."""

    __slots__ = (
        "_bytes",
        "_fresh",
        "_halves",
        "_joined",
        "_lock",
        "_normal_halves",
        "_normals",
        "_process",
        "_sampler",
        "_secret",
        "_uniform_halves",
        "_zeros",
        "simulation",
    )

    def __init__(self, seed: int | None = None, use: str = "") -> None:
        """``use``: the purpose of the draws if it is not noise; with the same seed it gives another key."""
        self.simulation = seed is not None
        key = os.urandom(32) if seed is None else hashlib.sha256(f"noisewise {use}{seed}".encode()).digest()
        self._secret, self._process = SecretWords(key), this_process()
        self._sampler, self._joined = Sampler(), discrete.kernel()
        self._lock = threading.Lock()
        self._zeros, self._bytes = bytes(8 * DRAWS_PER_POOL), bytearray(8 * DRAWS_PER_POOL + 15)
        words = np.frombuffer(self._bytes, np.int64, DRAWS_PER_POOL)
        self._halves = words.reshape(2, -1)
        self._uniform_halves = words.view(np.float64).reshape(2, -1)
        self._normals = np.empty(DRAWS_PER_POOL)
        self._normal_halves = self._normals.reshape(2, -1)
        self._fresh = 0  # how many draws at the end of the pool are unused

    def _never_forked(self) -> None:
        if self._process != this_process() and not self.simulation:  # a child must not repeat its parent's noise
            self._secret, self._process = SecretWords(os.urandom(32)), this_process()
            self._fresh = 0

    def _refill(self) -> None:
        """A pool of standard normal draws: sqrt(-2 log u) times the cosine and sine of a random angle."""
        self._secret.stream.update_into(self._zeros, self._bytes)
        self._halves &= MANTISSA
        self._halves[0] |= MINUS_TWO_TO_MINUS_ONE
        self._halves[1] |= ONE_TO_TWO
        radius, angle = self._uniform_halves
        radius[:] = np.sqrt(-2.0 * np.log(radius + 2.0))
        angle *= 2 * math.pi
        for half, wave in zip(self._normal_halves, (np.cos, np.sin), strict=True):
            wave(angle, out=half)
            half *= radius
        self._fresh = DRAWS_PER_POOL

    def noised(self, total: NDArray[Any], std: float, *, scale: float = 1.0, dtype: Any = np.float64) -> NDArray[Any]:
        """(total + independent N(0, std^2) noise on every entry) * scale, added in double precision.

        The sum is formed where the draws lie, so that each draw is overwritten by its one use.
        """
        with self._lock:
            return self._add_noise(total, std, scale, dtype)

    def vectors(self, dimension: int, std: float) -> Iterator[NDArray[np.float64]]:
        """Vectors of noise without end, in double precision, drawn 256 at a time."""
        while True:
            yield from self.noised(np.zeros(256 * dimension), std).reshape(256, dimension)

    def _add_noise(self, total: NDArray[Any], std: float, scale: float, dtype: Any) -> NDArray[Any]:
        self._never_forked()
        released, done = np.empty(len(total), dtype), 0
        while done < len(total):
            if not self._fresh:
                self._refill()
            take = min(len(total) - done, self._fresh)
            draws = self._normals[DRAWS_PER_POOL - self._fresh : DRAWS_PER_POOL - self._fresh + take]
            self._fresh -= take
            draws *= std
            draws += total[done : done + take]
            draws *= scale
            released[done : done + take] = draws
            done += take
        return released

    def on_grid(self, total: NDArray[np.int64] | int, std: float) -> tuple[NDArray[np.int64], float]:
        """(k, h): k = round((total + std N)/h) with independent standard normals N, exactly; the caller releases k h.

        h is public, the power of two with std/64 < h <= std/32. The total is a vector of int64, or a number of zeros.
        """
        public = grid(std)
        if not isinstance(total, int):
            _whole(total)
        with self._lock:
            self._never_forked()
            return self._sampler.on_grid(self._secret, total, public), public.step

    def released(self, total: NDArray[np.int64], std: float, worth: float, dtype: Any = np.float64) -> NDArray[Any]:
        """k h times ``worth``, what the whole number 1 stands for: :meth:`on_grid` as it leaves the curator."""
        public = grid(std)
        _whole(total)
        with self._lock:
            self._never_forked()
            return self._sampler.scaled(self._secret, total, public, public.step * worth, dtype)

    def each_with_probability(self, rate: float, of: int) -> NDArray[np.int64]:
        """The numbers 0 .. of - 1, in order, that come up when each joins independently with probability ``rate``."""
        with self._lock:
            self._never_forked()
            return discrete.each_with_probability(self._secret, rate, of, self._joined)

    def subset(self, size: int, of: int) -> NDArray[np.int64]:
        """A uniformly random subset of ``size`` of the numbers 0 .. of - 1, in order."""
        with self._lock:
            self._never_forked()
            return discrete.subset(self._secret, size, of)

    def words(self, many: int) -> NDArray[np.int64]:
        """``many`` fresh words of 63 bits, independent and uniform: coins."""
        with self._lock:
            self._never_forked()
            return discrete.coins(self._secret, many)

    def choose(self, scores: NDArray[np.int64], scale: Fraction | float) -> int:
        """i with probability proportional to exp(-scores[i] scale): the exponential mechanism, for integer scores."""
        with self._lock:
            self._never_forked()
            return discrete.choose(self._secret, scores, scale)

    def choose_rational(self, scores: Sequence[Fraction | int], scale: Fraction | float) -> int:
        """:meth:`choose` for scores that are whole numbers or fractions of any size."""
        with self._lock:
            self._never_forked()
            return discrete.choose_rational(self._secret, scores, scale)

    def runs(self, repetitions: Repetitions) -> int:
        """How many runs a private selection has: a secret number with this distribution, exactly."""
        with self._lock:
            self._never_forked()
            if isinstance(repetitions, PoissonRepetitions):
                return discrete.poisson(self._secret, repetitions.mean)
            return discrete.negative_binomial(self._secret, repetitions.eta, repetitions.gamma)

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a noise stream exists once: copying or saving it would use the same noise twice")

    __copy__ = __deepcopy__ = __reduce_ex__ = __getstate__ = _refuse


def _whole(total: NDArray[np.int64]) -> None:
    if total.dtype != np.int64 or total.ndim != 1:
        raise TypeError("the total must be a vector of int64: exact sums, in units of their own grid")
