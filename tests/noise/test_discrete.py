"""Batches, subsets and choices are drawn exactly: compared with slow computations from the same bits, and with their
exact probabilities (chi-square tests at fixed seeds, error rate 1e-4 each)."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scripted import Scripted, deep_of, expansion, hashed, words_of

from noisewise.trusted.noise import Stream, discrete
from noisewise.trusted.noise.intervals import chosen

RARE = 1e-4
KERNELS = ["reference", "compiled"]
SCALES = [0.0, 1.0, 0.3, Fraction(1, 7), 2.0**-40, 1e-300, 1e300]


@pytest.fixture(params=KERNELS)
def kernels(request, monkeypatch):
    if request.param == "compiled":
        pytest.importorskip("numba")
    monkeypatch.setenv("NOISEWISE_KERNELS", request.param)
    return request.param


def slow_gap(u: mp.mpf, rate: float) -> int:
    with mp.workdps(200):
        return int(mp.floor(mp.log(u) / mp.log(1 - mp.mpf(rate))))


@pytest.mark.parametrize("rate, of", [(0.3, 40), (256 / 32561, 32561), (0.5, 50), (1e-5, 10**7), (2.0**-40, 2**46)])
def test_every_gap_of_a_seeded_stream_is_the_slow_one(kernels, rate, of):
    for seed in range(8):
        rows = Stream(seed).each_with_probability(rate, of)
        words, deep, row, slow = words_of(seed, 1000), deep_of(seed), -1, []
        for i, word in enumerate(words):
            with mp.workdps(200):
                row += 1 + slow_gap(expansion(int(word), 64, deep, i, 0), rate)
            if row >= of:
                break
            slow.append(row)
        assert rows.tolist() == slow
        assert rows.dtype == np.int64


@pytest.mark.parametrize("rate", [0.3, 0.5, 256 / 32561, 2.0**-20, 1e-9, 2.0**-40])
def test_next_to_a_whole_gap_later_bits_decide(kernels, rate):
    """U = (1 - rate)^g is the border between gaps g - 1 and g; a word and its continuation can come as close as any."""
    for g in (1, 2, 3, 10, 50):
        with mp.workdps(200):
            border = (1 - mp.mpf(rate)) ** g * mp.mpf(2) ** 128
            below, above = int(mp.ceil(border)) - 1, int(mp.floor(border))
        for bits, later, gap in ((below, 0, g), (above, 2**64 - 1, g - 1)):
            word, first = divmod(bits, 2**64)
            deep = lambda number, depth, first=first, later=later: (later if depth else first, 0)  # noqa: E731
            words = Scripted([np.uint64(word).view(np.int64)], deep)
            assert discrete.each_with_probability(words, rate, gap + 1, discrete.kernel()).tolist() == [gap]


def test_words_at_the_ends(kernels):
    joined = discrete.kernel()
    for word in (0, 1, 2**44 - 1, 2**44, 2**63 - 1, -(2**63), -1, -2, -(2**44), -(2**44) - 1):
        words = Scripted([word], hashed)
        with mp.workdps(200):
            gap = slow_gap(expansion(word % 2**64, 64, hashed, 0, 0), 0.25)
        assert discrete.each_with_probability(words, 0.25, gap + 1, joined).tolist() == [gap]


@pytest.mark.parametrize("rate", [256 / 32561, 0.05, 0.3, 0.5, 0.7, 0.999, 1e-6, 5e-324, 1.0])
def test_compiled_kernels_and_the_reference_draw_the_same(monkeypatch, rate):
    pytest.importorskip("numba")
    answers = []
    for choice in KERNELS:
        monkeypatch.setenv("NOISEWISE_KERNELS", choice)
        stream = Stream(3)
        answers.append([stream.each_with_probability(rate, of) for of in (0, 1, 2, 3, 100, 32561, 300_000, 5)])
    assert all(np.array_equal(one, other) for one, other in zip(*answers, strict=True))


@pytest.mark.sample(2)
@pytest.mark.parametrize("rate", [0.3, 0.7, 0.02])
def test_all_eight_batches_of_three_records_have_their_probabilities(kernels, rate):
    stream, draws = Stream(4), 20_000
    counts = Counter(tuple(stream.each_with_probability(rate, 3).tolist()) for _ in range(draws))
    batches = [batch for size in range(4) for batch in itertools.combinations(range(3), size)]
    assert set(counts) <= set(batches)
    observed = np.array([counts[batch] for batch in batches])

    def accepted(rate):
        expected = np.array([rate ** len(batch) * (1 - rate) ** (3 - len(batch)) for batch in batches]) * draws
        return stats.chisquare(observed, expected).pvalue > RARE

    assert accepted(rate)
    assert not accepted(rate * 0.8)
    assert not accepted(rate * 1.25)


def test_moments_of_a_usual_batch(kernels):
    stream, of, rate, draws = Stream(5), 32561, 256 / 32561, 2000
    batches = [stream.each_with_probability(rate, of) for _ in range(draws)]
    sizes = np.array([len(rows) for rows in batches])
    variance = of * rate * (1 - rate)
    z = stats.norm.isf(RARE / 2)
    assert abs(sizes.mean() - of * rate) < z * math.sqrt(variance / draws)
    assert abs(sizes.mean() - of * rate * 1.01) > z * math.sqrt(variance / draws)
    ratio = sizes.var(ddof=1) / variance * (draws - 1)
    assert RARE / 2 < stats.chi2.cdf(ratio, draws - 1) < 1 - RARE / 2
    rows = np.concatenate(batches)
    assert stats.chisquare(np.bincount(rows * 37 // of, minlength=37)[:37]).pvalue > RARE
    assert all((np.diff(rows) > 0).all() for rows in batches)


def test_the_bound_of_the_gaps_holds_for_whatever_bits_come():
    """Rates and words at random and at the ends: the double is within the granted share of both ends of the word."""
    rng = np.random.default_rng(6)
    ends = [2**44, 2**44 + 1, 2**63 - 1, 2**63, 2**64 - 1 - 2**44, 2**64 - 2 - 2**44]
    words = [*ends, *(int(x) for x in rng.integers(2**44, 2**64 - 2**44, 300, dtype=np.uint64))]
    words += [2**e + int(rng.integers(0, 2**30)) for e in range(45, 63)]
    for word in words:
        x = (min(word, 2**64 - 1 - word) + 0.5) * discrete.UNIT
        for rate in (0.5, 0.3, 256 / 32561, 2.0**-40, 1e-100):
            computed = -(math.log1p(-x) if word >= 2**63 else math.log(x)) * discrete.mean_gap(rate)
            with mp.workdps(200):
                each = mp.log(1 - mp.mpf(rate))
                low, high = (mp.log(mp.mpf(end) / 2**64) / each for end in (word + 1, word))
                assert computed * discrete.BELOW < low <= high < computed * discrete.ABOVE


def test_subsets_are_in_order_and_a_tie_is_drawn_anew():
    for size, of in ((0, 5), (5, 5), (7, 5), (3, 5), (1000, 150_000)):
        rows = Stream(7).subset(size, of)
        assert len(rows) == min(size, of)
        assert (np.diff(rows) > 0).all()
        assert rows.dtype == np.int64
    tied = Scripted([1, 5, 5, 9, 4, 3, 2, 1], hashed)
    assert discrete.subset(tied, 2, 4).tolist() == [2, 3]
    inside = Scripted([9, 5, 5, 1, 4, 3, 2, 1], hashed)
    assert discrete.subset(inside, 3, 4).tolist() == [1, 2, 3]


def probabilities(scores, scale) -> np.ndarray:
    with mp.workdps(60):
        least = min(scores)
        weights = [mp.exp(-(mp.mpf(score - least) * scale)) for score in scores]
        return np.array([float(weight / mp.fsum(weights)) for weight in weights])


@pytest.mark.parametrize("scores, scale", [([0, 1, 2, 3], 0.7), ([5, -3, 0, 5, 9], Fraction(1, 3)), ([0, 0, 0], 4.0)])
def test_choices_have_their_probabilities(scores, scale):
    stream, draws = Stream(8), 4000
    counts = np.bincount([stream.choose(np.array(scores), scale) for _ in range(draws)], minlength=len(scores))
    exact = mp.mpf(scale.numerator) / scale.denominator if isinstance(scale, Fraction) else scale
    assert stats.chisquare(counts, probabilities(scores, exact) * draws).pvalue > RARE
    if len(set(scores)) > 1:
        assert stats.chisquare(counts, probabilities(scores, exact * 1.2) * draws).pvalue < RARE
        assert stats.chisquare(counts[::-1], probabilities(scores, exact) * draws).pvalue < RARE


def test_at_the_border_between_two_candidates_later_bits_decide():
    for scores, scale in (([0, 1], 1.0), ([4, 0, 2], 0.1), ([0, 40, 1], 0.5)):
        weights = probabilities(scores, scale)
        assert len(weights) == len(scores)
        with mp.workdps(200):
            exact = [mp.exp(-mp.mpf(score) * scale) for score in scores]
            for i in range(len(scores) - 1):
                bits = int(mp.floor(mp.fsum(exact[: i + 1]) / mp.fsum(exact) * mp.mpf(2) ** 256))
                levels = [bits >> shift & (2**64 - 1) for shift in (192, 128, 64, 0)]
                for later, answer in ((0, i), (2**64 - 1, i + 1)):
                    deep = lambda n, d, levels=levels, later=later: (levels[d + 1] if d < 3 else later, 0)  # noqa: E731
                    words = Scripted([np.uint64(levels[0]).view(np.int64)], deep)
                    assert discrete.choose(words, np.array(scores), scale) == answer
                    exponents = [(score - min(scores)) * Fraction(scale) for score in scores]
                    assert chosen(levels[0], words.continuing(0), exponents, 1) is None


def test_scores_may_be_as_far_apart_as_integers_go():
    far = np.array([2**62, -(2**62), 2**62, 2**63 - 1, -(2**63)])
    for scale in SCALES:
        answers = {Stream(seed).choose(far, scale) for seed in range(20)}
        assert answers == {4} if scale in (1.0, 0.3, 1e300, Fraction(1, 7), 2.0**-40) else len(answers) > 1
    near = np.array([2**62, 2**62 + 1])
    assert {Stream(seed).choose(near, 2.0) for seed in range(60)} == {0, 1}


def test_zero_and_ones_choose_the_first_and_the_last():
    scores = np.array([3, 0, 7])
    assert discrete.choose(Scripted([0], lambda *_: (0, 0)), scores, 0.5) == 0
    assert discrete.choose(Scripted([-1], lambda *_: (2**64 - 1, 0)), scores, 0.5) == 2


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="at least one score"):
        Stream(1).choose(np.array([], dtype=np.int64), 1.0)
    with pytest.raises(TypeError, match="must be integers"):
        Stream(1).choose(np.array([1.0, 2.0]), 1.0)
    for rate in (0.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="above 0"):
            Stream(1).each_with_probability(rate, 10)
    for scale in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="at least 0"):
            Stream(1).choose(np.array([1, 2]), scale)
