"""Private meta-gradients: what one record does to the sum over shards, how records are dealt, and what is refused unpaid."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import noisewise as nw
from noisewise.accounts import AdditiveMeter
from noisewise.curator import QUESTIONS, Curator
from noisewise.protect.learned.inside import unrolled
from noisewise.protect.learned.parts import new_weights, protector
from noisewise.protect.learned.weights import KNOBS, Design, flattened, unflattened, with_knobs, zero_weights
from noisewise.trusted.accountants.gdp import mu_of
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import Logistic, Softmax
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.noise import Stream
from noisewise.trusted.questions.meta_gradient import MetaGradient, length_of, units_of
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.shards import FINE, Shards, deal, height_of

D, N, S = 4, 64, 8
MODEL = Linear(D, Logistic())
ZERO = np.zeros(length_of(1))


def rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)


def asked(**changes):
    return MetaGradient(**{"weights": ZERO, "clip": 0.01, "shards": float(S), "horizon": 4.0, "worth": 30.0, **changes})


def total(X, y, *, question=None, size=float(N), seed=1, unroll=unrolled):
    records = Shards(MODEL, unroll, Stream(seed, "shards")).over(records_of(MODEL, X, y))
    return records.meta_gradients(question or asked(), size)


def room(*, budget=None, unroll=unrolled, seed=0, size=float(N), model=MODEL, data=None, **more):
    meter = AdditiveMeter(budget or nw.Budget(50.0, 1e-6), "gdp")
    return Curator(*(data or rows()), model=model, meter=meter, size=size, seed=seed, unroll=unroll, **more)


# --- one record -------------------------------------------------------------------------------------------------------

HOSTILE = [
    ([1e4, 0.0, 0.0, 0.0], -1.0),
    ([-1e4, 0.0, 0.0, 0.0], -1.0),
    ([1e11, -1e11, 1e11, 0.0], 1.0),
    ([math.nan, 0.0, 0.0, 1.0], 1.0),
    ([0.0, math.inf, 0.0, 1.0], -1.0),
    ([0.0, 0.0, 0.0, 0.0], 1.0),
    ([1.0, 0.0, 0.0, 0.0], math.nan),
]


def moved(one, other):
    return math.isqrt(sum((int(a) - int(b)) ** 2 for a, b in zip(one.values, other.values, strict=True)))


@pytest.mark.sample(1)
@pytest.mark.parametrize("shards", [1.0, 4.0, 16.0])
def test_no_record_moves_the_sum_by_more_than_two_clips_in_whole_numbers(shards):
    """Added, removed or replaced; a record of the far away turns a whole shard around, and others stay as they are."""
    X, y = rows(24)
    question, most = asked(shards=shards), 0
    for row, label in HOSTILE:
        there = total(np.concatenate([X, [row]]), np.concatenate([y, [label]]), question=question, size=24.0)
        most = max(most, moved(there, total(X, y, question=question, size=24.0)))
        for row2, label2 in HOSTILE:
            there2 = total(
                np.concatenate([X, [row2]]),
                np.concatenate([y, [label2]]),
                question=question,
                size=24.0,
            )
            most = max(most, moved(there, there2))
    assert 0.1 * FINE < most <= 2 * FINE


def adversary(model, asked, shards):
    """What training could do at worst: every shard votes one way, and the other way where a certain record is."""
    vote = np.tile([3.0, 4.0, 0.0, 0.0], (len(shards.seeds), 1))
    return np.where((shards.rows[:, :, 0] > 100).any(1)[:, None], -vote, vote)


def test_a_record_that_turns_its_shard_around_reaches_two_clips_and_no_more():
    X, y = rows(40)
    loud = X.copy()
    loud[7] = 1e4, 0.0, 0.0, 0.0
    apart = moved(total(loud, y, unroll=adversary, size=40.0), total(X, y, unroll=adversary, size=40.0))
    assert 1.99 * FINE < apart <= 2 * FINE


@pytest.mark.parametrize("kept", [0, 13, 39])
def test_when_a_record_is_taken_out_the_others_keep_their_coins_and_only_one_shard_changes(kept):
    """The others shift by one place, so their coins do, as the proof has it: draws that are alike may be thought of so."""
    X, y = rows(40)
    X[kept, 0] = 1e4

    class Coins:
        def __init__(self, without=None):
            self.stream, self.without, self.calls = Stream(5, "shards"), without, 0

        def words(self, many):
            self.calls += 1
            if self.calls == 1 or self.without is None:
                return self.stream.words(many)
            return np.delete(self.stream.words(many + 1), self.without)

    def summed(X, y, coins):
        return Shards(MODEL, adversary, coins).over(records_of(MODEL, X, y)).meta_gradients(asked(), 40.0)

    there = np.arange(40) != kept
    apart = moved(summed(X, y, Coins()), summed(X[there], y[there], Coins(kept)))
    assert 1.99 * FINE < apart <= 2 * FINE


def test_a_shard_that_is_not_finite_counts_as_zero_and_spoils_no_other():
    def spoiled(model, asked, shards):
        vectors = np.tile([1.0, 0.0, 0.0, 0.0], (len(shards.seeds), 1))
        vectors[0], vectors[1, 2], vectors[2, 1] = math.nan, math.inf, 1e300
        return vectors

    with np.errstate(all="ignore"):  # as at the desk
        whole = total(*rows(), unroll=spoiled)
    assert whole.values[0] == pytest.approx((S - 3) * FINE, rel=1e-6)
    assert abs(int(whole.values[1])) <= FINE and whole.values[2] == 0


# --- dealing ----------------------------------------------------------------------------------------------------------


def places(X, y, seed=2, shards=S):
    """In which shard and on which side every record came to lie, by a mark in its last column."""
    marked = X.copy()
    marked[:, -1] = np.arange(1, len(X) + 1) / 1000
    dealt = deal(records_of(MODEL, marked, y), shards, float(len(X)), Stream(seed, "shards"))
    found = {}
    for shard, height in np.argwhere(dealt.sides >= 0):
        found[round(float(dealt.rows[shard, height, -1]) * 1000)] = (shard, int(dealt.sides[shard, height]))
    return found


def test_records_are_dealt_by_place_not_by_content():
    X, y = rows()
    before, Z = places(X, y), X.copy()
    Z[10, :3], Z[11, :3] = (9.0, -9.0, 9.0), 0.0
    assert places(Z, -y) == before
    assert places(X, y, seed=3) != before


def test_coins_are_fair_and_every_record_is_in_one_shard():
    X, y = rows(20_000)
    dealt = deal(records_of(MODEL, X, y), 16, 20_000.0, Stream(4, "shards"))
    counts = (dealt.sides >= 0).sum(1)
    assert counts.sum() == 20_000 and counts.min() > 1080 and counts.max() < 1420
    assert abs(int((dealt.sides == 0).sum()) - 10_000) < 400 and len(set(dealt.seeds)) == 16


def test_shapes_follow_from_public_facts_and_rows_beyond_are_left_out():
    for n in (0, 5, 50, 3000):
        dealt = deal(records_of(MODEL, *rows(n)), S, 40.0, Stream(1, "shards"))
        assert dealt.rows.shape == (S, height_of(40.0, S), D)


def test_coins_are_fresh_with_every_question_and_not_those_of_the_noise():
    records = Shards(MODEL, unrolled, Stream(1, "shards")).over(records_of(MODEL, *rows()))
    assert not np.array_equal(*(records.meta_gradients(asked(), float(N)).values for _ in range(2)))
    assert not np.array_equal(Stream(1, "shards").words(64), Stream(1).words(64))
    assert np.array_equal(Stream(1, "shards").words(70_000), Stream(1, "shards").words(70_000))
    assert not np.array_equal(Stream(None).words(64), Stream(None).words(64))


# --- the room ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency, unit", [("add_remove", 2.0), ("replace_one", 1.0)])
def test_the_answer_is_charged_as_two_clips(adjacency, unit):
    """sigma times the unit is the noise; sensitivity 2 C over it is what the event says: 1/sigma added, 2/sigma replaced."""
    private = room(budget=nw.Budget(50.0, 1e-6, adjacency=adjacency))
    answer = private.ask(asked(), noise=4.0)
    assert answer.value.shape == (len(KNOBS),) and answer.noise_std == pytest.approx(4.0 * unit * 0.01)
    (line,) = private.trace
    assert line.question == "MetaGradient" and private.arithmetic.grade == "assumed"
    assert private.meter.spent_fraction == pytest.approx((2.0 / (4.0 * unit)) ** 2 / mu_of(50.0, 1e-6) ** 2, rel=1e-5)


def test_a_simulation_is_reproducible_and_a_private_run_is_not():
    first, second, other = (room(seed=seed).ask(asked(), noise=1.0).value for seed in (3, 3, 4))
    assert np.array_equal(first, second) and not np.array_equal(first, other)
    assert not np.array_equal(*(room(seed=None).ask(asked(), noise=1.0).value for _ in range(2)))


class Unpaid:
    def __init__(self, private):
        self.private = private

    def refused(self, kind, match, ask):
        with pytest.raises(kind, match=match):
            ask(self.private)
        assert self.private.meter.spent_fraction == 0 and not self.private.trace


@pytest.mark.parametrize("sampling", [("poisson", 0.5), ("poisson", 1.0)])
def test_a_batch_is_refused_before_paying(sampling):
    Unpaid(room()).refused(ValueError, "all records", lambda c: c.ask(asked(), noise=1.0, sampling=sampling))


def test_what_cannot_be_asked_is_refused_before_paying():
    def ask(curator):
        return curator.ask(asked(), noise=1.0)

    layers = MLP((D, 3, 1), Logistic())
    Unpaid(room(unroll=None)).refused(ValueError, "noisewise.train", ask)
    Unpaid(room(model=layers)).refused(ValueError, "linear model", ask)
    Unpaid(room(size=None)).refused(ValueError, "private", ask)
    Unpaid(room(rows_per_unit=1)).refused(ValueError, "persons", ask)


@pytest.mark.parametrize(
    "changes, kind",
    [
        ({"weights": lambda rows: rows}, (TypeError, ValueError)),
        ({"weights": ZERO + math.nan}, ValueError),
        ({"weights": ZERO + math.inf}, ValueError),
        ({"weights": ZERO + 1e6}, ValueError),
        ({"weights": np.zeros(7)}, ValueError),
        ({"weights": np.zeros((length_of(1), 1))}, ValueError),
        ({"shards": 3.0}, ValueError),
        ({"shards": 0.0}, ValueError),
        ({"shards": 2.0**20}, ValueError),
        ({"clip": 0.0}, ValueError),
        ({"clip": math.nan}, ValueError),
        ({"horizon": 2.5}, ValueError),
        ({"horizon": 1e6}, ValueError),
        ({"worth": -1.0}, ValueError),
        ({"few": print}, (TypeError, ValueError)),
    ],
)
def test_what_is_no_plain_question_is_refused_before_paying(changes, kind):
    """Also when it was put there after the question was made: what is priced is made anew."""
    Unpaid(room()).refused(kind, ".", lambda c: c.ask(asked(**changes), noise=1.0))
    made = asked()
    for name, value in changes.items():
        object.__setattr__(made, name, value)
    Unpaid(room()).refused(kind, ".", lambda c: c.ask(made, noise=1.0))


def test_modes_of_the_graph_change_nothing():
    """Anomaly detection would raise where a record is odd."""
    X, y = rows()
    X[3] = 3e38
    expected = room(data=(X, y)).ask(asked(), noise=1.0).value
    for mode in (torch.autograd.set_detect_anomaly(True), torch.no_grad(), torch.inference_mode()):
        with mode:
            assert np.array_equal(room(data=(X, y)).ask(asked(), noise=1.0).value, expected)


def test_hooks_on_saved_tensors_see_no_row_of_a_shard():
    seen = []
    private = room()
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda one: seen.append(one) or one, lambda one: one)
    with hooks, pytest.raises(RuntimeError, match="hooks on saved tensors"):
        private.ask(asked(), noise=1.0)
    assert not seen


# --- what is unrolled -------------------------------------------------------------------------------------------------


def test_weights_as_a_vector_and_back():
    for units in (1, 3, 20):
        weights = new_weights(Design(units=units), seed=2)
        flat = flattened(weights)
        assert len(flat) == length_of(units) and units_of(len(flat)) == units
        again = unflattened(torch.from_numpy(flat).float(), units)
        assert all(torch.equal(again.tensors()[name], weight) for name, weight in weights.tensors().items())


@pytest.mark.parametrize("model", [MODEL, Linear(D, Softmax(), 3)], ids=["two classes", "three"])
def test_a_shards_vector_is_the_gradient_of_its_loss_and_follows_from_it_alone(model):
    """Against finite differences; and the same bits with other rows in all other shards, within what floats promise."""
    X, y = rows(seed=1)  # none of them is cut at one end of a difference only
    y = y if model.outputs == 1 else np.arange(N) % 3
    smaller = torch.tensor([0.0, -0.3, 0.0, 0.0])  # clip norms away from where all records are just cut
    weights = with_knobs(new_weights(Design(units=2), seed=1), smaller)
    question = asked(weights=flattened(weights), shards=4.0)

    def vectors(q, X=X):
        return unrolled(model, q, deal(records_of(model, X, y), 4, float(N), Stream(6, "shards")))

    few = vectors(question)
    assert few.shape == (4, len(KNOBS))
    base, step = unflattened(torch.from_numpy(question.weights).float(), 2), 1e-3
    for k in range(len(KNOBS)):
        ends = []
        for side in (step, -step):
            knobs = torch.zeros(len(KNOBS))
            knobs[k] = side
            moved = asked(weights=flattened(with_knobs(base, knobs)), shards=4.0)
            ends.append(losses(model, moved, deal(records_of(model, X, y), 4, float(N), Stream(6, "shards"))))
        assert few[:, k] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=0.002, rel=0.01)
    other = X.copy()
    coins = Stream(6, "shards")
    coins.words(4)  # seeds of the shards
    elsewhere = coins.words(N) % 4 != 2
    assert 30 < int(elsewhere.sum()) < N
    other[elsewhere] = -X[elsewhere]
    assert np.allclose(vectors(question, other)[2], few[2], atol=1e-5)


def losses(model, question, dealt):
    from noisewise.protect.learned.inside import Halves, judged

    units = units_of(len(question.weights))
    part = protector(unflattened(torch.from_numpy(question.weights).float(), units), Design(units=units))
    task = Halves.of(model, dealt, int(question.horizon), question.worth)
    return judged(task, part).detach().view(-1, 2).sum(1).double().numpy()


def test_the_whole_of_a_protector_can_be_asked_for():
    """The few numbers are among all weights: their entries agree."""
    X, y = rows()
    question = asked(weights=flattened(zero_weights(Design(units=1))), shards=2.0)
    dealt = [deal(records_of(MODEL, X, y), 2, float(N), Stream(6, "shards")) for _ in range(2)]
    few = unrolled(MODEL, question, dealt[0])
    whole = unrolled(MODEL, asked(weights=question.weights, shards=2.0, few=False), dealt[1])
    assert whole.shape == (2, length_of(1))
    assert whole[:, -1] == pytest.approx(few[:, KNOBS.index("rate")], rel=1e-3, abs=1e-5)


def test_it_is_registered_and_known_to_a_report():
    from noisewise.evidence.report.sentences import question_text

    assert QUESTIONS["MetaGradient"] is MetaGradient
    assert question_text("MetaGradient") == "private meta-gradients of a protector"
    facts = facts_of(MODEL, nw.Budget(1.0, 1e-6), size=None, row_bound=1.0)
    with pytest.raises(ValueError, match="buy it"):
        asked().check(facts)
