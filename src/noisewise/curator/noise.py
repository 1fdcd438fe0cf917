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
from typing import NoReturn

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

POOL = 32768  # draws made at a time; 256 KB, so that every pass stays in the cache
MANTISSA = 0x000FFFFFFFFFFFFF
ONE_TO_TWO = 0x3FF0000000000000  # sign and exponent of a double in [1, 2)
MINUS_TWO_TO_MINUS_ONE = ONE_TO_TWO - 2**63  # the same with the sign bit set


class Stream:
    """A source of secret randomness that exists once."""

    __slots__ = ("_cipher", "_fresh", "_normals", "_pid", "_words", "_zeros", "simulation")

    def __init__(self, seed: int | None = None) -> None:
        self.simulation = seed is not None
        self._cipher = _keyed(os.urandom(16) if seed is None else hashlib.sha256(f"noisewise {seed}".encode()).digest()[:16])
        self._pid = os.getpid()
        self._zeros, self._words = bytes(8 * POOL), bytearray(8 * POOL + 15)
        self._normals = torch.empty(POOL, dtype=torch.float64)
        self._fresh = 0  # how many draws at the end of the pool are unused

    def _never_forked(self) -> None:
        if os.getpid() != self._pid and not self.simulation:  # a child must not repeat its parent's noise
            self._cipher, self._pid, self._fresh = _keyed(os.urandom(16)), os.getpid(), 0

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Independent uniforms on (0, 1], multiples of 2^-52."""
        self._never_forked()
        words = np.frombuffer(self._cipher.update(bytes(8 * count)), dtype=np.int64)
        signed = (words & MANTISSA) | MINUS_TWO_TO_MINUS_ONE
        return signed.view(np.float64) + 2.0

    def _refill(self) -> None:
        half = POOL // 2
        self._cipher.update_into(self._zeros, self._words)
        words = torch.frombuffer(self._words, dtype=torch.int64, count=POOL).bitwise_and_(MANTISSA)
        radius = words[:half].bitwise_or_(MINUS_TWO_TO_MINUS_ONE).view(torch.float64)
        angle = words[half:].bitwise_or_(ONE_TO_TWO).view(torch.float64).mul_(2 * math.pi)
        radius.add_(2.0).log_().mul_(-2).sqrt_()
        torch.cos(angle, out=self._normals[:half]).mul_(radius)
        torch.sin(angle, out=self._normals[half:]).mul_(radius)
        self._fresh = POOL

    def noised(self, total: Tensor, std: float, *, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
        """(total + independent N(0, std^2) noise on every entry) * scale, computed in double precision.

        The sum is formed where the draws lie, so each draw is overwritten by its one use.
        """
        self._never_forked()
        answer = torch.empty(len(total), dtype=dtype)
        done = 0
        while done < len(total):
            if not self._fresh:
                self._refill()
            take = min(len(total) - done, self._fresh)
            draws = self._normals.narrow(0, POOL - self._fresh, take)
            torch.add(total.narrow(0, done, take).double(), draws, alpha=std, out=draws)
            answer.narrow(0, done, take).copy_(draws)
            self._fresh -= take
            done += take
        return answer if scale == 1 else answer.mul_(scale)

    def gumbel(self, count: int) -> NDArray[np.float64]:
        """Independent standard Gumbel draws."""
        return -np.log(-np.log(np.minimum(self.uniform(count), 1 - 2.0**-53)))

    def subset(self, size: int, of: int) -> NDArray[np.int64]:
        """A uniformly random subset of ``size`` of the numbers 0 .. of - 1.

        The first ``size`` distinct draws: no number is favoured, so no subset is (up to a bias of of * 2^-52). Large
        shares are the head of a random order.
        """
        if 4 * size > of:
            return np.argsort(self.uniform(of))[:size]
        chosen: dict[int, None] = {}
        while len(chosen) < size:
            draws = (self.uniform(size - len(chosen) + 16) * of).astype(np.int64)  # 0 .. of; of stands for 0
            chosen.update(dict.fromkeys(draws.tolist()))
        return np.fromiter(chosen, dtype=np.int64, count=size) % of

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a noise stream exists once: copying or saving it would use the same noise twice")

    __copy__ = __deepcopy__ = __reduce_ex__ = _refuse  # type: ignore[assignment]


def _keyed(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()  # a fresh key each time, so a zero nonce is safe
