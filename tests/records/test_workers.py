"""Workers that are lost: the same bits or a clear stop, never a wrong sum; each piece answers a question once."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest
from ranks import made_up
from workers import Here, Shuffled, held

from noisewise.accounts import Budget, Terms, open_meter
from noisewise.accounts.purse import Purse
from noisewise.curator import Curator
from noisewise.methods import method_named
from noisewise.remote.holder import Reply
from noisewise.remote.processes import Lead
from noisewise.remote.transport import RankLost
from noisewise.remote.workers import MAX_ATTEMPTS, Sealed, WorkerLine
from noisewise.train import Records, train
from noisewise.trusted.features import TableColumn
from noisewise.trusted.losses import Logistic, Softmax
from noisewise.trusted.models import MLP, Additive, Linear

BUDGET = Budget(4.0, 1e-5)
NUMBER = (-1.0, 0.0, 1.0), (0.0, 0.5, 1.0)
COLUMNS = (TableColumn("a", *NUMBER), TableColumn("b", *NUMBER), TableColumn("c", *NUMBER))
POISSON = method_named("dpsgd").with_settings(sampling=("poisson", 0.3), steps=40)
RUNS = {
    "poisson": (Linear(4, Logistic()), POISSON, None),
    "full batch": (Linear(4, Logistic()), method_named("descent"), None),
    "classes": (Linear(4, Softmax(), 3), method_named("adaptive_clip"), 3),
    "walk": (Linear(4, Logistic()), method_named("output_perturbation"), None),
    "table": (Additive(1, Logistic(), columns=COLUMNS), method_named("additive"), None),
    "perceptron": (MLP((4, 5, 1), Logistic()), method_named("dpsgd"), None),
}


def trained(name, rows, labels):
    model, method, _ = RUNS[name]
    return train(method, Records(rows, labels, None, 1.0), model=model, budget=BUDGET, seed=5)


def records(name):
    return made_up(90, 3 if name == "table" else 4, classes=RUNS[name][2])


def same(run, alone):
    return np.array_equal(run.theta, alone.theta) and run.trace == alone.trace and run.arithmetic == alone.arithmetic


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", RUNS)
def test_any_number_of_workers_gives_the_bits_of_one_process(name):
    X, y = records(name)
    alone = trained(name, X, y)
    for workers in (1, 2, 3, 5) if name in ("poisson", "full batch") else (3,):
        rows, labels, lead, cluster = held(X, y, workers)
        assert same(trained(name, rows, labels), alone)
        lead.close()
        assert cluster.closed and len(cluster.ended) == workers


@pytest.mark.parametrize("name", ["poisson", "full batch"])
def test_shuffled_pieces_give_the_same_bits(name):
    X, y = records(name)
    rows, labels, lead, _ = held(X, y, 3, lead=Shuffled)
    assert lead._dealt[1] != tuple(range(0, 13, 2)) and lead._dealt[3] == ()
    assert same(trained(name, rows, labels), trained(name, X, y))


@pytest.mark.sample(3)
@pytest.mark.parametrize("how", ["dies", "late"])
@pytest.mark.parametrize("name", RUNS)
def test_workers_that_are_lost_change_no_bit(name, how):
    """Twenty losses at random places, where there are so many: while rows are read, laid out, changed, asked, made again."""
    X, y = records(name)
    alone = trained(name, X, y)
    draw = random.Random(name + how)
    rows, labels, _, cluster = held(X, y, 3)
    trained(name, rows, labels)
    places = [number + draw.randrange(3) for number in range(1, cluster.asked, 6)]  # not one question four times
    lost = {*draw.sample(places, min(20, len(places)))}
    rows, labels, _, cluster = held(X, y, 3, fails=lambda number: how if number in lost else None)
    assert same(trained(name, rows, labels), alone)
    assert len(cluster.ended) == len(lost)
    for worker, said in cluster.late:  # answers of workers that were given up on go to nobody
        assert worker in cluster.ended
        worker._holder.reply(worker._sealed.open(*said, b"asked"))


def test_whoever_is_asked_again_is_asked_the_same():
    """The same rows drawn, the same secret words: two answers to one question would be two looks at the records."""
    X, y = records("poisson")
    rows, labels, _, cluster = held(X, y, 2, fails=lambda number: "dies" if number == 19 else None)
    trained("poisson", rows, labels)
    numbered = {}
    for request in cluster.requests:
        if request.act == "total":
            drawn = request.arguments[2].rows
            numbered.setdefault(request.number, []).append(drawn if drawn is None else tuple(drawn.tolist()))
    again = [asked for asked in numbered.values() if len(asked) == 3]
    assert len(again) == 1 and len({*again[0]}) == 2 and None not in again[0]  # two workers, one of them asked twice


def curator(rows, labels, model):
    meter = open_meter(BUDGET, Terms.adaptive("gdp"))
    return Curator(rows, labels, model=model, meter=meter, size=60.0, row_bound=1.0, seed=3)


def test_a_worker_that_is_always_lost_stops_the_run_and_the_charge_stays():
    X, y = made_up(60, 4)
    hopeless = []
    rows, labels, _, cluster = held(X, y, 2, fails=lambda number: "dies" if hopeless else None)
    private = curator(rows, labels, Linear(4, Logistic()))
    private.gradient(np.zeros(4), clip=1.0, noise_multiplier=30.0)
    spent = private.meter.spent_fraction
    hopeless.append(True)
    with pytest.raises(RankLost, match=f"lost {MAX_ATTEMPTS} times.*stays charged"):
        private.gradient(np.zeros(4), clip=1.0, noise_multiplier=30.0)
    assert private.meter.spent_fraction > spent
    hopeless.clear()
    asked = cluster.asked
    with pytest.raises(RankLost):
        private.gradient(np.zeros(4), clip=1.0, noise_multiplier=30.0)
    assert cluster.asked == asked  # nothing more is asked


@pytest.mark.parametrize("change", ["other rows", "cannot be read"])
def test_files_that_changed_while_a_worker_was_lost_stop_the_run(change):
    X, y = made_up(60, 4)
    reads = []

    def made(numbers):
        from noisewise.remote.holder import Holding

        reads.append(numbers)
        if len(reads) > 2 and change == "cannot be read":
            raise ValueError("people.parquet: has changed")
        fewer = 1 if len(reads) > 2 else 0
        lengths = tuple(7 - fewer if number == numbers[0] else 7 for number in numbers)
        return Holding(tuple(numbers), lengths, X[: sum(lengths)], y[: sum(lengths)])

    lost = []
    X, y = X[:56], y[:56]
    rows, labels, _, _ = held(X, y, 2, made=made, fails=lambda number: "dies" if lost and lost.pop() else None)
    private = curator(rows, labels, Linear(4, Logistic()))
    lost.append(True)
    with pytest.raises(RankLost, match=r"no longer what they were|cannot be made again: people\.parquet: has changed"):
        private.gradient(np.zeros(4), clip=1.0, noise_multiplier=30.0)


class Forged(Here):
    """One worker answers with what another message was sealed as."""

    def _answer(self, worker, *said):
        answer = super()._answer(worker, *said)
        if len(self.requests) == self.workers * 2 + 2:
            return self.forge(answer)
        return answer

    def forge(self, answer):
        return self.sent[0]


class Older(Forged):
    def forge(self, answer):
        return self.answers[-2]

    @property
    def answers(self):
        return [sent for sent in self.sent if self.opens(sent)]

    def opens(self, sent):
        for place in self.places:
            with suppress(Exception):
                return bool(place.sealed.open(sent, b"answered"))
        return False


class Torn(Forged):
    def forge(self, answer):
        return answer[:-1] + bytes([answer[-1] ^ 1])


class AnotherKey(Forged):
    def forge(self, answer):
        return Sealed(bytes(32)).seal(Reply(1, (), None), b"answered")


class Lines(WorkerLine):
    def __init__(self, cluster):
        super().__init__(cluster)
        cluster.places = [*self._places.values()]


@pytest.mark.parametrize("cluster", [Forged, Older, Torn, AnotherKey])
def test_an_answer_to_another_question_or_of_nobody_is_not_taken(cluster):
    X, y = made_up(60, 4)
    rows, labels, lead, _ = held(X, y, 2, cluster=cluster, line=Lines)
    with pytest.raises(RankLost, match="another question"):
        private = curator(rows, labels, Linear(4, Logistic()))
        private.gradient(np.zeros(4), clip=1.0, noise_multiplier=30.0)
    assert lead.broken


def test_what_goes_through_the_engine_cannot_be_read():
    X, y = made_up(60, 4)
    rows, labels, _, cluster = held(X, y, 2)
    trained("walk", rows, labels)
    everything = b"".join(cluster.sent)
    assert X[:7].astype(np.float64).tobytes() not in everything
    for word in (b"numpy", b"noisewise", b"gradients", b"row_sum"):
        assert word not in everything


def test_other_versions_are_not_worked_with(monkeypatch):
    monkeypatch.setattr("noisewise.remote.workers.Worker.meet", lambda self, key: "0.0")
    with pytest.raises(RankLost, match="another version"):
        held(*made_up(20, 4), 2)


def test_a_cluster_without_room_is_said_so():
    def never(self, ticket, seconds):
        return self._dead()

    class Full(Here):
        wait = never

    with pytest.raises(RankLost, match="has room"):
        held(*made_up(20, 4), 2, cluster=Full)


def test_the_charge_of_a_lost_run_is_in_the_purse():
    X, y = records("poisson")
    purse = Purse(BUDGET)
    rows, labels, _, _ = held(X, y, 2, fails=lambda number: "dies" if number > 30 else None)
    model, method, _ = RUNS["poisson"]
    with pytest.raises(RankLost):
        train(method, Records(rows, labels, None, 1.0), model=model, budget=BUDGET, purse=purse)
    (entry,) = purse.entries
    assert entry.state != "reserved" and entry.spent.cost > 0


def test_the_driver_holds_no_rows():
    X, y = made_up(60, 4)
    rows, _, lead, _ = held(X, y, 2)
    assert isinstance(lead, Lead) and not lead.holds
    assert len(lead._holder._holding.X) == 0 and len(rows) == 60
