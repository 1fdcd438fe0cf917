"""Clients over a network, some of them hostile: the sums of honest ones come whole, and nobody moves them by more than its own."""

from __future__ import annotations

import time

import numpy as np
import pytest
from crowds import CLIENT, RECORD, a_fit, alone, client_files, equal, on_clients, totals_of
from networks import over_network

from noisewise.accounts import Budget
from noisewise.accounts.purse import Purse
from noisewise.methods import registry
from noisewise.remote.clients.agreement import Agreed
from noisewise.remote.clients.client import Client
from noisewise.remote.clients.messages import WHOLE, pack_answer, read_question
from noisewise.remote.clients.server import DirectCarrier
from noisewise.remote.federation import Federated
from noisewise.remote.transport import RankLost

FEW = 3  # clients
LATE = 0.8  # seconds


class Hostile(Client):
    """Answers as it should until it is asked for sums; then what ``change`` makes of it."""

    def __init__(self, path, change):
        super().__init__(path)
        self._change = change

    def answer(self, history, question):
        body, request = super().answer(history, question), read_question(question)
        return self._change(request.number, body) if request.act == "total" else body


def entries(body):
    return np.frombuffer(body, WHOLE)[4:]


def later(number, body):
    time.sleep(2 * LATE)
    return body


NOTHING = {
    "nan": lambda number, body: body[:32] + np.full(len(entries(body)), np.nan).tobytes(),
    "huge": lambda number, body: pack_answer(number, [np.full(len(entries(body)), 2**62)]),
    "late": later,
    "another question": lambda number, body: pack_answer(number - 1, [entries(body)]),
    "much": lambda number, body: b"x" * (1 << 22),
}


@pytest.mark.parametrize("how", NOTHING)
def test_what_a_hostile_client_sends_over_the_network_is_nothing(how, tmp_path):
    paths, wait = client_files(tmp_path, FEW), LATE if how == "late" else None
    fit, others = a_fit(tmp_path), [paths[0], paths[2]]
    without = totals_of(fit, others, CLIENT, DirectCarrier(others))[0].values
    with over_network(paths, clients={1: Hostile(paths[1], NOTHING[how])}, wait=wait) as carrier:
        total, _, crowd = totals_of(fit, paths, CLIENT, carrier)
        crowd.stop()
    assert np.array_equal(total.values, without)


def test_a_network_gives_the_bits_of_one_place(tmp_path):
    paths = client_files(tmp_path, FEW)
    fit = a_fit(tmp_path, registry()["dpsgd"](steps=6), size_is_public=False)
    with over_network(paths) as carrier:
        assert equal(on_clients(fit, paths, RECORD, carrier=carrier), alone(fit, paths))


def test_unit_record_a_hostile_client_stops_the_run_and_the_charge_stays(tmp_path):
    paths, purse = client_files(tmp_path, FEW), Purse(Budget(4.0, 1e-5))
    fit = a_fit(tmp_path, registry()["descent"](steps=3), seed=None)
    hostile = {1: Hostile(paths[1], NOTHING["huge"])}
    with over_network(paths, clients=hostile) as carrier, pytest.raises(RankLost, match="fails whole"):
        on_clients(fit, paths, RECORD, carrier=carrier, purse=purse)
    assert [entry.counted.cost > 0 for entry in purse.entries] == [True]


def test_unit_client_the_run_goes_on_without_who_is_late(tmp_path):
    paths, waits = client_files(tmp_path, FEW), Federated("client", wait=LATE)
    fit = a_fit(tmp_path, registry()["descent"](steps=2))
    with over_network(paths, clients={1: Hostile(paths[1], later)}, wait=LATE) as carrier:
        run = on_clients(fit, paths, waits, carrier=carrier)
    assert len(run.trace) == 2 and run.statement.data["federated"]["wait"] == LATE


def test_a_client_answers_only_by_the_schema_that_it_wants(tmp_path):
    from noisewise.tables.schema import read_schema

    paths = client_files(tmp_path, FEW)
    (tmp_path / "other.toml").write_text((tmp_path / "schema.toml").read_text().replace("high = 90", "high = 91"))
    names = ("schema.toml", "other.toml")
    same, other = (Client(paths[1], Agreed(read_schema(tmp_path / name), "record")) for name in names)
    fit = a_fit(tmp_path, registry()["descent"](steps=2))
    with over_network(paths, clients={1: same}) as carrier:
        assert on_clients(fit, paths, RECORD, carrier=carrier).trace
    refused = pytest.raises(ValueError, match="client 2: does not fit the schema")
    with over_network(paths, clients={1: other}) as carrier, refused:
        on_clients(fit, paths, RECORD, carrier=carrier)
    assert not same.refusal and "the server's schema is not that of --schema" in other.refusal
