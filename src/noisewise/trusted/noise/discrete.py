"""Secret choices, drawn exactly: who joins a batch, which subset, which candidate, how often.

*Gaps* between the records that join a Poisson batch are floor(log U / log(1 - rate)), U = (w + u)/2^64 with w a word and u in
[0, 1] its bits to come; :func:`joined` takes u = 1/2 in double precision. *Error.* For words at least ``MIN_SURE_WORD`` = 2^44
from either end u moves log U by at most 2^-45 of itself, and the functions and operations add a few units of 2^-53: together
less than 2^-44.9, and 2^-44 is granted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..events import PoissonRepetitions, TruncatedNegativeBinomial
from ..fast.kernels import compiled
from .intervals import chosen, counted, exponential, first_of_negative_binomial, gap, until_decided
from .secret_words import MAX_WORDS, More, SecretWords

NOBODY = np.empty(0, dtype=np.int64)
MIN_SURE_WORD = np.int64(2**44)
BELOW, ABOVE = 1 - 2.0**-44, 1 + 2.0**-44
UNIT = 2.0**-64
Joined = Callable[[NDArray[np.int64], float, int, int, NDArray[np.int64]], tuple[int, int]]


def kernel() -> Joined:
    """The compiled kernel of the gaps, or the reference."""
    if compiled():
        from ..fast import normal_compiled

        return normal_compiled.joined
    return joined


def mean_gap(rate: float) -> float:
    """-1/log(1 - rate), with which -log U is multiplied; infinite for rates too small for it."""
    return -1 / math.log1p(-rate) if rate > 2.0**-1022 else math.inf


def joined(words: NDArray[np.int64], mean: float, of: int, row: int, rows: NDArray[np.int64]) -> tuple[int, int]:
    """Gaps, the reference in numpy. Writes the rows after ``row`` that join, one gap per word, until they pass ``of``, a gap is open or words end.

    Returns how many words were used and how many rows written: less rows than words if the last gap passed ``of``.
    """
    upper, end = words < 0, words ^ (words >> 63)
    x = (end + 0.5) * UNIT
    mean_gaps = -np.where(upper, np.log1p(-np.where(upper, x, 0)), np.log(np.where(upper, 1, x))) * mean
    passed = mean_gaps * BELOW >= of
    gaps = np.floor(np.where(passed, of, mean_gaps * BELOW))
    opened = (end < MIN_SURE_WORD) | (~passed & (gaps != np.floor(np.where(passed, of, mean_gaps * ABOVE))))
    decided = int(np.argmax(opened)) if opened.any() else len(words)
    joining = row + np.cumsum(gaps[:decided].astype(np.int64) + 1)
    inside = int(np.searchsorted(joining, of))
    rows[:inside] = joining[:inside]
    return min(inside + 1, decided), inside


def coins(words: SecretWords, many: int) -> NDArray[np.int64]:
    """``many`` fresh words without their sign bit, so that each of 2^63 values is equally likely."""
    parts = [words.take(min(MAX_WORDS, many - start))[0] & 2**63 - 1 for start in range(0, many, MAX_WORDS)]
    return np.concatenate([NOBODY, *parts])


def each_with_probability(words: SecretWords, rate: float, of: int, joined: Joined) -> NDArray[np.int64]:
    """The numbers below ``of``, in order, that come up when each joins independently with probability ``rate``.

    The gaps between those that join are independent geometric draws. Above 1/2 those who stay away are drawn: their
    rate 1 - rate is a double then, without rounding.
    """
    if not rate > 0:
        raise ValueError(f"rate must be a probability above 0, not {rate!r}")
    if rate >= 1:
        return np.arange(of)
    if rate > 0.5:
        joins = np.ones(of, dtype=bool)
        joins[each_with_probability(words, 1 - rate, of, joined)] = False
        return np.flatnonzero(joins)
    mean, row, batch = mean_gap(rate), -1, []
    while row < of - 1:
        expected = rate * (of - 1 - row)
        drawn, number = words.ahead(min(int(expected + 4 * math.sqrt(expected)) + 8, MAX_WORDS))
        rows = np.empty(len(drawn), dtype=np.int64)
        used, inside = joined(drawn, mean, of, row, rows)
        batch.append(rows[:inside])
        row = int(rows[inside - 1]) if inside else row
        words.use(used)
        if used > inside:  # the last gap leads beyond
            break
        if used < len(drawn):  # a gap is open
            word = int(drawn[used]) % 2**64
            words.use(1)
            row += 1 + _gap(words, number + used, word, rate, of)
            if row < of:
                batch.append(np.array([row]))
    return batch[0] if len(batch) == 1 else np.concatenate([NOBODY, *batch])


def _gap(words: SecretWords, number: int, word: int, rate: float, of: int) -> int:
    more = words.continuing(number)
    return until_decided(lambda depth: gap(word, more, Fraction(rate), of, depth))


def subset(words: SecretWords, size: int, of: int) -> NDArray[np.int64]:
    """A uniformly random subset of ``size`` of the numbers below ``of``, in order: those with the smallest words.

    A tie between the last inside and the first outside is drawn anew; without one, all subsets are alike.
    """
    if size <= 0:
        return NOBODY
    if size >= of:
        return np.arange(of)
    while True:
        keys = np.concatenate([words.take(min(MAX_WORDS, of - start))[0].copy() for start in range(0, of, MAX_WORDS)])
        order = np.argpartition(keys, (size - 1, size))
        if keys[order[size - 1]] != keys[order[size]]:
            return np.sort(order[:size])


def choose(words: SecretWords, scores: NDArray[np.int64], scale: Fraction | float) -> int:
    """The exponential mechanism: i with probability proportional to exp(-scores[i] scale), by its inverse CDF."""
    if not np.issubdtype(scores.dtype, np.integer):
        raise TypeError("scores must be integers: exact sums, in units of their own grid")
    return choose_rational(words, scores.tolist(), scale)


def choose_rational(words: SecretWords, scores: Sequence[Fraction | int], scale: Fraction | float) -> int:
    """:func:`choose` for scores that are whole numbers or fractions of any size."""
    if not len(scores):
        raise ValueError("there is nothing to choose from: pass at least one score")
    if not all(type(score) in (int, Fraction) for score in scores):
        raise TypeError("scores must be whole numbers or fractions: a float is not exact")
    if not 0 <= scale < math.inf:
        raise ValueError(f"scale must be a finite number of at least 0, not {scale!r}")
    exact, least = Fraction(scale), min(scores)
    exponents = [(score - least) * exact for score in scores]
    word, more = _uniform(words)
    return until_decided(lambda depth: chosen(word, more, exponents, depth))


def negative_binomial(words: SecretWords, eta: float, gamma: float) -> int:
    """K >= 1 with P(K = k) proportional to (1 - gamma)^k Gamma(k + eta) / k!, by its inverse CDF; no end is cut off.

    P(1) = eta (1-gamma) / (gamma^-eta - 1), or (1-gamma) / log(1/gamma) for eta = 0; P(k+1) / P(k) = (1-gamma)(k+eta)/(k+1).
    """
    law = TruncatedNegativeBinomial(eta, gamma)
    if law.gamma == 1:
        return 1
    shape, rest = Fraction(law.eta), 1 - Fraction(law.gamma)
    word, more = _uniform(words)
    return 1 + until_decided(
        lambda depth: counted(
            word,
            more,
            lambda bits: first_of_negative_binomial(shape, 1 - rest, bits),
            lambda k: rest * (k + 1 + shape) / (k + 2),
            depth,
        )
    )


def poisson(words: SecretWords, mean: float) -> int:
    """A Poisson number with this mean, by its inverse CDF; no end is cut off."""
    exact = Fraction(PoissonRepetitions(mean).mean)
    word, more = _uniform(words)
    return until_decided(
        lambda depth: counted(word, more, lambda bits: exponential(exact, bits), lambda k: exact / (k + 1), depth)
    )


def _uniform(words: SecretWords) -> tuple[int, More]:
    drawn, number = words.take(1)
    return int(drawn[0]) % 2**64, words.continuing(number)
