"""A client may send anything: it moves a sum by at most what its records could, or it has not answered. Absent ones, too."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from crowds import CLIENT, INDEPENDENT, RECORD, Meddling, a_fit, client_files, equal, on_clients, totals_of
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.accounts import Budget
from noisewise.accounts.purse import Purse
from noisewise.methods import method_named
from noisewise.remote.clients.messages import DONE, FAILED, WHOLE, pack_answer, read_answer
from noisewise.remote.clients.server import DirectCarrier
from noisewise.remote.transport import RankLost
from noisewise.trusted.stores.protocol import SUMS, THETA, HeldRecords, everywhere, norm_within
from noisewise.trusted.stores.totals import IntegerTotal

HOSTILE = 2


def number_of(body):
    return int(np.frombuffer(body, WHOLE)[0])


def entries(body):
    return np.frombuffer(body, WHOLE)[4:]


def saying(values):
    """A hostile client that sends these numbers, made of those that it should send, in an answer that is well formed."""
    return lambda carrier, client, body: [(client, pack_answer(number_of(body), [values(entries(body))]))]


def raw(change):
    return lambda carrier, client, body: [(client, change(body))]


def nan_floats(body):
    return body[:32] + np.full(len(entries(body)), np.nan).tobytes()


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("an answer was unpickled",))


NOTHING = {  # what counts as no answer
    "huge": saying(lambda v: np.full(len(v), 2**62)),
    "least": saying(lambda v: np.full(len(v), -(2**63))),
    "a bit too long": saying(lambda v: np.eye(1, len(v), dtype=np.int64)[0] * 10**12),
    "nan": raw(nan_floats),
    "a shorter array": saying(lambda v: v[:-1]),
    "a longer array": saying(lambda v: np.append(v, 0)),
    "two arrays": lambda carrier, client, body: [(client, pack_answer(number_of(body), [entries(body)] * 2))],
    "no array": lambda carrier, client, body: [(client, pack_answer(number_of(body)))],
    "singles": raw(lambda body: body[:32] + entries(body).astype(np.float32).tobytes()),
    "cut": raw(lambda body: body[:-1]),
    "nothing": raw(lambda body: b""),
    "a text": raw(lambda body: "x" * len(body)),
    "an array": raw(lambda body: np.frombuffer(body, np.uint8)),
    "a pickle": raw(lambda body: pickle.dumps(Evil())),
    "numpy's pickle": raw(lambda body: b"\x93NUMPY" + pickle.dumps(Evil())),
    "says it failed": raw(lambda body: pack_answer(number_of(body), state=FAILED)),
    "another question": raw(lambda body: pack_answer(number_of(body) + 1, [entries(body)])),
    "an earlier answer": lambda carrier, client, body: [(client, carrier.earlier.get(client, b""))],
    "is somebody new": lambda carrier, client, body: [(99, body)],
    "is gone": lambda carrier, client, body: [],
}
ONCE = {  # what counts as the one answer that it is
    "answers twice": lambda carrier, client, body: [(client, body), (client, body)],
    "answers again, otherwise": lambda carrier, client, body: [
        (client, body),
        (client, pack_answer(number_of(body), [entries(body) * 0])),
    ],
    "rubbish first": lambda carrier, client, body: [(client, b"rubbish"), (client, body)],
}


@pytest.fixture
def clients(tmp_path):
    return a_fit(tmp_path, "dpsgd") if client_files(tmp_path) else None, sorted((tmp_path / "clients").iterdir())


def total_with(clients, federated, change, **options):
    fit, paths = clients
    return totals_of(fit, paths, federated, Meddling(paths, change, HOSTILE, **options))[0].values


@pytest.mark.parametrize("how", NOTHING)
def test_unit_client_what_is_no_answer_contributes_nothing(how, clients):
    fit, paths = clients
    without = totals_of(fit, paths[:2] + paths[3:], CLIENT, DirectCarrier(paths[:2] + paths[3:]))[0].values
    assert np.array_equal(total_with(clients, CLIENT, NOTHING[how]), without)
    assert np.array_equal(
        total_with(clients, INDEPENDENT, NOTHING["is gone"]), total_with(clients, INDEPENDENT, NOTHING[how])
    )


@pytest.mark.parametrize("how", NOTHING)
def test_unit_record_the_question_fails_whole_and_the_charge_stays(how, clients):
    _, paths = clients
    purse = Purse(Budget(4.0, 1e-5))
    carrier = Meddling(paths, NOTHING[how], HOSTILE, after=3)
    with pytest.raises(RankLost, match="fails whole; this run stops, and what was reserved stays charged"):
        on_clients(a_fit(paths[0].parents[1], "descent", seed=None), paths, RECORD, carrier=carrier, purse=purse)
    assert [entry.counted.cost > 0 for entry in purse.entries] == [True] and carrier.asked == 4


@pytest.mark.parametrize("how", ONCE)
@pytest.mark.parametrize("federated", [RECORD, CLIENT], ids=lambda each: each.unit)
def test_an_answer_counts_once(how, federated, clients):
    fit, paths = clients
    honest = totals_of(fit, paths, federated, DirectCarrier(paths))[0].values
    assert np.array_equal(total_with(clients, federated, ONCE[how]), honest)


@settings(max_examples=25)
@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**28), 2**28)), min_size=6, max_size=6))
def test_whatever_is_sent_moves_a_sum_by_one_clipped_contribution(clients_of_module, values):
    fit, paths = clients_of_module
    for federated in (CLIENT, INDEPENDENT):
        gone = total_with(clients_of_module, federated, NOTHING["is gone"])
        sent = total_with(clients_of_module, federated, saying(lambda _: np.array(values)))
        zero = totals_of(fit, paths, federated, DirectCarrier(paths))[0]
        records = 1 if federated is CLIENT else len(paths[HOSTILE].read_text().splitlines()) - 1
        moved = sum(int(step) ** 2 for step in sent - gone)
        assert moved <= (records * zero.ones) ** 2


@pytest.fixture(scope="module")
def clients_of_module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crowd")
    return (client_files(folder), a_fit(folder, "dpsgd"))[::-1]


def test_a_client_may_send_its_whole_share_and_no_more(clients):
    fit, paths = clients
    ones = totals_of(fit, paths, CLIENT, DirectCarrier(paths))[0].ones
    gone = total_with(clients, CLIENT, NOTHING["is gone"])
    for length, counts in ((ones, True), (ones + 1, False)):
        sent = total_with(
            clients, CLIENT, saying(lambda v, length=length: np.eye(1, len(v), dtype=np.int64)[0] * length)
        )
        assert (sent - gone).tolist() == [length * counts, *[0] * (len(gone) - 1)]


@pytest.mark.parametrize("length", [-1, 2**40, 2**63 - 1])
def test_a_client_cannot_claim_more_rows_than_there_can_be(length, clients):
    with pytest.raises(ValueError, match=r"002\.csv: could not read its rows, or did not answer; nothing was spent"):
        total_with(clients, RECORD, saying(lambda _: np.array([length])), after=0)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8), st.integers(0, 2**62))
def test_the_norm_is_checked_in_whole_numbers(values, most):
    assert norm_within(np.array(values, np.int64), most) == (sum(value * value for value in values) <= most * most)


def test_every_sum_that_a_question_asks_for_has_a_limit():
    sums = {name for name, of in vars(HeldRecords).items() if "IntegerTotal" in str(getattr(of, "__annotations__", ""))}
    assert sums - {"meta_gradients"} < {*SUMS} and len(SUMS) == 14
    with pytest.raises(TypeError, match="limit"):
        everywhere(THETA)
    losses = IntegerTotal(np.zeros(2, np.int64), 8, 1.0)
    inside, outside = (np.array([16, 0]), np.array([17, 0])), np.array([-1, 0])
    assert [SUMS["losses"].fits([sent], losses, (), 2) for sent in (*inside, outside)] == [True, False, False]
    counts = np.array([[1, 1, 2, 0, 0, 0]])  # of one scale: 2 parts, then 4
    assert SUMS["levels"].fits([counts], counts, ((), 2), 2) and not SUMS["levels"].fits([counts], counts, ((), 2), 1)
    assert not SUMS["levels"].fits([counts * [1, 1, 2, 0, 0, 0]], counts, ((), 2), 2)
    cells = np.array([2, 2, 1, 0])
    assert SUMS["score_counts"].fits([cells], cells, (0, 0, 2), 5)
    assert not SUMS["score_counts"].fits([cells], cells, (0, 0, 2), 4)


@given(st.binary(max_size=200), st.integers(0, 5))
def test_any_bytes_are_read_as_an_answer_or_as_none(body, number):
    answer = read_answer(body, number, [(2, 2), (1,)])
    assert answer is None or pack_answer(number, answer) == body


def test_an_answer_is_read_as_it_was_packed():
    arrays = [np.array([[1, -(2**63)], [2**63 - 1, 0]]), np.array([True, False])]
    read = read_answer(pack_answer(7, arrays), 7, [(2, 2), (2,)])
    assert all(np.array_equal(one, other) for one, other in zip(read, arrays, strict=True)) and DONE == 0
    with pytest.raises(TypeError):
        pack_answer(7, [np.array([0.5])])


def test_absent_clients_contribute_nothing_and_nothing_is_rescaled(clients):
    """With unit client, a run whose client 2 never answers is the run of data where it has no rows at all, with its place kept."""
    fit, paths = clients
    run = on_clients(fit, paths, CLIENT, carrier=Meddling(paths, NOTHING["is gone"], HOSTILE))
    lines = paths[HOSTILE].read_text().splitlines()
    paths[HOSTILE].write_text(lines[0] + "\n")
    assert equal(run, on_clients(fit, paths, CLIENT))


def test_only_clients_whose_rows_were_drawn_are_asked(clients):
    _, paths = clients
    asked = []
    fit = a_fit(paths[0].parents[1], method_named("dpsgd").with_settings(sampling=("poisson", 0.3), steps=10))

    class Watched(DirectCarrier):
        def ask(self, history, questions):
            asked.append(len(questions))
            return super().ask(history, questions)

    on_clients(fit, paths, CLIENT, carrier=Watched)
    assert asked[0] == len(paths) and min(asked) < len(paths)
