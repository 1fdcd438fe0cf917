"""Sensitivities by search: no neighbour moves an answer further than stated, and the worst one nearly does."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from purse import with_purse
from scipy.optimize import brentq
from scipy.stats import norm

import noisewise as nw
from noisewise.curator import Correct, Count, CrossMoment, MinEigenvalue, NormAtMost, SecondMoment, SquaredError
from noisewise.curator.statistics import evaluate, fits, sensitivity, unit
from noisewise.events import Gaussian, Poisson
from noisewise.gradients import MLP, Linear
from noisewise.losses import Hinge, HuberHinge, Logistic, Softmax, Squared

CLIP = 0.7
MODELS = [
    *(Linear(3, loss) for loss in (Logistic(), Hinge(), HuberHinge(), Squared())),
    Linear(3, Softmax(), 4),
    MLP((3, 4, 1), Logistic(), "softplus"),
    MLP((3, 4, 3), Softmax(), "tanh"),
]
THETA = (0.1, -0.2, 0.3)
STATISTICS = [Count(), SecondMoment(), CrossMoment(2.5), MinEigenvalue()]
STATISTICS += [NormAtMost(0.4, THETA), Correct(THETA), SquaredError(THETA)]
ADJACENCIES = ("add_remove", "replace_one")
seeds = st.integers(0, 2**32 - 1)
law = settings(max_examples=40, deadline=None, derandomize=True, database=None)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Thousands of tiny questions: waking a second thread for each costs more than it does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def name(thing) -> str:
    return f"{type(thing).__name__}-{thing.loss.name}" if hasattr(thing, "loss") else type(thing).__name__


def some_records(model, rng, n):
    scale = float(10 ** rng.uniform(-3, 6))
    X = torch.from_numpy(rng.normal(size=(n, 3)) * scale).float()
    if model.loss.task == "classes":
        return X, torch.from_numpy(rng.integers(model.outputs, size=n))
    if model.loss.task == "binary":
        return X, torch.from_numpy(rng.choice([-1.0, 1.0], size=n)).float()
    return X, torch.from_numpy(rng.normal(size=n) * scale).float()


def neighbours(model, seed, adjacency):
    """Two data sets and a theta: one record more at a random place, or one replaced."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 30))
    X, y = some_records(model, rng, n + 1)
    theta = torch.from_numpy(rng.normal(size=model.dimension) * 10 ** rng.uniform(-3, 2)).float()
    i = int(rng.integers(n + 1))
    if adjacency == "add_remove":
        keep = [j for j in range(n + 1) if j != i]
        return (X, y), (X[keep], y[keep]), theta
    other_X, other_y = X.clone(), y.clone()
    new_X, new_y = some_records(model, rng, 1)
    other_X[i], other_y[i] = new_X[0], new_y[0]
    return (X, y), (other_X, other_y), theta


def distance(a, b) -> float:
    return float(torch.linalg.vector_norm(torch.as_tensor(a).double() - torch.as_tensor(b).double()))


def clipped_sum(model, theta, records):
    return model.clipped_sum(theta, model.lay_out(*records), CLIP)


def clipped_after_the_sum(model, theta, records):
    total = model.clipped_sum(theta, model.lay_out(*records), math.inf).double()
    return total * min(1.0, len(records[0]) * CLIP / max(float(total.norm()), 1e-30))


def stated(adjacency) -> float:
    return CLIP if adjacency == "add_remove" else 2 * CLIP


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("model", MODELS, ids=name)
@law
@given(seed=seeds)
def test_a_gradient_sum_and_its_norm_move_by_at_most_the_clip(model, adjacency, seed):
    one, other, theta = neighbours(model, seed, adjacency)
    a, b = clipped_sum(model, theta, one), clipped_sum(model, theta, other)
    assert distance(a, b) <= stated(adjacency)
    assert abs(float(a.double().norm()) - float(b.double().norm())) <= stated(adjacency)


def test_the_search_finds_clipping_after_the_sum():
    model = MODELS[0]
    pairs = (neighbours(model, seed, "add_remove") for seed in range(200))
    worst = max(
        distance(clipped_after_the_sum(model, theta, one), clipped_after_the_sum(model, theta, other))
        for one, other, theta in pairs
    )
    assert worst > 1.5 * CLIP


@pytest.mark.parametrize("model", [m for m in MODELS if m.outputs == 1], ids=name)
def test_the_worst_neighbours_reach_the_stated_sensitivity_of_the_gradient(model):
    theta = model.start()
    if isinstance(model, MLP):
        theta[-5:] = 0  # scores are 0, so that the two labels pull equally in opposite directions
    x, up, down = torch.full((1, 3), 50.0), torch.ones(1), -torch.ones(1)
    nobody = (torch.zeros(0, 3), torch.zeros(0))
    added = distance(clipped_sum(model, theta, (x, up)), clipped_sum(model, theta, nobody))
    replaced = distance(clipped_sum(model, theta, (x, up)), clipped_sum(model, theta, (x, down)))
    assert 0.99 * CLIP <= added <= CLIP
    assert 0.99 * 2 * CLIP <= replaced <= 2 * CLIP


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("model", MODELS, ids=name)
@law
@given(seed=seeds)
def test_clipped_loss_sums_move_by_at_most_the_bound_and_in_one_direction(model, adjacency, seed):
    """add_remove: every candidate's sum goes up by 0 to B. replace_one: by at most B either way."""
    one, other, theta = neighbours(model, seed, adjacency)
    for candidate in (theta, -theta, 0 * theta):
        sums = [model.losses(candidate, model.lay_out(*r)).double().clamp(0, 1.3).sum() for r in (one, other)]
        moved = float(sums[0] - sums[1])
        assert (-1e-5 if adjacency == "add_remove" else -1.3 - 1e-5) <= moved <= 1.3 + 1e-5


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("what", STATISTICS, ids=name)
@law
@given(seed=seeds)
def test_a_statistic_moves_by_at_most_its_sensitivity(what, adjacency, seed):
    for model in (MODELS[0], MODELS[3]):
        one, other, _ = neighbours(model, seed, adjacency)
        a, b = (evaluate(what, model.lay_out(*records), model) for records in (one, other))
        assert distance(a, b) <= sensitivity(what, adjacency) * (1 + 1e-9)


def rows(*values):
    return torch.tensor(values, dtype=torch.float32)


BASE = rows([0.0, 0.0, 1.0], [0.0, 1.0, 0.0])  # the first coordinate is where the smallest eigenvalue can grow
WORST = {  # statistic -> (rows, labels) of two neighbours, for add_remove and replace_one
    Count(): {"add_remove": ((rows([1, 0, 0]), rows(1)), (torch.zeros(0, 3), torch.zeros(0)))},
    SecondMoment(): {
        "add_remove": ((rows([9, 0, 0]), rows(1)), (torch.zeros(0, 3), torch.zeros(0))),
        "replace_one": ((rows([9, 0, 0]), rows(1)), (rows([0, 9, 0]), rows(1))),
    },
    CrossMoment(2.5): {
        "add_remove": ((rows([9, 0, 0]), rows(9)), (torch.zeros(0, 3), torch.zeros(0))),
        "replace_one": ((rows([9, 0, 0]), rows(9)), (rows([9, 0, 0]), rows(-9))),
    },
    MinEigenvalue(): {
        "add_remove": ((torch.cat([BASE, rows([9, 0, 0])]), rows(1, 1, 1)), (BASE, rows(1, 1))),
        "replace_one": (
            (torch.cat([BASE, rows([9, 0, 0])]), rows(1, 1, 1)),
            (torch.cat([BASE, rows([0, 9, 0])]), rows(1, 1, 1)),
        ),
    },
    NormAtMost(0.4, (0.0, 0.0, 0.0)): {
        "add_remove": ((rows([9, 0, 0]), rows(1)), (torch.zeros(0, 3), torch.zeros(0))),
        "replace_one": ((rows([9, 0, 0]), rows(1)), (rows([0, 0, 0]), rows(1))),
    },
    Correct((1.0, 0.0, 0.0)): {
        "add_remove": ((rows([9, 0, 0]), rows(1)), (torch.zeros(0, 3), torch.zeros(0))),
        "replace_one": ((rows([9, 0, 0]), rows(1)), (rows([9, 0, 0]), rows(-1))),
    },
    SquaredError((1.0, 0.0, 0.0)): {
        "add_remove": ((rows([9, 0, 0]), rows(1)), (torch.zeros(0, 3), torch.zeros(0))),
        "replace_one": ((rows([9, 0, 0]), rows(1)), (rows([9, 0, 0]), rows(-1))),
    },
}


@pytest.mark.parametrize("what", WORST, ids=name)
def test_the_worst_neighbours_reach_the_stated_sensitivity_of_a_statistic(what):
    model = Linear(3, Logistic())
    for adjacency, (one, other) in WORST[what].items():
        moved = distance(*(evaluate(what, model.lay_out(*records), model) for records in (one, other)))
        assert moved == pytest.approx(sensitivity(what, adjacency), rel=5e-3)


def test_a_statistic_is_what_its_name_says():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)) * 2, rng.normal(size=20) * 3
    X[4, 1], y[6] = math.nan, math.nan
    clipped = X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    clipped[[4, 6]] = 0  # a missing feature or label masks the record
    moment = clipped.T @ clipped
    labels = np.clip(np.nan_to_num(y), -2.5, 2.5)
    model = Linear(3, Logistic())
    batch = model.lay_out(torch.from_numpy(X), torch.from_numpy(y).float())
    expected = {
        Count(): [20.0],
        SecondMoment(): moment[np.triu_indices(3)],
        CrossMoment(2.5): clipped.T @ labels,
        MinEigenvalue(): np.linalg.eigvalsh(moment)[:1],
    }
    for what, value in expected.items():
        assert np.allclose(evaluate(what, batch, model).numpy(), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_a_count_of_right_answers_does_not_depend_on_company(model):
    """Rows on the very boundary between classes, where a product's rounding would flip their answers."""
    if model.loss.task == "regression":
        pytest.skip("a regression has no classes")
    rng = np.random.default_rng(1)
    theta = tuple(rng.normal(size=model.dimension).tolist())
    X = torch.from_numpy(rng.normal(size=(300, 3)))
    direction = torch.from_numpy(rng.normal(size=3))
    for _ in range(60):  # bisect along a line, row by row, to where the answer changes
        near, far = X, X + direction
        same = _answers(model, theta, (near + far) / 2) == _answers(model, theta, near)
        X, direction = torch.where(same[:, None], (near + far) / 2, near), direction / 2
    labels = torch.zeros(300, dtype=torch.long) if model.loss.task == "classes" else -torch.ones(300)
    whole = model.lay_out(X, labels)
    count = float(evaluate(Correct(theta), whole, model))
    for left_out in (0, 1, 150, 299):
        others = whole.take(torch.tensor([i for i in range(300) if i != left_out]))
        assert abs(count - float(evaluate(Correct(theta), others, model))) == 0.5


def _answers(model, theta, X):
    scores = model.scores_by_row(torch.tensor(theta, dtype=torch.float64), X.contiguous())
    return scores.argmax(1) if scores.ndim == 2 else scores > 0


def test_right_answers_and_squared_errors_are_what_their_names_say():
    X = rows([2, 0, 0], [-2, 0, 0], [0.5, 0, 0], [math.nan, 0, 0])
    model = Linear(3, Logistic())
    batch = model.lay_out(X, rows(1, 1, 1, 1))
    assert float(evaluate(Correct((1.0, 0.0, 0.0)), batch, model)) == 0.5 - 0.5 + 0.5 - 0.5
    errors = [0, 1, 0.25**2, 1]  # (clamped score - y)^2 / 4; a missing value counts as the largest
    found = float(evaluate(SquaredError((1.0, 0.0, 0.0)), batch, model))
    assert found == pytest.approx(sum(errors) - 2, abs=1e-6)
    several = Linear(3, Softmax(), 2)
    batch = several.lay_out(X[:3], torch.tensor([0, 0, 1]))
    assert float(evaluate(Correct((1.0, 0.0, 0.0, 0.0, 0.0, 0.0)), batch, several)) == 0.5 - 0.5 - 0.5
    with pytest.raises(ValueError, match="one output"):
        fits(SquaredError((0.0,) * 6), several)
    with pytest.raises(ValueError, match="classifier"):
        fits(Correct((0.0,) * 3), Linear(3, Squared()))


# --- sampling asks for more than the relation does --------------------------------------------------------------------


def true_epsilon(one, other, delta) -> float:
    """The least epsilon at which two densities on a line keep delta, by quadrature of the hockey stick both ways."""
    t = np.linspace(-40, 40, 400_001)
    p, q, width = one(t), other(t), t[1] - t[0]

    def log_delta(epsilon):
        sticks = (np.maximum(a - math.exp(epsilon) * b, 0).sum() * width for a, b in ((p, q), (q, p)))
        return math.log(max(*sticks, 1e-300)) - math.log(delta)

    return brentq(log_delta, 1e-6, 30)


def test_the_quadrature_agrees_with_the_price_of_a_gradient_on_a_poisson_batch():
    """A gradient's worst replacement goes from -C to +C: that is the pair that Poisson(Gaussian) is priced by."""
    q, sigma = 0.05, 1.0
    true = true_epsilon(
        lambda t: (1 - q) * norm.pdf(t, 0, sigma) + q * norm.pdf(t, 1, sigma),
        lambda t: (1 - q) * norm.pdf(t, 0, sigma) + q * norm.pdf(t, -1, sigma),
        1e-5,
    )
    priced = nw.epsilon(Poisson(q, Gaussian(sigma)), delta=1e-5, adjacency="replace_one")
    assert true * 0.999 <= priced <= true * 1.02


def test_a_smallest_eigenvalue_on_a_poisson_batch_costs_what_it_is_priced_at():
    """Replace a row that moves the smallest eigenvalue by 0 by one that moves it by 1: in the batch with probability q."""
    q, sigma = 0.05, 1.0
    std, moved = (
        sigma * unit(MinEigenvalue(), "replace_one", ("poisson", q)),
        sensitivity(MinEigenvalue(), "add_remove"),
    )
    true = true_epsilon(
        lambda t: norm.pdf(t, 0, std), lambda t: (1 - q) * norm.pdf(t, 0, std) + q * norm.pdf(t, moved, std), 1e-5
    )
    assert true <= nw.epsilon(Poisson(q, Gaussian(sigma)), delta=1e-5, adjacency="replace_one")


class Purse:
    name, adaptive, spent_fraction, events = "purse", True, 0.0, ()

    def __init__(self, adjacency):
        self.budget = nw.Budget(1.0, 1e-6, adjacency)

    def spend(self, event):
        pass


@pytest.mark.parametrize(
    "what",
    [
        CrossMoment(2.5),
        NormAtMost(0.4, (0.0, 0.0, 0.0)),
        Correct((0.0, 0.0, 0.0)),
        SquaredError((0.0, 0.0, 0.0)),
        *(pytest.param(what) for what in (SecondMoment(), MinEigenvalue())),
    ],
    ids=name,
)
def test_noise_on_a_poisson_batch_covers_one_record_joining(what):
    curator = with_purse(
        torch.ones(4, 3), torch.ones(4), model=Linear(3, Logistic()), meter=Purse("replace_one"), size=4.0, seed=0
    )
    answer = curator.statistic(what, noise_multiplier=2.0, sampling=("poisson", 0.5))
    assert answer.noise_std >= 2.0 * sensitivity(what, "add_remove") * (1 - 1e-12)
