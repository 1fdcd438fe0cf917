"""A clip norm and a step size that are far off are mended within the run, from released facts alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.accounts import Budget
from noisewise.curator import Answer
from noisewise.methods.descent import DeflatedDescent
from noisewise.methods.online import GROW, SHRINK, OnlineDescent, State, allowed_rate, blended, found_clip, moved_rate
from noisewise.protect.optimizers import ReleasedGradient
from noisewise.train import Records, train
from noisewise.trusted.events import Gaussian
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import Logistic, Squared
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.units import Unit

D = 20
CLASSES, NUMBERS = Linear(D, Logistic()), Linear(D, Squared())
FAR_OFF = [{"max_grad_norm": 100.0, "learning_rate": 0.001}, {"max_grad_norm": 100.0, "learning_rate": 1000.0}]


def problem(n=8000, seed=0, offset=0.0, signs=True):
    """Unit rows with an intercept, labelled by a plane; the last 2,000 are for testing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 2000, D))
    X[:, -1] = 3.0
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    score = X[:, :-1] @ rng.normal(size=D - 1)
    y = np.sign(score + 0.1 * rng.normal(size=len(X))) if signs else offset + 0.2 * score
    return (X[:n], y[:n]), (X[n:], y[n:])


def run(method, rows, epsilon=0.5, model=CLASSES, seed=0):
    records = Records(*rows, float(len(rows[0])), row_bound=1.0)
    return train(method, records, model=model, budget=Budget(epsilon, 1e-6), seed=seed)


def accuracy(theta, rows):
    return (np.sign(CLASSES.scores(theta, rows[0])) == rows[1]).mean()


def explained(theta, rows):
    return 1 - ((NUMBERS.scores(theta, rows[0]) - rows[1]) ** 2).mean() / rows[1].var()


@pytest.mark.parametrize("start", FAR_OFF)
def test_a_classifier_that_starts_far_off_is_as_good_as_descent(start):
    rows, test = problem()
    good, bad = (accuracy(run(DeflatedDescent(**s), rows).theta, test) for s in ({}, start))
    mended = accuracy(run(OnlineDescent(**start), rows).theta, test)
    assert mended > good - 0.02
    assert mended > bad + 0.05  # the same start without mending


@pytest.mark.parametrize("start", FAR_OFF)
def test_a_regression_that_starts_far_off_is_as_good_as_descent(start):
    rows, test = problem(signs=False)
    good, bad = (explained(run(DeflatedDescent(**s), rows, model=NUMBERS).theta, test) for s in ({}, start))
    mended = explained(run(OnlineDescent(**start), rows, model=NUMBERS).theta, test)
    assert mended > good - 0.02
    assert mended > bad + 0.3


def test_squared_errors_are_followed_down_and_bounded_slopes_are_not():
    far, _ = problem(offset=0.8, signs=False)
    clips = [line.clip for line in run(OnlineDescent(), far, model=NUMBERS).trace if line.question == "gradient"]
    assert clips[0] > 1.0 and clips[-1] < 0.3 * clips[0]
    rows, _ = problem()
    clips = [line.clip for line in run(OnlineDescent(), rows).trace if line.question == "gradient"]
    assert min(clips) == clips[0]


class Counts:
    """Answers counts as if all gradients were of norms up to twice ``median``, and keeps what was asked."""

    def __init__(self, median, size=10_000.0, rows=None, epsilon=1.0):
        self.median, self.asked, self.meter = median, [], self
        model = Linear(D, Logistic())
        self.facts = facts_of(model, Budget(epsilon, 1e-6), size=size, row_bound=1.0, unit=Unit(rows))

    def noise_for(self, share):
        self.asked.append((share, None))
        return 1.0

    def statistic(self, question, *, noise_multiplier):
        self.asked[-1] = (self.asked[-1][0], question.threshold)
        below = min(question.threshold * self.facts.unit.most / self.median / 2, 1.0)
        return Answer(np.array((below - 0.5) * self.facts.size), 1.0)


@pytest.mark.parametrize("median", [0.003, 0.5, 40.0])
@pytest.mark.parametrize("start", [1e-4, 0.5, 100.0, 1e6])
def test_the_search_finds_the_quantile_from_anywhere_and_costs_little(start, median):
    curator = Counts(median)
    clip = found_clip(curator, np.zeros(D), start, 0.5)
    assert median / 2 < clip < 2 * median
    assert len(curator.asked) <= 16
    assert sum(share for share, _ in curator.asked) < 0.001


def test_rows_of_persons_are_counted_at_their_own_part_of_the_clip():
    curator = Counts(0.5, rows=4)
    clip = found_clip(curator, np.zeros(D), 0.5, 0.5)
    assert clip == 0.5 and [norm for _, norm in curator.asked] == [0.125]


def test_counts_that_would_be_noise_are_not_bought():
    curator = Counts(0.5, size=100.0)
    assert found_clip(curator, np.zeros(D), 100.0, 0.5) == 1.0  # twice the loss's own
    assert not curator.asked


def test_the_search_ends_at_the_limits_where_all_gradients_are_nothing():
    curator = Counts(1e-9)
    assert found_clip(curator, np.zeros(D), 100.0, 0.5) == 1e-4


def state_with(last, rate=1.0, average=None):
    zero = np.zeros(2)
    return State(1, 50, zero, zero, zero, rate, 0.5, (0.1, 1.0), (1.0, 1.0), zero, last, average or last)


def asked(gradient, noise):
    return ReleasedGradient(np.asarray(gradient, dtype=float), noise, np.zeros(len(gradient)))


def test_the_step_size_grows_with_agreement_and_falls_with_contradiction_beyond_noise():
    before = state_with(asked([1.0, 0.0], 0.01))
    assert moved_rate(before, asked([0.9, 0.1], 0.01)) == GROW
    assert moved_rate(before, asked([-0.9, 0.1], 0.01)) == SHRINK
    assert moved_rate(before, asked([0.0, 1.0], 0.01)) == 1.0
    for sign in (1, -1):  # the same vectors, drowned in noise, say nothing
        assert moved_rate(state_with(asked([1.0, 0.0], 1.0)), asked([sign * 0.9, 0.1], 1.0)) == 1.0
    assert moved_rate(before._replace(last=None, average=None), asked([1.0, 0.0], 0.01)) == 1.0


def test_noise_alone_hardly_moves_the_step_size():
    rng, grown, shrunk = np.random.default_rng(0), 0, 0
    for _ in range(2000):
        one, other = (asked(rng.normal(size=D), 1.0) for _ in range(2))
        rate = moved_rate(state_with(one), other)
        grown, shrunk = grown + (rate > 1), shrunk + (rate < 1)
    assert grown < 80 and shrunk < 8


def test_the_average_knows_its_noise():
    rng = np.random.default_rng(0)
    ends = []
    for _ in range(3000):
        average = None
        for _ in range(40):
            average = blended(average, asked(rng.normal(size=1), 1.0))
        ends.append(float(average.gradient[0]))
    assert np.std(ends) == pytest.approx(average.noise, rel=0.05)


def test_the_step_size_is_never_above_what_noise_allows():
    facts = facts_of(CLASSES, Budget(0.5, 1e-6), size=8000.0, row_bound=1.0)
    small, large = (state_with(None)._replace(clip=clip) for clip in (0.25, 0.5))
    assert allowed_rate(facts, small) == pytest.approx(2 * allowed_rate(facts, large))
    rows, _ = problem(n=300)
    start = run(OnlineDescent(learning_rate=1e6, steps=1, deflate=False), rows).theta
    assert np.isfinite(start).all() and np.linalg.norm(start) < 100


def test_gradient_and_count_of_a_step_are_one_event_and_the_budget_is_spent():
    rows, _ = problem(n=2000)
    result = run(OnlineDescent(steps=30), rows)
    steps = [line for line in result.trace if line.question == "gradient"]
    assert len(steps) == 30 and len({line.event for line in steps}) == 1
    assert isinstance(steps[0].event, Gaussian)
    assert 0.999 < result.meter.spent_fraction <= 1
    price = math.fsum(line.event.noise_multiplier**-2 for line in result.trace)
    assert price == pytest.approx(result.meter.currency.cap, rel=1e-3) and price <= result.meter.currency.cap


def test_a_perceptron_takes_it():
    model = MLP((D, 3, 1), Logistic())
    rows, _ = problem(n=300)
    assert np.isfinite(run(OnlineDescent(steps=5, max_grad_norm=100.0), rows, model=model).theta).all()


@pytest.mark.parametrize(
    "wrong",
    [{"target_quantile": 1.0}, {"count_share": 0.0}, {"steps": 0}, {"learning_rate": -1.0}, {"max_grad_norm": 0.0}],
)
def test_wrong_settings_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        OnlineDescent(**wrong)
