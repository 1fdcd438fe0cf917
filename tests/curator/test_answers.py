"""What the curator releases: noise of the promised size, divided by a public number, paid for first.

Statistical checks run at fixed seeds with an error rate of 1e-5 each, and are shown to reject 5 % more or less noise.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from purse import with_purse
from scipy import stats

from noisewise.accounts import AdditiveMeter, Budget, BudgetExhausted
from noisewise.curator import (
    Correct,
    Count,
    CrossMoment,
    FirstMoment,
    Gradient,
    MinEigenvalue,
    NormAtMost,
    PublicCurator,
    SecondMoment,
    SquaredLength,
)
from noisewise.trusted.accountants.common import Unpriceable
from noisewise.trusted.events import BoundedRange, FixedBatch, Gaussian, Poisson
from noisewise.trusted.losses import Hinge, Logistic, Softmax
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.question import HowAsked, plain
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.linear import LinearRecords
from noisewise.trusted.stores.totals import Drawn

RARE = 1e-5
CALLS = 12_000
ADJACENCIES = ("add_remove", "replace_one")
STATISTICS = {  # and their units: under add_remove, and half of what a replaced record does
    Count(): (1, 0.5),
    FirstMoment(): (1, 1),
    SquaredLength(): (1, 0.5),
    SecondMoment(): (1, math.sqrt(0.5)),
    CrossMoment(3.0): (3, 3),
    MinEigenvalue(): (1, 0.5),
    NormAtMost(0.5, (0.1, -0.2, 0.3)): (0.5, 0.5),
}


class Purse:
    """A meter that affords everything and keeps a diary."""

    name, adaptive, spent_fraction = "purse", True, 0.0

    def __init__(self, adjacency="add_remove", diary=None, limit=math.inf):
        self.budget, self.paid, self.diary, self.limit = Budget(1.0, 1e-6, adjacency), [], diary, limit

    @property
    def events(self):
        return Counter(self.paid)

    def spend(self, event):
        if self.diary is not None:
            self.diary.append("pay")
        if len(self.paid) >= self.limit:
            raise BudgetExhausted("nothing is left")
        self.paid.append(event)


def room(X, y, model, *, adjacency="add_remove", size=10.0, seed=1, meter=None, **more):
    return with_purse(X, y, model=model, meter=meter or Purse(adjacency), size=size, seed=seed, **more)


def data(n=40, features=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, features)), rng.choice([-1.0, 1.0], n)


def exact(what, X, y, model, adjacency="add_remove"):
    """What the curator would release without noise, in the units of the sum."""
    how = HowAsked(adjacency, ("full",), 1.0, 10.0, model.features)
    return what.exact(what.totals(records_of(model, X, y), Drawn(), how), how)


def clipped_sum(model, theta, X, y, clip):
    return exact(Gradient(plain(theta), clip), X, y, model)


def right_scale(x, std) -> bool:
    """Two-sided chi-square test of the standard deviation of centred normal draws."""
    p = stats.chi2.cdf(float(np.sum(np.square(np.asarray(x, dtype=float)))) / std**2, len(x))
    return RARE / 2 <= p <= 1 - RARE / 2


def accepted_and_wrong_ones_not(x, std) -> bool:
    return right_scale(x, std) and not right_scale(x, 0.95 * std) and not right_scale(x, 1.05 * std)


# --- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "adjacency, sampling, divisor",
    [
        ("add_remove", ("full",), 50.0),
        ("replace_one", ("full",), 50.0),
        ("add_remove", ("poisson", 0.5), 25.0),
        ("replace_one", ("poisson", 0.5), 25.0),
        ("replace_one", ("fixed", 0.1), 5.0),
        ("add_remove", ("poisson", 0.001), 1.0),
    ],
)
def test_gradient_noise_is_multiplier_times_clip_over_the_expected_size(adjacency, sampling, divisor):
    """Rows of zeros have no gradient, so what comes out is the noise; noise_multiplier is std / clip in both relations."""
    d = 20_000
    curator = room(np.zeros((4, d)), np.ones(4), Linear(d, Logistic()), adjacency=adjacency, size=50.0)
    answer = curator.gradient(np.zeros(d), clip=0.3, noise_multiplier=7.0, sampling=sampling)
    assert answer.noise_std == pytest.approx(7.0 * 0.3 / divisor)
    assert accepted_and_wrong_ones_not(answer.value, 7.0 * 0.3 / divisor)


def test_noise_lies_on_top_of_the_exact_mean():
    X, y = data(100, features=50)
    model, theta = Linear(50, Logistic()), np.ones(50)
    mean = clipped_sum(model, theta, X, y, 0.4) / 500
    curator = room(X, y, model, size=500.0)
    answers = [curator.gradient(theta, clip=0.4, noise_multiplier=2.0) for _ in range(400)]
    noise = np.stack([answer.value for answer in answers]).astype(np.float64) - mean
    assert accepted_and_wrong_ones_not(noise.flatten(), 0.0016)
    assert np.abs(noise.mean(axis=0)).max() < 5 * 0.0016 / math.sqrt(400)
    assert np.abs(np.corrcoef(noise.T) - np.eye(50)).max() < 5.5 / math.sqrt(400)
    assert len(np.unique(noise)) > 200, "on a grid of sigma/32 or finer"


def test_gradient_norm_noise():
    X, y = data(30)
    model = Linear(3, Logistic())
    true = np.linalg.norm(clipped_sum(model, np.ones(3), X, y, 0.4)) / 10
    curator = room(X, y, model)
    question = {"clip": 0.4, "noise_multiplier": 5.0}
    released = [float(curator.gradient_norm(np.ones(3), **question).value) for _ in range(CALLS)]
    assert accepted_and_wrong_ones_not(np.array(released) - true, 5.0 * 0.4 / 10)
    assert curator.gradient_norm(np.ones(3), **question).noise_std == pytest.approx(0.2)


@pytest.mark.sample(5)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("what", STATISTICS, ids=lambda what: type(what).__name__)
def test_statistic_noise_is_multiplier_times_the_unit_of_the_relation(what, adjacency):
    X, y = data(20)
    model = Linear(3, Logistic())
    curator = room(X, y, model, adjacency=adjacency)
    true = exact(what, X, y, model, adjacency)
    std = 4.0 * STATISTICS[what][adjacency == "replace_one"]
    calls = CALLS // len(true)
    answers = [curator.statistic(what, noise_multiplier=4.0) for _ in range(calls)]
    assert answers[0].noise_std == pytest.approx(std, rel=1e-5)
    values = np.stack([answer.value for answer in answers])
    if isinstance(what, SecondMoment):
        assert np.array_equal(values, values.transpose(0, 2, 1))
        values = values[:, *np.triu_indices(3)]
    assert accepted_and_wrong_ones_not((values.reshape(calls, -1) - true).flatten(), std)


@pytest.mark.sample(1)
@pytest.mark.parametrize("adjacency, stretch", [("add_remove", 1), ("replace_one", 2)])
def test_choose_follows_the_exponential_mechanism(adjacency, stretch):
    """P(first) / P(second) = exp(epsilon * (difference of clipped loss sums) / (stretch * bound)); the laws know the scale itself."""
    X, y = data(25)
    model, thetas = Linear(3, Logistic()), [np.zeros(3), np.array([0.3, -0.4, 0.2])]
    bound, epsilon, draws = 0.6, 1.5, 6_000
    sums = [model.losses(theta, model.lay_out(X, y)).clip(0, bound).sum() for theta in thetas]
    curator = room(X, y, model, adjacency=adjacency)
    first = sum(curator.choose(thetas, loss_bound=bound, epsilon=epsilon) == 0 for _ in range(draws))

    def fits(scale):
        odds = math.exp(float(sums[1] - sums[0]) / scale)
        return stats.binomtest(first, draws, odds / (1 + odds)).pvalue > RARE

    right = stretch * bound / epsilon
    assert fits(right)
    assert not fits(-right)
    assert not fits(right / 2)
    assert not fits(right * 2)
    assert curator.meter.paid[0] == BoundedRange(epsilon)


def test_choose_among_equals_is_uniform():
    curator = room(*data(25), Linear(3, Logistic()))
    counts = Counter(curator.choose([np.zeros(3)] * 5, loss_bound=1.0, epsilon=0.5) for _ in range(5000))
    assert stats.chisquare([counts[i] for i in range(5)]).pvalue > RARE


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_counts_as_the_bound(bad):
    """A spoiled record adds the bound to every candidate, so a strong choice is the one made without it."""
    X, _ = data(25)
    w = np.array([3.0, -2.0, 1.0])
    y = np.sign(X @ w)
    X[3, 0] = bad
    curator = room(X, y, Linear(3, Hinge()))
    for worse in (np.zeros(3), -1e29 * np.sign(w)):
        assert {curator.choose([worse, w], loss_bound=1.0, epsilon=400.0) for _ in range(10)} == {1}
        assert {curator.choose([w, worse], loss_bound=1.0, epsilon=400.0) for _ in range(10)} == {0}
    nothing_usable = room(np.full((25, 3), bad), y, Linear(3, Hinge()))
    assert {nothing_usable.choose([w, -w], loss_bound=1.0, epsilon=400.0) for _ in range(40)} == {0, 1}


# --- rules ------------------------------------------------------------------------------------------------------------


def test_an_empty_batch_is_noised_and_paid_like_any_other():
    d = 20_000
    curator = room(np.ones((3, d)), np.ones(3), Linear(d, Logistic()), size=3.0)
    answer = curator.gradient(np.zeros(d), clip=1.0, noise_multiplier=2.0, sampling=("poisson", 1e-9))
    assert accepted_and_wrong_ones_not(answer.value, 2.0)
    assert curator.meter.paid == [Poisson(1e-9, Gaussian(2.0))]
    nobody = room(np.zeros((0, d)), np.zeros(0), Linear(d, Logistic()), size=3.0)
    assert accepted_and_wrong_ones_not(nobody.gradient(np.zeros(d), clip=1.0, noise_multiplier=2.0).value, 2 / 3)
    assert float(nobody.statistic(Count(), noise_multiplier=1e-5).value) == pytest.approx(0, abs=1e-3)


def test_sums_are_divided_by_the_expected_size_never_by_the_realised_one():
    """Four equal records: the released value counts how many joined. Divided by the realised size it would not."""
    model = Linear(1, Hinge())
    curator = room(np.ones((4, 1)), np.ones(4), model, size=4.0)
    question = {"clip": 1.0, "noise_multiplier": 1e-5, "sampling": ("poisson", 0.5)}
    joined = Counter()
    for _ in range(300):
        value = curator.gradient(np.zeros(1), **question).value.item() * 0.5 * 4 / -1
        assert value == pytest.approx(round(value), abs=1e-3)
        joined[round(value)] += 1
    assert set(joined) == {0, 1, 2, 3, 4}
    assert stats.chisquare([joined[k] for k in range(5)], 300 / 16 * np.array([1, 4, 6, 4, 1])).pvalue > RARE


@pytest.mark.parametrize("declared", [1.0, 7.5, 4_000.0])
def test_a_declared_size_is_used_and_never_compared_with_the_rows(declared):
    X, y = data(40)
    model = Linear(3, Logistic())
    for adjacency in ADJACENCIES:
        curator = room(X, y, model, size=declared, adjacency=adjacency)
        value = curator.gradient(np.zeros(3), clip=0.5, noise_multiplier=1e-5).value.astype(np.float64)
        assert np.allclose(value * declared, clipped_sum(model, np.zeros(3), X, y, 0.5), atol=1e-4)
        assert curator.facts.size == declared


def test_full_rate_batches_are_the_full_batch():
    X, y = data(40)
    model, question = Linear(3, Logistic()), {"clip": 0.5, "noise_multiplier": 1e-5}
    full = room(X, y, model, adjacency="replace_one").gradient(np.ones(3), **question).value
    for sampling in (("poisson", 1.0), ("fixed", 1.0)):
        curator = room(X, y, model, adjacency="replace_one")
        assert np.allclose(curator.gradient(np.ones(3), sampling=sampling, **question).value, full, atol=1e-5)


def test_an_unknown_size_is_an_error_before_anything_is_paid():
    purse = Purse()
    curator = room(*data(), Linear(3, Logistic()), size=None, meter=purse)
    for ask in (curator.gradient, curator.gradient_norm):
        with pytest.raises(RuntimeError, match="release_size"):
            ask(np.zeros(3), clip=1.0, noise_multiplier=1.0)
    assert purse.paid == []
    assert curator.trace == ()
    size = curator.release_size(noise_multiplier=0.01)
    assert size == pytest.approx(40, abs=0.1)
    assert curator.facts.size == size
    assert not curator.facts.size_is_public
    assert purse.paid == [Gaussian(0.01)]
    answer = curator.gradient(np.zeros(3), clip=1.0, noise_multiplier=1.0)
    assert answer.noise_std == pytest.approx(1 / size)


def test_a_bought_size_is_at_least_one():
    sizes = [
        room(*data(2), Linear(3, Logistic()), size=None, seed=s).release_size(noise_multiplier=50.0) for s in range(40)
    ]
    assert min(sizes) == 1.0
    assert max(sizes) > 1.0


def test_replace_one_needs_a_size_and_sizes_are_sane():
    with pytest.raises(ValueError, match="replace_one"):
        room(*data(), Linear(3, Logistic()), size=None, adjacency="replace_one")
    for size in (0.0, -3.0, math.nan, math.inf, 0.5):
        with pytest.raises(ValueError, match="size"):
            room(*data(), Linear(3, Logistic()), size=size)


QUESTIONS = {
    "gradient": lambda c: c.gradient(np.zeros(3), clip=1.0, noise_multiplier=2.0).value,
    "poisson": lambda c: c.gradient(np.zeros(3), clip=1.0, noise_multiplier=2.0, sampling=("poisson", 0.5)).value,
    "norm": lambda c: c.gradient_norm(np.zeros(3), clip=1.0, noise_multiplier=2.0).value,
    "choose": lambda c: c.choose([np.zeros(3), np.ones(3)], loss_bound=1.0, epsilon=0.1),
    "count": lambda c: c.statistic(Count(), noise_multiplier=2.0).value,
    "second moment": lambda c: c.statistic(SecondMoment(), noise_multiplier=2.0).value,
    "size": lambda c: c.release_size(noise_multiplier=2.0),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_a_refused_charge_releases_nothing_and_leaves_everything_as_it_was(ask):
    """The next answer of a simulation is as if the refused question had never been asked."""
    purse = Purse(limit=0)
    refused, undisturbed = room(*data(), Linear(3, Logistic()), meter=purse), room(*data(), Linear(3, Logistic()))
    facts = refused.facts
    with pytest.raises(BudgetExhausted):
        ask(refused)
    assert refused.trace == ()
    assert purse.paid == []
    assert refused.facts == facts
    purse.limit = math.inf
    for again in QUESTIONS.values():
        assert np.array_equal(np.asarray(again(refused)), np.asarray(again(undisturbed)))
    assert refused.trace == undisturbed.trace


def test_a_real_meter_refuses_what_it_cannot_afford_and_is_left_as_it_was():
    meter = AdditiveMeter(Budget(1.0, 1e-6), "gdp")
    curator = room(*data(), Linear(3, Logistic()), meter=meter)
    curator.gradient(np.zeros(3), clip=1.0, noise_multiplier=10.0)
    spent, events, trace = meter.spent_fraction, meter.events, curator.trace
    with pytest.raises(BudgetExhausted):
        curator.gradient(np.zeros(3), clip=1.0, noise_multiplier=0.5)
    with pytest.raises((Unpriceable, ValueError)):  # fixed batches have no price under add_remove
        curator.gradient(np.zeros(3), clip=1.0, noise_multiplier=50.0, sampling=("fixed", 0.1))
    assert (meter.spent_fraction, meter.events, curator.trace) == (spent, events, trace)


def test_every_question_is_paid_for_before_a_record_is_used(monkeypatch):
    diary = []
    for name in ("gradients", "losses", "short", "unit_rows", "__len__"):
        true = getattr(LinearRecords, name)
        monkeypatch.setattr(LinearRecords, name, lambda *a, true=true, **k: diary.append("use") or true(*a, **k))
    asked = {**QUESTIONS, "norms": lambda c: c.statistic(NormAtMost(1.0, (0.0, 0.0, 0.0)), noise_multiplier=1.0)}
    for ask in asked.values():
        curator = room(*data(), Linear(3, Logistic()), meter=Purse(diary=diary))
        diary.clear()
        ask(curator)
        assert diary[0] == "pay"
        assert diary.count("pay") == 1
        assert "use" in diary
        broke = room(*data(), Linear(3, Logistic()), meter=Purse(diary=diary, limit=0))
        diary.clear()
        with pytest.raises(BudgetExhausted):
            ask(broke)
        assert diary == ["pay"]


def test_the_event_is_the_one_of_the_batch_that_was_drawn():
    purse = Purse("replace_one")
    curator = room(*data(), Linear(3, Logistic()), adjacency="replace_one", meter=purse)
    for sampling in (("full",), ("poisson", 0.25), ("fixed", 0.25)):
        curator.gradient(np.zeros(3), clip=1.0, noise_multiplier=3.0, sampling=sampling)
    curator.choose([np.zeros(3)], loss_bound=1.0, epsilon=0.5, sampling=("poisson", 0.25))
    sigma = Gaussian(3.0)
    expected = [sigma, Poisson(0.25, sigma), FixedBatch(0.25, sigma), Poisson(0.25, BoundedRange(0.5))]
    assert purse.paid == expected
    assert [line.event for line in curator.trace] == expected


@pytest.mark.parametrize(
    "model", [Linear(3, Logistic()), MLP((3, 4, 1), Logistic(), "softplus"), Linear(3, Softmax(), 2)]
)
def test_spoiled_records_raise_nothing_and_every_answer_is_finite(model):
    X, y = data(40)
    if model.outputs > 1:
        y = (y > 0).astype(np.int64)
    X[0], X[1, 1], X[2], X[3] = math.nan, math.inf, 1e38, -1e30
    theta = model.start()
    curator = room(X, y, model)
    for point in (theta, theta + 1e29, theta - 1e20):
        assert np.isfinite(curator.gradient(point, clip=1.0, noise_multiplier=1.0).value).all()
        assert np.isfinite(curator.gradient_norm(point, clip=1.0, noise_multiplier=1.0).value)
        assert curator.choose([point, theta], loss_bound=1.0, epsilon=1.0) in (0, 1)
        at_most = NormAtMost(1.0, tuple(point.tolist()))
        right = Correct(tuple(point.tolist()))
        for what in (Count(), SecondMoment(), CrossMoment(), MinEigenvalue(), at_most, right):
            assert np.isfinite(curator.statistic(what, noise_multiplier=1.0).value).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_a_theta_that_is_not_a_usual_one_is_refused_before_it_is_paid(bad):
    curator, theta = room(*data(), Linear(3, Logistic())), np.array([0.0, bad, 0.0])
    for ask in (
        lambda: curator.gradient(theta, clip=1.0, noise_multiplier=1.0),
        lambda: curator.gradient_norm(theta, clip=1.0, noise_multiplier=1.0),
        lambda: curator.choose([theta], loss_bound=1.0, epsilon=1.0),
        lambda: curator.statistic(NormAtMost(1.0, tuple(theta.tolist())), noise_multiplier=1.0),
        lambda: curator.statistic(Correct(tuple(theta.tolist())), noise_multiplier=1.0),
    ):
        with pytest.raises(ValueError, match="finite numbers"):
            ask()
    assert curator.meter.paid == []


def test_a_row_of_huge_entries_does_not_spoil_a_statistic():
    X, y = data(40)
    X[0] = 3e38
    curator = room(X, y, Linear(3, Logistic()))
    for what in (SecondMoment(), CrossMoment(), MinEigenvalue()):
        assert np.isfinite(curator.statistic(what, noise_multiplier=1.0).value).all()


def test_a_gradient_that_is_not_finite_counts_as_above_the_threshold():
    model = Linear(2, Logistic())
    assert exact(NormAtMost(1.0, (0.0, 0.0)), np.ones((1, 2)), np.array([math.nan]), model) == [-0.5]


@pytest.mark.parametrize("clip", [1e18, 1e37])
def test_a_clip_is_refused_or_answered_with_a_finite_value(clip):
    curator = room(np.full((500, 2), 1e38), np.ones(500), Linear(2, Logistic()))
    try:
        answers = [
            ask(np.zeros(2), clip=clip, noise_multiplier=1.0) for ask in (curator.gradient, curator.gradient_norm)
        ]
    except ValueError:
        return
    assert all(np.isfinite(answer.value).all() for answer in answers)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_of_any_float_type_are_answered(dtype):
    X, y = data()
    for loss in (Logistic(), Hinge()):
        for model in (Linear(3, loss), MLP((3, 2, 1), loss)):
            curator = room(X, y.astype(dtype), model)
            curator.gradient(model.start(), clip=1.0, noise_multiplier=1.0)


def test_same_seed_same_answers_and_no_seed_is_not_a_simulation():
    rooms = [room(*data(), Linear(3, Logistic()), seed=seed) for seed in (1, 1, 2, None, None)]
    answers = [[tuple(QUESTIONS["poisson"](one).tolist()) for _ in range(3)] for one in rooms]
    assert answers[0] == answers[1]
    assert len(set(map(tuple, answers))) == 4  # nine numbers on a grid of the noise / 32: no chance of the same
    assert room(*data(), Linear(3, Logistic()), seed=1).simulation
    assert not room(*data(), Linear(3, Logistic()), seed=None).simulation


def test_a_public_curator_is_exact_and_says_so():
    X, y = data()
    model = Linear(3, Logistic())
    public = PublicCurator(X, y, model=model)
    answer = public.gradient(np.ones(3))
    assert answer.noise_std == 0
    mean = model.clipped_sum(np.ones(3), model.lay_out(X, y), math.inf) / 40
    assert np.allclose(answer.value, mean)
    noisy = PublicCurator(X, y, model=model, seed=1).gradient(np.ones(3), clip=1.0, noise_multiplier=2.0)
    assert noisy.noise_std == pytest.approx(2 / 40)
    assert not np.allclose(noisy.value, answer.value)
