"""The squared gradient norm: its noise, and attacks on its sensitivity 2 m C times what the sum can move.

The exact values behind the noise are the integer totals of the question itself, whose ``ones`` stand for the unit.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_answers import accepted_and_wrong_ones_not, clipped_sum, data, room

from noisewise.accounts import AdditiveMeter, Budget, BudgetExhausted
from noisewise.curator import GradientNorm
from noisewise.trusted.events import FixedBatch, Gaussian, Poisson
from noisewise.trusted.losses import Hinge, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.question import HowAsked, plain
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.totals import Drawn

ADJACENCIES = ("add_remove", "replace_one")
MODELS = [Linear(3, Logistic()), Linear(3, Hinge()), Linear(3, Squared()), MLP((3, 2, 1), Logistic())]


def exact(X, y, model, theta, *, clip, size, batch=None):
    """min(s, m C)^2 before noise, in whole numbers, the whole number that stands for its unit, and what one is worth."""
    m, sampling = (size, ("full",)) if batch is None else (max(size / 2, 1.0), ("poisson", 0.5))
    how = HowAsked("add_remove", sampling, 1.0, m, model.features)
    drawn = Drawn(None if batch is None else np.array(batch, dtype=np.int64), m)
    total = GradientNorm(plain(theta), clip, True).total(records_of(model, X, y), drawn, how)
    assert total.ones * total.worth == pytest.approx(2 * m * clip**2, rel=1e-4)
    assert total.ones * total.worth >= 2 * m * clip**2 * (1 - 1e-12)
    return int(total.values[0]), total.ones, total.worth


def extreme_rows(n, seed, spread):
    """Rows that pull in nearly one direction, the worst for a norm."""
    rng = np.random.default_rng(seed)
    X = np.array([3.0, 0.0, 0.0]) + spread * rng.normal(size=(n, 3))
    flips = rng.random(n) < 0.2 * spread
    return X, np.where(flips, -1.0, 1.0)


# --- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "adjacency, sampling, m, event",
    [
        ("add_remove", ("full",), 10.0, Gaussian(5.0)),
        ("replace_one", ("full",), 10.0, Gaussian(5.0)),
        ("add_remove", ("poisson", 0.4), 4.0, Poisson(0.4, Gaussian(5.0))),
        ("replace_one", ("poisson", 0.4), 4.0, Poisson(0.4, Gaussian(5.0))),
        ("replace_one", ("fixed", 0.4), 4.0, FixedBatch(0.4, Gaussian(5.0))),
        ("add_remove", ("poisson", 0.001), 1.0, Poisson(0.001, Gaussian(5.0))),
    ],
)
def test_the_noise_is_multiplier_times_the_unit(adjacency, sampling, m, event):
    """Rows of zeros have no gradient, so what comes out is the noise: 2 m C^2 sigma / m^2."""
    curator = room(np.zeros((10, 3)), np.ones(10), MODELS[0], adjacency=adjacency)
    asked = {"clip": 0.4, "noise_multiplier": 5.0, "sampling": sampling, "squared": True}
    answers = [curator.gradient_norm(np.ones(3), **asked) for _ in range(9_000)]
    std = 5.0 * 2 * 0.4**2 / m
    assert answers[0].noise_std == pytest.approx(std)
    assert accepted_and_wrong_ones_not(np.array([float(answer.value) for answer in answers]), std)
    assert set(curator.meter.paid) == {event}
    assert curator.trace[0].question == "gradient_norm" and curator.trace[0].noise_std == pytest.approx(std)


@pytest.mark.parametrize("size, capped", [(30.0, False), (4.0, True)])
def test_the_noise_lies_on_the_capped_square(size, capped):
    X, y = extreme_rows(30, 0, 0.1)
    s = np.linalg.norm(clipped_sum(MODELS[0], np.zeros(3), X, y, 0.4))
    assert (s > size * 0.4) == capped
    true = min(s / size, 0.4) ** 2
    curator = room(X, y, MODELS[0], size=size)
    asked = {"clip": 0.4, "noise_multiplier": 2.0, "squared": True}
    off = [float(curator.gradient_norm(np.zeros(3), **asked).value) - true for _ in range(9_000)]
    assert accepted_and_wrong_ones_not(np.array(off), 2.0 * 2 * 0.4**2 / size)
    assert abs(np.mean(off)) < 5 * 4 * 0.16 / size / math.sqrt(9_000)


def test_it_is_paid_before_the_records_are_touched_and_refused_otherwise():
    X, y = data()
    meter = AdditiveMeter(Budget(1.0, 1e-6), "gdp")
    curator = room(X, y, MODELS[0], meter=meter)
    meter.spend(Gaussian(meter.noise_for(1.0)))
    with pytest.raises(BudgetExhausted):
        curator.gradient_norm(np.zeros(3), clip=1.0, noise_multiplier=1.0, squared=True)
    assert curator.trace == ()


# --- sensitivity ------------------------------------------------------------------------------------------------------


@given(
    n=st.integers(1, 60), size=st.floats(1.0, 80.0), clip=st.sampled_from([1e-3, 0.2, 1.0, 20.0]),
    model=st.sampled_from(MODELS), seed=st.integers(0, 10**6), spread=st.sampled_from([0.0, 0.3, 2.0]),
    pull=st.floats(-3, 3),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_one_record_moves_it_by_at_most_its_unit(n, size, clip, model, seed, spread, pull):
    """Any declared size, smaller or larger than the truth: added or removed <= 2 m C^2, replaced <= twice that."""
    X, y = extreme_rows(n, seed, spread)
    theta = pull * np.random.default_rng(seed).normal(size=model.dimension)
    whole, unit, worth = exact(X, y, model, theta, clip=clip, size=size)
    without, _, _ = exact(X[:-1], y[:-1], model, theta, clip=clip, size=size)
    assert abs(whole - without) <= unit
    for row, label in ((-X[-1], y[-1]), (X[-1], -y[-1]), (np.full(3, math.nan), y[-1])):
        swapped = np.concatenate([X[:-1], row[None]]), np.concatenate([y[:-1], label[None]])
        other, _, _ = exact(*swapped, model, theta, clip=clip, size=size)
        assert abs(whole - other) <= 2 * unit
    assert 0 <= whole * worth <= (size * clip) ** 2 * (1 + 1e-6)


@given(
    n=st.integers(1, 40), size=st.floats(2.0, 90.0), clip=st.sampled_from([0.2, 1.0]), seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.0, 0.5]), model=st.sampled_from(MODELS),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_on_a_sampled_batch_too(n, size, clip, seed, spread, model):
    """Given the others in the batch: the record's presence moves it by at most the unit, its replacement by two.

    That is what prices a Poisson batch under both relations: a mixture over whether the record is in.
    """
    X, y = extreme_rows(n + 2, seed, spread)
    X[n + 1] = -X[n]  # the record and its replacement are the last two rows; a batch holds neither or one of them
    rng = np.random.default_rng(seed)
    others = [int(i) for i in range(n) if rng.random() < rng.choice([0.1, 0.5, 1.0])]
    theta = np.zeros(model.dimension) if isinstance(model, Linear) else model.start()
    found = [exact(X, y, model, theta, clip=clip, size=size, batch=[*others, *more]) for more in ([], [n], [n + 1])]
    values, unit = [value for value, _, _ in found], found[0][1]
    assert abs(values[1] - values[0]) <= unit and abs(values[2] - values[0]) <= unit
    assert abs(values[1] - values[2]) <= 2 * unit


@pytest.mark.parametrize("adjacency, stretch", [("add_remove", 1), ("replace_one", 2)])
def test_the_unit_is_nearly_reached_and_the_cap_is_needed(adjacency, stretch):
    """Twenty records that pull one way come within a tenth of the unit; two hundred would exceed it without the cap."""
    model, theta, clip, m = Linear(3, Logistic()), np.zeros(3), 0.2, 20

    def moved(n):
        X, y = extreme_rows(n, 0, 0.0)
        other = (X[:-1], y[:-1]) if adjacency == "add_remove" else (X, np.concatenate([y[:-1], -y[-1:]]))
        sums = [np.linalg.norm(clipped_sum(model, theta, *rows, clip)) for rows in ((X, y), other)]
        found = [exact(*rows, model, theta, clip=clip, size=float(m)) for rows in ((X, y), other)]
        return (found[0][0] - found[1][0]) * found[0][2], sums[0] ** 2 - sums[1] ** 2

    unit = stretch * 2 * m * clip**2
    reached, uncapped = moved(m)
    assert 0.9 * unit < reached <= unit and reached == pytest.approx(uncapped, rel=1e-3)
    reached, uncapped = moved(10 * m)
    assert reached == 0 and uncapped > 9 * unit, "without the cap one of 200 records would move it by 10 units"


def test_with_the_cap_the_papers_constant_holds_whatever_the_number_of_records():
    """(2 m - 1) C^2 is the most that one record adds to the capped square: the unit 2 m C^2 is safe and nearly least."""
    model, theta, clip = Linear(3, Logistic()), np.zeros(3), 0.2
    X, y = extreme_rows(6, 0, 0.0)
    for size in np.linspace(1.0, 6.0, 21).tolist():
        found = [exact(X[:k], y[:k], model, theta, clip=clip, size=size) for k in range(7)]
        most = max(one[0] - other[0] for other, one in pairwise(found)) * found[0][2]
        assert most <= (2 * size - 1) * clip**2 * (1 + 1e-6) <= 2 * size * clip**2


def test_classes_and_large_sizes_lose_nothing_to_rounding():
    """A million records declared, a few there: differences of squares, however coarse their grid, stay within the unit."""
    model = Linear(3, Softmax(), 3)
    X, y = extreme_rows(40, 0, 0.1)[0], np.zeros(40, np.int64)
    for size in (1.0, 40.0, 1e6, 1e9):
        found = [exact(X[:k], y[:k], model, np.zeros(9), clip=1e-3, size=size) for k in range(38, 41)]
        assert all(abs(one[0] - other[0]) <= one[1] for one, other in pairwise(found))
