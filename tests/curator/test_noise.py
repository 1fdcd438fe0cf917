"""The stream: right scale, right shape, never the same twice, never copied.

Statistical checks run at fixed seeds. Each accepts the right distribution with probability 1 - 1e-4 or more (over
seeds) and is shown to reject a wrong one.
"""

from __future__ import annotations

import copy
import math
import os
import pickle
import signal
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from noisewise.curator.noise import POOL, Stream

N = 300_000
RARE = 1e-4


def normals(count=N, seed=1) -> np.ndarray:
    return Stream(seed).noised(torch.zeros(count), 1.0).numpy()


def right_scale(x, std) -> bool:
    """Two-sided chi-square test of the standard deviation of centred normal draws, error rate 1e-4."""
    statistic = float(np.sum(np.square(x))) / std**2
    return RARE / 2 <= stats.chi2.cdf(statistic, len(x)) <= 1 - RARE / 2


def right_tails(x) -> bool:
    """Counts beyond 2, 3 and 4 sigma on each side are binomial, error rate 6 * 1e-4."""
    return all(
        stats.binomtest(int(np.sum(side * x > at)), len(x), stats.norm.sf(at)).pvalue > RARE
        for at in (2, 3, 4)
        for side in (1, -1)
    )


def uncorrelated(x, y) -> bool:
    """Neither the values nor their squares are correlated, error rate 2e-4."""
    pairs = ((x, y), (x**2, y**2))
    return all(abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(len(a)) < stats.norm.isf(RARE / 2) for a, b in pairs)


def test_the_scale_is_right_and_one_percent_off_is_rejected():
    x = normals()
    assert right_scale(x, 1.0)
    assert not right_scale(x, 1.01)
    assert not right_scale(x, 0.99)


def test_the_shape_is_gaussian_far_into_the_tails():
    x = normals()
    assert stats.kstest(x, "norm").pvalue > RARE
    assert right_tails(x)
    assert np.abs(x).max() < 8.5
    rng = np.random.default_rng(0)
    assert not right_tails(rng.uniform(size=(N, 12)).sum(axis=1) - 6)  # twelve uniforms look normal, but not there
    assert stats.kstest(1.01 * x + 0.01, "norm").pvalue < RARE


@pytest.mark.parametrize("lag", [1, 2, POOL // 2, POOL])
def test_draws_do_not_know_each_other(lag):
    """POOL // 2 apart lie the two halves of one Box-Muller pair: same radius, so their squares would show it."""
    x = normals()
    assert uncorrelated(x[:-lag], x[lag:])
    assert not uncorrelated(x, np.abs(x) * np.sign(np.roll(x, 1)))


def test_no_value_comes_twice_across_calls_and_pools():
    stream = Stream(2)
    sizes = (1, 2, POOL - 1, 3, POOL, 5, 2 * POOL + 7, 1, 1)
    answers = [stream.noised(torch.zeros(size), 1.0) for size in sizes]
    assert [len(answer) for answer in answers] == list(sizes)
    together = torch.cat(answers).numpy()
    assert len(np.unique(together)) == len(together)
    assert right_scale(together, 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [10, POOL + 10])
def test_noise_is_added_before_scaling_and_the_total_is_left_alone(size, dtype):
    total = torch.arange(size, dtype=dtype)
    noise = Stream(3).noised(torch.zeros(size), 1.0)
    answer = Stream(3).noised(total, 0.5, scale=0.25)
    assert torch.allclose(answer, (total.double() + 0.5 * noise) * 0.25, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(answer, total.double() * 0.25 + 0.5 * noise)
    assert torch.equal(total, torch.arange(size, dtype=dtype))


def test_uniforms_are_uniform_down_to_their_last_bits_and_never_zero():
    u = Stream(4).uniform(N)
    assert u.min() > 0
    assert u.max() <= 1
    assert stats.kstest(u, "uniform").pvalue > RARE
    low_bits = ((u * 2.0**52).astype(np.int64) & 0xFF).astype(int)
    assert stats.chisquare(np.bincount(low_bits, minlength=256)).pvalue > RARE
    assert stats.kstest(u**1.02, "uniform").pvalue < RARE
    assert stats.chisquare(np.bincount(low_bits // 2 * 2, minlength=256)).pvalue < RARE


def test_gumbel_draws_are_gumbel_and_not_laplace_exponential_or_mirrored():
    g = Stream(5).gumbel(N)
    assert np.isfinite(g).all()
    assert stats.kstest(g, "gumbel_r").pvalue > RARE
    for wrong in (-g, 1.05 * g, np.random.default_rng(0).laplace(size=N)):
        assert stats.kstest(wrong, "gumbel_r").pvalue < RARE


def test_the_same_seed_gives_the_same_stream_and_another_another():
    assert np.array_equal(normals(100, seed=7), normals(100, seed=7))
    assert not np.intersect1d(normals(100, seed=7), normals(100, seed=8)).size
    assert Stream(7).simulation
    assert Stream(0).simulation


def test_private_streams_differ_and_say_that_they_are_no_simulation():
    one, other = Stream(), Stream()
    assert not one.simulation
    draws = [stream.noised(torch.zeros(1000), 1.0).numpy() for stream in (one, other, one, other)]
    assert len(np.unique(np.concatenate(draws))) == 4000
    assert not np.intersect1d(one.uniform(1000), other.uniform(1000)).size


@pytest.mark.parametrize(
    "attempt",
    [
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        lambda stream: pickle.dumps(stream, protocol=0),
        lambda stream: stream.__reduce__(),
        pytest.param(lambda stream: stream.__getstate__()),
    ],
)
def test_a_stream_is_not_copied(attempt):
    for stream in (Stream(), Stream(1)):
        with pytest.raises(TypeError):
            attempt(stream)
        with pytest.raises(TypeError):
            vars(stream)


def in_a_child(compute) -> bytes:
    """What ``compute`` returns in a forked process."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads; the child only draws
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(3)  # a child that waits for threads it does not have is ended, and answers nothing
            os.write(write, compute())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("warm", [0, 100], ids=["fresh", "with draws in the pool"])
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("normal"),
        "uniform",
    ],
)
def test_a_forked_child_does_not_repeat_its_parents_noise(kind, warm):
    def next_draws(stream):
        draws = stream.noised(torch.zeros(50), 1.0).numpy() if kind == "normal" else stream.uniform(50)
        return np.asarray(draws).tobytes()

    private, seeded = Stream(), Stream(9)
    for stream in (private, seeded):
        stream.noised(torch.zeros(warm), 1.0)
    child, parent = in_a_child(lambda: next_draws(private)), next_draws(private)
    assert len(child) == len(parent) == 400
    assert not np.intersect1d(np.frombuffer(child), np.frombuffer(parent)).size
    assert in_a_child(lambda: next_draws(seeded)) == next_draws(seeded)  # a simulation does: the check can see it


def test_threads_never_share_a_draw():
    stream, answers, errors = Stream(3), [], []

    def ask():
        try:
            for _ in range(1500):
                answers.append(stream.noised(torch.zeros(4), 1.0).numpy())
                stream.uniform(4)
        except Exception as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    values = np.concatenate(answers)
    assert not errors
    assert len(np.unique(values)) == len(values)
