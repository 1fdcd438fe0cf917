"""What a hostile server sends as bounds, histories and numbers: attacks on a client that worked once."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.remote.clients.agreement import Agreed
from noisewise.remote.clients.client import Client
from noisewise.remote.clients.messages import (
    DONE,
    FAILED,
    MAX_VERSIONS,
    REFUSED,
    pack_history,
    pack_question,
)
from noisewise.remote.federation import Declared, Federated
from noisewise.remote.forms import packed, unpacked
from noisewise.remote.holder import Request
from noisewise.tables.fit.labels import Target
from noisewise.tables.rows import Scaling
from noisewise.tables.schema import Schema
from noisewise.trusted.losses.squared import Squared
from noisewise.trusted.models import Linear
from noisewise.trusted.stores.grid import lay_out
from noisewise.trusted.stores.totals import Drawn

SCHEMA = Schema(a=(0, 10), y=(0, 100), target="y")
SCALING, TARGET = Scaling(np.zeros(1), np.full(1, 10.0), False), Target(0.0, 100.0)


def state_of(answer: bytes) -> int:
    return int(np.frombuffer(answer, "<i8")[1])


def client(tmp_path, rows=3, **agreed):
    path = tmp_path / "c.csv"
    path.write_text("a,y\n" + "2.5,30\n" * rows)
    return Client(path, Agreed(SCHEMA, agreed.pop("unit", "record"), 1.0, **agreed))


def make(scaling=SCALING, target=TARGET, schema=SCHEMA, unit="record"):
    told = (schema, scaling, target, False, None, Federated(unit), Declared(None, None))
    return Request(1, "make", ("client", *told))


def forged(kind, **fields):
    """A frozen value that its own checks never saw, as bytes from a server could have it."""
    value = object.__new__(kind)
    for name, each in fields.items():
        object.__setattr__(value, name, each)
    return value


@pytest.mark.parametrize(
    "value",
    [
        forged(
            Target, low=np.zeros(0), high=np.full(0, 100.0)
        ),  # no labels, so that no row was laid out: sums read behind them
        forged(Target, low=np.array([np.nan, 0.0, np.nan]), high=np.full(3, 100.0)),  # all labels but one are missing
        forged(Target, low=0.0, high=np.inf),
        forged(Target, low=1.0, high=1.0),
        forged(Scaling, low=np.zeros((3, 1)), high=np.ones((3, 1)), unit_rows=False),  # bounds for each record
        forged(Scaling, low=np.array([np.nan]), high=np.ones(1), unit_rows=False),
        forged(Scaling, low=np.zeros(2), high=np.ones(1), unit_rows=False),
    ],
    ids=["none", "one record's", "infinite", "empty", "a record's own", "no number", "of other lengths"],
)
def test_bounds_are_one_finite_pair_for_all_records(tmp_path, value):
    with pytest.raises(ValueError):
        unpacked(packed(value))
    own, request = client(tmp_path), make(**{"target" if isinstance(value, Target) else "scaling": value})
    assert state_of(own.answer(pack_history([request]), pack_question(request))) == FAILED


def test_bounds_of_more_columns_than_the_file_has_are_not_spread_over_them(tmp_path):
    wide = Scaling(np.zeros(1000), np.ones(1000), False)
    own, request = client(tmp_path), make(wide)
    assert state_of(own.answer(pack_history([request]), pack_question(request))) != DONE
    with pytest.raises(ValueError, match="other columns"):
        wide(np.zeros((3, 1)))


@pytest.mark.parametrize("labels", [np.zeros(2), np.zeros(4), np.zeros((3, 1)), np.zeros(0)])
def test_rows_are_laid_out_with_one_label_each(labels):
    with pytest.raises(ValueError, match="one label for each row"):
        lay_out(np.zeros((3, 2)), labels, columns=2, classes=None)
    with pytest.raises(ValueError, match="one label for each row"):
        lay_out(lambda start, length: np.zeros((max(length - 1, 0), 2)), np.zeros(3), columns=2, classes=None)


def test_a_history_holds_few_versions_at_a_time(tmp_path):
    own = client(tmp_path)
    holds = [Request(number, "hold", (number, Linear(2, Squared()))) for number in range(1, MAX_VERSIONS + 2)]
    question = pack_question(Request(99, "total", (1, "row_sum", Drawn(), (), {})))
    assert state_of(own.answer(pack_history([make(), *holds]), question)) == FAILED and not own._known
    assert state_of(own.answer(pack_history([make(), *holds[:1]]), question)) == DONE


def test_every_question_counts_and_every_history_that_fails(tmp_path):
    own = client(tmp_path, max_questions=3)
    history, counted = pack_history([make()]), pack_question(Request(2, "counted", (None,)))
    states = [state_of(own.answer(history, counted)) for _ in range(4)]  # making the rows counts, too
    assert states == [FAILED, FAILED, REFUSED, REFUSED] and own.refusal
    other = client(tmp_path, max_questions=2)
    for _ in range(2):
        assert state_of(other.answer(b"no history", counted)) == FAILED
    assert state_of(other.answer(history, pack_question(make()))) == REFUSED


def test_a_client_that_has_refused_answers_nothing_more(tmp_path):
    own = client(tmp_path)
    assert state_of(own.answer(pack_history([make(unit="client")]), pack_question(make(unit="client")))) == REFUSED
    assert state_of(own.answer(pack_history([make()]), pack_question(make()))) == REFUSED
    assert "--unit is record" in own.refusal
