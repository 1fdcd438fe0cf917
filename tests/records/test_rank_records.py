"""Records at several ranks: the same bits for any number of them, every piece once, noise on rank 0 only."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ranks import DirectLine, made_up, spread, through_the_wire

from noisewise.accounts import Budget, BudgetExhausted, Terms, open_meter
from noisewise.accounts.purse import Purse
from noisewise.curator import QUESTIONS, Curator
from noisewise.methods import method_named
from noisewise.remote.holder import Holder, Holding, Request
from noisewise.remote.processes import PiecePlaces, cut
from noisewise.remote.transport import RankLost, restarts, started_by_torchrun
from noisewise.train import Records, train
from noisewise.trusted.events import Gaussian
from noisewise.trusted.features import TableColumn
from noisewise.trusted.losses import Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Additive, Linear
from noisewise.trusted.stores.grid import NO_CLASS, NO_LABEL
from noisewise.trusted.stores.totals import Drawn

BUDGET = Budget(4.0, 1e-5)
NUMBER = (-1.0, 0.0, 1.0), (0.0, 0.5, 1.0)
COLUMNS = (TableColumn("a", *NUMBER), TableColumn("b", *NUMBER), TableColumn("c", *NUMBER))
RUNS = {
    "poisson": (Linear(4, Logistic()), method_named("dpsgd").with_settings(sampling=("poisson", 0.3)), None),
    "full batch": (Linear(4, Logistic()), method_named("dpsgd"), None),
    "basis": (Linear(4, Logistic()), method_named("descent"), None),
    "classes": (Linear(4, Softmax(), 3), method_named("adaptive_clip"), 3),
    "moments": (Linear(4, Squared()), method_named("sufficient_statistics"), None),
    "candidates": (Linear(4, Logistic()), method_named("agd"), None),
    "whole walk": (Linear(4, Logistic()), method_named("output_perturbation"), None),
    "table": (Additive(1, Logistic(), columns=COLUMNS), method_named("additive"), None),
    "perceptron": (MLP((4, 5, 1), Logistic()), method_named("dpsgd"), None),
}


def curator(X, y, model, *, noise=1.0, events=50):
    meter = open_meter(BUDGET, Terms.adaptive("gdp"))
    return Curator(X, y, model=model, meter=meter, size=float(len(X)), row_bound=1.0, seed=3)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", RUNS)
def test_any_number_of_ranks_gives_the_bits_of_one_process(name):
    model, method, classes = RUNS[name]
    X, y = made_up(90, 3 if name == "table" else 4, classes=classes)

    def trained(rows, labels):
        return train(method, Records(rows, labels, None, 1.0), model=model, budget=BUDGET, seed=5)

    alone = trained(X, y)
    for ranks in (2, 3, 4) if name == "poisson" else (3,):
        rows, labels, lead = spread(X, y, model, ranks)
        run = trained(rows, labels)
        assert (
            np.array_equal(run.theta, alone.theta) and run.trace == alone.trace and run.arithmetic == alone.arithmetic
        )
        asked = [request for rank, request in lead._line.requests if rank == ranks - 1]
        assert len([request for request in asked if request.act in ("total", "rows")]) >= 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", RUNS)
def test_records_without_a_label_are_left_out_at_every_rank(name):
    model, method, classes = RUNS[name]
    X, y = made_up(90, 3 if name == "table" else 4, classes=classes)
    null = np.arange(90) % 7 == 3
    null[14:28] = True  # two whole pieces
    y = np.where(null, y.dtype.type(NO_LABEL if classes is None else NO_CLASS), y)

    def trained(rows, labels):
        return train(method, Records(rows, labels, None, 1.0), model=model, budget=BUDGET, seed=5)

    alone = trained(X, y)
    for ranks in (2, 5):
        rows, labels, _ = spread(X, y, model, ranks)
        assert np.array_equal(rows.counted(model.classes), ~null)
        run = trained(rows, labels)
        assert np.array_equal(run.theta, alone.theta) and run.trace == alone.trace
    where = 1 if classes is None else 0
    assert not np.array_equal(trained(X, np.where(null, where, y)).theta, alone.theta)


def test_labels_that_do_not_go_with_the_rows_stop_the_run():
    X, y = made_up(40, 4)
    y[3] = NO_LABEL
    rows, labels, lead = spread(X, y, Linear(4, Logistic()), 2)
    lead._holder._counted = lambda classes: np.ones(3, bool)
    with pytest.raises(RankLost, match="as many labels as rows"):
        curator(rows, labels, Linear(4, Logistic()))


MODELS = (Linear(3, Logistic()), Linear(3, Softmax(), 3), MLP((3, 2, 1), Logistic()), Linear(3, Squared()))
OF_OTHERS = {"Histograms", "MetaGradient"}  # asked of columns and of shards


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_every_question_is_answered_alike(name, null):
    """A new question, or a sum over rows that no rank is asked for, is found here."""
    answered, noise = 0, 0.05 if name == "Choice" else 30.0
    for model in (*MODELS, Additive(1, Logistic(), columns=COLUMNS)):
        X, y = made_up(40, 3, classes=3 if model.outputs == 3 else None)
        if null:
            y[5:25:4] = NO_CLASS if model.outputs == 3 else NO_LABEL
        rows, labels, _ = spread(X, y, model, 3)
        here, there = curator(X, y, model), curator(rows, labels, model)
        for case in QUESTIONS[name].cases(model.dimension):
            try:
                value = here.ask(case, noise=noise).value
            except Exception:  # a question about another model, or not of rows
                continue
            assert np.array_equal(there.ask(case, noise=noise).value, value)
            answered += 1
    assert answered or name in OF_OTHERS


class Twice(DirectLine):
    """A rank whose rows are made of a piece more, or less, than it was dealt."""

    change = staticmethod(lambda reply: reply._replace(pieces=(*reply.pieces, 0)))

    def receive(self, of):
        reply = super().receive(of)
        asked = [request for rank, request in self.requests if rank == 2 and request.act == "total"]
        return self.change(reply) if of == 2 and len(asked) > 1 else reply


class Less(Twice):
    change = staticmethod(lambda reply: reply._replace(pieces=reply.pieces[1:]))


class Old(Twice):
    change = staticmethod(lambda reply: reply._replace(number=reply.number - 1))


class Other(Twice):
    change = staticmethod(lambda reply: reply._replace(value=reply.value.values))


@pytest.mark.parametrize("line", [Twice, Less, Old, Other])
def test_a_piece_that_answers_twice_or_not_at_all_fails_the_question_and_the_charge_stays(line):
    model = Linear(4, Logistic())
    rows, labels, lead = spread(*made_up(60, 4), model, 3, line=line)
    private, theta = curator(rows, labels, model), np.zeros(4)
    private.gradient(theta, clip=1.0, noise_multiplier=30.0)
    spent = private.meter.spent_fraction
    with pytest.raises(RankLost, match="stays charged"):
        private.gradient(theta, clip=1.0, noise_multiplier=30.0)
    assert private.meter.spent_fraction > spent and len(private.trace) == 1
    before = len(lead._line.requests)
    if line is not Other:  # that one is seen when the sums are added up
        with pytest.raises(RankLost):
            private.gradient(theta, clip=1.0, noise_multiplier=30.0)
        assert len(lead._line.requests) == before and len(private.trace) == 1


def test_a_rank_that_is_lost_or_fails_stops_the_run():
    model = Linear(4, Logistic())
    for hurt in ("gone", "failed"):
        rows, labels, lead = spread(*made_up(60, 4), model, 3)
        private = curator(rows, labels, model)
        if hurt == "gone":
            lead._line.gone.add(1)
        else:
            lead._line.holders[1]._held.clear()
        with pytest.raises(RankLost, match="rank 1"):
            private.gradient(np.zeros(4), clip=1.0, noise_multiplier=30.0)
        assert lead.broken and not private.trace and private.meter.spent_fraction > 0
        lead.stop()
        assert lead._line.stopped == ([2] if hurt == "gone" else [1, 2])
        assert not any(lead._line.waiting.values()) or hurt == "failed"


def test_what_every_rank_refuses_is_refused_in_words_and_the_run_goes_on():
    model = Additive(1, Logistic(), columns=COLUMNS)
    rows, labels, lead = spread(*made_up(30, 3), model, 2)
    private = curator(rows, labels, model)
    with pytest.raises(ValueError, match="centre must be a vector of 1 numbers"):
        private.centre(np.ones(1) * 9, 1.0)
    private.gradient(np.zeros(model.dimension), clip=1.0, noise_multiplier=30.0)
    assert not lead.broken and len(private.trace) == 1


def test_ranks_forget_rows_that_nobody_holds():
    model = Linear(4, Logistic())
    rows, labels, lead = spread(*made_up(30, 4), model, 2)
    private = curator(rows, labels, model)
    for _ in range(3):
        private.change_basis(np.eye(4) * 0.5)
    private.gradient(np.zeros(4), clip=1.0, noise_multiplier=30.0)
    assert all(len(holder._held) == 1 for holder in lead._line.holders)


def test_more_ranks_than_pieces():
    model = Linear(4, Logistic())
    X, y = made_up(10, 4)
    rows, labels, _ = spread(X, y, model, 4, piece=5)
    answers = [
        each.gradient(np.zeros(4), clip=1.0, noise_multiplier=5.0, sampling=("poisson", 0.5)).value
        for each in (curator(X, y, model), curator(rows, labels, model))
    ]
    assert np.array_equal(*answers)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=9), st.integers(1, 4), st.integers(0, 2**20))
def test_every_drawn_record_is_asked_for_where_it_lies(lengths, ranks, seed):
    dealt = [tuple(range(rank, len(lengths), ranks)) for rank in range(ranks)]
    places = PiecePlaces(dealt, [[lengths[piece] for piece in numbers] for numbers in dealt])
    ends = np.cumsum(lengths)
    everyone = np.split(np.arange(ends[-1]), ends[:-1])
    held = [np.concatenate([np.empty(0, np.int64), *(everyone[piece] for piece in numbers)]) for numbers in dealt]
    drawn = np.flatnonzero(np.random.default_rng(seed).random(ends[-1]) < 0.5)
    parts = places.parts(Drawn(drawn, 3.0))
    found = np.concatenate([rows[part.rows] for rows, part in zip(held, parts, strict=True)])
    assert sorted(found.tolist()) == drawn.tolist() and all(part.expected == 3.0 for part in parts)
    assert all((np.diff(part.rows) > 0).all() for part in parts)
    assert places.in_order(held).tolist() == list(range(ends[-1]))


def test_pieces_dealt_twice_or_not_at_all_are_refused():
    with pytest.raises(RankLost, match="twice or not at all"):
        PiecePlaces([(0, 1), (1,)], [(3, 3), (3,)])
    with pytest.raises(RankLost, match="other pieces"):
        PiecePlaces([(0, 2), (1,)], [(3,), (3,)])


def test_a_data_set_is_cut_into_pieces_of_public_length():
    parts = [cut(10, 4, rank, 2) for rank in (0, 1)]
    assert parts == [[range(4), range(8, 10)], [range(4, 8)]]


@pytest.mark.parametrize(
    "foreign", [print, pickle.loads, torch.zeros(2), np.lib.format.open_memmap, Gaussian(2.0), {1}, 1j]
)
def test_a_message_holds_plain_data_alone(foreign):
    with pytest.raises(TypeError, match="has no place in a message"):
        through_the_wire(("gradients", foreign))
    told = ("a", 1.5, None, Path("/data/a b.csv"), Drawn(None, 2.5), Logistic())
    assert through_the_wire(told) == told


def test_a_private_fit_that_every_rank_would_make_for_itself_is_refused(monkeypatch, tmp_path):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "2")
    model, method = Linear(4, Logistic()), method_named("dpsgd")
    records = Records(*made_up(30, 4), None, 1.0)
    with pytest.raises(RuntimeError, match="each would spend the whole budget"):
        train(method, records, model=model, budget=BUDGET)
    train(method, records, model=model, budget=BUDGET, seed=1)
    rows, labels, _ = spread(*made_up(30, 4), model, 2)
    train(method, Records(rows, labels, None, 1.0), model=model, budget=BUDGET)
    purse = Purse(BUDGET, store=tmp_path / "spending.json")  # which all of them see
    train(method, records, model=model, budget=BUDGET, purse=purse)
    with pytest.raises(BudgetExhausted):
        train(method, records, model=model, budget=BUDGET, purse=purse)


def test_torchrun_is_known_by_what_it_tells():
    told = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    assert started_by_torchrun(told) and not started_by_torchrun({**told, "WORLD_SIZE": "1"})
    assert not started_by_torchrun({"WORLD_SIZE": "2"})
    assert restarts({"TORCHELASTIC_RESTART_COUNT": "2"}) == 2 and restarts({}) == 0


@pytest.mark.parametrize("name, given", [("unit_rows", ()), ("scored", (np.zeros(4),)), ("losses_of_nobody", ())])
def test_a_rank_answers_sums_alone_and_says_nothing_of_what_failed(name, given):
    X, y = made_up(5, 4)
    holder = Holder(holding=Holding((0,), (5,), X, y))
    assert holder.reply(Request(1, "hold", (1, Linear(4, Logistic())))).trouble is None
    total = holder.reply(Request(2, "total", (1, "gradients", Drawn(np.arange(2)), (np.zeros(4), 1.0), {}))).value
    assert total.values.shape == (4,)
    answer = holder.reply(Request(3, "total", (1, name, Drawn(), given, {})))
    assert answer.value is None and answer.trouble == "could not answer"
