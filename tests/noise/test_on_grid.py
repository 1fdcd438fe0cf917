"""Rounded noise is drawn exactly: every k equals a slow computation from the same bits, hard cases included.

Statistical checks run at fixed seeds; each accepts the right distribution with probability 1 - 1e-4 over seeds and is
shown to reject a wrong one.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scripted import (
    Scripted,
    deep_of,
    expansion,
    fraction,
    hashed,
    script_of,
    slow_normals,
    slow_rounded,
    words_of,
)

from noisewise.trusted.noise import Stream
from noisewise.trusted.noise.intervals import normal_rounded
from noisewise.trusted.noise.normal import MAX_STD, MIN_STD, Sampler, grid
from noisewise.trusted.noise.secret_words import MAX_WORDS

RARE = 1e-4
KERNELS = ["reference", "compiled"]
HUGE = 2**60


@pytest.fixture(params=KERNELS)
def kernels(request, monkeypatch):
    if request.param == "compiled":
        pytest.importorskip("numba")
    monkeypatch.setenv("NOISEWISE_KERNELS", request.param)
    return request.param


def drawn(pairs, total, std, deep=hashed):
    """k of the sampler, and of the slow computation, for the same words and bits."""
    total = np.array(total, dtype=np.int64)
    public = grid(std)
    k = Sampler().on_grid(Scripted(script_of(pairs), deep), total, public)
    normals = [slow_normals(int(w) % 2**32, int(v) % 2**32, deep, i) for i, (w, v) in enumerate(pairs)]
    slow = [first for first, _ in normals] + [second for _, second in normals]
    return k.tolist(), [slow_rounded(t, std, public.step, n) for t, n in zip(total, slow, strict=False)]


@pytest.mark.parametrize("std", [1.0, 3e-6, 0.3, 1e6 / 3, 2.0**40, 5e16])
def test_every_draw_of_a_seeded_stream_is_the_slow_one(kernels, std):
    count, rng = 1500, np.random.default_rng(0)
    size = min(HUGE, int(2**61 * std / 64))
    total = rng.integers(-size, size, count)
    k, step = Stream(5).on_grid(total, std)
    words, deep = words_of(5, count // 2).view(np.uint32), deep_of(5)
    for j in range(0, count, 5):
        pair = j % (count // 2)
        normals = slow_normals(int(words[pair]), int(words[count // 2 + pair]), deep, pair)
        assert k[j] == slow_rounded(int(total[j]), std, step, normals[j >= count // 2])


def test_words_at_the_ends_give_tails_without_an_end(kernels):
    ends = [0, 1, 2, 3, 2**17 - 1, 2**17, 2**17 + 1, 2**31 - 1, 2**31, 2**31 + 1]
    ends += [2**32 - 1 - end for end in ends[:7]]
    pairs = [(w, v) for w in ends for v in (0, 1, 2, 3, 4, 2**31 - 1, 2**31, 2**32 - 1, 2**29 + 1, 3 * 2**29 + 3)]
    for std in (1.0, 63.9, 2.0**30, 1.99 * 2.0**45):
        for offset in (0, 1, -7, 12345678901):
            fast, slow = drawn(pairs, [offset] * 2 * len(pairs), std)
            assert fast == slow

    def zeros_first(number, depth):
        return (0, 2**63) if depth < 2 else (5, 7)

    fast, slow = drawn([(0, 0), (0, 2)], [0, 0, 0, 0], 32.0, zeros_first)
    assert fast == slow
    assert max(fast) > 32 * 15.5  # U is about 5/2^224: beyond 15.5 standard deviations, where doubles have no uniforms

    def ones(number, depth):
        return 2**64 - 1, 2**64 - 1

    fast, slow = drawn([(2**32 - 1, v) for v in range(8)], [3] * 16, 32.0, ones)
    assert fast == slow == [3] * 16


def middles(std, count=400):
    """Pairs of words with totals that bring the first of each pair as close to a middle as integers can."""
    rng, public = np.random.default_rng(2), grid(std)
    pairs = rng.integers(0, 2**32, (count, 2)).tolist()
    below = []
    for i, (w, v) in enumerate(pairs):
        normal, _ = slow_normals(w, v, hashed, i)
        with mp.workdps(150):
            below.append(int(mp.floor((mp.mpf(1) / 2 + int(rng.integers(-9, 9))) * public.step - mp.mpf(std) * normal)))
    return pairs, below


@pytest.mark.sample(3)
@pytest.mark.parametrize("std", [2.0**20, 1.3 * 2.0**40, 1.7 * 2.0**48, 2.0**56])
def test_next_to_a_middle_the_neighbouring_totals_fall_on_either_side(kernels, std):
    """At 2^56 a total moves k h by 2^-50 h: both cheap steps leave that open, and intervals decide it."""
    pairs, below = middles(std)
    rest = [0] * len(pairs)
    low, slow = drawn(pairs, below + rest, std)
    assert low == slow
    high, slow = drawn(pairs, [total + 1 for total in below] + rest, std)
    assert high == slow
    count = len(pairs)
    assert [b - a for a, b in zip(low[:count], high[:count], strict=True)] == [1] * count


def test_the_steps_hand_on_what_they_leave_open(monkeypatch):
    """Where the middle is 2^-50 away all draws reach the intervals; on ordinary totals hardly any leaves step one."""
    reached = []
    import noisewise.trusted.noise.normal as module

    monkeypatch.setattr(module, "normal_rounded", lambda *a, **k: reached.append(1) or normal_rounded(*a, **k))
    pairs, below = middles(2.0**56, 50)
    drawn(pairs, below + [0] * 50, 2.0**56)
    assert 45 <= len(reached) <= 60
    reached.clear()
    refined = []
    sampler = Sampler()
    stream = Stream(1)
    original = sampler._refined
    object.__setattr__(sampler, "_refined", lambda at, *rest: refined.append(len(at)) or original(at, *rest))
    sampler.on_grid(stream._secret, 2**20, grid(45.0))
    assert not reached
    expected = 2**20 * 2.0**-12.7
    assert abs(sum(refined) - expected) < 6 * math.sqrt(expected)


def test_intervals_ask_for_more_bits_until_they_decide():
    w, v = 123456789, 987654321
    normal, _ = slow_normals(w, v, hashed, 0)
    more = lambda depth: hashed(0, depth)  # noqa: E731
    for bits, depth in ((60, 1), (100, 2), (200, 4)):
        near = Fraction(1, 2) - fraction(normal) - Fraction(1, 2**bits)
        for offset, answer in ((near, 0), (near + Fraction(1, 2 ** (bits - 1)), 1)):
            at = {d: normal_rounded(w, v, False, more, offset=offset, std=Fraction(1), depth=d) for d in (1, 2, 4)}
            assert all(at[d] == (answer if d >= depth else None) for d in at)


@pytest.mark.parametrize("w, v, second, which", [(3, 20, True, 1), (3, 20, False, 0), (2**31, 4 * 5 + 3, False, 1)])
def test_intervals_leave_open_what_the_next_words_could_still_change(w, v, second, which):
    """The middle lies between all later bits of one uniform zero and all one: a single further word cannot tell."""

    def ending(bits):
        return lambda number, depth: hashed(0, 0) if depth == 0 else tuple(bits if i == which else 9 for i in range(2))

    ends = [slow_normals(w, v, ending(bits), 0)[second] for bits in (0, 2**64 - 1)]
    offset = Fraction(1, 2) - (fraction(ends[0]) + fraction(ends[1])) / 2
    for bits, end in zip((0, 2**64 - 1), ends, strict=True):
        deep = ending(bits)
        more = lambda depth, deep=deep: deep(0, depth)  # noqa: E731
        at = [normal_rounded(w, v, second, more, offset=offset, std=Fraction(1), depth=d) for d in (1, 2)]
        assert at == [None, math.floor(offset + fraction(end) + Fraction(1, 2))]


def test_bits_to_come_cannot_overturn_a_decision(kernels):
    """With all further bits zero, or all one, or mixed, draws that the first 32 bits decide stay as they are."""
    rng = np.random.default_rng(3)
    pairs = rng.integers(0, 2**32, (4000, 2)).tolist()
    total = rng.integers(-HUGE, HUGE, 8000)
    extremes = [(0, 0), (2**64 - 1, 2**64 - 1), (0, 2**64 - 1), (2**64 - 1, 0)]
    public, answers = grid(1e15), []
    for bits in extremes:
        words = Scripted(script_of(pairs), lambda number, depth, bits=bits: bits)
        answers.append(Sampler().on_grid(words, total, public))
    differing = sum((answer != answers[0]).sum() for answer in answers[1:])
    assert differing <= 8
    slow = [slow_normals(w, v, lambda *_: extremes[1], i)[0] for i, (w, v) in enumerate(pairs[:300])]
    assert answers[1][:300].tolist() == [
        slow_rounded(t, 1e15, public.step, n) for t, n in zip(total, slow, strict=False)
    ]


@pytest.mark.parametrize("std", [MIN_STD, 0.9, 1.0, 777.7, 2.0**31, MAX_STD])
def test_compiled_kernels_and_the_reference_draw_the_same(monkeypatch, std):
    pytest.importorskip("numba")
    rng = np.random.default_rng(4)
    answers = []
    totals = [rng.integers(-(2**62), 2**62, size) for size in (1, 2, 3, 123, 1023, 1025, 4097, 2 * MAX_WORDS + 5)]
    for choice in KERNELS:
        monkeypatch.setenv("NOISEWISE_KERNELS", choice)
        stream = Stream(6)
        answers.append([stream.on_grid(total, std)[0] for total in (*totals, 7, 200_001, *totals)])
    assert all(np.array_equal(one, other) for one, other in zip(*answers, strict=True))


def test_the_grid_is_public_and_near_a_thirty_second_of_the_noise():
    for std in (MIN_STD, 0.1, 1.0, math.nextafter(2.0, 0), 2.0, 3.0, 1e9, MAX_STD):
        public = grid(std)
        assert std / 64 < public.step <= std / 32
        assert math.frexp(public.step)[0] == 0.5
        assert public.std * public.step == std
        assert Stream(1).on_grid(3, std)[1] == public.step


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan, math.inf, MIN_STD * 0.999, MAX_STD * 1.001])
def test_noise_outside_the_range_is_refused(std):
    with pytest.raises(ValueError, match=r"between 2\^-21 and 2\^63"):
        Stream(1).on_grid(3, std)


@pytest.mark.parametrize("total", [np.zeros(3), np.zeros(3, dtype=np.int32), np.zeros((3, 1), dtype=np.int64)])
def test_totals_that_are_no_exact_vectors_are_refused(total):
    with pytest.raises(TypeError, match="vector of int64"):
        Stream(1).on_grid(total, 1.0)


def test_a_number_stands_for_zeros_and_totals_are_left_alone(kernels):
    for size in (0, 1, 5, 2048):
        zeros = np.zeros(size, dtype=np.int64)
        assert np.array_equal(Stream(8).on_grid(size, 5.0)[0], Stream(8).on_grid(zeros, 5.0)[0])
        assert not zeros.any()
    fixed = np.arange(9)[::2]
    fixed.flags.writeable = False
    assert np.array_equal(Stream(8).on_grid(fixed, 5.0)[0], Stream(8).on_grid(fixed.copy(), 5.0)[0])


@pytest.mark.parametrize("std", [1.0, 3.0, 1000.0, 2.0**50])
def test_a_shift_of_the_total_by_whole_steps_shifts_the_answer(kernels, std):
    zero, step = Stream(9).on_grid(1000, std)
    unit, finer = int(max(step, 1)), int(max(1 / step, 1))
    for times in (1, -1, HUGE // unit // finer, -HUGE // unit // finer):
        answer, _ = Stream(9).on_grid(np.full(1000, times * unit), std)
        assert np.array_equal(answer - times * finer, zero)


@pytest.mark.parametrize("std", [MIN_STD, 1.0, 32.0, 2.0**20])
def test_totals_at_the_ends_of_int64_are_held_and_never_wrap_around(kernels, std):
    ends = np.array([2**63 - 1, -(2**63), 2**62, -(2**62)] * 50)
    k, step = Stream(10).on_grid(ends, std)
    assert np.array_equal(np.sign(k), np.sign(ends))
    held = min(2.0**62, 2.0**62 / step)
    assert np.all(np.abs(np.abs(k) - held) <= 64 * 10 + held * 2**-50)


def cells_are_right(k, beta, std, sigma) -> bool:
    """Chi-square of the counts of k against the exact cell probabilities of round(beta + sigma N)."""
    edges = np.arange(-3 * int(std), 3 * int(std), int(std) // 4) + 0.5
    probabilities = np.diff(stats.norm.cdf(np.concatenate([[-np.inf], edges, [np.inf]]), loc=beta, scale=sigma))
    counts = np.bincount(np.searchsorted(edges, k), minlength=len(probabilities))
    return stats.chisquare(counts, probabilities * len(k)).pvalue > RARE


@pytest.mark.parametrize("total", [0, 3, -HUGE + 11])
def test_cells_have_their_probabilities_and_one_percent_off_is_rejected(total):
    count, std = 1_000_000, 777.0
    public = grid(std)
    k, step = Stream(11).on_grid(np.full(count, total), std)
    base = round(total / int(step))
    beta, sigma = (total - base * int(step)) / step, public.std
    centred = k - base
    assert cells_are_right(centred, beta, sigma, sigma)
    for wrong in (0.99, 1.01):
        assert not cells_are_right(centred, beta, sigma, sigma * wrong)
    assert not cells_are_right(centred, beta + 0.5, sigma, sigma)


def test_the_uniforms_of_the_slow_computation_are_uniform():
    """The oracle reads the stream's words as the theory says: without this it could share a mistake."""
    words, deep = words_of(12, 2000), deep_of(12)
    u = [float(expansion(int(w) >> 32, 32, deep, i, 0)) for i, w in enumerate(words)]
    assert stats.kstest(u, "uniform").pvalue > RARE
    normals = [
        float(n) for i, w in enumerate(words[:1000]) for n in slow_normals(int(w) >> 32, int(w) % 2**32, deep, i)
    ]
    assert stats.kstest(normals, "norm").pvalue > RARE


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 7, 3000, 140_001])
def test_what_is_released_is_the_rounded_noise_times_its_worth(size, dtype):
    total = np.arange(size, dtype=np.int64) * 12345
    stream, other = Stream(4), Stream(4)
    for _ in range(3):  # the room of draws is used again
        k, step = other.on_grid(total, 2.0**20)
        expected = k.astype(dtype) * dtype(step * 0.37)
        assert np.array_equal(stream.released(total, 2.0**20, 0.37, dtype), expected)
