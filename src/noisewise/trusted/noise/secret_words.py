"""Secret words: the bits of all random draws, and further bits of the same uniforms where they are needed.

Words come from AES-128 in counter mode. Each has a number, and the bits that continue it are AES under a second key of
(number, depth): a function of the key alone, so that it makes no difference when, or whether, they are looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

MAX_WORDS = 65536  # of one request
More = Callable[[int], tuple[int, int]]  # depth -> the two words that continue one at this depth
WORDS_AHEAD = 4096  # for small requests; 32 KB
_ZEROS = memoryview(bytes(8 * MAX_WORDS))


class SecretWords:
    """An endless row of numbered 64-bit words under a 32-byte key."""

    __slots__ = ("_buffer", "_fresh", "_made", "_pool", "_size", "continued", "stream")

    def __init__(self, key: bytes) -> None:
        # fresh keys each time, so a zero nonce is safe; blocks under the second key never repeat
        self.stream: CipherContext = Cipher(algorithms.AES(key[:16]), modes.CTR(bytes(16))).encryptor()
        self.continued: CipherContext = Cipher(algorithms.AES(key[16:]), modes.ECB()).encryptor()
        self._made = 0  # words before the pool
        self._reserve(WORDS_AHEAD)

    def _reserve(self, size: int) -> None:
        self._buffer = bytearray(8 * size + 15)
        self._pool = np.frombuffer(self._buffer, dtype=np.int64, count=size)
        self._size = self._fresh = 0

    def ahead(self, count: int) -> tuple[NDArray[np.int64], int]:
        """The next ``count`` words, at most ``MAX_WORDS``, and the number of the first. Valid until the next request."""
        if self._size - self._fresh < count:
            self._made += self._size
            if count > len(self._pool):
                self._reserve(MAX_WORDS)
            self._size, self._fresh = max(count, WORDS_AHEAD), 0
            self.stream.update_into(_ZEROS[: 8 * self._size], self._buffer)
        return self._pool[self._fresh : self._fresh + count], self._made + self._fresh

    def use(self, count: int) -> None:
        """Passes over the next ``count`` words: no word is used twice."""
        self._fresh += count

    def take(self, count: int) -> tuple[NDArray[np.int64], int]:
        """The next ``count`` words, used up, and the number of the first."""
        words, number = self.ahead(count)
        self._fresh += count
        return words, number

    def more(self, numbers: NDArray[np.int64], depth: int = 0) -> NDArray[np.uint64]:
        """Two further words for each of the numbered ones, at this depth: row i continues word ``numbers[i]``."""
        blocks = np.empty((len(numbers), 2), dtype="<i8")
        blocks[:, 0], blocks[:, 1] = numbers, depth
        return np.frombuffer(self.continued.update(blocks.tobytes()), dtype="<u8").reshape(-1, 2)

    def continuing(self, number: int) -> More:
        """The further words of one word."""
        index = np.array([number])

        def more(depth: int) -> tuple[int, int]:
            one, other = self.more(index, depth)[0].tolist()
            return one, other

        return more
