"""Randomness: one cryptographic stream (AES-128 in counter mode), keyed by the operating system.

A seed replaces the operating system's key and makes the run a simulation: its noise can be reproduced, so nothing is
private about it. The stream is never copied, pickled or shared with a forked process, because noise that is used
twice cancels.

Gaussian noise is drawn in double precision by Box and Muller's transform from 52-bit uniforms: tails reach 8.4
standard deviations and the truncated mass is 2^-52 a pair of draws. Floating-point noise still leaks a little through
its low bits (Mironov 2012); :meth:`Stream.noised` is the one place where noise on a grid will replace it.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from typing import NoReturn

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

POOL = 32768  # draws made at a time; 256 KB, so that every pass stays in the cache
UNIFORMS = 8192
MANTISSA = 0x000FFFFFFFFFFFFF
ONE_TO_TWO = 0x3FF0000000000000  # sign and exponent of a double in [1, 2)
MINUS_TWO_TO_MINUS_ONE = ONE_TO_TWO - 2**63  # the same with the sign bit set


_forks = [0]  # how often this process was forked off: noise of a parent must never be drawn again in a child
os.register_at_fork(after_in_child=lambda: _forks.__setitem__(0, _forks[0] + 1))


class Stream:
    """A source of secret randomness that exists once."""

    __slots__ = (
        "_bytes",
        "_cipher",
        "_fork",
        "_fresh",
        "_halves",
        "_lock",
        "_normal_halves",
        "_normals",
        "_uniform_halves",
        "_uniforms",
        "_words",
        "_zeros",
        "simulation",
    )

    def __init__(self, seed: int | None = None) -> None:
        self.simulation = seed is not None
        secret = os.urandom(16) if seed is None else hashlib.sha256(f"noisewise {seed}".encode()).digest()[:16]
        self._cipher, self._fork = _keyed(secret), _forks[0]
        self._lock = threading.Lock()
        self._zeros, self._bytes = bytes(8 * POOL), bytearray(8 * POOL + 15)
        self._words = torch.frombuffer(self._bytes, dtype=torch.int64, count=POOL)
        self._halves = self._words.view(2, -1).unbind()
        self._uniform_halves = self._words.view(torch.float64).view(2, -1).unbind()
        self._normals = np.empty(POOL)
        self._normal_halves = torch.from_numpy(self._normals).view(2, -1).unbind()
        self._fresh = 0  # how many draws at the end of the pool are unused
        self._uniforms = np.empty(0)

    def _never_forked(self) -> None:
        if self._fork != _forks[0] and not self.simulation:  # a child must not repeat its parent's noise
            self._cipher, self._fork = _keyed(os.urandom(16)), _forks[0]
            self._fresh, self._uniforms = 0, np.empty(0)

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Independent uniforms on (0, 1], multiples of 2^-52."""
        with self._lock:
            return self._take_uniforms(count)

    def _take_uniforms(self, count: int) -> NDArray[np.float64]:
        self._never_forked()
        if count > len(self._uniforms):
            fresh = np.frombuffer(self._cipher.update(bytes(8 * max(count, UNIFORMS))), dtype=np.int64) & MANTISSA
            fresh |= MINUS_TWO_TO_MINUS_ONE
            self._uniforms = fresh.view(np.float64)
            self._uniforms += 2.0
        draws, self._uniforms = self._uniforms[:count], self._uniforms[count:]
        return draws

    def _refill(self) -> None:
        """A pool of standard normal draws: sqrt(-2 log u) times the cosine and sine of a random angle."""
        self._cipher.update_into(self._zeros, self._bytes)
        self._words.bitwise_and_(MANTISSA)
        self._halves[0].bitwise_or_(MINUS_TWO_TO_MINUS_ONE)
        self._halves[1].bitwise_or_(ONE_TO_TWO)
        radius, angle = self._uniform_halves
        radius.add_(2.0).log_().mul_(-2.0).sqrt_()
        angle.mul_(2 * math.pi)
        torch.cos(angle, out=self._normal_halves[0]).mul_(radius)
        torch.sin(angle, out=self._normal_halves[1]).mul_(radius)
        self._fresh = POOL

    def noised(self, total: Tensor, std: float, *, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
        """(total + independent N(0, std^2) noise on every entry) * scale, added in double precision.

        The sum is formed where the draws lie, so that each draw is overwritten by its one use.
        """
        with self._lock:
            return self._add_noise(total, std, scale, dtype)

    def _add_noise(self, total: Tensor, std: float, scale: float, dtype: torch.dtype) -> Tensor:
        self._never_forked()
        answer, exact, done = torch.empty(len(total), dtype=dtype), total.numpy(), 0
        released = answer.numpy()
        while done < len(exact):
            if not self._fresh:
                self._refill()
            take = min(len(exact) - done, self._fresh)
            draws = self._normals[POOL - self._fresh : POOL - self._fresh + take]
            self._fresh -= take
            draws *= std
            draws += exact[done : done + take]
            draws *= scale
            released[done : done + take] = draws
            done += take
        return answer

    def gumbel(self, count: int) -> NDArray[np.float64]:
        """Independent standard Gumbel draws."""
        return -np.log(-np.log(np.minimum(self.uniform(count), 1 - 2.0**-53)))

    def each_with_probability(self, rate: float, of: int) -> NDArray[np.int64]:
        """The numbers 0 .. of - 1 that come up when each joins independently with probability ``rate``.

        The gaps between those that join are independent geometric draws, floor(log u / log(1 - rate)).
        """
        if rate >= 1:
            return np.arange(of)
        expected = rate * of
        rows = np.empty(0, dtype=np.int64)
        while not len(rows) or rows[-1] < of:
            gaps = np.log(self.uniform(int(expected + 6 * math.sqrt(expected)) + 10))
            gaps *= 1 / math.log1p(-rate)
            joined = np.minimum(gaps, of).astype(np.int64)
            joined += 1
            joined[0] += rows[-1] if len(rows) else -1
            rows = np.concatenate([rows, joined.cumsum()]) if len(rows) else joined.cumsum()
        return rows[: np.searchsorted(rows, of)]

    def subset(self, size: int, of: int) -> NDArray[np.int64]:
        """A uniformly random subset of ``size`` of the numbers 0 .. of - 1: the head of a random order."""
        return np.argpartition(self.uniform(of), size)[:size] if size < of else np.arange(of)

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a noise stream exists once: copying or saving it would use the same noise twice")

    __copy__ = __deepcopy__ = __reduce_ex__ = __getstate__ = _refuse


def _keyed(key: bytes) -> CipherContext:
    return Cipher(
        algorithms.AES(key), modes.CTR(bytes(16))
    ).encryptor()  # a fresh key each time, so a zero nonce is safe
