"""Batches are drawn as their event says. Chi-square and z tests at fixed seeds, error rate 1e-4 each."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from noisewise.trusted.gate import Gate, draw
from noisewise.trusted.noise import Stream
from noisewise.trusted.stores.totals import IntegerTotal, expected_size, fixed_size
from noisewise.trusted.tickets import Tally

RARE = 1e-4
DRAWS = 15_000


def batches(sampling, records, draws=DRAWS, seed=1) -> np.ndarray:
    """One row per draw: which records joined."""
    stream, joined = Stream(seed), np.zeros((draws, records), dtype=int)
    for row in joined:
        rows = draw(sampling, range(records), stream)
        assert len(np.unique(rows)) == len(rows)
        row[rows] = 1
    return joined


def binomial_sizes(joined, rate) -> bool:
    records = joined.shape[1]
    expected = stats.binom.pmf(np.arange(records + 1), records, rate) * len(joined)
    counts = np.bincount(joined.sum(axis=1), minlength=records + 1)
    common = expected > 5
    counts, expected = (
        np.append(counts[common], counts[~common].sum()),
        np.append(expected[common], expected[~common].sum()),
    )
    keep = expected > 0
    return stats.chisquare(counts[keep], expected[keep] * counts[keep].sum() / expected[keep].sum()).pvalue > RARE


def each_joins_at(joined, rate) -> bool:
    return all(stats.binomtest(int(column.sum()), len(joined), rate).pvalue > RARE for column in joined.T)


def pairs_independent(joined) -> bool:
    bound = stats.norm.isf(RARE / 2) / math.sqrt(len(joined))
    correlations = np.corrcoef(joined.T)
    return all(abs(correlations[i, j]) < bound for i, j in combinations(range(joined.shape[1]), 2))


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.5, 0.9])
def test_poisson_batches_are_independent_coin_flips(rate):
    joined = batches(("poisson", rate), 9)
    assert binomial_sizes(joined, rate)
    assert each_joins_at(joined, rate)
    assert pairs_independent(joined)


def test_the_checks_reject_fixed_sizes_and_wrong_rates():
    fixed = batches(("fixed", 1 / 3), 9)
    assert each_joins_at(fixed, 1 / 3)
    assert not binomial_sizes(fixed, 1 / 3)
    assert not pairs_independent(fixed)
    joined = batches(("poisson", 0.3), 9)
    assert not each_joins_at(joined, 0.3 * 1.1)
    assert not binomial_sizes(joined, 0.3 * 1.05)


@pytest.mark.parametrize("records, size", [(6, 2), (9, 1), (8, 7), (12, 3)])
def test_fixed_batches_have_their_size_and_every_subset_is_as_likely(records, size):
    joined = batches(("fixed", size / records), records)
    assert set(joined.sum(axis=1)) == {size}
    subsets = dict.fromkeys(combinations(range(records), size), 0)
    for row in joined:
        subsets[tuple(np.flatnonzero(row).tolist())] += 1
    assert stats.chisquare(list(subsets.values())).pvalue > RARE
    skewed = np.array(list(subsets.values()))
    skewed[: max(1, len(skewed) // 20)] *= 2
    assert stats.chisquare(skewed).pvalue < RARE


def test_a_large_data_set_is_sampled_at_its_rate_everywhere():
    stream, records, rate = Stream(3), 200_000, 0.01
    rows = np.concatenate([draw(("poisson", rate), range(records), stream) for _ in range(40)])
    assert rows.min() >= 0
    assert rows.max() < records
    assert stats.binomtest(len(rows), 40 * records, rate).pvalue > RARE
    assert stats.chisquare(np.bincount(rows // 10_000, minlength=20)).pvalue > RARE


def test_full_rate_takes_everybody_and_full_draws_nothing():
    for sampling in (("poisson", 1.0), ("fixed", 1.0)):
        assert sorted(draw(sampling, range(7), Stream(0)).tolist()) == list(range(7))
    stream = Stream(0)
    assert draw(("full",), range(7), stream) is None
    assert stream.subset(3, 1000).tolist() == Stream(0).subset(3, 1000).tolist()


@pytest.mark.parametrize("records", [0, 1, 2])
def test_hardly_any_records(records):
    for sampling in (("poisson", 0.5), ("poisson", 1.0), ("fixed", 0.5), ("fixed", 1.0)):
        for seed in range(20):
            rows = draw(sampling, range(records), Stream(seed)).tolist()
            assert len(set(rows)) == len(rows)
            assert set(rows) <= set(range(records))


@pytest.mark.parametrize(
    "rate",
    [
        1e-6,
        1e-12,
        *(pytest.param(rate) for rate in (1e-19, 1e-30, 1e-300)),
    ],
)
def test_a_tiny_rate_draws_nobody_and_does_not_overflow(rate):
    stream = Stream(4)
    assert sum(len(draw(("poisson", rate), range(100), stream)) for _ in range(200)) == 0


def test_sums_are_divided_by_the_expected_size_and_by_one_at_least():
    assert expected_size(("full",), 250.0) == 250.0
    assert expected_size(("poisson", 0.1), 250.0) == 25.0
    assert expected_size(("poisson", 1e-6), 250.0) == 1.0
    assert expected_size(("fixed", 0.1), 250.0) == 25.0
    assert expected_size(("fixed", 1e-6), 250.0) == 1.0


@pytest.mark.parametrize("records", [3, 10, 97, 1000, 26_048])
def test_a_fixed_batch_is_never_larger_than_its_price(records):
    for size in {1, 2, records // 3, records - 1, records}:
        assert fixed_size(size / records, records) == size
        assert fixed_size(math.nextafter(size / records, 0) * (1 - 1e-9), records) == size - 1


def test_a_batch_of_a_loop_has_its_noise_once():
    """The mean of several noisy sums of one batch would be less noisy than what was paid for."""
    ticket = Gate(Tally(), seed=1).open(1.0, ("full",), range(5))
    total = IntegerTotal(np.array([3, -4]), 1 << 20, 1.0)
    (noisy,) = ticket.release([(total, np.float64)], over=1.0)
    assert len(noisy) == 2
    with pytest.raises(RuntimeError, match="has had its noise"):
        list(ticket.release([(total, np.float64)], over=1.0))
