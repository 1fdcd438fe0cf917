"""Laws of every question for persons: at most k rows of one move no total further than its noise allows for, in integers.

Found by the registry, like the laws of one record, whose hostile rows, models and cases are used here: a person is k times
the same row, rows that pull apart, fewer rows than k, or none. The laws are shown to notice where k is forgotten.
"""

from __future__ import annotations

from functools import cache

import pytest
from test_curator_laws import (
    ADJACENCIES,
    BASES,
    FEATURES,
    MODELS,
    POOL,
    SIGMA,
    SIZE,
    Neighbours,
    allowed,
    asked_of,
    how_asked,
    noise_of,
    stated,
)
from test_curator_laws import COMBINATIONS as EVERY

from noisewise.curator import QUESTIONS
from noisewise.trusted.events import FULL
from noisewise.trusted.models import MLP
from noisewise.trusted.questions import HowAsked

ROWS = (2, 3)
OF_PERSONS = [kind for kind in QUESTIONS if not QUESTIONS[kind].sharded]  # shards are refused for persons
COMBINATIONS = [(kind, model) for kind, model in EVERY if kind in OF_PERSONS]
LINEAR = [(kind, model) for kind, model in COMBINATIONS if not isinstance(MODELS[model], MLP)]


def how_many(rows: int, adjacency: str) -> HowAsked:
    return HowAsked(adjacency, FULL, SIGMA, SIZE, FEATURES, rows)


def persons(rows: int):
    """Nobody, one row, k times the same, and k that differ."""
    same = [[record] * rows for record in POOL]
    mixed = [[POOL[(i + step * j) % len(POOL)] for j in range(rows)] for step in (1, 4) for i in (0, 3, 7)]
    return [[], [POOL[0]], *same, *mixed]


class Persons(Neighbours):
    """Totals of a base, and of a base with each person's rows."""

    def __init__(self, case, model, base, how):
        others = BASES[base] * how.rows
        self.others = self._totals(case, model, others, how)
        self.joined = [self._totals(case, model, [*others, *person], how) for person in persons(how.rows)]


@cache
def neighbours(kind, model, rows):
    slow = isinstance(MODELS[model], MLP) or MODELS[model].tensors
    bases = ["nobody", "one direction is free"] if slow else list(BASES)
    return [
        (case, Persons(case, MODELS[model], base, how_many(rows, "add_remove")))
        for case in asked_of(QUESTIONS[kind], MODELS[model])
        for base in bases
    ]


def worst(kind, model, rows, how, law=allowed):
    """The most that a person of so many rows does, as a share of what is allowed as ``how`` says, squared."""
    relation, apart = ("added", 1) if how.adjacency == "add_remove" else ("replaced", 2)
    return max(law(case, near, relation, apart, how) for case, near in neighbours(kind, model, rows))


def said_for_a_person(case, near, relation, apart, how):
    """What the question says about one row, k times."""
    return stated(case, near, relation, apart, how) / how.rows**2


@pytest.mark.sample(
    70, "Count-logistic", "Gradient-logistic", "FirstMoment-logistic", "SecondMoment-logistic", "Choice-weighted"
)  # what mutants are noticed by
@pytest.mark.parametrize("kind, model", COMBINATIONS)
def test_no_person_moves_a_total_further_than_its_noise_allows_for(kind, model):
    for rows in ROWS if (kind, model) in LINEAR else ROWS[:1]:
        for adjacency in ADJACENCIES:
            how = how_many(rows, adjacency)
            assert worst(kind, model, rows, how) <= 1, (rows, adjacency)
            assert worst(kind, model, rows, how, said_for_a_person) <= 1, (rows, adjacency)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("kind", OF_PERSONS)
def test_the_worst_persons_come_near_to_it_and_would_break_the_noise_of_one_row_less(kind, adjacency):
    """With noise for two rows a person of three is seen: nothing here is bounded for another reason."""
    models = [model for name, model in LINEAR if name == kind]
    assert max(worst(kind, model, 3, how_many(3, adjacency)) for model in models) > 0.7**2
    assert max(worst(kind, model, 3, how_many(3, adjacency), forgetful) for model in models) > 1


def forgetful(case, near, relation, apart, how):
    """The noise of two rows on totals of three, whose rows are clipped as three are."""
    true = HowAsked.unit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HowAsked, "unit", lambda self, added, replaced: true(self, added, replaced) * 2 / self.rows)
        if type(case).__name__ == "Choice":  # whose scale is no unit
            how = how_many(2, how.adjacency)
        return allowed(case, near, relation, apart, how)


@pytest.mark.parametrize("kind, model", LINEAR)
def test_one_row_per_person_is_what_it_was(kind, model):
    """The same whole numbers, and the same noise to the last bit."""
    for case in asked_of(QUESTIONS[kind], MODELS[model]):
        for adjacency in ADJACENCIES:
            ends = []
            for how in (how_asked(adjacency, FULL), how_many(1, adjacency)):
                totals = Neighbours._totals(case, MODELS[model], [*BASES["all pull one way"], *POOL], how)
                noise = noise_of(case, totals, how)
                whole = [(total.values.tolist(), total.ones, total.one, total.step) for total in totals]
                ends.append((whole, noise.stds, noise.scales, case.noise_std(how)))
            assert ends[0] == ends[1]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_clip_is_a_persons(adjacency):
    """However many rows count, noise is made for the clip norm, which is what they reach together."""
    one, three = (how_many(rows, adjacency) for rows in (1, 3))
    for kind in ("Gradient", "GradientNorm"):
        case = QUESTIONS[kind].cases(FEATURES)[0]
        assert case.unit(three) == pytest.approx(case.unit(one)) == pytest.approx(case.clip)
        assert case.noise_std(three) == pytest.approx(case.noise_std(one))
    reached = worst("Gradient", "logistic", 3, three)
    assert 0.9 < reached <= 1
