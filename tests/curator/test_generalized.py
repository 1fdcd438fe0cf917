"""Generalized scores have sensitivity 1, and the choice by them its probabilities."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from noisewise.accounts import AdditiveMeter, Budget
from noisewise.trusted.arithmetic import generalized_scores
from noisewise.trusted.gate import Gate
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear
from noisewise.trusted.noise import Stream
from noisewise.trusted.selection import Entrant, choose_best

UNITS = [(1, 1, 1), (1, 2, 7), (Fraction(1, 3), 5, Fraction(2, 7)), (1, 100, 10_000)]


def choose_least(stream, scores, epsilon):
    return stream.choose_rational(scores, Fraction(float(epsilon)) / 2)


@pytest.mark.parametrize("sensitivities", UNITS)
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_no_record_moves_a_score_by_more_than_one(sensitivities, epsilon):
    """Every corner and half-way point of what one record can do to the scores, from several data sets."""
    worst, rng = Fraction(0), np.random.default_rng(0)
    for _ in range(20):
        scores = [Fraction(int(value)) for value in rng.integers(-50, 50, len(sensitivities))]
        before = generalized_scores(scores, sensitivities, epsilon=epsilon)
        for way in itertools.product((-2, -1, 0, 1, 2), repeat=len(scores)):
            moved = [q + Fraction(w, 2) * d for q, w, d in zip(scores, way, sensitivities, strict=True)]
            after = generalized_scores(moved, sensitivities, epsilon=epsilon)
            worst = max(worst, *(abs(a - b) for a, b in zip(after, before, strict=True)))
    assert worst == 1, "reached, and never exceeded"


def test_scores_move_in_both_directions_so_the_choice_is_not_monotone():
    before = generalized_scores([0, 0], [1, 1], epsilon=1.0)
    after = generalized_scores([1, -1], [1, 1], epsilon=1.0)
    more = generalized_scores([2, -2], [1, 1], epsilon=1.0)
    assert (before, after, more) == ((0, 0), (1, 0), (2, 0))
    assert generalized_scores([1, 0], [1, 1], epsilon=1.0)[0] > before[0]  # although no score fell


def test_the_formula():
    t = Fraction(2 * math.log(3 / 0.1) / 0.5)
    q, d = [5, 3, 9], [1, 2, 4]
    expected = [max(((a + t * x) - (b + t * y)) / (x + y) for b, y in zip(q, d, strict=True))
                for a, x in zip(q, d, strict=True)]  # fmt: skip
    assert list(generalized_scores(q, d, epsilon=0.5, beta=0.1)) == expected
    assert min(expected) == 0


def test_a_sensitive_candidate_does_not_drown_the_others():
    """With the largest sensitivity for all, the choice between the first two would be a coin."""
    scores = generalized_scores([0, 60, 50], [1, 1, 1000], epsilon=1.0)
    stream = Stream(seed=0)
    assert Counter(choose_least(stream, scores, 1.0) for _ in range(300))[0] > 290


def test_the_choice_has_its_probabilities():
    scores, epsilon, stream, trials = [Fraction(0), Fraction(1, 3), 2], 1.5, Stream(seed=3), 4000
    weights = np.exp(-epsilon / 2 * np.array([float(s) for s in scores]))
    seen = np.bincount([choose_least(stream, scores, epsilon) for _ in range(trials)], minlength=3) / trials
    assert np.abs(seen - weights / weights.sum()).max() < 4.5 * 0.5 / math.sqrt(trials)
    huge = [10**30, 10**30 + 2, 10**31]
    assert {choose_least(stream, huge, 1e3) for _ in range(20)} == {0}


@pytest.mark.parametrize(
    ("scores", "sensitivities", "kind"),
    [([], [], ValueError), ([1], [1, 2], ValueError), ([1.5], [1], TypeError), ([1], [0], ValueError),
     ([True], [1], TypeError), ([1], [1.0], TypeError)],
)  # fmt: skip
def test_what_is_not_exact_is_refused(scores, sensitivities, kind):
    with pytest.raises(kind, match=r"score|sensitivit"):
        generalized_scores(scores, sensitivities, epsilon=1.0)


def test_a_choice_among_nothing_or_floats_is_refused():
    with pytest.raises(ValueError, match="nothing to choose"):
        Stream(seed=0).choose_rational([], 1.0)
    with pytest.raises(TypeError, match="exact"):
        Stream(seed=0).choose_rational([0.5], 1.0)
    with pytest.raises(ValueError, match="scale"):
        Stream(seed=0).choose_rational([1], math.inf)


@pytest.mark.parametrize(
    "adjacency, rows, times", [("add_remove", None, 1), ("replace_one", None, 2), ("add_remove", 3, 3)]
)
@pytest.mark.parametrize("bounds", [(2.0, 2.0), (2.0, 5.0)])
def test_a_choice_among_models_has_the_scale_of_its_relation(monkeypatch, adjacency, rows, times, bounds):
    """Sums that one record moves by up to their bound, all in one direction, or in either where it is replaced."""
    asked = []
    monkeypatch.setattr(Gate, "choose", lambda _, epsilon, scores, scale: asked.append((epsilon, scores(), scale)) or 0)
    X, y = np.eye(2), np.array([1.0, -1.0])
    entrants = [
        Entrant(Linear(2, Logistic()), (size, 0.0), X, y, loss_bound=b)
        for size, b in zip((1.0, 9.0), bounds, strict=True)
    ]
    meter = AdditiveMeter(Budget(3.0, 1e-6, adjacency), "gdp")
    choose_best(entrants, epsilon=1.5, meter=meter, scoring="loss", rows_per_unit=rows)
    ((epsilon, scores, scale),) = asked
    assert epsilon == 1.5 and len(scores) == 2
    if bounds[0] == bounds[1]:
        assert scale == Fraction(3, 2) / (Fraction(bounds[0]) * times)
    else:
        assert scale == Fraction(3, 4) and min(scores) == 0  # scores of sensitivity 1, in either direction
