"""The one-shot questions: sensitivities by search, contraction, noise of the promised size, refusals before paying."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from purse import with_purse
from scipy import integrate, stats

from noisewise.accounts import Budget
from noisewise.curator import Descent, OnePass, PerturbedObjective
from noisewise.trusted.accountants.common import pair_mu
from noisewise.trusted.accountants.gdp import delta_of
from noisewise.trusted.events import ApproximateDP, Gaussian
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import ClassWeighted, Hinge, HuberHinge, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.noise import Stream
from noisewise.trusted.stores import records_of
from noisewise.trusted.walks import iterations as walks
from noisewise.trusted.walks.iterations import Perturbed, gradient_sum, rows_of, weight
from noisewise.trusted.walks.objective import objective_terms
from noisewise.trusted.walks.oneshot import descent_unit, loss_constants, pass_noise

ADJACENCIES = ("add_remove", "replace_one")
LOSSES = {
    "logistic": Logistic(),
    "huber_hinge": HuberHinge(0.5),
    "squared": Squared(),
    "softmax": Softmax(),
    "weighted": ClassWeighted(Logistic(), (0.5, 2.0)),
}


class Purse:
    name, adaptive, spent_fraction = "purse", True, 0.0

    def __init__(self, adjacency="add_remove", limit=math.inf):
        self.budget, self.paid, self.limit = Budget(1.0, 1e-6, adjacency), [], limit

    @property
    def events(self):
        return Counter(self.paid)

    def spend(self, event):
        self.paid.append(event)


def model_for(loss, features=3):
    return Linear(features, loss, 3 if loss.task == "classes" else 1)


def float_rows(model, X, y):
    """Rows as walks and minimisers see them."""
    return records_of(model, X, y).float_rows()


def facts_for(model, adjacency="add_remove", size=10.0, row_bound=1.0, epsilon=1.0, delta=1e-6):
    return facts_of(model, Budget(epsilon, delta, adjacency), size=size, row_bound=row_bound)


def some_rows(model, n, rng, reach=1.0):
    X = rng.normal(size=(n, model.features))
    X *= reach / np.linalg.norm(X, axis=1, keepdims=True)
    if model.loss.task == "classes":
        return X, rng.integers(0, 3, n)
    return X, rng.choice([-1.0, 1.0], n)


def neighbours(model, n, adjacency, rng):
    """Two data sets: random ones, or all rows on one line with one row pulling against them."""
    X, y = some_rows(model, n + 1, rng, reach=rng.choice([1.0, 1.0, 5.0]))
    if rng.random() < 0.5:
        X = np.repeat(X[:1], n + 1, 0) * (1 if rng.random() < 0.5 else 1e-3)
        X[-1] = X[0] / np.linalg.norm(X[0]) * rng.choice([-1.0, 1.0])
        y[:-1] = y[0]
    if adjacency == "add_remove":
        return (X[:-1], y[:-1]), (X, y)
    other, label = X[:-1].copy(), y[:-1].copy()
    other[-1], label[-1] = X[-1], y[-1]
    return (X[:-1], y[:-1]), (other, label)


@pytest.mark.sample(4)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", LOSSES)
def test_one_record_moves_the_last_iterate_of_a_descent_by_no_more_than_its_sensitivity(name, adjacency):
    """Sizes that are wrong by any factor included: the promise does not rest on them."""
    model, rng, worst = model_for(LOSSES[name]), np.random.default_rng(1), 0.0
    for _ in range(250):
        n = int(rng.integers(1, 12))
        size = float(n * rng.choice([0.02, 0.2, 0.5, 1.0, 1.0, 1.0, 3.0]))
        facts = facts_for(model, adjacency, size)
        radius = 2.0 if name == "squared" else float(rng.choice([math.inf, 1.0]))
        start = rng.normal(size=model.dimension).astype(np.float32) * rng.choice([0.0, 1.0])
        l2 = float(rng.choice([0.0, 0.01, 0.3, 3.0]))
        _, M = loss_constants(facts, radius, np.linalg.norm(start))
        eta = float(rng.choice([1.0, 0.3])) / (M + l2)
        walk = Descent(start, int(rng.choice([1, 2, 10, 40])), eta, 1.0, l2, radius)
        unit = descent_unit(walk, facts, size) * (2 if adjacency == "replace_one" else 1)
        ends = [
            walk.exact(model, float_rows(model, *data), facts, size) for data in neighbours(model, n, adjacency, rng)
        ]
        moved = np.linalg.norm(ends[0] - ends[1])
        assert moved <= unit
        worst = max(worst, moved / unit)
    assert worst > 0.3, "a bound that nothing comes near hides mistakes"


@pytest.mark.parametrize("l2, steps", [(0.0, 3.0), (2.0, 1 + 0.98 + 0.98**2)])
def test_the_sensitivity_of_a_descent_is_reached_and_half_of_it_is_not_enough(l2, steps):
    """Zero rows but one, of the largest slope: a replaced label moves one step by 2 L eta / N, and 1 - eta l2 of it stays."""
    model = model_for(HuberHinge(0.1), 1)
    facts = facts_for(model, "replace_one", 4.0)
    walk = Descent(np.zeros(1), 3, 0.01, 1.0, l2=l2)
    X = np.array([[0.0], [0.0], [0.0], [1.0]])
    a, b = (walk.exact(model, float_rows(model, X, np.array([1.0, 1, 1, y])), facts, 4.0) for y in (1.0, -1.0))
    moved, unit = np.linalg.norm(a - b), descent_unit(walk, facts, 4.0)
    assert unit == pytest.approx(0.01 * steps / 4, rel=1e-5)
    assert 1.999 * unit < moved <= 2 * unit


def test_the_sensitivity_of_the_squared_loss_is_reached_at_the_edge_of_a_small_ball():
    model, start = Linear(1, Squared()), np.full(1, 2.0)
    facts = facts_for(model, "replace_one", 4.0)
    walk = Descent(start, 1, 0.001, 1.0, radius=0.01)
    a, b = (walk.exact(model, float_rows(model, np.array([[x]]), np.array([-1.0])), facts, 4.0) for x in (0.0, 1.0))
    assert 0.99 < np.linalg.norm(a - b) / descent_unit(walk, facts, 4.0) <= 1


@pytest.mark.parametrize("multiplier", [1e7, 1e9])
def test_rounding_parts_neighbours_by_no_more_than_is_charged(multiplier):
    """Near 999 a theta moves in steps of 2^-43: the record that tips one moves it by far more than its share."""
    model, size, n = Linear(1, Logistic()), 1000.0, 700
    facts = facts_for(model, "add_remove", size)
    walk = Descent(np.array([999.0]), 1, 1.1 * 2.0**-33 * 999 * size / multiplier, multiplier)
    rows = float_rows(model, np.ones((n, 1)), -np.ones(n))
    ends = [walk.exact(model, rows._replace(rows=rows.rows[:m], labels=rows.labels[:m]), facts, size).item()
            for m in range(1, n)]  # fmt: skip
    moved = max(abs(a - b) for a, b in pairwise(ends))
    assert moved > 2 * walk.step_size / size, "exact arithmetic would move it by less"
    assert moved <= descent_unit(walk, facts, size)


def expanding():
    """Ten times the declared records at their common minimum, and one that pulls away: plain steps multiply by -9."""
    model, n, size = Linear(1, Squared()), 400, 40.0
    y = np.ones(n + 1)
    y[-1] = -1.0
    return model, n, size, np.ones((n + 1, 1)), y, Descent(np.ones(1), 3, 0.5, 1.0, radius=5.0)


def crowded():
    """Twice the declared records, all with the largest slope, and one against them: where a minimum starts to bite."""
    model, n, size = Linear(1, HuberHinge(0.1)), 8, 4.0
    y = np.ones(n + 1)
    y[-1] = -1.0
    return model, n, size, np.ones((n + 1, 1)), y, Descent(np.zeros(1), 1, 0.2, 1.0)


PLAIN = {
    "none": lambda n, size, cap, adjacency: 1.0,
    "a minimum": lambda n, size, cap, adjacency: min(1.0, cap * size / max(n, 1)),
}


@pytest.mark.parametrize("case, plain", [(expanding, "none"), (crowded, "a minimum")])
def test_a_wrong_size_breaks_the_sensitivity_without_the_weight_and_not_with_it(case, plain, monkeypatch):
    model, n, size, X, y, walk = case()
    facts = facts_for(model, "add_remove", size)

    def moved():
        ends = [walk.exact(model, float_rows(model, X[:m], y[:m]), facts, size) for m in (n, n + 1)]
        return np.linalg.norm(ends[0] - ends[1])

    unit = descent_unit(walk, facts, size)
    assert moved() <= unit
    monkeypatch.setattr(walks, "weight", PLAIN[plain])
    assert moved() > 1.5 * unit


@pytest.mark.parametrize("cap", [2.0, 4.0, 17.0])
@pytest.mark.parametrize("size", [1.0, 3.7, 50.0])
def test_the_weight_bounds_what_a_record_more_does_and_what_all_do(cap, size):
    previous = weight(0, size, cap, "add_remove")
    for n in range(1000):
        following = weight(n + 1, size, cap, "add_remove")
        assert following + n * (previous - following) <= 1 + 1e-12
        assert 0 < following <= previous
        assert (n + 1) * following <= cap * size * (1 + 1e-12)
        assert (n + 1) * weight(n + 1, size, cap, "replace_one") <= cap * size * (1 + 1e-12)
        previous = following
    assert weight(int(size), size, cap, "add_remove") >= 1 - 1 / (4 * cap)
    assert weight(int(size), size, cap, "replace_one") == 1


def test_rows_and_labels_are_cut_inside():
    model = model_for(Logistic(), 2)
    rows, labels = rows_of(float_rows(model, np.array([[300.0, 400.0], [0.1, 0.0]]), np.array([7.0, -1.0])), 0.5)
    assert np.allclose(rows, np.array([[0.3, 0.4], [0.1, 0.0]]), atol=1e-4)
    assert labels.tolist() == [1.0, -1.0]


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_and_steps_keep_their_bounds(name):
    """Gradients of single records within L; a step of any single record contracts as the proof of OnePass says."""
    model, rng = model_for(LOSSES[name]), np.random.default_rng(2)
    facts = facts_for(model, "replace_one", row_bound=1.5)
    for _ in range(300):
        X, y = rows_of(float_rows(model, *some_rows(model, 1, rng, reach=rng.choice([0.3, 1.5, 9.0]))), 1.5)
        a, b = (rng.normal(size=model.dimension) for _ in range(2))
        a, b = a * 2 / np.linalg.norm(a), b * rng.choice([2.0, 0.1]) / np.linalg.norm(b)
        L, M = loss_constants(facts, 2.0)
        ga, gb = gradient_sum(model, a, X, y), gradient_sum(model, b, X, y)
        assert np.linalg.norm(ga) <= L * (1 + 1e-7)
        for eta in (0.3 / M, 2 / M):
            assert np.linalg.norm(a - eta * ga - b + eta * gb) <= np.linalg.norm(a - b) * (1 + 1e-7)


def one_pass(model, rng, public=5, **more):
    rows, labels = some_rows(model, public, rng)
    settings = {"step_size": 0.5, "noise_multiplier": 3.0, **more}
    return OnePass(np.zeros(model.dimension), rows, labels, **settings)


def test_the_noise_of_one_pass_follows_from_the_public_steps_after_it():
    model, rng = model_for(Logistic()), np.random.default_rng(0)
    facts = facts_for(model, "replace_one")
    assert pass_noise(one_pass(model, rng), facts) == pytest.approx(3.0 / math.sqrt(6), rel=2e-5)
    assert pass_noise(one_pass(model, rng, passes=7), facts) == pytest.approx(3.0 / 6, rel=2e-5)
    contraction = 1 - 0.5 * 0.2
    expected = 3.0 / math.sqrt(sum(contraction ** (-2 * j) for j in range(6)))
    assert pass_noise(one_pass(model, rng, l2=0.2), facts) == pytest.approx(expected, rel=2e-5)
    long = pass_noise(one_pass(model, rng, l2=1.0, step_size=0.8, passes=500), facts)
    assert 0 < long < 1e-3


@pytest.mark.parametrize("l2", [0.0, 40.0])
def test_one_pass_is_no_easier_to_tell_apart_than_promised(l2):
    """One parameter, one private record with either label, slopes -L and +L: the worst case, which reaches the promise.

    The best test tells N(0,1) from N(mu,1) with advantage 2 Phi(mu/2) - 1; with half the noise it does better.
    """
    model = Linear(1, HuberHinge(0.01))
    facts = facts_for(model, "replace_one", 1.0)
    walks, mu = 800, 1.0

    def ends(label, noise_multiplier, seed):
        walk = OnePass(np.zeros(1), np.zeros((3, 1)), np.ones(3), 0.005, noise_multiplier, l2)
        batch, stream = float_rows(model, np.array([[1.0]]), np.array([label])), Stream(seed)
        return np.array([walk.walked(model, batch, facts, stream).item() for _ in range(walks)])

    def advantage(noise_multiplier):
        return (ends(1.0, noise_multiplier, 1) > 0).mean() + (ends(-1.0, noise_multiplier, 2) <= 0).mean() - 1

    claimed, error = 2 * stats.norm.cdf(mu / 2) - 1, 4.5 * 0.5 * math.sqrt(2 / walks)
    assert abs(advantage(2 / mu) - claimed) < error
    assert advantage(1 / mu) > claimed + error


def test_the_terms_of_a_perturbed_objective_add_up():
    model = model_for(Logistic())
    for adjacency in ADJACENCIES:
        for epsilon, delta, l2, size in [(0.1, 1e-8, 0.0, 1e4), (1.0, 1e-6, 0.01, 1e3), (8.0, 1e-5, 1e-4, 50.0)]:
            facts = facts_for(model, adjacency, size, row_bound=2.0)
            t = objective_terms(PerturbedObjective(np.zeros(3), epsilon, delta, l2), facts, size)
            L, M = 2.0, 1.0
            assert t.e_hessian + t.e_gradient + t.e_output <= epsilon
            assert t.strong_convexity >= l2 * size
            assert t.e_hessian == pytest.approx(math.log(1 + M / t.strong_convexity))
            m = L / t.noise_std * (1 if adjacency == "add_remove" else 2)
            assert t.e_gradient >= m * m / 2
            assert gradient_delta(t.e_gradient, m, adjacency) <= delta / 2 * (1 + 1e-6)
            assert gradient_delta(t.e_gradient, m * 1.01, adjacency) > delta / 2
            mu = 2 * t.gamma / t.strong_convexity / t.output_std
            assert delta_of(mu, t.e_output) <= delta / 2


def gradient_delta(e, m, adjacency):
    """E(1 - exp(e - m R - m^2/2))_+ by quadrature, R the length of a normal number or of a normal pair."""
    density = stats.halfnorm.pdf if adjacency == "add_remove" else stats.rayleigh.pdf
    z = e / m - m / 2
    value, _ = integrate.quad(lambda r: -math.expm1(m * (z - r)) * density(r), z, z + 40, epsabs=0, epsrel=1e-10)
    return value


def test_the_closed_form_for_a_replaced_record_is_the_integral():
    for e, delta in [(0.05, 1e-9), (1.0, 1e-6), (5.0, 1e-3)]:
        assert gradient_delta(e, pair_mu(e, delta), "replace_one") == pytest.approx(delta, rel=1e-4)


@pytest.mark.parametrize("name", ["logistic", "huber_hinge", "weighted"])
def test_the_solver_reaches_gamma_for_any_records_and_any_b(name):
    model, rng = model_for(LOSSES[name], 4), np.random.default_rng(3)
    for n, lam, b_size in [(0, 1.0, 5.0), (3, 0.01, 30.0), (500, 0.1, 5.0), (500, 1e-3, 1e3), (500, 100.0, 0.0)]:
        batch = float_rows(model, *some_rows(model, n, rng))
        facts = facts_for(model, size=100.0)
        b, start = rng.normal(size=4) * b_size, rng.normal(size=4)
        rows, labels = rows_of(batch, 1.0)
        theta = Perturbed(model, rows_of(batch, 1.0), b, lam, start).minimiser(1e-9, loss_constants(facts)[1])
        assert np.linalg.norm(gradient_sum(model, theta, rows, labels) + lam * (theta - start) + b) <= 1e-9


def audit(noise_share, adjacency, epsilon=1.0, delta=0.02, runs=40_000):
    """A lower bound on delta at epsilon: one parameter, one record of slope near 1, thousands of minimisers at once.

    With one parameter the minimiser of sum of losses + Lambda/2 theta^2 + b theta is found by bisection for all b.
    """
    model = Linear(1, HuberHinge(0.5))
    facts = facts_for(model, adjacency, 1.0, epsilon=epsilon, delta=delta)
    t = objective_terms(PerturbedObjective(np.zeros(1), epsilon, delta, 20.0), facts, 1.0)
    rng = np.random.default_rng(0)

    def minimisers(labels):
        b, low, high = rng.normal(size=runs) * t.noise_std * noise_share, np.full(runs, -50.0), np.full(runs, 50.0)
        for _ in range(60):
            theta = (low + high) / 2
            slopes = sum(HuberHinge(0.5).row_slope(theta, np.full(runs, y)) for y in labels)
            up = slopes + t.strong_convexity * theta + b > 0
            low, high = np.where(up, low, theta), np.where(up, theta, high)
        return theta

    a, c = minimisers([1.0]), minimisers([] if adjacency == "add_remove" else [-1.0])
    learn, test = slice(0, runs // 2), slice(runs // 2, runs)
    grid = np.quantile(np.concatenate([a[learn], c[learn]]), np.linspace(0.01, 0.99, 99))
    cut = max(grid, key=lambda g: (a[learn] > g).mean() - math.exp(epsilon) * (c[learn] > g).mean())
    half = runs // 2
    hits, misses = int((a[test] > cut).sum()), int((c[test] > cut).sum())
    surely = stats.beta.ppf(1e-4, hits, half - hits + 1)
    at_most = stats.beta.ppf(1 - 1e-4, misses + 1, half - misses)
    return surely - math.exp(epsilon) * at_most


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_an_audit_of_objective_perturbation_finds_no_more_than_was_promised_and_finds_half_the_noise(adjacency):
    assert audit(1.0, adjacency) <= 0.02
    assert audit(0.5, adjacency) > 0.02


def room(model, adjacency="add_remove", row_bound=1.0, size=50.0, seed=1, n=50):
    X, y = some_rows(model, n, np.random.default_rng(0))
    return with_purse(X, y, model=model, meter=Purse(adjacency), size=size, row_bound=row_bound, seed=seed)


def test_a_walk_with_more_noise_than_any_answer_survives_is_refused_before_it_is_paid():
    curator = room(model_for(Logistic()))
    with pytest.raises(ValueError, match="noise multiplier"):
        curator.last_iterate(Descent(np.zeros(3), 1, 0.1, 1e30))
    assert not curator.trace
    assert not curator.meter.paid


def test_the_answers_carry_the_promised_noise_and_are_paid_as_promised():
    model = model_for(Logistic())
    walk = Descent(np.zeros(3), 5, 0.5, 3.0, 0.1)
    curator, draws = room(model), []
    exact = walk.exact(model, float_rows(model, *some_rows(model, 50, np.random.default_rng(0))), curator.facts, 50.0)
    for _ in range(2000):
        answer = curator.last_iterate(walk)
        draws.append((answer.value.astype(np.float64) - exact) / answer.noise_std)
    assert answer.noise_std == pytest.approx(3.0 * descent_unit(walk, curator.facts, 50.0))
    assert stats.kstest(np.concatenate(draws), "norm").pvalue > 1e-5
    assert abs(np.concatenate(draws).std() - 1) < 4.5 / math.sqrt(2 * 6000)  # 4 %
    assert curator.meter.events == {Gaussian(3.0): 2000}

    other = room(model, "replace_one")
    other.last_iterate(one_pass(model, np.random.default_rng(0)))
    other.minimise(PerturbedObjective(np.zeros(3), 0.5, 1e-7))
    assert other.meter.paid == [Gaussian(3.0), ApproximateDP(0.5, 1e-7)]
    assert [line.question for line in other.trace] == ["OnePass", "PerturbedObjective"]


def test_the_spread_of_perturbed_minimisers_is_that_of_b():
    """Without records theta = -b/Lambda + output noise: the variance is known."""
    model = model_for(Logistic())
    X, y = some_rows(model, 0, np.random.default_rng(0))
    curator = with_purse(X, y, model=model, meter=Purse(), size=1.0, row_bound=1.0, seed=3)
    objective = PerturbedObjective(np.zeros(3), 1.0, 1e-6, 2.0)
    t = objective_terms(objective, curator.facts, 1.0)
    draws = np.concatenate([curator.minimise(objective).value for _ in range(1500)])
    std = math.hypot(t.noise_std / t.strong_convexity, t.output_std)
    assert t.output_std < 1e-4 * std
    assert stats.kstest(draws / std, "norm").pvalue > 1e-5
    assert abs((draws / std).std() - 1) < 4.5 / math.sqrt(2 * 4500)  # 5 %


A_WALK = Descent(np.zeros(3), 5, 0.5, 3.0)
AN_OBJECTIVE = PerturbedObjective(np.zeros(3), 0.5, 1e-7)
REFUSED = {
    "hinge": (lambda: room(model_for(Hinge())).last_iterate(A_WALK), "huber_hinge"),
    "hinge objective": (lambda: room(model_for(Hinge())).minimise(AN_OBJECTIVE), "huber_hinge"),
    "squared, no ball": (lambda: room(model_for(Squared())).last_iterate(A_WALK), "radius"),
    "squared objective": (lambda: room(model_for(Squared())).minimise(AN_OBJECTIVE), "without a bound"),
    "rows without bound": (lambda: room(model_for(Logistic()), row_bound=math.inf).last_iterate(A_WALK), "row_bound"),
    "long step": (lambda: room(model_for(Logistic())).last_iterate(replace(A_WALK, step_size=4.1)), "step_size"),
    "long step with l2": (lambda: room(model_for(Logistic())).last_iterate(replace(A_WALK, step_size=4.0, l2=0.1)), "step_size"),
    "one pass, add_remove": (
        lambda: room(model_for(Logistic())).last_iterate(one_pass(model_for(Logistic()), np.random.default_rng(0))),
        "replace_one",
    ),
    "one pass, long step": (
        lambda: room(model_for(Logistic()), "replace_one").last_iterate(
            one_pass(model_for(Logistic()), np.random.default_rng(0), step_size=8.1)
        ),
        "step_size",
    ),
    "a function": (lambda: room(model_for(Logistic())).last_iterate(lambda X: X), "frozen data"),
    "an objective that is none": (lambda: room(model_for(Logistic())).minimise(A_WALK), "PerturbedObjective"),
    "wrong start": (lambda: room(model_for(Logistic())).last_iterate(replace(A_WALK, start=np.zeros(4))), "start"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_proved_is_refused_with_the_reason(name):
    ask, reason = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=reason):
        ask()


def test_a_refused_question_is_not_paid():
    model = MLP((3, 2, 1), Logistic())
    X, y = np.zeros((5, 3)), np.ones(5)
    curator = with_purse(X, y, model=model, meter=Purse(), size=5.0, row_bound=1.0)
    start = np.zeros(model.dimension)
    for ask, question in [
        (curator.last_iterate, replace(A_WALK, start=start)),
        (curator.minimise, replace(AN_OBJECTIVE, start=start)),
    ]:
        with pytest.raises(ValueError, match="linear"):
            ask(question)
    softmax = room(model_for(Softmax()))
    with pytest.raises(ValueError, match="several outputs"):
        softmax.minimise(replace(AN_OBJECTIVE, start=np.zeros(9)))
    assert curator.meter.paid == softmax.meter.paid == []
    for wrong in ({"steps": 0}, {"step_size": 0.0}, {"noise_multiplier": math.nan}, {"l2": -1.0}, {"radius": 0.0}):
        with pytest.raises(ValueError):
            replace(A_WALK, **wrong)
    with pytest.raises(ValueError, match="public rows"):
        OnePass(np.zeros(3), np.zeros((0, 3)), np.zeros(0), 0.1, 1.0)
    with pytest.raises(ValueError, match="public_labels"):
        OnePass(np.zeros(3), np.zeros((2, 3)), np.zeros(3), 0.1, 1.0)
    for start in (np.full(3, math.nan), np.full(3, 1e7)):
        with pytest.raises(ValueError, match="start"):
            replace(A_WALK, start=start)
        with pytest.raises(ValueError, match="start"):
            replace(AN_OBJECTIVE, start=start)
    narrow = OnePass(np.zeros(3), np.zeros((2, 2)), np.zeros(2), 0.1, 1.0)
    replaced = room(model_for(Logistic()), "replace_one")
    with pytest.raises(ValueError, match="columns"):
        replaced.last_iterate(narrow)
    assert replaced.meter.paid == []


def test_an_array_that_lies_about_its_length_does_not_lower_the_noise():
    class Longer(np.ndarray):
        def __len__(self):
            return 10**6

    model = model_for(Logistic())
    rows = np.zeros((2, 3)).view(Longer)
    walk = OnePass(np.zeros(3), rows, np.zeros(2), 0.1, 3.0)
    assert type(walk.public_rows) is np.ndarray
    assert pass_noise(walk, facts_for(model, "replace_one")) == pytest.approx(3.0 / math.sqrt(3), rel=2e-5)
