"""Decisions about uniforms that are known bit by bit: bounds in exact integers, and more bits until they agree.

Only log, exp, sine and cosine come from a library (mpmath). They are asked for 64 bits more than are trusted, and the
trusted value is a bound on either side; everything else is done in integers and fractions.

Numbers of runs and the like are drawn by their inverse CDF (:func:`counted`). Probabilities follow each other by rational ratios,
so only the first needs a logarithm or an exponential. They are kept as pairs of binary floating-point numbers with as many digits
as the uniform has bits, and 64 more, each end rounded its own way: however many there are, the true sum lies between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from mpmath import libmp

from .secret_words import More

GUARD = 64
CountRange = tuple[Any, Any]  # two numbers of libmp, the lower one first
DOWN, UP = "f", "c"


def until_decided(attempt: Callable[[int], int | None]) -> int:
    """The first answer of ``attempt``, which is given 1, 2, 4, ... further words of each uniform."""
    depth = 1
    while (answer := attempt(depth)) is None:
        depth *= 2
    return answer


def continued(first: int, more: More, which: int, depth: int) -> int:
    """``first`` followed by ``depth`` further words: the uniform lies between this number and the next."""
    for level in range(depth):
        first = first << 64 | more(level)[which]
    return first


def minus_log(numerator: int, bits: int, precision: int) -> tuple[int, int]:
    """Bounds on -log(numerator / 2^bits) 2^precision, for 0 < numerator <= 2^bits."""
    value = libmp.mpf_log(libmp.from_man_exp(numerator, -bits), precision + GUARD, "n")
    fixed = -int(libmp.to_fixed(value, precision))
    return max(fixed - 2, 0), fixed + 2


def normal_rounded(
    w: int, v: int, second: bool, more: More, *, offset: Fraction, std: Fraction, depth: int
) -> int | None:
    """round(offset + std N), N the first or second normal of the words (w, v) with ``depth`` more each; None if open.

    The words and N are those of :mod:`noisewise.trusted.noise.normal_reference`, w unsigned and v signed.
    """
    bits, precision = 32 + 64 * depth, 32 + 64 * depth
    u = continued(w, more, 0, depth)
    if u == 0:  # U may be as small as it likes: its next words tell
        return None
    least, most = minus_log(u + 1, bits, precision)[0], minus_log(u, bits, precision)[1]
    radius = math.isqrt((2 * least) << precision), math.isqrt((2 * most) << precision) + 1
    a = continued(v >> 2, more, 1, depth)
    cosine, sine = libmp.mpf_cos_sin_pi(libmp.from_man_exp(a, -(bits - 1)), precision + GUARD, "n")
    flat = second == bool(v & 2)  # whether the cosine is asked for
    wave = int(libmp.to_fixed(cosine if flat else sine, precision))
    wave = -wave if flat and v & 1 else wave
    low, high = wave - 16, wave + 16  # the angle is known to (pi/2)/2^(bits - 2), hence the wave to 2 pi/2^precision
    lowest = low * radius[0 if low >= 0 else 1]
    highest = high * radius[1 if high >= 0 else 0]
    unit = Fraction(1, 1 << (2 * precision))
    answers = {math.floor(offset + std * unit * end + Fraction(1, 2)) for end in (lowest, highest)}
    return answers.pop() if len(answers) == 1 else None


def gap(word: int, more: More, rate: Fraction, beyond: int, depth: int) -> int | None:
    """floor(log U / log(1 - rate)) for U = (word + u)/2^64, or ``beyond`` if it is at least that; None if open."""
    bits = 64 * (depth + 1)
    precision = bits + GUARD
    u = continued(word, more, 0, depth)
    if u == 0:
        return None
    rest = 1 - rate
    each = libmp.mpf_log(libmp.from_man_exp(rest.numerator, 1 - rest.denominator.bit_length()), precision, "n")
    ends = []
    for end, side in ((u + 1, -1), (u, 1)):
        whole = libmp.mpf_log(libmp.from_man_exp(end, -bits), precision, "n")
        ratio = Fraction(*libmp.to_rational(libmp.mpf_div(whole, each, precision, "n")))
        ends.append(min(math.floor(ratio * (1 + Fraction(side, 1 << bits))), beyond))
    return ends[0] if ends[0] == ends[1] else None


def weights(exponents: Sequence[Fraction], precision: int) -> list[tuple[int, int]]:
    """Bounds on exp(-x) 2^precision for each exponent x >= 0."""
    known: dict[Fraction, tuple[int, int]] = {}
    for x in exponents:
        if x not in known:
            known[x] = _weight(x, precision)
    return [known[x] for x in exponents]


def _weight(x: Fraction, precision: int) -> tuple[int, int]:
    if x > precision:  # exp(-x) < 2^-precision
        return 0, 1
    power = libmp.from_rational(-x.numerator, x.denominator, precision + GUARD, "n")
    fixed = int(libmp.to_fixed(libmp.mpf_exp(power, precision + GUARD, "n"), precision))
    return max(fixed - 2, 0), fixed + 2


def chosen(word: int, more: More, exponents: Sequence[Fraction], depth: int) -> int | None:
    """The i with W_(i-1) <= U W < W_i, W_i the sum of the first weights exp(-x) and W of all; None if open."""
    bits = 64 * (depth + 1)
    u = continued(word, more, 0, depth)
    each = weights(exponents, bits + GUARD)
    least, most = sum(low for low, _ in each) * u, sum(high for _, high in each) * (u + 1)
    low_before = high_before = 0
    for i, (low, high) in enumerate(each):
        last = i == len(each) - 1
        if last or most <= (low_before + low) << bits:
            return i if i == 0 or high_before << bits <= least else None
        low_before, high_before = low_before + low, high_before + high
    return None


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
        low_sum = libmp.mpf_add(low_sum, low, precision, DOWN)
        high_sum = libmp.mpf_add(high_sum, high, precision, UP)
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
