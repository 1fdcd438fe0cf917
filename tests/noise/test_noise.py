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
from scipy import stats

from noisewise.trusted.noise.secret_words import MAX_WORDS, WORDS_AHEAD
from noisewise.trusted.noise.stream import DRAWS_PER_POOL, Stream

N = 300_000
RARE = 1e-4


def normals(count=N, seed=1) -> np.ndarray:
    return Stream(seed).noised(np.zeros(count), 1.0)


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


@pytest.mark.parametrize("lag", [1, 2, DRAWS_PER_POOL // 2, DRAWS_PER_POOL])
def test_draws_do_not_know_each_other(lag):
    """DRAWS_PER_POOL // 2 apart lie the two halves of one Box-Muller pair: same radius, so their squares would show it."""
    x = normals()
    assert uncorrelated(x[:-lag], x[lag:])
    assert not uncorrelated(x, np.abs(x) * np.sign(np.roll(x, 1)))


def test_no_value_comes_twice_across_calls_and_pools():
    stream = Stream(2)
    sizes = (1, 2, DRAWS_PER_POOL - 1, 3, DRAWS_PER_POOL, 5, 2 * DRAWS_PER_POOL + 7, 1, 1)
    answers = [stream.noised(np.zeros(size), 1.0) for size in sizes]
    assert [len(answer) for answer in answers] == list(sizes)
    together = np.concatenate(answers)
    assert len(np.unique(together)) == len(together)
    assert right_scale(together, 1.0)


def on_grid(count=N, seed=1, std=1e6) -> np.ndarray:
    k, step = Stream(seed).on_grid(count, std)
    return k * (step / std)


def test_noise_on_the_grid_has_the_right_scale_shape_and_tails():
    x = on_grid()
    assert right_scale(x, math.sqrt(1 + (2.0**14 / 1e6) ** 2 / 12))
    assert not right_scale(x, 1.01)
    assert not right_scale(x, 0.99)
    assert right_tails(x)
    jitter = np.random.default_rng(0).uniform(-0.5, 0.5, N) * 2.0**14 / 1e6
    assert stats.kstest(x + jitter, "norm").pvalue > RARE
    assert stats.kstest(1.01 * x + 0.01 + jitter, "norm").pvalue < RARE


@pytest.mark.parametrize("lag", [1, 2, 512, 1024, MAX_WORDS, 2 * MAX_WORDS])
def test_draws_on_the_grid_do_not_know_each_other(lag):
    """MAX_WORDS apart lie the two halves of one pair: same radius, so their squares would show it."""
    x = on_grid()
    assert uncorrelated(x[:-lag], x[lag:])


def test_requests_of_all_sizes_never_use_a_word_twice():
    stream = Stream(2)
    sizes = (1, 2, 3, 2 * WORDS_AHEAD - 1, 123, 2 * WORDS_AHEAD + 1, 5, 2 * MAX_WORDS, 2 * MAX_WORDS + 1, 123, 1, 123)
    answers = [stream.on_grid(size, 2.0**56)[0] for size in sizes]
    assert [len(answer) for answer in answers] == list(sizes)
    used = [stream._secret.take(size)[0].copy() for size in (1, WORDS_AHEAD, 7, MAX_WORDS, WORDS_AHEAD, 1)]
    words = np.concatenate(used)
    assert len(np.unique(words)) == len(words)
    numbers = [stream._secret.take(size)[1] for size in (3, WORDS_AHEAD, 5, MAX_WORDS, 2)]
    assert all(
        later >= number + size
        for number, later, size in zip(numbers, numbers[1:], (3, WORDS_AHEAD, 5, MAX_WORDS), strict=False)
    )
    assert right_scale(np.concatenate(answers) / 32, 1.0 + 1 / 32**2 / 24)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [10, DRAWS_PER_POOL + 10])
def test_noise_is_added_before_scaling_and_the_total_is_left_alone(size, dtype):
    total = np.arange(size, dtype=dtype)
    noise = Stream(3).noised(np.zeros(size), 1.0)
    answer = Stream(3).noised(total, 0.5, scale=0.25)
    assert np.allclose(answer, (total.astype(np.float64) + 0.5 * noise) * 0.25, rtol=1e-12, atol=1e-12)
    assert not np.allclose(answer, total.astype(np.float64) * 0.25 + 0.5 * noise)
    assert np.array_equal(total, np.arange(size, dtype=dtype))


def test_the_same_seed_gives_the_same_stream_and_another_another():
    assert np.array_equal(normals(100, seed=7), normals(100, seed=7))
    assert not np.intersect1d(normals(100, seed=7), normals(100, seed=8)).size
    assert Stream(7).simulation
    assert Stream(0).simulation


def test_the_same_seed_draws_the_same_of_every_kind_and_another_another():
    for kind, draw in KINDS.items():
        assert np.array_equal(draw(Stream(7)), draw(Stream(7))), kind
        assert not np.array_equal(draw(Stream(7)), draw(Stream(8))), kind


def test_private_streams_differ_and_say_that_they_are_no_simulation():
    one, other = Stream(), Stream()
    assert not one.simulation
    draws = [stream.noised(np.zeros(1000), 1.0) for stream in (one, other, one, other)]
    assert len(np.unique(np.concatenate(draws))) == 4000


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
            signal.alarm(60)  # a child that waits for threads it does not have is ended, and answers nothing
            os.write(write, compute())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


KINDS = {
    "normal": lambda stream: stream.noised(np.zeros(50), 1.0),
    "grid": lambda stream: stream.on_grid(50, 2.0**50)[0],
    "poisson": lambda stream: stream.each_with_probability(0.1, 1000),
    "subset": lambda stream: stream.subset(50, 1000),
    "choice": lambda stream: [stream.choose(np.zeros(100, dtype=np.int64), 1.0) for _ in range(40)],
}


@pytest.mark.sample(3)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is missing on this system")
@pytest.mark.parametrize("warm", [0, 100], ids=["fresh", "with draws in the pool"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_forked_child_does_not_repeat_its_parents_noise(kind, warm):
    def next_draws(stream):
        return np.asarray(KINDS[kind](stream)).tobytes()

    private, seeded = Stream(), Stream(9)
    for stream in (private, seeded):
        stream.noised(np.zeros(warm), 1.0)
        stream.on_grid(warm, 1.0)
    child, parent = in_a_child(lambda: next_draws(private)), next_draws(private)
    assert len(child) >= 300
    assert len(parent) >= 300
    assert child != parent
    if kind == "normal":
        assert not np.intersect1d(np.frombuffer(child), np.frombuffer(parent)).size
    assert in_a_child(lambda: next_draws(seeded)) == next_draws(seeded)  # a simulation does: the check can see it


def test_a_forked_child_has_other_continuations_too():
    """The bits that decide rare draws come from a key of their own: it is replaced as well."""

    def next_bits(stream):
        stream.on_grid(1, 1.0)
        return stream._secret.more(np.arange(4)).tobytes()

    private = Stream()
    assert in_a_child(lambda: next_bits(private)) != next_bits(private)


def test_threads_draw_from_the_grid_what_one_thread_would():
    """Whatever the order, the words that four threads use are those of one thread, each once."""
    stream, answers = Stream(3), []
    threads = [
        threading.Thread(target=lambda: answers.extend(stream.on_grid(2, 2.0**56)[0] for _ in range(500)))
        for _ in range(4)
    ]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    single = Stream(3)
    expected = sorted(tuple(single.on_grid(2, 2.0**56)[0]) for _ in range(2000))
    assert sorted(tuple(answer) for answer in answers) == expected


def test_threads_never_share_a_draw():
    stream, answers, errors = Stream(3), [], []

    def ask():
        try:
            for _ in range(1500):
                answers.append(stream.noised(np.zeros(4), 1.0))
                stream.subset(4, 100)
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
