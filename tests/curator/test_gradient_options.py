"""Gradients in other coordinates, and with a count: what they are, what one record can do to them, what they cost."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from purse import with_purse
from scipy import stats
from spies import SEEN, spies

from noisewise.accounts import Budget
from noisewise.curator import Gradient, PublicCurator
from noisewise.trusted.accountants.common import joint_noise, split_noise
from noisewise.trusted.events import FixedBatch, Gaussian, Poisson
from noisewise.trusted.losses import Hinge, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear, leading_subspace
from noisewise.trusted.question import HowAsked, plain
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.totals import Drawn

LINEAR = [Linear(4, Logistic()), Linear(4, Squared()), Linear(4, Softmax(), 3)]
MODELS = [*LINEAR, MLP((4, 3, 1), Logistic(), "softplus"), MLP((4, 3, 3), Softmax(), "relu")]
CLIP, THRESHOLD = 0.7, 0.4
law = settings(max_examples=40, deadline=None, derandomize=True, database=None)


class Purse:
    """A meter that affords everything."""

    name, adaptive, spent_fraction = "purse", True, 0.0

    def __init__(self, adjacency="add_remove"):
        self.budget, self.paid = Budget(1.0, 1e-6, adjacency), []

    @property
    def events(self):
        return Counter(self.paid)

    def spend(self, event):
        self.paid.append(event)


def records(model, n, seed=0, size=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, model.features)) * size
    if model.loss.task == "classes":
        return X, rng.integers(model.outputs, size=n)
    return X, np.sign(rng.normal(size=n))


def room(model, X, y, adjacency="add_remove", size=20.0, seed=1):
    return with_purse(X, y, model=model, meter=Purse(adjacency), size=size, seed=seed)


def some_scale(model, seed=0, spread=2.0):
    rng = np.random.default_rng(seed)
    return np.exp(spread * rng.normal(size=model.dimension)).clip(1e-3, 1e3)


def some_basis(model, rank=2, seed=0):
    rng = np.random.default_rng(seed)
    return np.linalg.qr(rng.normal(size=(model.dimension, rank)))[0]


def name(model) -> str:
    return f"{type(model).__name__}-{model.loss.name}"


# --- what they are ----------------------------------------------------------------------------------------------------


def by_hand(rows, clip):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows * np.minimum(1, clip / norms)).sum(0)


def short(rows, threshold):
    return float((((1.1 - np.linalg.norm(rows, axis=1) / threshold) / 0.2).clip(0, 1) - 0.5).sum())


def totals(model, theta, data, *, clip=CLIP, threshold=THRESHOLD, scale=None, basis=None):
    """The sum and the count that the curator would noise, as real numbers."""
    asked = Gradient(*(plain(part) for part in (theta, clip, scale, basis, threshold, threshold and 1.0)))
    how = HowAsked("add_remove", ("full",), 1.0, 20.0, model.features)
    return [total.values * total.worth for total in asked.totals(records_of(model, *data), Drawn(), how)]


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_per_record_gradients_add_up_to_the_plain_sum(model):
    """The floats that public records are summed in; they are clipped a little short."""
    theta, batch = 0.3 + model.start(), model.lay_out(*records(model, 30))
    rows = model.per_record(theta, batch)
    assert np.allclose(np.linalg.norm(rows, axis=1), model.norms(theta, batch), rtol=1e-4)
    exact = model.clipped_sum(theta, batch, CLIP)
    assert np.allclose(by_hand(rows, CLIP), exact, atol=1e-5)


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_sums_and_counts_are_those_of_the_definition(model):
    data, theta = records(model, 700), 0.3 + model.start()
    batch = model.lay_out(*data)
    rows = model.per_record(theta, batch)
    total, count = totals(model, theta, data)
    assert np.linalg.norm(total - by_hand(rows, CLIP)) < 5e-4 * 700 * CLIP  # grids: a record is off by less than that
    assert float(count[0]) == pytest.approx(short(rows, THRESHOLD), abs=0.1)
    public, public_count = model.clipped_sum_and_count(theta, batch, CLIP, threshold=THRESHOLD)
    assert np.allclose(total, public, rtol=0.01, atol=0.2) and abs(public_count.item() - float(count[0])) < 1
    if isinstance(model, Linear):
        scale, basis = some_scale(model), some_basis(model)
        scaled, count = totals(model, theta, data, scale=scale)
        assert np.allclose(scaled, by_hand(rows / scale, CLIP), atol=0.05)
        assert float(count[0]) == pytest.approx(short(rows / scale, THRESHOLD), abs=0.1)
        (inside,) = totals(model, theta, data, basis=basis, threshold=None)
        assert np.allclose(inside, by_hand(rows @ basis, CLIP), atol=0.05)


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_released_values_are_back_in_the_parameters_coordinates(model):
    X, y = records(model, 50)
    theta, question = 0.3 + model.start(), {"clip": 1e6, "noise_multiplier": 1e-6}
    mean = model.per_record(theta, model.lay_out(X, y)).sum(0) / 20
    basis = some_basis(model)
    answer = room(model, X, y).gradient(theta, **question, basis=basis)
    assert np.allclose(answer.value, basis @ (basis.T @ mean), atol=0.5)
    public = PublicCurator(X, y, model=model)
    exact = public.gradient(theta, basis=basis, quantile_at=THRESHOLD)
    assert np.allclose(exact.value, 0.4 * basis @ (basis.T @ mean), atol=1e-3)
    assert 0 <= exact.below <= 1
    if isinstance(model, Linear):
        scale = some_scale(model, spread=0.5)
        assert np.allclose(public.gradient(theta, scale=scale).value, 0.4 * mean, rtol=0.01, atol=1e-3)
        whole = public.gradient(theta, basis=np.eye(model.dimension)).value
        assert np.allclose(whole, public.gradient(theta).value, rtol=0.01, atol=1e-4)


def test_options_that_change_nothing_give_the_plain_answer():
    model = LINEAR[0]
    X, y = records(model, 50)
    question = {"clip": 0.5, "noise_multiplier": 2.0}
    same = room(model, X, y).gradient(np.ones(4), **question)
    for option in ({"scale": np.ones(4)}, {"basis": np.eye(4)}):
        answer = room(model, X, y).gradient(np.ones(4), **question, **option)
        assert np.allclose(answer.value, same.value, atol=0.002)  # noise of one seed; grids differ
        assert answer.noise_std == same.noise_std
        assert answer.below is None


def test_noise_has_the_promised_size_in_the_coordinates_of_the_clip():
    d, rank = 20_000, 50
    model = Linear(d, Logistic())
    X, y = np.zeros((4, d)), np.ones(4)
    scale = np.linspace(0.01, 5.0, d)
    answer = room(model, X, y).gradient(np.zeros(d), clip=0.3, noise_multiplier=7.0, scale=scale)
    for noise, std in ((answer.value / scale, 0.105), (answer.value[:10_000] / scale[:10_000], 0.105)):
        chi = float(np.square(noise.astype(np.float64) / std).sum())
        assert 1e-5 < stats.chi2.cdf(chi, len(noise)) < 1 - 1e-5
        assert not 1e-5 < stats.chi2.cdf(chi / 0.95**2, len(noise)) < 1 - 1e-5
    d = 2_000  # a basis of 20,000 coordinates would take ten times as long, 60 times
    basis = np.zeros((d, rank))
    basis[np.arange(rank), np.arange(rank)] = 1.0
    curator = room(Linear(d, Logistic()), X[:, :d], y)
    noise = np.stack([
        curator.gradient(np.zeros(d), clip=0.3, noise_multiplier=7.0, basis=basis).value for _ in range(60)
    ])  # fmt: skip
    assert not noise[:, rank:].any()
    chi = float(np.square(noise[:, :rank].astype(np.float64) / 0.105).sum())
    assert 1e-5 < stats.chi2.cdf(chi, 60 * rank) < 1 - 1e-5


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_the_count_has_noise_of_half_its_multiplier(adjacency):
    model = LINEAR[0]
    X, y = np.zeros((30, 4)), np.ones(30)  # gradients of length 0: all are short
    curator = room(model, X, y, adjacency, size=30.0)
    question = {"clip": 1.0, "noise_multiplier": 5.0, "quantile_at": 0.1, "count_noise_multiplier": 8.0}
    shares = np.array([curator.gradient(np.zeros(4), **question).below for _ in range(2500)])
    chi = float((((shares - 1) * 30 / 4.0) ** 2).sum())
    assert 1e-5 < stats.chi2.cdf(chi, 2500) < 1 - 1e-5
    assert set(curator.meter.paid) == {Gaussian(joint_noise(5.0, 8.0))}
    assert not 1e-5 < stats.chi2.cdf(chi / 0.8**2, 2500) < 1 - 1e-5


# --- what one record can do -------------------------------------------------------------------------------------------


def neighbours(model, seed, adjacency):
    rng = np.random.default_rng(seed)
    X, y = records(model, int(rng.integers(1, 30)), seed, float(10 ** rng.uniform(-3, 5)))
    if model.loss.task == "regression":
        y = y * float(10 ** rng.uniform(-2, 5))
    theta = rng.normal(size=model.dimension) * 10 ** rng.uniform(-3, 2)
    i = int(rng.integers(len(y)))
    keep = [j for j in range(len(y)) if j != i]
    if adjacency == "add_remove":
        return (X, y), (X[keep], y[keep]), theta
    new_X, new_y = records(model, 1, seed + 1, float(10 ** rng.uniform(-3, 5)))
    other = np.concatenate([new_X, X[keep]]), np.concatenate([new_y, y[keep]])
    return (X, y), other, theta


def whitened(model, theta, data, sigma, tau, **options):
    """Both sums divided by their own noise: what a Gaussian with unit noise releases."""
    total, count = totals(model, theta, data, **options)
    return np.concatenate([total / (sigma * CLIP), count / (tau / 2)])


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("model", MODELS, ids=name)
@law
@given(seed=st.integers(0, 2**31))
def test_no_neighbour_moves_both_answers_further_than_the_event_says(model, adjacency, seed):
    one, other, theta = neighbours(model, seed, adjacency)
    options = [{}]
    if isinstance(model, Linear):
        options += [{"scale": some_scale(model, seed, 3.0)}, {"basis": some_basis(model, 2, seed)}]
    for option in options:
        for sigma, tau in ((3.0, 4.0), (1.0, 50.0), (50.0, 1.0)):
            a, b = (whitened(model, theta, data, sigma, tau, **option) for data in (one, other))
            stated = (1 if adjacency == "add_remove" else 2) / joint_noise(sigma, tau)
            assert float(np.linalg.norm(a - b)) <= stated * (1 + 1e-9)  # the laws look at integers


def test_the_worst_neighbours_reach_what_the_event_says_and_the_parts_alone_say_less():
    model, theta = LINEAR[1], np.zeros(4)
    x, nobody = np.full((1, 4), 50.0), (np.zeros((0, 4)), np.zeros(0))
    one = whitened(model, theta, (x, np.ones(1)), 3.0, 4.0)
    moved = float(np.linalg.norm(one - whitened(model, theta, nobody, 3.0, 4.0)))
    assert 0.99 / joint_noise(3.0, 4.0) < moved <= 1 / joint_noise(3.0, 4.0) * (1 + 1e-9)
    assert moved > 1.2 / 3.0
    assert moved > 1.6 / 4.0
    short = (np.full((1, 4), 1e-9), -np.ones(1))  # a short gradient against a long one: the count moves by 1
    replaced = float(np.linalg.norm(one - whitened(model, theta, short, 3.0, 4.0)))
    assert replaced <= 2 / joint_noise(3.0, 4.0) * (1 + 1e-9)
    assert abs((one - whitened(model, theta, short, 3.0, 4.0))[-1]) == pytest.approx(2 / 4.0, rel=0.01)


@pytest.mark.parametrize("relation, stretch, along", [("add_remove", 1, 1.0), ("replace_one", 2, 1.9)])
def test_an_attack_on_both_answers_gains_what_the_event_says_and_no_more(relation, stretch, along):
    """The best test between two worst neighbours, over many releases: its mu is nearly the event's, far above a part's.

    A long gradient against none; or against one of the opposite direction that is just short enough to be counted.
    """
    model, calls, sigma, tau = LINEAR[1], 2500, 2.0, 2.0
    one = np.full((1, 4), 50.0), np.ones(1)
    other = (np.full((1, 4), 0.225), -np.ones(1)) if stretch == 2 else (np.zeros((0, 4)), np.zeros(0))

    def score(data, seed):
        curator = room(model, *data, adjacency=relation, size=1.0, seed=seed)
        question = {"clip": 1.0, "noise_multiplier": sigma, "quantile_at": 1.0, "count_noise_multiplier": tau}
        answers = [curator.gradient(np.zeros(4), **question) for _ in range(calls)]
        gradients = np.array([-float(answer.value.sum()) / 2 for answer in answers]) / sigma
        counts = np.array([0.5 - answer.below for answer in answers]) / (tau / 2)
        return (along * gradients + stretch * counts) / math.hypot(along, stretch)

    gained = float(score(one, 1).mean() - score(other, 2).mean())
    mu, error = stretch / joint_noise(sigma, tau), 4.5 * math.sqrt(2 / calls)
    assert 0.97 * mu - error < gained < mu + error
    assert gained > 1.1 * stretch / sigma


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("model", MODELS, ids=name)
def test_a_record_that_is_not_finite_adds_nothing_and_counts_as_long(model, bad):
    X, y = records(model, 20)
    spoiled = X.copy()
    spoiled[3, 1] = bad
    keep = [i for i in range(20) if i != 3]
    theta = 0.3 + model.start()
    options = [{}]
    if isinstance(model, Linear):
        options += [{"scale": some_scale(model)}, {"basis": some_basis(model)}]
    for option in options:
        total, count = totals(model, theta, (spoiled, y), **option)
        rest, rest_count = totals(model, theta, (X[keep], y[keep]), **option)
        assert np.array_equal(total, rest)
        assert float(count[0]) == float(rest_count[0]) - 0.5


def test_norms_at_the_threshold_do_not_flip_together_when_a_record_joins():
    """Many equal records whose norm is the threshold, up to rounding: a count that jumps would move by all of them."""
    rng = np.random.default_rng(0)
    for model in (Linear(31, Logistic()), Linear(31, Hinge()), MLP((31, 5, 1), Logistic())):
        x, theta = rng.normal(size=(1, 31)), 0.1 * rng.normal(size=model.dimension)
        at = float(model.norms(theta, model.lay_out(x, np.ones(1)))[0])
        counts = [
            float(totals(model, theta, (np.tile(x, (n, 1)), np.ones(n)), threshold=at)[1][0])
            for n in (5, 6, 15, 16, 17, 39, 40)
        ]
        each = counts[0] / 5
        assert abs(each) < 0.5 and counts == pytest.approx([n * each for n in (5, 6, 15, 16, 17, 39, 40)], abs=1e-9)


def test_a_projection_that_cancels_does_not_round_others():
    """Equal rows almost orthogonal to the basis, huge labels: in single precision all that is left of them is rounding,
    which depends on who else is in the batch. Equal rows have equal parts, exactly."""
    rng = np.random.default_rng(0)
    for d in (31, 100, 333):
        model = Linear(d, Squared())
        basis = np.linalg.qr(rng.normal(size=(d, 3)))[0]
        x = rng.normal(size=(1, d))
        x = (x - x @ basis @ basis.T).astype(np.float32)
        (one,) = totals(model, np.zeros(d), (x, np.full(1, 1e9)), clip=1.0, basis=basis, threshold=None)
        for n in (5, 15, 16, 17, 69):
            data = np.tile(x, (n, 1)), np.full(n, 1e9)
            (total,) = totals(model, np.zeros(d), data, clip=1.0, basis=basis, threshold=None)
            assert np.array_equal(total, n * one)


# --- what they cost, and what is refused ------------------------------------------------------------------------------


def test_one_batch_is_one_event():
    model = LINEAR[0]
    X, y = records(model, 30)
    for adjacency, sampling, kind in (
        ("add_remove", ("poisson", 0.3), Poisson),
        ("replace_one", ("poisson", 0.3), Poisson),
        ("replace_one", ("fixed", 0.3), FixedBatch),
    ):
        curator = room(model, X, y, adjacency)
        question = {"clip": 1.0, "noise_multiplier": 3.0, "sampling": sampling}
        curator.gradient(np.zeros(4), **question, quantile_at=0.5, count_noise_multiplier=4.0)
        curator.gradient(np.zeros(4), **question, scale=np.ones(4))
        curator.gradient(np.zeros(4), **question, basis=np.eye(4)[:, :2])
        assert curator.meter.paid == [kind(0.3, Gaussian(joint_noise(3.0, 4.0))), *[kind(0.3, Gaussian(3.0))] * 2]
        assert [line.event for line in curator.trace] == curator.meter.paid


@given(st.floats(1e-2, 1e4), st.floats(1e-4, 0.5))
@law
def test_a_split_costs_at_most_the_whole(sigma, share):
    assert sigma <= joint_noise(*split_noise(sigma, share)) <= sigma * (1 + 1e-9)


BASE = {"clip": 1.0, "noise_multiplier": 3.0}
REFUSED = {
    "scale too short": {"scale": np.ones(3)},
    "scale zero": {"scale": np.zeros(4)},
    "scale negative": {"scale": -np.ones(4)},
    "scale nan": {"scale": np.full(4, math.nan)},
    "scale huge": {"scale": np.full(4, 1e9)},
    "scale a list": {"scale": [1.0] * 4},
    "basis a vector": {"basis": np.ones(4)},
    "basis not orthonormal": {"basis": np.ones((4, 2))},
    "basis nan": {"basis": np.full((4, 2), math.nan)},
    "basis empty": {"basis": np.zeros((4, 0))},
    "basis a function": {"basis": lambda X: X},
    "both": {"scale": np.ones(4), "basis": np.eye(4)},
    "threshold alone": {"quantile_at": 1.0},
    "count noise alone": {"count_noise_multiplier": 1.0},
    "threshold 0": {"quantile_at": 0.0, "count_noise_multiplier": 1.0},
    "threshold nan": {"quantile_at": math.nan, "count_noise_multiplier": 1.0},
    "count noise 0": {"quantile_at": 1.0, "count_noise_multiplier": 0.0},
    "count noise infinite": {"quantile_at": 1.0, "count_noise_multiplier": math.inf},
    "count noise negative": {"quantile_at": 1.0, "count_noise_multiplier": -1.0},
}


@pytest.mark.parametrize("what", REFUSED)
def test_wrong_options_are_refused_before_anything_is_paid(what):
    curator = room(LINEAR[0], *records(LINEAR[0], 10))
    with pytest.raises((TypeError, ValueError)):
        curator.gradient(np.zeros(4), **BASE, **REFUSED[what])
    assert curator.meter.paid == []


def test_a_perceptron_has_no_scale():
    model = MODELS[-1]
    with pytest.raises(ValueError, match="linear"):
        room(model, *records(model, 10)).gradient(model.start(), **BASE, scale=np.ones(model.dimension))


def test_noise_of_the_gradient_is_checked_in_a_joint_question():
    for wrong in (0.0, -1.0, math.nan, math.inf, 1e-9):
        curator = room(LINEAR[0], *records(LINEAR[0], 10))
        with pytest.raises(ValueError):
            curator.gradient(np.zeros(4), clip=1.0, noise_multiplier=wrong, quantile_at=1.0, count_noise_multiplier=2.0)
        assert curator.meter.paid == []


@pytest.mark.parametrize("option, value", [("scale", np.ones(4)), ("basis", np.eye(4))])
def test_an_option_with_code_in_it_meets_no_record(option, value):
    X, y = np.full((7, 4), 123.75), np.ones(7)
    for spy in spies(value):
        SEEN.clear()
        assert spy + spy is not None and SEEN  # it notes what it meets
        SEEN.clear()
        room(LINEAR[0], X, y).gradient(np.zeros(4), **BASE, **{option: spy})
        assert all(7 not in shape for shape in SEEN)


@pytest.mark.parametrize("n, d", [(50, 8), (5, 40), (1, 6)])
def test_the_leading_subspace_is_that_of_the_singular_vectors(n, d):
    rows = np.random.default_rng(n).normal(size=(n, d))
    basis = leading_subspace(rows, 3)
    rank = min(3, n, d)
    assert basis.shape == (d, rank)
    assert np.allclose(basis.T @ basis, np.eye(rank), atol=1e-9)
    leading = np.linalg.svd(rows, full_matrices=False)[2][:rank].T
    assert np.allclose(basis @ basis.T, leading @ leading.T, atol=1e-8)
    nothing = leading_subspace(np.zeros((n, d)), 3)
    assert np.allclose(nothing.T @ nothing, np.eye(rank), atol=1e-9)
