"""The registry of questions, what their totals are, and what a Poisson batch asks of their noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

import noisewise as nw
from noisewise.curator import (
    QUESTIONS,
    Correct,
    Count,
    CrossMoment,
    FirstMoment,
    MinEigenvalue,
    SecondMoment,
    SquaredError,
    SquaredLength,
)
from noisewise.trusted import curator as columns
from noisewise.trusted.events import Gaussian, Poisson, sampled
from noisewise.trusted.losses import Hinge, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.questions import HowAsked, Question, question, rebuilt
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.totals import Drawn, IntegerTotal

CLASSIFIERS = [
    Linear(3, Logistic()),
    Linear(3, Hinge()),
    Linear(3, Softmax(), 4),
    MLP((3, 3, 1), Logistic(), "tanh"),
    MLP((3, 3, 3), Softmax(), "relu"),
]


# --- a question without a law cannot exist ----------------------------------------------------------------------------


def test_every_question_of_the_curator_is_registered_and_has_cases_words_and_a_proof():
    made = [kind for kind in Question.__subclasses__() if kind.__module__.startswith("noisewise.")]
    assert {kind.__name__ for kind in made} == set(QUESTIONS)
    assert QUESTIONS["Histograms"] is columns.Histograms  # not every home of a question is imported with the curator
    for kind in QUESTIONS.values():
        assert kind.cases(5) and kind.words and "*Sensitivity*" in kind.__doc__
        assert all(type(rebuilt(case)) is kind for case in kind.cases(5))


@dataclass(frozen=True)
class Stranger(Question):
    """A question from outside."""

    words: ClassVar[str] = "everything"

    def moves(self, how):
        return 1e-9, 1e-9

    def total(self, records, drawn, how):
        return IntegerTotal(np.array([len(records)]), 1, 1.0)

    @classmethod
    def cases(cls, dimension):
        return [cls()]


def inside(**without):
    """The stranger as if it were written in the curator's room, less some of its parts."""
    parts = {name: part for name, part in vars(Stranger).items() if name in ("words", "moves", "total", "cases")}
    parts = {**parts, **without, "__module__": "noisewise.trusted.questions"}
    return type("Stranger", (Question,), {name: part for name, part in parts.items() if part is not None})


def test_a_question_from_outside_is_not_registered_and_not_asked():
    with pytest.raises(TypeError, match="not defined in the curator's room"):
        question(Stranger)
    with pytest.raises(TypeError, match="is not a question"):
        rebuilt(Stranger())
    assert "Stranger" not in QUESTIONS


@pytest.mark.parametrize("part", ["moves", "total", "words", "cases"])
def test_a_question_that_lacks_a_part_is_not_registered(part):
    with pytest.raises(TypeError, match=f"has no {part}"):
        question(inside(**{part: None}))
    assert "Stranger" not in QUESTIONS


# --- what the totals are ----------------------------------------------------------------------------------------------


def value(case, records):
    asked = HowAsked("add_remove", ("full",), 1.0, 4.0, 3)
    return case.exact(case.totals(records, Drawn(), asked), asked)


def test_statistics_are_what_their_names_say():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)) * 2, rng.normal(size=20) * 3
    X[4, 1], y[6] = math.nan, math.nan
    cut = X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    cut[[4, 6]] = 0  # a missing feature or label masks the record
    moment, labels = cut.T @ cut, np.clip(np.nan_to_num(y), -2.5, 2.5)
    records = records_of(Linear(3, Squared()), X, y)
    expected = {
        Count(): [20.0],
        FirstMoment(): cut.sum(0),
        SquaredLength(): [np.square(cut).sum()],
        SecondMoment(): moment[np.triu_indices(3)],
        CrossMoment(2.5): cut.T @ labels,
        MinEigenvalue(): np.linalg.eigvalsh(moment)[:1],
    }
    for what, true in expected.items():
        assert np.allclose(value(what, records), true, rtol=1e-3, atol=2e-3), what


def test_right_answers_and_squared_errors_are_what_their_names_say():
    X = np.array([[2.0, 0, 0], [-2, 0, 0], [0.5, 0, 0], [math.nan, 0, 0]])
    records = records_of(Linear(3, Logistic()), X, np.ones(4))
    assert value(Correct((1.0, 0.0, 0.0)), records) == [0.5 - 0.5 + 0.5 - 0.5]
    errors = [0, 1, 0.25**2, 1]  # (clamped score - y)^2 / 4; a missing value counts as the largest
    assert value(SquaredError((1.0, 0.0, 0.0)), records) == pytest.approx(sum(errors) - 2, abs=1e-4)
    several = records_of(Linear(3, Softmax(), 2), X[:3], np.array([0, 0, 1]))
    assert value(Correct((1.0, 0.0, 0.0, 0.0, 0.0, 0.0)), several) == [0.5 - 0.5 - 0.5]


@pytest.mark.parametrize("room", CLASSIFIERS, ids=lambda model: f"{type(model).__name__}-{model.loss.name}")
def test_a_count_of_right_answers_does_not_depend_on_company(room):
    """Rows whose score is nearly zero, where a product's rounding would flip their answers."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3))
    theta = rng.normal(size=room.dimension) * 1e-9
    theta = theta if isinstance(room, MLP) else theta + 1.0
    if isinstance(room, Linear):
        X[:, 2] = -X[:, 0] - X[:, 1]  # orthogonal to theta but for the last bits
    labels = np.zeros(300, np.int64) if room.loss.task == "classes" else -np.ones(300)
    asked = Correct(tuple(theta.tolist()))
    whole = value(asked, records_of(room, X, labels))[0]
    for left in (0, 1, 150, 299):
        keep = [i for i in range(300) if i != left]
        assert abs(whole - value(asked, records_of(room, X[keep], labels[keep]))[0]) == 0.5


# --- sampling asks for more than the relation does --------------------------------------------------------------------


def true_epsilon(one, other, delta) -> float:
    """The least epsilon at which two densities on a line keep delta, by quadrature of the hockey stick both ways."""
    t = np.linspace(-40, 40, 400_001)
    p, q, width = one(t), other(t), t[1] - t[0]

    def log_delta(epsilon):
        sticks = (np.maximum(a - math.exp(epsilon) * b, 0).sum() * width for a, b in ((p, q), (q, p)))
        return math.log(max(*sticks, 1e-300)) - math.log(delta)

    return brentq(log_delta, 1e-6, 30)


def normal(at, std):
    return lambda t: stats.norm.pdf(t, at, std)


def mixture(q, at, std):
    return lambda t: (1 - q) * stats.norm.pdf(t, 0, std) + q * stats.norm.pdf(t, at, std)


def test_the_quadrature_agrees_with_the_price_of_a_gradient_on_a_poisson_batch():
    """A gradient's worst replacement goes from -C to +C: that is the pair that Poisson(Gaussian) is priced by."""
    q, sigma = 0.05, 1.0
    true = true_epsilon(mixture(q, 1, sigma), mixture(q, -1, sigma), 1e-5)
    priced = nw.epsilon(Poisson(q, Gaussian(sigma)), delta=1e-5, adjacency="replace_one")
    assert true * 0.999 <= priced <= true * 1.02


@pytest.mark.parametrize("kind", ["MinEigenvalue", "SquaredLength", "Count"])
def test_a_question_on_a_poisson_batch_costs_what_it_is_priced_at(kind):
    """Replace a record that moves the total by 0 by one that moves it by 1: in the batch with probability q."""
    q, sigma, case = 0.05, 1.0, QUESTIONS[kind].cases(3)[0]
    how = HowAsked("replace_one", ("poisson", q), sigma, 4.0, 3)
    std = sigma * how.unit(*case.moves(how))
    true = true_epsilon(normal(0, std), mixture(q, case.moves(how)[0], std), 1e-5)
    assert true <= nw.epsilon(sampled(how.sampling, case.event(sigma)), delta=1e-5, adjacency="replace_one")
