"""Words that a test chooses, and what must come out of them, computed slowly and another way in mpmath."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import mpmath as mp
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from noisewise.trusted.noise.secret_words import SecretWords

DEPTH = 6  # further words that the slow computation looks at


class Scripted(SecretWords):
    """Starts with the given words; ``deep(number, depth)`` continues them."""

    __slots__ = ("_deep", "_next", "_script")

    def __init__(self, words, deep) -> None:
        super().__init__(bytes(32))
        self._script, self._deep, self._next = np.array(words, dtype=np.int64), deep, 0

    def ahead(self, count):
        """At most ``count`` words: the script may be short, but must not be at its end."""
        words = self._script[self._next : self._next + count]
        assert len(words), "the script is at its end"
        return words, self._next

    def use(self, count):
        self._next += count

    def take(self, count):
        words, number = self.ahead(count)
        assert len(words) == count, "the script is too short"
        self.use(count)
        return words, number

    def more(self, numbers, depth=0):
        return np.array([self._deep(int(number), depth) for number in numbers], dtype=np.uint64).reshape(-1, 2)


def hashed(number: int, depth: int) -> tuple[int, int]:
    """Some bits for a script."""
    digest = hashlib.sha256(f"{number} {depth}".encode()).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")


def script_of(pairs) -> np.ndarray:
    """The 64-bit words whose halves are these pairs of a radius and an angle word, for one draw of all of them."""
    radial, angular = (
        np.array([int(x) % 2**32 for x in column], dtype=np.uint32) for column in zip(*pairs, strict=True)
    )
    return np.concatenate([radial, angular]).view(np.int64)


def key_of(seed: int) -> bytes:
    return hashlib.sha256(f"noisewise {seed}".encode()).digest()


def words_of(seed: int, count: int) -> np.ndarray:
    """The first words of a seeded stream, from the cipher itself."""
    cipher = Cipher(algorithms.AES(key_of(seed)[:16]), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * count)), dtype=np.uint64)


def deep_of(seed: int):
    """The further words of a seeded stream, from the cipher itself."""
    cipher = Cipher(algorithms.AES(key_of(seed)[16:]), modes.ECB()).encryptor()

    def deep(number, depth):
        block = cipher.update(number.to_bytes(8, "little") + depth.to_bytes(8, "little"))
        return int.from_bytes(block[:8], "little"), int.from_bytes(block[8:], "little")

    return deep


def expansion(first: int, bits: int, deep, number: int, which: int) -> mp.mpf:
    """0.first deep deep ... in binary: the uniform itself, to ``DEPTH`` further words."""
    value, scale = mp.mpf(first) / 2**bits, mp.mpf(2) ** -bits
    for depth in range(DEPTH):
        scale /= 2**64
        value += deep(number, depth)[which] * scale
    return value


def slow_normals(w: int, v: int, deep, number: int) -> tuple[mp.mpf, mp.mpf]:
    """Both normals of one pair of words, w unsigned and v read as floor(v/4) around zero and two bits."""
    with mp.workdps(150):
        radius = mp.sqrt(-2 * mp.log(expansion(w, 32, deep, number, 0)))
        signed = v - 2**32 if v >= 2**31 else v
        turn = expansion(signed >> 2, 32, deep, number, 1)  # of the whole circle: a quarter lies within 1/8
        across, up = radius * mp.cospi(2 * turn), radius * mp.sinpi(2 * turn)
        across = -across if v % 2 else across
        return (up, across) if v & 2 else (across, up)


def slow_rounded(total: int, std: float, step: float, normal: mp.mpf) -> int:
    with mp.workdps(150):
        x = (mp.mpf(int(total)) + mp.mpf(std) * normal) / mp.mpf(step)
        nearest = mp.floor(x + 0.5)
        assert abs(abs(x - nearest) - 0.5) > mp.mpf(10) ** -100, "more words are needed"
        return int(nearest)


def fraction(x: mp.mpf) -> Fraction:
    sign, mantissa, exponent, _ = x._mpf_
    return Fraction((-1) ** sign * int(mantissa)) * Fraction(2) ** exponent
