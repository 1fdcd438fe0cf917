"""How many: whole numbers drawn by their inverse CDF, from a uniform that is known bit by bit.

Probabilities follow each other by rational ratios, so only the first needs a logarithm or an exponential. They are kept as
intervals of binary floating-point numbers with as many digits as the uniform has bits, and 64 more, each end rounded its own
way: however many there are, the true sum lies between the two. The decision is None where the interval leaves it open, and more
bits of the same uniform then decide; nothing is cut off, and only the running sum is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mpmath import libmp

from .intervals import GUARD, continued
from .secret_words import More

CountRange = tuple[Any, Any]  # two numbers of libmp, the lower one first
DOWN, UP = "f", "c"


def counted(
    word: int, more: More, first: Callable[[int], CountRange], ratio: Callable[[int], Fraction], depth: int
) -> int | None:
    """The k with P(0) + .. + P(k-1) <= U < P(0) + .. + P(k); ``ratio(k)`` is P(k+1)/P(k). None if open."""
    bits = 64 * (depth + 1)
    precision = bits + GUARD
    u = continued(word, more, 0, depth)
    low_u, high_u = libmp.from_man_exp(u, -bits), libmp.from_man_exp(u + 1, -bits)
    low, high = first(precision)
    low_sum, high_sum, k = low, high, 0
    while libmp.mpf_le(high_sum, low_u):  # U lies beyond k
        step = ratio(k)
        low = libmp.mpf_mul(low, _rational(step, precision, DOWN), precision, DOWN)
        high = libmp.mpf_mul(high, _rational(step, precision, UP), precision, UP)
        low_sum, high_sum = (
            libmp.mpf_add(low_sum, low, precision, DOWN),
            libmp.mpf_add(high_sum, high, precision, UP),
        )
        k += 1
    return k if libmp.mpf_le(high_u, low_sum) else None


def exponential(x: Fraction, precision: int) -> CountRange:
    """Bounds on exp(-x) for x > 0."""
    more = precision + GUARD + max(x.numerator.bit_length() - x.denominator.bit_length(), 0)
    return _around(libmp.mpf_exp(_rational(-x, more, "n"), more, "n"), precision)


def first_of_negative_binomial(eta: Fraction, gamma: Fraction, precision: int) -> CountRange:
    """Bounds on P(1) = eta (1-gamma) / (gamma^-eta - 1), or (1-gamma) / log(1/gamma) for eta = 0; gamma < 1.

    What cancels in gamma^-eta - 1 or near gamma = 1 is at most 2^-80 for eta and gamma that an event may have: 128 digits more.
    """
    more = precision + GUARD + 128
    log = libmp.mpf_neg(libmp.mpf_log(_rational(gamma, more, "n"), more, "n"))
    if eta == 0:
        value = libmp.mpf_div(_rational(1 - gamma, more, "n"), log, more, "n")
    else:
        power = libmp.mpf_exp(libmp.mpf_mul(_rational(eta, more, "n"), log, more, "n"), more, "n")
        grown = libmp.mpf_sub(power, libmp.fone, more, "n")
        value = libmp.mpf_div(_rational(eta * (1 - gamma), more, "n"), grown, more, "n")
    return _around(value, precision)


def _rational(x: Fraction, precision: int, rounding: str) -> Any:
    return libmp.from_rational(x.numerator, x.denominator, precision, rounding)


def _around(value: Any, precision: int) -> CountRange:
    """A positive number that is right to more digits than ``precision``, moved by 2^-precision of itself either way."""
    slack = libmp.mpf_shift(value, -precision)
    return libmp.mpf_sub(value, slack, precision + 8, DOWN), libmp.mpf_add(value, slack, precision + 8, UP)
