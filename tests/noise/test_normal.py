"""The bounds of the cheap draw hold, and its two implementations agree bit for bit.

All 2^32 words were gone through once, for the figures in the docstring; here a few million at random and all near the
ends, the powers of two and the seams of the approximations.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.trusted.noise import normal_reference as normal

RNG = np.random.default_rng(0)
EVERY = np.concatenate(
    [np.arange(-3000, 3000) + 2**e for e in range(12, 33)]
    + [2**32 - 2**e + np.arange(-3000, 3000) for e in range(12, 32)]
    + [np.arange(-3000, 3000) + int(x * 2**32) for x in (0.5**0.5, 0.5**1.5, 0.5**2.5, 0.708, 0.25, 0.75)]
    + [np.arange(0, 2**32, 4999), RNG.integers(0, 2**32, 2_000_000)]
)
WORDS = EVERY[(EVERY >= 0) & (EVERY < 2**32)].astype(np.uint32)
SIGNED = WORDS.view(np.int32)


def true_radii(words) -> np.ndarray:
    """sqrt(-2 log(words/2^32)), in double precision on both sides of 1/2."""
    with np.errstate(divide="ignore"):
        near = np.log1p(-(2.0**32 - words) / 2.0**32)
        return np.sqrt(-2 * np.where(words > 2**31, near, np.log(words / 2.0**32)))


def test_the_radius_is_within_its_bound_at_both_ends_of_every_word():
    words = WORDS.astype(np.float64)
    inside = np.minimum(words, 2.0**32 - 1 - words) >= float(normal.MIN_SURE_WORD)
    computed = normal.radii(SIGNED)
    assert computed.dtype == np.float32
    r = computed.astype(np.float64)[inside]
    off = np.maximum(*(np.abs(r - true_radii(end[inside])) for end in (words, words + 1)))
    assert np.all(off <= normal.RADIUS * r + normal.RADIUS_FLOOR)
    assert np.any(off > normal.RADIUS / 2 * r + normal.RADIUS_FLOOR)  # the check can see errors of this size


def test_the_waves_are_within_their_bound_at_both_ends_of_every_angle():
    cosine, sine = (wave.astype(np.float64) for wave in normal.waves(SIGNED))
    for end in (0, 1):
        angle = ((SIGNED >> 2).astype(np.float64) + end) * (math.pi / 2 / 2**30)
        assert np.abs(cosine - np.cos(angle)).max() <= normal.WAVE
        assert np.abs(sine - np.sin(angle)).max() <= normal.WAVE
    assert np.abs(cosine - np.cos(angle)).max() > normal.WAVE / 2


def test_the_granted_error_covers_its_parts():
    assert float(normal.ERROR) > normal.RADIUS + normal.WAVE + 4 * 2.0**-24
    assert 0.5 - float(normal.LIMIT) > 64 * normal.RADIUS_FLOOR + 3 * 2.0**-25
    assert float(normal.FAR * normal.ERROR) > 0.5


def test_compiled_and_reference_agree_on_every_word_also_on_what_is_open():
    pytest.importorskip("numba")
    from noisewise.trusted.fast import normal_compiled

    half = len(SIGNED) // 2
    shuffled = RNG.permutation(SIGNED)[:half]
    total = RNG.integers(-(2**62), 2**62, 2 * half)
    words = np.concatenate([SIGNED[:half], shuffled])
    for shift, bound, exact in ((40, 2**62, total), (1, 2**62, total), (-5, 2**57, total), (0, 2**62, total[:0])):
        answers = []
        for rounded in (normal.rounded, normal_compiled.rounded):
            k, undecided = np.empty(2 * half, dtype=np.int64), np.empty(2 * half, dtype=np.int64)
            found = rounded(words, exact, np.float32(49.7), shift, bound, k, undecided)
            open_ = np.sort(undecided[:found])
            k[open_] = 0
            answers.append((k, open_))
        assert np.array_equal(answers[0][0], answers[1][0])
        assert np.array_equal(answers[0][1], answers[1][1])
        assert 0 < len(answers[0][1]) < half


def test_the_reference_is_the_double_precision_transform():
    count = 20_000
    words = RNG.integers(-(2**31), 2**31, 2 * count).astype(np.int32)
    k, undecided = np.empty(2 * count, dtype=np.int64), np.empty(2 * count, dtype=np.int64)
    total = RNG.integers(-(2**45), 2**45, 2 * count)
    found = normal.rounded(words, total, np.float32(40), 10, 2**62, k, undecided)
    v = words[count:]
    angle = ((v >> 2) + 0.5) * (math.pi / 2 / 2**30)
    radius = true_radii(words[:count].view(np.uint32) + 0.5)
    across, up = np.where(v & 1, -1, 1) * radius * np.cos(angle), radius * np.sin(angle)
    noise = np.concatenate([np.where(v & 2, up, across), np.where(v & 2, across, up)])
    expected = np.rint(total / 2.0**10 + 40 * noise)
    decided = np.ones(2 * count, dtype=bool)
    decided[undecided[:found]] = False
    assert np.array_equal(k[decided], expected[decided])
