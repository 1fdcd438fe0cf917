"""Numbers of runs are drawn exactly: compared with slow sums from the same bits, and with their probabilities."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scripted import Scripted, deep_of, expansion, words_of

from noisewise.trusted.events import InvalidEvent, PoissonRepetitions, TruncatedNegativeBinomial
from noisewise.trusted.noise import Stream, discrete

TNB = TruncatedNegativeBinomial
LAWS = [TNB(1.0, 0.1), TNB(0.0, 0.01), TNB(-0.5, 0.05), TNB(3.5, 0.2), TNB(1e-6, 0.3), TNB(100.0, 0.9), TNB(2.0, 0.5),
        PoissonRepetitions(0.01), PoissonRepetitions(3.0), PoissonRepetitions(60.0)]  # fmt: skip
RARE = 1e-4


def probabilities(law, most):
    """P(K = 0), P(K = 1), ..., straight from the definitions, in mpmath."""
    if isinstance(law, PoissonRepetitions):
        m = mp.mpf(law.mean)
        yield from (mp.exp(-m) * m**k / mp.factorial(k) for k in range(most + 1))
        return
    eta, gamma = mp.mpf(law.eta), mp.mpf(law.gamma)
    yield mp.mpf(0)
    if eta == 0:
        yield from ((1 - gamma) ** k / (k * mp.log(1 / gamma)) for k in range(1, most + 1))
        return
    scale = mp.gamma(eta) * (gamma**-eta - 1)
    yield from ((1 - gamma) ** k * mp.gamma(k + eta) / mp.factorial(k) / scale for k in range(1, most + 1))


def slow(law, u):
    total = mp.mpf(0)
    for k, each in enumerate(probabilities(law, 2000)):
        total += each
        if u < total:
            return k
    raise AssertionError("the table is too short for this uniform")


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_number_of_a_seeded_stream_is_the_slow_one(law):
    with mp.workdps(150):
        for seed in range(4):
            stream, words, deep = Stream(seed), words_of(seed, 5), deep_of(seed)
            drawn = [stream.runs(law) for _ in range(5)]
            assert drawn == [slow(law, expansion(int(word), 64, deep, i, 0)) for i, word in enumerate(words)]


def drawn(law, bits, later):
    """What a uniform of these 128 bits gives, all further bits being those of ``later``."""
    word = bits >> 64
    signed = word - 2**64 if word >= 2**63 else word
    words = Scripted([signed], lambda number, depth: (bits % 2**64, 0) if depth == 0 else (later, later))
    if isinstance(law, PoissonRepetitions):
        return discrete.poisson(words, law.mean)
    return discrete.negative_binomial(words, law.eta, law.gamma)


@pytest.mark.parametrize("law", [law for law in LAWS if getattr(law, "eta", 0.0) not in (1.0, 2.0)], ids=str)
def test_next_to_a_border_later_bits_decide(law):
    """Where no border is a fraction of two: there a uniform that ends in zeros would never be told from it."""
    with mp.workdps(150):
        total = mp.mpf(0)
        for k, each in enumerate(probabilities(law, 6)):
            total += each
            border = int(mp.floor(total * mp.mpf(2) ** 128))
            if 0 < border < 2**128 - 1 and each > 1e-6:
                assert drawn(law, border, 0) == k
                assert drawn(law, border + 1, 0) == k + 1


def test_the_far_end_is_reached():
    """A uniform of ones: as far as its bits tell, no number is too large."""
    with mp.workdps(150):
        u = 1 - mp.mpf(2) ** -128
        far = drawn(TNB(1.0, 0.5), 2**128 - 1, 1)
        assert far == slow(TNB(1.0, 0.5), u + mp.mpf(2) ** -192) == 129


@pytest.mark.sample(4)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_numbers_have_their_frequencies(law):
    trials, stream = 1000, Stream(seed=7)
    counts = np.bincount([stream.runs(law) for _ in range(trials)], minlength=1200)
    with mp.workdps(30):
        expected = np.array([float(p) for p in probabilities(law, len(counts) - 1)]) * trials
    groups, total = np.zeros(len(expected), dtype=int), 0.0
    for k, each in enumerate(expected):
        groups[k] = int(total // 20)
        total += each
    seen, due = (np.bincount(groups, weights=values) for values in (counts, expected))
    keep = due > 5
    if keep.sum() > 1:
        assert stats.chisquare(seen[keep], due[keep] * seen[keep].sum() / due[keep].sum()).pvalue > RARE
    else:
        assert counts[0] > 0.98 * trials


def test_one_run_is_one_run_and_wrong_numbers_are_refused():
    assert {Stream(seed).runs(TNB(1.0, 1.0)) for seed in range(5)} == {1}
    for wrong in (
        lambda words: discrete.poisson(words, 0.0),
        lambda words: discrete.negative_binomial(words, -1.0, 0.5),
    ):
        with pytest.raises(InvalidEvent):
            wrong(Scripted([0], None))
