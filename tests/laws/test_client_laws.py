"""Laws of every question for clients: whatever rows a client has, it moves no total further than one record may, in integers.

Found by the registry, like the laws of one record, whose hostile rows, models and cases are used here: a client has no row, one,
several alike, or several that pull apart, and makes its vector by one local step or by some that lead nowhere.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, reduce
from operator import add

import numpy as np
import pytest
from test_curator_laws import (
    BASES,
    COMBINATIONS,
    HOWS,
    MODELS,
    POOL,
    Neighbours,
    Table,
    allowed,
    asked_of,
    how_asked,
    relations,
    stated,
    tabled,
    tensors,
)

from noisewise.curator import QUESTIONS
from noisewise.remote.clients.one_record import OneRecord, Together
from noisewise.trusted.models import MLP
from noisewise.trusted.process import own_settings
from noisewise.trusted.stores.grid import in_memory
from noisewise.trusted.stores.protocol import SUMS
from noisewise.trusted.stores.totals import Drawn, IntegerTotal

NOT_ASKED = ("Histograms", "MetaGradient", "LayeredGradient")  # of columns, of shards, and of layers: not of clients
OF = ("logistic", "squared", "weighted softmax", "table", "centred table softmax", "perceptron")  # each kind of records
ASKED = [(kind, model) for kind, model in COMBINATIONS if kind not in NOT_ASKED and model in OF]
LOCAL = ((1, 1.0), (3, 1e6))  # steps, and their size
NOBODY = Drawn(np.empty(0, np.int64))


def client(model, rows, local, there=True):
    X, y = tensors(model, rows)
    if isinstance(model, Table):
        return OneRecord(tabled(model, X, y), model, *local, there)
    return Together(X.astype(np.float32), y, *local, there).held(model, in_memory)


def limit_of(name):
    return SUMS[name].fits


class Crowd:
    """Clients that are added up as a server adds them up: by their first, which is nobody, and only as far as they fit."""

    def __init__(self, members):
        self.members, self.columns = members, members[0].columns
        self.coordinates = members[0].coordinates

    def __len__(self):
        return len(self.members) - 1

    def _added(self, name, ask, arguments, drawn):
        zero, *parts = [
            ask(member, Drawn(None if drawn.rows is None else np.zeros(1, np.int64)) if number else NOBODY)
            for number, member in enumerate(self.members)
        ]
        for part in parts:
            arrays = [part.values if isinstance(part, IntegerTotal) else part]
            assert limit_of(name)(arrays, zero, arguments, 1), name
        return reduce(add, parts, zero)

    def __getattr__(self, name):
        def asked(drawn, *arguments, **options):
            return self._added(name, lambda m, own: getattr(m, name)(own, *arguments, **options), arguments, drawn)

        return asked

    def summed(self, name, drawn, *arguments):
        return self._added(name, lambda m, own: SUMS[name].total(m, own, *arguments), arguments, drawn)


def clients():
    """No row, one, the same three times, and three that differ."""
    same = [[record] * 3 for record in POOL[::3]]
    mixed = [[POOL[(i + step * j) % len(POOL)] for j in range(3)] for step in (1, 4) for i in (0, 7)]
    return [[], *([record] for record in POOL), *same, *mixed]


class Clients(Neighbours):
    """Totals of the clients of a base, and of those with one more."""

    def __init__(self, case, model, base, how, local):
        self.others, *self.joined = (
            self._of(case, model, [*([[record] * 2 for record in BASES[base]]), *more], how, local)
            for more in ([], *([each] for each in clients()))
        )

    @staticmethod
    def _of(case, model, members, how, local):
        nobody = client(model, [], local, there=False)
        with own_settings():
            crowd = Crowd([nobody, *(client(model, rows, local) for rows in members)])
            drawn = Drawn(None if how.sampling[0] == "full" else np.arange(len(crowd)), how.size)
            return case.totals(crowd, drawn, how)


@cache
def neighbours(kind, model):
    slow = isinstance(MODELS[model], MLP)
    return [
        (case, Clients(case, MODELS[model], base, how_asked("add_remove", ("full",)), local))
        for case in asked_of(QUESTIONS[kind], MODELS[model])
        for base in ("nobody", "one direction is free")[slow:]
        for local in LOCAL[slow:]
    ]


FIRST = dict(reversed(ASKED))  # in every test run; other models in make test-slow


@pytest.mark.parametrize(
    "kind, model",
    [pytest.param(*each, marks=() if FIRST[each[0]] == each[1] else pytest.mark.slow) for each in ASKED],
)
def test_no_client_moves_a_total_further_than_its_noise_allows_for(kind, model):
    for how in (how_asked(*each) for each in HOWS):
        for relation, apart in relations(how).items():
            for case, near in neighbours(kind, model):
                for law in (allowed, stated):
                    assert law(case, near, relation, apart, how) <= 1, (how, relation, law)


def test_every_question_of_clients_is_tried():
    assert {kind for kind, _ in ASKED} == {*QUESTIONS} - {*NOT_ASKED}


def whole(self, drawn):
    return self.rows.row_sum(Drawn() if self._asked(drawn) else NOBODY)


def unclipped(self, drawn, vector, clip, ones):
    """Clipped to what stands for a little more than the clip."""
    return replace(clipped_once(self, drawn, vector, clip, ones + ones // 64), ones=ones)


clipped_once = OneRecord._clipped


@pytest.mark.parametrize(
    "kind, name, broken",
    [("FirstMoment", "row_sum", whole), ("Gradient", "_clipped", unclipped)],
    ids=["first moment", "gradient"],
)
def test_the_law_notices_a_client_that_adds_more(kind, name, broken, monkeypatch):
    monkeypatch.setattr(OneRecord, name, broken)
    monkeypatch.setattr("test_client_laws.limit_of", lambda name: lambda *_: True)  # what a server checks, beside it
    monkeypatch.setattr("test_client_laws.neighbours", neighbours.__wrapped__)
    with pytest.raises(AssertionError):
        test_no_client_moves_a_total_further_than_its_noise_allows_for(kind, "logistic")
